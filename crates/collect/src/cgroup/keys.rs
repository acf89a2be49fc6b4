//! Which keys of memory.stat tell of memory that no column has.

use super::{v1, v2};
use memtrace_host::CgroupVersion;
use memtrace_model::CgroupMemRow;

/// Those that tell of memory once more: the lists that reclaim goes through, the part of slab that is
/// left, and huge pages among files.
const PARTS: &[&str] = &[
    "inactive_anon",
    "active_anon",
    "active_file",
    "slab_unreclaimable",
    "file_thp",
    "shmem_thp",
];

/// Counts of events, and sums and limits of groups above and below, begin like this.
const NO_AMOUNTS: &[&str] = &[
    "workingset_",
    "pg",
    "thp_",
    "zswp",
    "swpin",
    "swpout",
    "numa_",
    "hugetlb_",
    "hierarchical_",
    "total_",
];

/// The amounts of memory in a memory.stat that no column of `cgroup_mem` has: what a newer kernel brings.
pub fn unread_keys(version: CgroupVersion, memory_stat: &str) -> Vec<&str> {
    let read = match version {
        CgroupVersion::V1 => v1::stat,
        CgroupVersion::V2 => v2::stat,
    };
    let is_read = |key: &str| {
        let mut row = CgroupMemRow::default();
        read(format!("{key} 4096\n").as_bytes(), &mut row);
        row != CgroupMemRow::default()
    };
    let is_amount =
        |key: &str| !PARTS.contains(&key) && !NO_AMOUNTS.iter().any(|begin| key.starts_with(begin));
    let keys = memory_stat
        .lines()
        .filter_map(|line| line.split(' ').next());
    keys.filter(|key| is_amount(key) && !is_read(key)).collect()
}
