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
use crate::model::{DurationNs, NodeMemRow};

/// Time between two rows.
const PERIOD: DurationNs = DurationNs(1_000_000_000);

/// A row in which nothing is known yet.
fn unknown(tick: &Tick) -> NodeMemRow {
    NodeMemRow {
        ts: tick.wall(),
        boot_ns: tick.boot,
        mem_total_bytes: None,
        mem_free_bytes: None,
        mem_available_bytes: None,
        buffers_bytes: None,
        cached_bytes: None,
        anon_bytes: None,
        mapped_bytes: None,
        shmem_bytes: None,
        slab_reclaimable_bytes: None,
        slab_unreclaimable_bytes: None,
        kernel_stack_bytes: None,
        page_tables_bytes: None,
        percpu_bytes: None,
        hugetlb_bytes: None,
        swap_total_bytes: None,
        swap_free_bytes: None,
        psi_some_ns: None,
        psi_full_ns: None,
    }
}
