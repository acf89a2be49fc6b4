//! `vm_summary`: the calls on address spaces that have no row of their own.

use super::VmOp;
use crate::table::table;
use crate::{BootNs, Bytes, Upid, WallNs};

table! {
    /// The calls of one process and kind that have no row in `vm_event`, added up in the kernel and read once a second and at the end of the process. A process that made none has no row.
    pub struct VmSummaryRow in "vm_summary" {
        /// Wall-clock time (UTC).
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME when the sums were taken.
        boot_ns: BootNs,
        /// The process that called.
        upid: Upid,
        /// Which call it was; null when this version does not know it.
        op: Option<VmOp>,
        /// When the sums of this process were taken before, or, in its first row, when it was first seen: the row is about the time from there to `boot_ns`.
        since_boot_ns: BootNs,
        /// Calls, failed ones included.
        call_count: i64,
        /// Of those, calls that failed.
        failed_count: i64,
        /// Of those, calls that were large enough for a row in `vm_event` and have none: they came faster than memtrace writes rows (200 a second of one process, after a burst of 2,000), or the event ring was half full.
        large_count: i64,
        /// Bytes by which these calls made the address space grow.
        added_bytes: Bytes,
        /// Bytes by which they made it shrink; for madvise bytes that were given back (MADV_DONTNEED, MADV_FREE, MADV_REMOVE, MADV_PAGEOUT), resident or not.
        removed_bytes: Bytes,
    }
}
