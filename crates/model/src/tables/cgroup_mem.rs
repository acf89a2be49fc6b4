//! `cgroup_mem`: memory of the cgroups that hold recorded processes.

use crate::table::table;
use crate::{BootNs, Bytes, DurationNs, WallNs};

table! {
    /// Memory of one cgroup that holds a recorded process, or of a group above it that has a limit. Read every second, and again when the processes have moved far; one that differs from the last row by less than 256 KiB, and by less than a part in 1,024, has no row, but for one every 30 s and the last before a change. From memory.current and memory.stat (v2), memory.usage_in_bytes and memory.stat (v1).
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
        /// Anonymous memory that is mapped (anon; v1: rss, swap cache included).
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
        /// Page tables of virtual machines and of the IOMMU (6.2); null on v1.
        sec_pagetables_bytes: Option<Bytes>,
        /// Part of kernel that vmalloc gave (5.18); null on v1.
        vmalloc_bytes: Option<Bytes>,
        /// Part of kernel that holds compressed pages (5.19); null on v1.
        zswap_bytes: Option<Bytes>,
        /// What those pages were before they were compressed (5.19): no memory in use. Null on v1.
        zswapped_bytes: Option<Bytes>,
        /// Part of file: pages that are in swap and in memory (5.12).
        swapcached_bytes: Option<Bytes>,
        /// Part of anon and file that cannot be reclaimed, as of mlock.
        unevictable_bytes: Option<Bytes>,
        /// Part of file that is to be written to disk.
        file_dirty_bytes: Option<Bytes>,
        /// Part of file that is being written to disk.
        file_writeback_bytes: Option<Bytes>,
        /// Part of anon in transparent huge pages (anon_thp, 5.9; v1: rss_huge).
        anon_thp_bytes: Option<Bytes>,
        /// Huge pages of hugetlbfs, where the hierarchy is mounted to count them (6.13); in no other column but current. Null on v1.
        hugetlb_bytes: Option<Bytes>,
        /// Swap in use by the group; null without the swap controller.
        swap_bytes: Option<Bytes>,
        /// Times the limit was hit (memory.events max; v1: failcnt). Counts up.
        max_event_count: Option<i64>,
        /// OOM kills in the group (memory.events oom_kill; v1: memory.oom_control). Counts up.
        oom_kill_count: Option<i64>,
        /// Processes in the group and the groups below it that are not part of the recording, memtrace itself aside; counted every 10 s, and every second where they are few. Null before the first count, where they can't be listed, and where they are too many to be looked at.
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

impl CgroupMemRow {
    /// What is in use without the file pages that the kernel would reclaim first, as Kubernetes counts a
    /// working set.
    pub fn working_set_bytes(&self) -> Option<Bytes> {
        let used = self.current_bytes?;
        Some(used - self.inactive_file_bytes?.min(used))
    }

    /// What the kernel can take back without swapping: page cache, and reclaimable slab where v2 tells it;
    /// `None` where page cache is not known.
    pub fn reclaimable_bytes(&self) -> Option<Bytes> {
        let cache = self.file_bytes? - self.shmem_bytes.unwrap_or_default();
        Some(cache.max(Bytes(0)) + self.slab_reclaimable_bytes.unwrap_or_default())
    }

    /// Memory of the kernel for the group, its socket buffers included. v1 does not charge those.
    pub fn kernel_memory_bytes(&self) -> Option<Bytes> {
        let parts = [
            self.slab_bytes,
            self.pagetables_bytes,
            self.kernel_stack_bytes,
            self.percpu_bytes,
        ];
        let kernel = self
            .kernel_bytes
            .or_else(|| parts.into_iter().sum::<Option<Bytes>>())?;
        Some(kernel + self.sock_bytes.unwrap_or_default())
    }

    /// Whether kernel memory is a part of what is in use. In the root of v1 it is not: usage_in_bytes is page
    /// cache and anonymous memory there (mem_cgroup_usage), and kmem.usage_in_bytes that of the groups below.
    pub fn counts_kernel(&self) -> bool {
        let rest = self.kernel_bytes.zip(self.unnamed_bytes());
        // In a cgroup namespace another group can be "/", whose counts lag each other by a little.
        let is_left_out =
            rest.is_some_and(|(kernel, rest)| kernel.0 > 8 << 20 && rest.0 < -(kernel.0 / 2));
        !(self.version == 1 && self.cgroup == "/" && is_left_out)
    }

    /// What is in use and of no kind: pages that are pinned and mapped nowhere, and by how much the counts
    /// lag each other. Below zero where they lag more.
    pub fn unnamed_bytes(&self) -> Option<Bytes> {
        let known = self.anon_bytes? + self.file_bytes? + self.kernel_memory_bytes()?;
        Some(self.current_bytes? - known - self.hugetlb_bytes.unwrap_or_default())
    }
}
