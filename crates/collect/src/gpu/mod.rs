//! The memory of GPUs: NVIDIA's through its management library (NVML), the others' through
//! what the kernel's DRM drivers tell of each descriptor.
//!
//! NVML is asked by one thread with one handle for the life of the recording: its calls take
//! a lock of the whole driver, and one that takes long must hold up nobody here. The thread
//! observes and stamps; the collector, on the session's thread, knows the processes.

mod collector;
mod device;
mod drm;
mod hang;
mod holders;
mod library;
mod list;
mod memory;
mod merge;
mod pace;
mod steps;
mod survey;
mod turn;
mod worker;

pub use collector::{GpuCollector, GpuOptions, Haste};
pub use drm::{DrmCollector, DrmOptions};
pub use library::{LIBRARY_VARIABLE, LibraryError};
pub use survey::survey;
