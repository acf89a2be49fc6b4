//! How the files of a group enter a row of `cgroup_mem`, and what is left of one whose group was removed.

use memtrace_model::{Bytes, CgroupMemRow};

/// One file of a version and how its text enters a row, which names no group and no time yet.
pub(super) type Source = (&'static str, fn(&[u8], &mut CgroupMemRow));

/// What is left of a group that was removed: its mark, its limit and its counts.
pub(super) fn emptied(last: &CgroupMemRow) -> CgroupMemRow {
    let none = |bytes: Option<Bytes>| bytes.map(|_| Bytes(0));
    CgroupMemRow {
        current_bytes: none(last.current_bytes),
        anon_bytes: none(last.anon_bytes),
        file_bytes: none(last.file_bytes),
        shmem_bytes: none(last.shmem_bytes),
        kernel_bytes: none(last.kernel_bytes),
        peak_bytes: last.peak_bytes,
        limit_bytes: last.limit_bytes,
        max_event_count: last.max_event_count,
        oom_kill_count: last.oom_kill_count,
        ..CgroupMemRow::default()
    }
}
