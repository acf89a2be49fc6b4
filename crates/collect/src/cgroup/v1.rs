//! The files of a v1 memory cgroup (Documentation/admin-guide/cgroup-v1/memory.rst).

use super::reading::{Reading, Source};
use crate::fields::{bytes, number, pairs};
use memtrace_model::Bytes;

/// Every file that is read. The pressure of v1 is a notification, not a number.
pub(super) const SOURCES: [Source; 7] = [
    ("memory.limit_in_bytes", |text, reading| {
        reading.limit = limit(text);
    }),
    ("memory.usage_in_bytes", |text, reading| {
        reading.current = bytes(text);
    }),
    ("memory.max_usage_in_bytes", |text, reading| {
        reading.peak = bytes(text);
    }),
    ("memory.stat", stat),
    ("memory.failcnt", |text, reading| {
        reading.max_event_count = number(text);
    }),
    ("memory.oom_control", oom_control),
    ("memory.kmem.usage_in_bytes", |text, reading| {
        reading.kernel = bytes(text);
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
pub(super) fn stat(text: &[u8], reading: &mut Reading) {
    for (key, value) in pairs(text) {
        let cell = match key.strip_prefix(b"total_").unwrap_or(key) {
            b"rss" => &mut reading.anon,
            b"cache" => &mut reading.file,
            b"shmem" => &mut reading.shmem,
            b"mapped_file" => &mut reading.file_mapped,
            b"inactive_file" => &mut reading.inactive_file,
            b"swap" => &mut reading.swap,
            b"unevictable" => &mut reading.unevictable,
            b"dirty" => &mut reading.file_dirty,
            b"writeback" => &mut reading.file_writeback,
            b"rss_huge" => &mut reading.anon_thp,
            b"swapcached" => &mut reading.swapcached,
            _ => continue,
        };
        *cell = bytes(value);
    }
}

fn oom_control(text: &[u8], reading: &mut Reading) {
    // Since 4.13; before, the file tells only whether the killer is switched off.
    let kills = pairs(text).find(|(key, _)| *key == b"oom_kill");
    reading.oom_kill_count = kills.and_then(|(_, value)| number(value));
}
