//! GPUs of AMD and Intel: what the kernel's DRM drivers tell of each client in the fdinfo of
//! its descriptors (Documentation/gpu/drm-usage-stats.rst), and of a device in sysfs.
//!
//! Only descriptors of character devices with DRM's major number are opened. A client that
//! several processes share is reported for each of them under its number, to be counted once.

mod cards;
mod clients;
mod collector;
mod fdinfo;

pub use collector::{DrmCollector, DrmOptions};
