//! GPUs that a test makes up: the stand-in for NVIDIA's library and its script.

use crate::program;
use anyhow::{Context, Result, bail};
pub use memtrace_fake_nvml::script::{
    Accounted, DRIVER_MISMATCH, Device, GPU_IS_LOST, Memory, NOT_SUPPORTED, Process, Script,
    UNKNOWN,
};
use std::ffi::OsString;
use std::path::PathBuf;
use tempfile::TempDir;

/// A GiB in bytes.
pub const GIB: u64 = 1 << 30;
/// A MiB in bytes.
pub const MIB: u64 = 1 << 20;

/// A library with its script.
#[derive(Debug)]
pub struct FakeGpus {
    dir: TempDir,
    library: PathBuf,
}

impl FakeGpus {
    /// A library that answers so.
    ///
    /// # Errors
    /// When the library was not built, or the script can't be written.
    pub fn new(script: &Script) -> Result<Self> {
        let fake = Self {
            dir: tempfile::tempdir()?,
            library: program::fake_nvml()?,
        };
        fake.set(script)?;
        Ok(fake)
    }

    /// Answers differently from now on.
    ///
    /// # Errors
    /// When the script can't be written.
    pub fn set(&self, script: &Script) -> Result<()> {
        let next = self.dir.path().join("next");
        std::fs::write(&next, serde_json::to_vec(script)?)?;
        // Never seen half-written.
        std::fs::rename(next, self.script())?;
        Ok(())
    }

    fn script(&self) -> PathBuf {
        self.dir.path().join("script.json")
    }

    /// The environment in which memtrace finds it.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("MEMTRACE_NVML_LIBRARY", self.library.clone().into()),
            (memtrace_fake_nvml::SCRIPT_VARIABLE, self.script().into()),
        ]
    }

    /// The same library without some symbols: in a copy their names are others, which the
    /// hash table of the dynamic linker does not lead to.
    ///
    /// # Errors
    /// When the library has no such symbol, or can't be copied.
    pub fn without(mut self, symbols: &[&str]) -> Result<Self> {
        let mut bytes = std::fs::read(&self.library)?;
        for symbol in symbols {
            let name = [b"\0", symbol.as_bytes(), b"\0"].concat();
            let mut places = Vec::new();
            for (place, window) in bytes.windows(name.len()).enumerate() {
                if window == name {
                    places.push(place + 1);
                }
            }
            if places.is_empty() {
                bail!("the library has no symbol {symbol}");
            }
            places.iter().for_each(|place| bytes[*place] = b'X');
        }
        self.replace(&bytes)?;
        Ok(self)
    }

    /// The same library as if it were for a machine of another kind.
    ///
    /// # Errors
    /// When it can't be copied.
    pub fn of_another_machine(mut self) -> Result<Self> {
        let mut bytes = std::fs::read(&self.library)?;
        // e_machine; 0 is none.
        bytes
            .get_mut(18..20)
            .context("the library is no ELF file")?
            .fill(0);
        self.replace(&bytes)?;
        Ok(self)
    }

    /// A library that is not there.
    pub fn absent(mut self) -> Self {
        self.library = self.dir.path().join("libnvidia-ml.so.1");
        self
    }

    fn replace(&mut self, bytes: &[u8]) -> Result<()> {
        self.library = self.dir.path().join("libnvidia-ml.so.1");
        std::fs::write(&self.library, bytes)?;
        Ok(())
    }
}
