//! The three lists of a device put together: one entry for each process.

use super::list::{Entry, List};
use super::memory::bytes;
use memtrace_model::Bytes;
use memtrace_model::tables::GpuUse;
use std::collections::BTreeMap;

/// A process on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) pid: u32,
    pub(super) used: Option<Bytes>,
    pub(super) kind: GpuUse,
    pub(super) gpu_instance: Option<u32>,
    pub(super) compute_instance: Option<u32>,
}

/// One entry for each process and instance. The lists tell of the same memory: the highest
/// of them counts, once.
pub(super) fn merge(lists: &[Option<Vec<Entry>>; 3], is_initial_pid_ns: bool) -> Vec<Listed> {
    let mut merged: BTreeMap<(u32, Option<u32>, Option<u32>), Listed> = BTreeMap::new();
    for list in List::ALL {
        for entry in lists[list as usize].iter().flatten() {
            // Inside a pid namespace newer drivers find the process and not its memory
            // (NVIDIA/open-gpu-kernel-modules#614): zero is no answer then.
            let used = entry.used.filter(|used| *used > 0 || is_initial_pid_ns);
            let found = Listed {
                pid: entry.pid,
                used: used.map(bytes),
                kind: match list {
                    List::Compute => GpuUse::Compute,
                    List::Graphics => GpuUse::Graphics,
                    List::Mps => GpuUse::Mps,
                },
                gpu_instance: entry.gpu_instance,
                compute_instance: entry.compute_instance,
            };
            let key = (entry.pid, entry.gpu_instance, entry.compute_instance);
            merged
                .entry(key)
                .and_modify(|known| {
                    known.used = known.used.max(found.used);
                    known.kind = both(known.kind, found.kind);
                })
                .or_insert(found);
        }
    }
    merged.into_values().collect()
}

fn both(known: GpuUse, found: GpuUse) -> GpuUse {
    match (known, found) {
        (GpuUse::Mps, _) | (_, GpuUse::Mps) => GpuUse::Mps,
        (known, found) if known == found => known,
        _ => GpuUse::ComputeGraphics,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: u32, used: Option<u64>) -> Entry {
        Entry {
            pid,
            used,
            gpu_instance: None,
            compute_instance: None,
        }
    }

    fn merged(lists: [Vec<Entry>; 3], is_initial: bool) -> Vec<(u32, Option<i64>, GpuUse)> {
        merge(&lists.map(Some), is_initial)
            .into_iter()
            .map(|listed| (listed.pid, listed.used.map(|bytes| bytes.0), listed.kind))
            .collect()
    }

    #[test]
    fn a_process_in_several_lists_counts_once() {
        let lists = [
            vec![entry(1, Some(10)), entry(2, Some(20)), entry(3, None)],
            vec![entry(2, Some(20)), entry(4, Some(5))],
            vec![entry(3, Some(7))],
        ];
        assert_eq!(
            merged(lists, true),
            [
                (1, Some(10), GpuUse::Compute),
                (2, Some(20), GpuUse::ComputeGraphics),
                (3, Some(7), GpuUse::Mps),
                (4, Some(5), GpuUse::Graphics),
            ]
        );
    }

    #[test]
    fn zero_bytes_inside_a_pid_namespace_are_unknown() {
        let lists = || [vec![entry(1, Some(0))], vec![], vec![]];
        assert_eq!(merged(lists(), false)[0].1, None);
        assert_eq!(merged(lists(), true)[0].1, Some(0));
    }
}
