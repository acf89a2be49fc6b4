//! Kills by the kernel's OOM killer, as the kernel log tells them.
//!
//! `kmsg` reads the log, `report` understands it, `collector` writes rows for backends
//! that have no event of their own.

mod collector;
mod kmsg;
mod report;

pub use collector::{OomCollector, complete, logged};
pub use kmsg::{KmsgError, KmsgReader};
