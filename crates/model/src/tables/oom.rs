//! `oom`: kills by the kernel's OOM killer.

use crate::table::table;
use crate::{BootNs, Bytes, Tgid, Upid, WallNs};

table! {
    /// One kill by the kernel's OOM killer, of any process on the machine.
    pub struct OomRow in "oom" {
        /// Wall-clock time (UTC).
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME when the victim was chosen.
        boot_ns: BootNs,
        /// The process that was killed; null when it is not part of the recording.
        victim_upid: Option<Upid>,
        /// Process id of the victim.
        victim_tgid: Tgid,
        /// Name of the victim; null when unknown.
        victim_comm: Option<String>,
        /// The process whose allocation triggered the kill; null when it is not part of the recording. Often neither the victim nor the culprit.
        trigger_upid: Option<Upid>,
        /// Process id of the trigger; null when unknown.
        trigger_tgid: Option<Tgid>,
        /// Name of the trigger; null when unknown.
        trigger_comm: Option<String>,
        /// Anonymous RSS of the victim when it was chosen.
        victim_rss_anon_bytes: Option<Bytes>,
        /// File RSS of the victim when it was chosen.
        victim_rss_file_bytes: Option<Bytes>,
        /// Shared-memory RSS of the victim when it was chosen.
        victim_rss_shmem_bytes: Option<Bytes>,
        /// oom_score_adj of the victim.
        victim_oom_score_adj: Option<i32>,
        /// Which bound was hit, as the kernel log names it (CONSTRAINT_NONE, CONSTRAINT_MEMCG, ...); null when the log can't be read.
        constraint: Option<String>,
        /// The memory cgroup whose limit was hit; null for a kill of the whole machine, or when unknown.
        memcg: Option<String>,
        /// That cgroup's limit; null when unknown.
        memcg_limit_bytes: Option<Bytes>,
        /// That cgroup's usage when the kill happened; null when unknown.
        memcg_usage_bytes: Option<Bytes>,
        /// Anonymous memory of that cgroup at the kill (anon; v1: total_rss), as the kernel log tells; null when it does not.
        memcg_anon_bytes: Option<Bytes>,
        /// Its page cache at the kill, tmpfs included (file; v1: total_cache); null when the log does not tell.
        memcg_file_bytes: Option<Bytes>,
        /// Part of that which is tmpfs and shared memory; null when the log does not tell.
        memcg_shmem_bytes: Option<Bytes>,
        /// Its kernel memory at the kill (kernel; v1: kmem); null when the log does not tell.
        memcg_kernel_bytes: Option<Bytes>,
        /// Its slab at the kill; null on v1, and when the log does not tell.
        memcg_slab_bytes: Option<Bytes>,
        /// Part of the slab that could be reclaimed; null as for the slab.
        memcg_slab_reclaimable_bytes: Option<Bytes>,
        /// Its page tables at the kill; null on v1, and when the log does not tell.
        memcg_pagetables_bytes: Option<Bytes>,
        /// What it had swapped out at the kill; null when the log does not tell.
        memcg_swap_bytes: Option<Bytes>,
    }
}

impl OomRow {
    /// A row that says nothing yet but who was killed, and when.
    pub fn of_victim(ts: WallNs, boot_ns: BootNs, victim_tgid: Tgid) -> Self {
        Self {
            ts,
            boot_ns,
            victim_tgid,
            ..Self::default()
        }
    }
}
