//! `mem`: the memory of each process over time.

use crate::labels;
use crate::table::table;
use crate::{BootNs, Bytes, Upid, WallNs};

table! {
    /// Memory of one process. A row holds from its time until the next row of the same upid (a step function); a process that does not change costs no rows, but for a keyframe every 30 s. In a recording that was downsampled (`run.json`) a row can stand at a later instant than what caused it.
    #[derive(Copy)]
    pub struct MemRow in "mem" {
        /// Wall-clock time (UTC), in whole milliseconds: with digits below, it would take a third of the table.
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME; the order of a recording.
        boot_ns: BootNs,
        /// The process whose memory it is.
        upid: Upid,
        /// Resident memory in all: the sum of the three kinds where they are known.
        rss_bytes: Option<Bytes>,
        /// Resident anonymous pages. Copy-on-write pages count in every sharer.
        rss_anon_bytes: Option<Bytes>,
        /// Resident pages of mapped files.
        rss_file_bytes: Option<Bytes>,
        /// Resident shared memory: tmpfs, memfd, SysV, shared anonymous. Counts in every process that touched it.
        rss_shmem_bytes: Option<Bytes>,
        /// Pages swapped out.
        swap_bytes: Option<Bytes>,
        /// Size of the address space (VmSize).
        vm_size_bytes: Option<Bytes>,
        /// The brk heap: mm->brk - mm->start_brk.
        heap_bytes: Option<Bytes>,
        /// Physical footprint as macOS accounts it (what Activity Monitor shows); null elsewhere.
        footprint_bytes: Option<Bytes>,
        /// What caused the row.
        source: Option<MemSource>,
    }
}

labels! {
    /// What caused a row of `mem`.
    pub enum MemSource {
        /// The first sight of the process.
        First = "first",
        /// The rss_stat probe: RSS moved by more than the threshold.
        RssStat = "rss_stat",
        /// A local maximum that the rss_stat probe kept, at the time it was reached.
        Peak = "peak",
        /// A periodic snapshot found a change.
        Snapshot = "snapshot",
        /// A full row every 30 s, changed or not.
        Keyframe = "keyframe",
        /// A new program image after exec.
        Exec = "exec",
        /// The end of the process; all amounts are zero from here on.
        Exit = "exit",
        /// A poll of /proc.
        Procfs = "procfs",
        /// A poll through the platform's process list.
        Sysinfo = "sysinfo",
        /// The process measured itself, at a mark: RSS, what of it is anonymous, and its address space. Kinds that it did not tell are null; they are as in the row before, as far as they still add up. It counts only after another row of the process, and up to the peak that the kernel knows.
        SelfReported = "self",
    }
}
