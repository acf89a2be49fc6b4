//! Memory of the whole machine.

#[cfg(target_os = "linux")]
mod meminfo;
#[cfg(not(target_os = "linux"))]
mod platform;

#[cfg(target_os = "linux")]
pub use meminfo::NodeCollector;
#[cfg(not(target_os = "linux"))]
pub use platform::NodeCollector;

use super::Tick;
use memtrace_model::{DurationNs, NodeMemRow};

/// Time between two readings.
const PERIOD: DurationNs = DurationNs(1_000_000_000);

/// A row in which nothing is known yet.
fn unknown(tick: &Tick) -> NodeMemRow {
    NodeMemRow {
        ts: tick.wall(),
        boot_ns: tick.boot,
        ..NodeMemRow::default()
    }
}
