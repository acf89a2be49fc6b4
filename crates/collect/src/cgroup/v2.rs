//! The files of a v2 memory cgroup (Documentation/admin-guide/cgroup-v2.rst).

use super::reading::{Reading, Source};
use crate::fields::{bytes, number, pairs, pressure};

/// Every file that is read. The root of the hierarchy has only memory.stat and
/// memory.pressure.
pub(super) const SOURCES: [Source; 7] = [
    // "max" stands for no limit, which is no number.
    ("memory.max", |text, reading| reading.limit = bytes(text)),
    ("memory.current", |text, reading| {
        reading.current = bytes(text);
    }),
    ("memory.peak", |text, reading| reading.peak = bytes(text)),
    ("memory.stat", stat),
    ("memory.events", events),
    ("memory.swap.current", |text, reading| {
        reading.swap = bytes(text);
    }),
    ("memory.pressure", |text, reading| {
        (reading.psi_some, reading.psi_full) = pressure(text);
    }),
];

pub(super) fn stat(text: &[u8], reading: &mut Reading) {
    for (key, value) in pairs(text) {
        let cell = match key {
            b"anon" => &mut reading.anon,
            b"file" => &mut reading.file,
            b"kernel" => &mut reading.kernel,
            b"kernel_stack" => &mut reading.kernel_stack,
            b"pagetables" => &mut reading.pagetables,
            b"percpu" => &mut reading.percpu,
            b"sock" => &mut reading.sock,
            b"shmem" => &mut reading.shmem,
            b"file_mapped" => &mut reading.file_mapped,
            b"inactive_file" => &mut reading.inactive_file,
            b"slab_reclaimable" => &mut reading.slab_reclaimable,
            b"slab" => &mut reading.slab,
            b"sec_pagetables" => &mut reading.sec_pagetables,
            b"vmalloc" => &mut reading.vmalloc,
            b"zswap" => &mut reading.zswap,
            b"zswapped" => &mut reading.zswapped,
            b"swapcached" => &mut reading.swapcached,
            b"unevictable" => &mut reading.unevictable,
            b"file_dirty" => &mut reading.file_dirty,
            b"file_writeback" => &mut reading.file_writeback,
            b"anon_thp" => &mut reading.anon_thp,
            b"hugetlb" => &mut reading.hugetlb,
            _ => continue,
        };
        *cell = bytes(value);
    }
}

fn events(text: &[u8], reading: &mut Reading) {
    for (key, value) in pairs(text) {
        match key {
            b"max" => reading.max_event_count = number(value),
            b"oom_kill" => reading.oom_kill_count = number(value),
            _ => {}
        }
    }
}
