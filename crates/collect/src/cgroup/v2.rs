//! The files of a v2 memory cgroup (Documentation/admin-guide/cgroup-v2.rst).

use super::reading::Source;
use crate::fields::{bytes, number, pairs, pressure};
use memtrace_model::CgroupMemRow;

/// Every file that is read. The root of the hierarchy has only memory.stat and
/// memory.pressure.
pub(super) const SOURCES: [Source; 7] = [
    // "max" stands for no limit, which is no number.
    ("memory.max", |text, row| row.limit_bytes = bytes(text)),
    ("memory.current", |text, row| {
        row.current_bytes = bytes(text);
    }),
    ("memory.peak", |text, row| row.peak_bytes = bytes(text)),
    ("memory.stat", stat),
    ("memory.events", events),
    ("memory.swap.current", |text, row| {
        row.swap_bytes = bytes(text);
    }),
    ("memory.pressure", |text, row| {
        (row.psi_some_ns, row.psi_full_ns) = pressure(text);
    }),
];

pub(super) fn stat(text: &[u8], row: &mut CgroupMemRow) {
    for (key, value) in pairs(text) {
        let cell = match key {
            b"anon" => &mut row.anon_bytes,
            b"file" => &mut row.file_bytes,
            b"kernel" => &mut row.kernel_bytes,
            b"kernel_stack" => &mut row.kernel_stack_bytes,
            b"pagetables" => &mut row.pagetables_bytes,
            b"percpu" => &mut row.percpu_bytes,
            b"sock" => &mut row.sock_bytes,
            b"shmem" => &mut row.shmem_bytes,
            b"file_mapped" => &mut row.file_mapped_bytes,
            b"inactive_file" => &mut row.inactive_file_bytes,
            b"slab_reclaimable" => &mut row.slab_reclaimable_bytes,
            b"slab" => &mut row.slab_bytes,
            b"sec_pagetables" => &mut row.sec_pagetables_bytes,
            b"vmalloc" => &mut row.vmalloc_bytes,
            b"zswap" => &mut row.zswap_bytes,
            b"zswapped" => &mut row.zswapped_bytes,
            b"swapcached" => &mut row.swapcached_bytes,
            b"unevictable" => &mut row.unevictable_bytes,
            b"file_dirty" => &mut row.file_dirty_bytes,
            b"file_writeback" => &mut row.file_writeback_bytes,
            b"anon_thp" => &mut row.anon_thp_bytes,
            b"hugetlb" => &mut row.hugetlb_bytes,
            _ => continue,
        };
        *cell = bytes(value);
    }
}

fn events(text: &[u8], row: &mut CgroupMemRow) {
    for (key, value) in pairs(text) {
        match key {
            b"max" => row.max_event_count = number(value),
            b"oom_kill" => row.oom_kill_count = number(value),
            _ => {}
        }
    }
}
