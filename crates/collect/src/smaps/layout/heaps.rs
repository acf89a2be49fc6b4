//! What allocators keep free in their heaps, and when it is looked for: that takes more than all of the
//! rest of a reading.

use super::super::budget::Stop;
use super::super::text::ReadError;
use super::claims::Claims;
use super::glibc::{Free, Walk, Walked};
use super::target::Target;
use memtrace_host::clock;
use memtrace_model::{BootNs, LayoutPart};
use std::collections::BTreeMap;

/// So much of the brk heap is read at once, and of the heaps of arenas.
const BRK_MAX: u64 = 64 << 20;
const ARENAS_MAX: u64 = 32 << 20;
/// So often a walk that broke is begun anew.
const TRIES_MAX: usize = 2;
/// A process that moves is searched no more often than this.
const SEARCH_NS: i64 = 8_000_000_000;

/// What was found, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) free: Free,
    pub(super) at: BootNs,
}

/// What is known of the heaps of a process, from one reading to the next.
#[derive(Debug, Default)]
pub(super) struct Heaps {
    /// What the last search found.
    found: BTreeMap<LayoutPart, Found>,
    /// Along the brk heap, where it was not walked to its end.
    brk: Option<Walk>,
    searched_at: Option<BootNs>,
}

impl Heaps {
    /// What is free. `is_quiet` is whether the process holds as much as at the reading before: then what
    /// is read now stays true, and what was freed since shows in nothing else.
    pub(super) fn search(
        &mut self,
        claims: &Claims,
        is_quiet: bool,
        target: &mut Target,
        stop: &Stop,
    ) -> Result<BTreeMap<LayoutPart, Found>, ReadError> {
        let now = clock::boot();
        let is_due = self.searched_at.is_none_or(|at| (now - at).0 >= SEARCH_NS);
        if is_due || is_quiet {
            self.searched_at = Some(now);
            if let Some(brk) = claims.brk {
                self.search_brk(brk, target);
                stop.check()?;
            }
            self.search_arenas(claims, target, stop)?;
        }
        let pools = Some(claims.pools).filter(|pools| pools.searched > 0);
        self.note(LayoutPart::PythonPools, pools);
        Ok(self.found.clone())
    }

    fn note(&mut self, part: LayoutPart, free: Option<Free>) {
        let at = clock::boot();
        let found = free.map(|free| (part, Found { free, at }));
        self.found.extend(found);
    }

    fn search_brk(&mut self, (start, end): (u64, u64), target: &mut Target) {
        let mut left = BRK_MAX;
        let walk = self.brk.take().filter(|walk| walk.is_of(start, end));
        let mut walk = walk.unwrap_or_else(|| Walk::new(start, end, true));
        walk.reach(end);
        let mut state = walk.go_on(target, &mut left);
        for _ in 0..TRIES_MAX {
            // It changes while it is read: from its begin once more.
            if state != Walked::Broken || left == 0 {
                break;
            }
            walk = Walk::new(start, end, true);
            state = walk.go_on(target, &mut left);
        }
        let known = self.found.get(&LayoutPart::BrkHeap);
        let is_more = known.is_none_or(|known| walk.found.searched > known.free.searched);
        // Until a walk is at its end, the one before it says more.
        if state == Walked::Whole || state == Walked::Partly && is_more {
            self.note(LayoutPart::BrkHeap, Some(walk.found));
        }
        if state == Walked::Partly {
            self.brk = Some(walk);
        }
    }

    fn search_arenas(
        &mut self,
        claims: &Claims,
        target: &mut Target,
        stop: &Stop,
    ) -> Result<(), ReadError> {
        let mut arenas: Option<Free> = None;
        let mut left = ARENAS_MAX;
        // Another start each time, so that all of them have their turn.
        let count = claims.heaps.len();
        let begin = clock::thread_cpu().0.unsigned_abs() as usize % count.max(1);
        let (before, from) = claims.heaps.split_at(begin.min(count));
        for heap in from.iter().chain(before) {
            if left == 0 {
                break;
            }
            for first in heap.firsts() {
                let mut walk = Walk::new(first, heap.end, false);
                if walk.go_on(target, &mut left) != Walked::Broken {
                    arenas.get_or_insert_default().add(&walk.found);
                    break;
                }
            }
            stop.check()?;
        }
        self.note(LayoutPart::GlibcArenas, arenas);
        Ok(())
    }
}
