//! Boundaries of phases at which the newest row was not the truth.
//!
//! The probe writes a row when memory has moved by 1 MiB or a 128th, but at most one for each
//! process and millisecond; what moves within that and then rests is seen at the next interval. So
//! where the row after a boundary comes within one interval, and says something that no single
//! step explains, it is not known on which side of the boundary the memory moved. A polling
//! backend has no rows between two looks at all.

use memtrace_model::{BootNs, Bytes, DurationNs};
use memtrace_timeline::Amounts;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Four times what is noted on the spot: a huge page comes in one step of 2 MiB.
const LEAST_BYTES: i64 = 4 << 20;
const LEAST_PART: i64 = 32;

/// Whether what is reported of a phase's start and end may be off: memory moved around that mark by
/// more than 4 MiB and a 32nd, and nothing says on which side (docs/marks.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Uncertain {
    /// At its start.
    pub begin: bool,
    /// At its end.
    pub end: bool,
}

impl Uncertain {
    /// Whether the change from begin to end may be off.
    pub fn is_any(self) -> bool {
        self.begin || self.end
    }
}

/// What the pass over memory finds doubtful.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    instants: Arc<[BootNs]>,
    interval: DurationNs,
    /// By how much the sum may be off.
    tree: HashMap<BootNs, i64>,
    own: HashSet<(usize, BootNs)>,
}

impl Doubts {
    pub(super) fn new(instants: Arc<[BootNs]>, interval: DurationNs) -> Self {
        Self {
            instants,
            interval,
            ..Self::default()
        }
    }

    /// A process held `before` from one row on, and `after` by the next.
    pub(crate) fn note(
        &mut self,
        process: usize,
        (from, before): (BootNs, &Amounts),
        (to, after): (BootNs, &Amounts),
    ) {
        if self.instants.is_empty() {
            return;
        }
        let (Some(Bytes(before)), Some(Bytes(after))) = (before.rss(), after.rss()) else {
            return;
        };
        let difference = (after - before).saturating_abs();
        if difference <= LEAST_BYTES.max(before / LEAST_PART) {
            return;
        }
        // At a row itself its figure is that of the instant.
        let begin = from.max(BootNs((to + DurationNs(-self.interval.0)).0 - 1));
        let first = self.instants.partition_point(|instant| *instant <= begin);
        let instants = self.instants[first..].iter();
        for &instant in instants.take_while(|instant| **instant < to) {
            *self.tree.entry(instant).or_default() += difference;
            self.own.insert((process, instant));
        }
    }

    /// Whether what a process held at an instant is uncertain.
    pub(super) fn is_own(&self, process: usize, at: BootNs) -> bool {
        self.own.contains(&(process, at))
    }

    /// Whether what all held at an instant is uncertain, where they held so much.
    pub(super) fn is_tree(&self, at: BootNs, held: &Amounts) -> bool {
        let held = held.rss().map_or(0, |rss| rss.0);
        let off = self.tree.get(&at).copied().unwrap_or(0);
        off > LEAST_BYTES.max(held / LEAST_PART)
    }
}
