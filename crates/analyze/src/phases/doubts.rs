//! Boundaries of phases at which the newest row was not the truth.
//!
//! The probe writes a row when memory has moved by 1 MiB or a 128th, but at most one for each
//! process and millisecond; what moves within that and then rests is seen at the next interval. So
//! where the row after a boundary comes within one interval, it is not known on which side of the
//! boundary memory moved: no more than that where a single step explains the row, else all of it. A
//! polling backend has no rows between two looks at all.

use memtrace_model::{BootNs, Bytes, DurationNs};
use memtrace_timeline::Amounts;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// What moves without a row.
const UNSEEN_BYTES: i64 = 1 << 20;
const UNSEEN_PART: i64 = 128;
/// A single step is no larger: four times as much, as a huge page comes in one of 2 MiB.
const STEP: i64 = 4;
/// A change that may be off by this part of it is uncertain.
const PART: i64 = 4;

/// Whether what is reported of a phase's start and end may be off: memory moved around that mark by
/// 1 MiB or more and more than a quarter of the change, and nothing says on which side (docs/marks.md).
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
    /// By how much the sum may be off, and a process.
    tree: HashMap<BootNs, i64>,
    own: HashMap<(usize, BootNs), i64>,
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
        let difference = after.saturating_sub(before).saturating_abs();
        let unseen = UNSEEN_BYTES.max(before / UNSEEN_PART);
        let off = match difference > unseen.saturating_mul(STEP) {
            true => difference,
            false => difference.min(unseen),
        };
        if off < UNSEEN_BYTES {
            return;
        }
        // At a row itself its figure is that of the instant.
        let begin = from.max(BootNs((to + DurationNs(-self.interval.0)).0 - 1));
        let first = self.instants.partition_point(|instant| *instant <= begin);
        let instants = self.instants[first..].iter();
        for &instant in instants.take_while(|instant| **instant < to) {
            let own = self.own.entry((process, instant)).or_default();
            for sum in [self.tree.entry(instant).or_default(), own] {
                *sum = sum.saturating_add(off);
            }
        }
    }

    /// Whether a change of what a process held is uncertain for what is not known of an instant.
    pub(super) fn is_own(&self, process: usize, at: BootNs, change: Option<Bytes>) -> bool {
        self.own
            .get(&(process, at))
            .is_some_and(|off| is_much(*off, change))
    }

    /// Whether a change of what all held is.
    pub(super) fn is_tree(&self, at: BootNs, change: Option<Bytes>) -> bool {
        self.tree.get(&at).is_some_and(|off| is_much(*off, change))
    }
}

fn is_much(off: i64, change: Option<Bytes>) -> bool {
    let change = change.map_or(0, |change| change.0.saturating_abs());
    off.saturating_mul(PART) > change
}
