//! What the files of a group say, and how each of them enters it.

use crate::model::{Bytes, DurationNs};

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
    pub(super) swap: Option<Bytes>,
    pub(super) max_event_count: Option<i64>,
    pub(super) oom_kill_count: Option<i64>,
    pub(super) psi_some: Option<DurationNs>,
    pub(super) psi_full: Option<DurationNs>,
}

/// One file of a version and how its text enters a reading.
pub(super) type Source = (&'static str, fn(&[u8], &mut Reading));
