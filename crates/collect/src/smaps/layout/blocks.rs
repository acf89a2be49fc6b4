//! Whether memory at an address is in use: it lies in a block of glibc's malloc, which is free or not.
//!
//! Heaps are walked as in `heaps`, in pieces, and only those in which addresses are asked for.

use super::glibc::{ArenaHeap, HEAP_MAX, KNOWN, Walk, Walked};
use super::target::Target;
use std::collections::BTreeMap;
use std::fs::File;

/// What was found of an address: whether its block is free.
pub(crate) type IsFree = (u64, bool);

/// The heaps of one process, and how far they are walked.
#[derive(Default)]
pub(crate) struct Blocks {
    /// The heap that is next, by its start, and the walk along it, where it was left.
    next: u64,
    walk: Option<Walk>,
}

/// Where a heap begins and ends.
type Heap = (u64, u64);

impl Blocks {
    /// Looks at addresses, in ascending order, of a process with this memory, and with this brk heap. It
    /// takes what it reads from `left`, and goes on where it stopped the next time; `true` with the
    /// answers once all heaps were walked.
    pub(crate) fn search(
        &mut self,
        (memory, pagemap): (File, File),
        page_size: u64,
        brk: Option<Heap>,
        addresses: &[u64],
        left: &mut u64,
    ) -> (Vec<IsFree>, bool) {
        let mut target = Target::new(memory, pagemap, page_size);
        let mut found = Vec::new();
        let mut heaps: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for address in addresses {
            let start = match brk {
                Some((start, end)) if (start..end).contains(address) => start,
                _ => address / HEAP_MAX * HEAP_MAX,
            };
            heaps.entry(start).or_default().push(*address);
        }
        for (start, addresses) in heaps.range(self.next..) {
            if *left == 0 {
                self.next = *start;
                return (found, false);
            }
            let brk = brk.filter(|(first, _)| first == start);
            found.extend(self.of_heap(*start, brk, addresses, &mut target, left));
            if self.walk.is_some() {
                self.next = *start;
                return (found, false);
            }
        }
        *self = Self::default();
        (found, true)
    }

    /// The same in one heap. A walk that is not at its end stays.
    fn of_heap(
        &mut self,
        start: u64,
        brk: Option<Heap>,
        addresses: &[u64],
        target: &mut Target,
        left: &mut u64,
    ) -> Vec<IsFree> {
        let (firsts, end) = match brk {
            Some((first, end)) => (vec![first], end),
            None => match ArenaHeap::at(start, start + HEAP_MAX, target) {
                Some(heap) => (heap.firsts(), heap.end),
                None => return Vec::new(),
            },
        };
        let known = self.walk.take();
        for first in firsts {
            let same = known.as_ref().filter(|walk| walk.is_of(first, end));
            let mut walk = same
                .cloned()
                .unwrap_or_else(|| Walk::new(first, end, brk.is_some()));
            walk.reach(end);
            walk.ask(addresses);
            let state = walk.go_on(target, left);
            let answers = walk.answers();
            if state == Walked::Partly {
                self.walk = Some(walk);
                return answers;
            }
            if state == Walked::Whole || walk.found.searched >= KNOWN {
                return answers;
            }
        }
        Vec::new()
    }
}
