//! `cgroup_mem`: memory of the cgroups that hold recorded processes.

use crate::model::table::table;
use crate::model::{BootNs, Bytes, DurationNs, WallNs};

table! {
    /// Memory of one cgroup that holds a recorded process, or of a group above it that has a limit. Read every second, and again when the processes have moved far; a reading that equals the one before has no row, but for one every 10 s and the last before a change. From memory.current and memory.stat (v2), memory.usage_in_bytes and memory.stat (v1).
    pub struct CgroupMemRow in "cgroup_mem" {
        /// Wall-clock time (UTC).
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME.
        boot_ns: BootNs,
        /// Path of the group below its hierarchy's mount point.
        cgroup: String,
        /// Version of the hierarchy: 1 or 2.
        version: i32,
        /// Memory charged to the group and the groups below it (memory.current; v1: usage_in_bytes).
        current_bytes: Option<Bytes>,
        /// Highest value of current since the group was made or the mark was reset (memory.peak, 5.19; v1: max_usage_in_bytes).
        peak_bytes: Option<Bytes>,
        /// Hard limit (memory.max; v1: limit_in_bytes); null when there is none.
        limit_bytes: Option<Bytes>,
        /// Anonymous memory, swap cache included (anon; v1: rss).
        anon_bytes: Option<Bytes>,
        /// Page cache, tmpfs included (file; v1: cache).
        file_bytes: Option<Bytes>,
        /// Part of file that is tmpfs and shared memory.
        shmem_bytes: Option<Bytes>,
        /// Part of file that is mapped (file_mapped; v1: mapped_file).
        file_mapped_bytes: Option<Bytes>,
        /// File pages the kernel would reclaim first.
        inactive_file_bytes: Option<Bytes>,
        /// Kernel memory in all (kernel, 5.18; v1: kmem.usage_in_bytes).
        kernel_bytes: Option<Bytes>,
        /// Slab; null on v1.
        slab_bytes: Option<Bytes>,
        /// Part of slab that can be reclaimed; null on v1.
        slab_reclaimable_bytes: Option<Bytes>,
        /// Page tables; null on v1.
        pagetables_bytes: Option<Bytes>,
        /// Kernel stacks; null on v1.
        kernel_stack_bytes: Option<Bytes>,
        /// Per-CPU memory; null on v1.
        percpu_bytes: Option<Bytes>,
        /// Socket buffers; null on v1.
        sock_bytes: Option<Bytes>,
        /// Swap in use by the group; null without the swap controller.
        swap_bytes: Option<Bytes>,
        /// Times the limit was hit (memory.events max; v1: failcnt). Counts up.
        max_event_count: Option<i64>,
        /// OOM kills in the group (memory.events oom_kill; v1: memory.oom_control). Counts up.
        oom_kill_count: Option<i64>,
        /// Processes in the group and the groups below it that are not part of the recording, memtrace itself aside; counted every 10 s. Null before the first count, where they can't be listed, and where they are too many to be looked at.
        other_process_count: Option<i64>,
        /// Resident anonymous memory of those (RssAnon), copy-on-write pages counting in every sharer; null as the count is, and where one could not be read.
        other_anon_bytes: Option<Bytes>,
        /// Time in which some task waited for memory (memory.pressure). Counts up; null on v1 or without PSI.
        psi_some_ns: Option<DurationNs>,
        /// Time in which all tasks waited for memory. Counts up; null on v1 or without PSI.
        psi_full_ns: Option<DurationNs>,
        /// Time from the first to the last byte of the reading, whose middle `boot_ns` is. Null in recordings of older versions.
        span_ns: Option<DurationNs>,
    }
}
