//! Loading NVML: nothing of NVIDIA's is needed to build memtrace, or to run it without a GPU.

use crate::Tick;
use memtrace_host::LOADS_LIBRARIES;
use memtrace_model::{DiagKind, Record, Severity};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Names another library than the one that the dynamic loader finds.
pub const LIBRARY_VARIABLE: &str = "MEMTRACE_NVML_LIBRARY";

/// What the driver installs.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// NVML can't be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// This program can load no library at all.
    #[error("this build is static and can't load {0}; the one for glibc can")]
    IsStatic(String),
    /// The dynamic loader does not find it, or can't load it.
    #[error("{0}")]
    NotLoaded(String),
    /// It is there and refuses to start.
    #[error("{library} does not start: {reason}")]
    NotStarted {
        /// The name of the library.
        library: String,
        /// What it answered.
        reason: String,
    },
    /// It is there, and its driver is not heard of.
    #[error("the driver did not answer {0}")]
    NoAnswer(String),
    /// It is somebody else's than root's, and this program is root.
    #[error(
        "{library} is not loaded: {reason}; a memtrace that runs as root loads no library that others can change"
    )]
    NotTrusted {
        /// The name of the library.
        library: String,
        /// Whose it is.
        reason: String,
    },
    /// It knows of no device.
    #[error("{0} knows of no device")]
    NoDevice(String),
    /// A device was named that is not here.
    #[error("{library} knows {known}; `memtrace doctor` shows each")]
    NoSuchDevice {
        /// The name of the library.
        library: String,
        /// Which, as they were named.
        missing: Vec<String>,
        /// Those that are here, by index and UUID.
        known: String,
    },
    /// The thread that asks it could not be started.
    #[error("no thread can be started: {0}")]
    NoThread(String),
}

impl LibraryError {
    /// Whether it is news also where nothing else tells of a GPU: a library was found whose driver does
    /// not work, or none can be looked for.
    pub fn is_always_news(&self) -> bool {
        matches!(
            self,
            Self::IsStatic(_)
                | Self::NotStarted { .. }
                | Self::NotTrusted { .. }
                | Self::NoAnswer(_)
        )
    }

    /// Tells that the memory of GPUs is not known, and why.
    pub fn diag(&self, tick: &Tick) -> Record {
        let (severity, kind) = (Severity::Degraded, DiagKind::Unavailable);
        let detail = format!("memory of NVIDIA GPUs is unknown: {self}");
        tick.diag(severity, kind, "nvml", None, detail)
    }
}

/// The library to load.
pub(super) fn name() -> OsString {
    named_by_variable().unwrap_or_else(|| LIBRARY.into())
}

/// A program with capabilities of its own must not load what its caller names: the loader
/// ignores LD_LIBRARY_PATH then (AT_SECURE), and so is this.
fn named_by_variable() -> Option<OsString> {
    // SAFETY: reads a value that the kernel gave this process at exec.
    let is_secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let named = std::env::var_os(LIBRARY_VARIABLE)?;
    (!is_secure && !named.is_empty()).then_some(named)
}

/// The library that was named, as it is to be loaded: by its path without links, so that it is the one
/// that was looked at. What is named without a folder the loader finds in those of the system.
///
/// # Errors
/// When it is not there, or others than root could change what root loads.
fn trusted(library: &Path) -> Result<PathBuf, LibraryError> {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || library.components().count() == 1 {
        return Ok(library.to_path_buf());
    }
    let absent = |error: std::io::Error| {
        let shown = library.display();
        LibraryError::NotLoaded(format!("{shown}: cannot open shared object file: {error}"))
    };
    let path = library.canonicalize().map_err(absent)?;
    for each in path.ancestors() {
        let metadata = each.metadata().map_err(absent)?;
        let (mode, uid) = (metadata.mode(), metadata.uid());
        // In a folder with this bit nobody can put another file in the place of root's.
        let is_sticky = metadata.is_dir() && mode & 0o1000 != 0;
        let shown = each.display();
        let reason = match uid {
            0 if mode & 0o022 == 0 || is_sticky => continue,
            0 => format!("others can write to {shown}"),
            _ => format!("{shown} belongs to uid {uid}"),
        };
        let library = library.to_string_lossy().into_owned();
        return Err(LibraryError::NotTrusted { library, reason });
    }
    Ok(path)
}

/// Loads the library and starts it. No GPU is touched by that.
pub(super) fn open() -> Result<Nvml, LibraryError> {
    let mut name = name();
    if !LOADS_LIBRARIES {
        let name = name.to_string_lossy();
        return Err(LibraryError::IsStatic(name.into_owned()));
    }
    if let Some(named) = named_by_variable() {
        name = trusted(Path::new(&named))?.into();
    }
    let started = Nvml::builder().lib_path(&name).init();
    started.map_err(|error| match error {
        NvmlError::LibloadingError(error) => LibraryError::NotLoaded(error.to_string()),
        error => LibraryError::NotStarted {
            library: name.to_string_lossy().into_owned(),
            reason: error.to_string(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    mod needs_root {
        use super::*;
        use std::fs::{Permissions, set_permissions};
        use std::os::unix::fs::{PermissionsExt, chown};

        #[test]
        fn root_loads_no_library_that_others_can_change() {
            let dir = tempfile::tempdir().unwrap();
            let library = dir.path().join("libnvidia-ml.so.1");
            std::fs::write(&library, "").unwrap();
            let refused = || trusted(&library).unwrap_err().to_string();
            assert_eq!(trusted(&library), Ok(library.canonicalize().unwrap()));
            set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
            assert!(refused().contains("others can write"));
            set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
            chown(&library, Some(1_000), None).unwrap();
            assert!(refused().contains("uid 1000"));
            let by_name = Path::new("libnvidia-ml.so.1");
            assert_eq!(trusted(by_name), Ok(by_name.to_path_buf()));
        }
    }
}
