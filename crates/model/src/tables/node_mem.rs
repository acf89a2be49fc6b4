//! `node_mem`: memory of the whole machine.

use crate::table::table;
use crate::{BootNs, Bytes, DurationNs, WallNs};

table! {
    /// Memory of the machine, from /proc/meminfo and /proc/pressure/memory; where there is no /proc, what the platform tells. Read every second; a reading that differs little from the last row has no row, as in `cgroup_mem`.
    pub struct NodeMemRow in "node_mem" {
        /// Wall-clock time (UTC).
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME.
        boot_ns: BootNs,
        /// MemTotal: all memory that the kernel manages.
        mem_total_bytes: Option<Bytes>,
        /// MemFree: memory that nothing uses.
        mem_free_bytes: Option<Bytes>,
        /// MemAvailable: the kernel's estimate of what can be had without swapping.
        mem_available_bytes: Option<Bytes>,
        /// Buffers: page cache of block devices.
        buffers_bytes: Option<Bytes>,
        /// Cached: page cache, tmpfs included.
        cached_bytes: Option<Bytes>,
        /// AnonPages: anonymous memory of processes.
        anon_bytes: Option<Bytes>,
        /// Mapped: file pages mapped by some process.
        mapped_bytes: Option<Bytes>,
        /// Shmem: tmpfs, shared anonymous memory.
        shmem_bytes: Option<Bytes>,
        /// SReclaimable: slab that the kernel can reclaim.
        slab_reclaimable_bytes: Option<Bytes>,
        /// SUnreclaim: slab that it can't reclaim.
        slab_unreclaimable_bytes: Option<Bytes>,
        /// KernelStack: the kernel's stacks of threads.
        kernel_stack_bytes: Option<Bytes>,
        /// PageTables: page tables of processes.
        page_tables_bytes: Option<Bytes>,
        /// Percpu: memory that the kernel keeps for each CPU.
        percpu_bytes: Option<Bytes>,
        /// HugePages_Total x Hugepagesize, all sizes (Hugetlb).
        hugetlb_bytes: Option<Bytes>,
        /// The same without free pages of the default size (HugePages_Free): in use, or free and of another size. Null in recordings of older versions.
        hugetlb_used_bytes: Option<Bytes>,
        /// Buffers of TCP sockets, in all network namespaces (mem of /proc/net/sockstat); their heads are slab too. Null in recordings of older versions.
        sockets_bytes: Option<Bytes>,
        /// SwapTotal: all swap there is.
        swap_total_bytes: Option<Bytes>,
        /// SwapFree: swap that is not used.
        swap_free_bytes: Option<Bytes>,
        /// Time in which some task waited for memory. Counts up; null without PSI.
        psi_some_ns: Option<DurationNs>,
        /// Time in which all tasks waited for memory. Counts up; null without PSI.
        psi_full_ns: Option<DurationNs>,
    }
}

impl NodeMemRow {
    /// Files in the page cache, those of a tmpfs left out.
    pub fn page_cache_bytes(&self) -> Option<Bytes> {
        let cached = self.cached_bytes? + self.buffers_bytes.unwrap_or(Bytes(0));
        Some(cached - self.shmem_bytes?)
    }
}
