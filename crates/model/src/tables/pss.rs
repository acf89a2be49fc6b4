//! `pss`: what a process holds when shared pages are divided among their sharers.

use crate::labels;
use crate::table::table;
use crate::{BootNs, Bytes, DurationNs, Upid, WallNs};

table! {
    /// Memory of one process with every shared page divided by the number of its sharers: the sum over all processes is the truth. Costly to learn, so read under a budget, most urgent first; a row holds until the next one of the same upid, and its age tells how far to trust it.
    #[derive(Copy)]
    pub struct PssRow in "pss" {
        /// Wall-clock time (UTC) at the end of the reading.
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME at the end of the reading.
        boot_ns: BootNs,
        /// The process whose memory it is.
        upid: Upid,
        /// Proportional set size: the sum of the three kinds where all are known.
        pss_bytes: Option<Bytes>,
        /// Anonymous part of it. Copy-on-write pages that several processes hold after a fork are divided.
        pss_anon_bytes: Option<Bytes>,
        /// Part of it in mapped files.
        pss_file_bytes: Option<Bytes>,
        /// Part of it in shared memory: tmpfs, memfd, SysV, shared anonymous.
        pss_shmem_bytes: Option<Bytes>,
        /// Unique set size: pages that no other process maps; they would come free if this one ended.
        uss_bytes: Option<Bytes>,
        /// Anonymous part of it: private pages of heap, stacks and anonymous mappings, but not those of files that were written to privately. Null in recordings of older versions.
        uss_anon_bytes: Option<Bytes>,
        /// Resident anonymous pages as the reading itself met them, every sharer counting whole: what the PSS is a part of.
        rss_anon_bytes: Option<Bytes>,
        /// Resident pages of mapped files as the reading met them.
        rss_file_bytes: Option<Bytes>,
        /// Resident shared memory as the reading met it.
        rss_shmem_bytes: Option<Bytes>,
        /// Pages swapped out when this was read, shared ones divided where the kernel tells.
        swap_bytes: Option<Bytes>,
        /// Memory in transparent huge pages; null where it was not read.
        huge_bytes: Option<Bytes>,
        /// Memory in hugetlb pages, which no RSS counts.
        hugetlb_bytes: Option<Bytes>,
        /// Page tables of the process (VmPTE), which no RSS counts. Null in recordings of older versions.
        page_tables_bytes: Option<Bytes>,
        /// Pages of the process that a device or io_uring has pinned (VmPin): they are resident as long, whether the process still maps them or not. Null in recordings of older versions.
        pinned_bytes: Option<Bytes>,
        /// Whether no other process can share its anonymous pages: it executed its program under observation, and no living process was forked from that image, by all forks up to this row. The anonymous PSS is then the anonymous RSS, also after this row, until it forks.
        is_anon_unshared: bool,
        /// How it was learned.
        source: Option<PssSource>,
        /// Share of its resident pages that was looked at, 0 to 1; below 1 the rest was scaled from those.
        sampled_share: Option<f64>,
        /// CPU time the reading took.
        cost_ns: DurationNs,
        /// Time from its first to its last byte; a long reading is spread over time to stay within the budget.
        span_ns: DurationNs,
        /// How far the kernel's counters of the process moved in that time, all kinds of RSS together: what moved can be missing here, or be counted twice. Null in recordings of older versions.
        rss_moved_bytes: Option<Bytes>,
    }
}

labels! {
    /// How a PSS was learned.
    pub enum PssSource {
        /// The kernel's own sums, from /proc/PID/smaps. Exact.
        Smaps = "smaps",
        /// Page by page from /proc/PID/pagemap and /proc/kpagecount, in short pieces that do not hold up the process. An estimate where `sampled_share` is below 1.
        Pagemap = "pagemap",
    }
}
