//! The stand-in for the CUDA driver, where programs find it.

use crate::program;
use anyhow::Result;
pub use memtrace_fake_cuda::held::{DeviceHeld, Held};
pub use memtrace_fake_cuda::{CONTEXT_BYTES, NAMES, uuid_text};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const FILE: &str = "libcuda.so.580.159.04";

/// A directory with the library, as a driver is installed: the file has the driver's version in
/// its name, and the name that programs load is a link to it.
#[derive(Debug)]
pub struct FakeCuda(TempDir);

impl FakeCuda {
    /// Installs it.
    ///
    /// # Errors
    /// When it was not built, or can't be copied.
    pub fn new() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        std::fs::copy(program::fake_cuda()?, dir.path().join(FILE))?;
        std::os::unix::fs::symlink(FILE, dir.path().join("libcuda.so.1"))?;
        Ok(Self(dir))
    }

    /// Where programs load it.
    pub fn path(&self) -> PathBuf {
        self.0.path().join("libcuda.so.1")
    }

    /// The file behind that name.
    pub fn file(&self) -> PathBuf {
        self.0.path().join(FILE)
    }

    /// The directory that it is in.
    pub fn directory(&self) -> &Path {
        self.0.path()
    }

    /// The environment in which programs find it by its name.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![("LD_LIBRARY_PATH", self.directory().into())]
    }
}
