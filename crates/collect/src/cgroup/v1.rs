//! The files of a v1 memory cgroup (Documentation/admin-guide/cgroup-v1/memory.rst).

use super::reading::Source;
use crate::fields::{bytes, number, pairs};
use memtrace_model::{Bytes, CgroupMemRow};

/// Every file that is read. The pressure of v1 is a notification, not a number.
pub(super) const SOURCES: [Source; 7] = [
    ("memory.limit_in_bytes", |text, row| {
        row.limit_bytes = limit(text);
    }),
    ("memory.usage_in_bytes", |text, row| {
        row.current_bytes = bytes(text);
    }),
    ("memory.max_usage_in_bytes", |text, row| {
        row.peak_bytes = bytes(text);
    }),
    ("memory.stat", stat),
    ("memory.failcnt", |text, row| {
        row.max_event_count = number(text);
    }),
    ("memory.oom_control", oom_control),
    ("memory.kmem.usage_in_bytes", |text, row| {
        row.kernel_bytes = bytes(text);
    }),
];

/// No limit is the largest number of whole pages (PAGE_COUNTER_MAX), which differs with
/// the page size.
fn limit(text: &[u8]) -> Option<Bytes> {
    const LARGEST_PAGE: i64 = 1 << 20;
    bytes(text).filter(|limit| limit.0 < i64::MAX - LARGEST_PAGE)
}

/// The `total_` lines count the groups below too, as usage_in_bytes does; they come after
/// the plain ones. Swap is there only with swap accounting.
pub(super) fn stat(text: &[u8], row: &mut CgroupMemRow) {
    for (key, value) in pairs(text) {
        let cell = match key.strip_prefix(b"total_").unwrap_or(key) {
            b"rss" => &mut row.anon_bytes,
            b"cache" => &mut row.file_bytes,
            b"shmem" => &mut row.shmem_bytes,
            b"mapped_file" => &mut row.file_mapped_bytes,
            b"inactive_file" => &mut row.inactive_file_bytes,
            b"swap" => &mut row.swap_bytes,
            b"unevictable" => &mut row.unevictable_bytes,
            b"dirty" => &mut row.file_dirty_bytes,
            b"writeback" => &mut row.file_writeback_bytes,
            b"rss_huge" => &mut row.anon_thp_bytes,
            b"swapcached" => &mut row.swapcached_bytes,
            _ => continue,
        };
        *cell = bytes(value);
    }
}

fn oom_control(text: &[u8], row: &mut CgroupMemRow) {
    // Since 4.13; before, the file tells only whether the killer is switched off.
    let kills = pairs(text).find(|(key, _)| *key == b"oom_kill");
    row.oom_kill_count = kills.and_then(|(_, value)| number(value));
}
