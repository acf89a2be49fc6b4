//! Loading NVML: nothing of NVIDIA's is needed to build memtrace, or to run it without a GPU.

use crate::collect::Tick;
use crate::host::LOADS_LIBRARIES;
use crate::model::{DiagKind, Record, Severity};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::ffi::OsString;

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
        /// The library.
        library: String,
        /// What it answered.
        reason: String,
    },
    /// It is there, and its driver is not heard of.
    #[error("the driver did not answer {0}")]
    NoAnswer(String),
    /// It knows of no device.
    #[error("{0} knows of no device")]
    NoDevice(String),
    /// A device was named that is not here.
    #[error("{library} knows {known}; `memtrace doctor` tells of each")]
    NoSuchDevice {
        /// The library.
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
            Self::IsStatic(_) | Self::NotStarted { .. } | Self::NoAnswer(_)
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

/// Loads the library and starts it. No GPU is touched by that.
pub(super) fn open() -> Result<Nvml, LibraryError> {
    let name = name();
    if !LOADS_LIBRARIES {
        let name = name.to_string_lossy();
        return Err(LibraryError::IsStatic(name.into_owned()));
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
