//! What the files of a group say, and how each of them enters it.

use memtrace_model::{Bytes, DurationNs};

/// What a group's files say, in the terms of the table `cgroup_mem`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) current: Option<Bytes>,
    pub(super) peak: Option<Bytes>,
    pub(super) limit: Option<Bytes>,
    pub(super) anon: Option<Bytes>,
    pub(super) file: Option<Bytes>,
    pub(super) shmem: Option<Bytes>,
    pub(super) file_mapped: Option<Bytes>,
    pub(super) inactive_file: Option<Bytes>,
    pub(super) kernel: Option<Bytes>,
    pub(super) slab: Option<Bytes>,
    pub(super) slab_reclaimable: Option<Bytes>,
    pub(super) pagetables: Option<Bytes>,
    pub(super) kernel_stack: Option<Bytes>,
    pub(super) percpu: Option<Bytes>,
    pub(super) sock: Option<Bytes>,
    pub(super) sec_pagetables: Option<Bytes>,
    pub(super) vmalloc: Option<Bytes>,
    pub(super) zswap: Option<Bytes>,
    pub(super) zswapped: Option<Bytes>,
    pub(super) swapcached: Option<Bytes>,
    pub(super) unevictable: Option<Bytes>,
    pub(super) file_dirty: Option<Bytes>,
    pub(super) file_writeback: Option<Bytes>,
    pub(super) anon_thp: Option<Bytes>,
    pub(super) hugetlb: Option<Bytes>,
    pub(super) swap: Option<Bytes>,
    pub(super) max_event_count: Option<i64>,
    pub(super) oom_kill_count: Option<i64>,
    pub(super) psi_some: Option<DurationNs>,
    pub(super) psi_full: Option<DurationNs>,
}

impl Reading {
    /// What is left of a group that was removed: its mark, its limit and its counts.
    pub(super) fn emptied(&self) -> Self {
        let none = |bytes: Option<Bytes>| bytes.map(|_| Bytes(0));
        Self {
            current: none(self.current),
            anon: none(self.anon),
            file: none(self.file),
            shmem: none(self.shmem),
            kernel: none(self.kernel),
            peak: self.peak,
            limit: self.limit,
            max_event_count: self.max_event_count,
            oom_kill_count: self.oom_kill_count,
            ..Self::default()
        }
    }
}

/// One file of a version and how its text enters a reading.
pub(super) type Source = (&'static str, fn(&[u8], &mut Reading));
