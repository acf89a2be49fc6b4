//! The end of a process.

use super::{Counts, EventHeader};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The last thread of a member ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Exit {
    /// About the process.
    pub header: EventHeader,
    /// Wait status as wait(2) encodes it.
    pub wait_status: i32,
    /// 1 when the address space could be read here and is the process's own; `counts` and
    /// `hiwater_pages` are zero otherwise. Before 6.16 the kernel drops it earlier.
    pub has_own_mm: u32,
    /// Memory at the end, per-CPU parts added in.
    pub counts: Counts,
    /// mm->hiwater_rss: the kernel's own high-water mark of the last address space, as far
    /// as it was kept up; the peak is the larger of this and `counts`.
    pub hiwater_pages: i64,
    /// Highest RSS that the rss_stat program saw in the process's own address spaces that
    /// are gone by now, of a copy that fork made only what it grew by since; zero when there
    /// is none.
    pub earlier_peak_pages: i64,
    /// When that was; 0 when there is none.
    pub earlier_peak_boot_ns: u64,
    /// Highest RSS that the rss_stat program saw in the last address space.
    pub seen_peak_pages: i64,
    /// When that was; 0 when the program never ran for it.
    pub seen_peak_boot_ns: u64,
    /// signal->maxrss: highest RSS of every address space the process used, in pages.
    pub maxrss_pages: i64,
    /// signal->cmaxrss: the same of the children it waited for.
    pub children_maxrss_pages: i64,
    /// A local maximum that was not sent yet when the process ended: anonymous, file and
    /// shared pages; zero when there is none.
    pub pending_peak: [i64; 3],
    /// When that was.
    pub pending_peak_boot_ns: u64,
}
