//! When samples are taken: at regular times and at marks.

use crate::model::{BootNs, DurationNs};
use std::sync::Arc;

/// The label of a sample that no mark asked for.
pub(super) const REGULAR: &str = "interval";

/// The instants that are still to come.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// In the order of time.
    marks: Arc<[(BootNs, Arc<str>)]>,
    past_marks: usize,
    next_regular: BootNs,
    interval: DurationNs,
}

impl Schedule {
    pub(super) fn new(marks: Vec<(BootNs, Arc<str>)>, start: BootNs, interval: DurationNs) -> Self {
        Self {
            marks: marks.into(),
            past_marks: 0,
            next_regular: start,
            interval,
        }
    }

    /// Hands on every instant before another, until `each` wants no more.
    pub(super) fn each_before(
        &mut self,
        until: BootNs,
        mut each: impl FnMut(BootNs, &str) -> bool,
    ) {
        while let Some((at, mark)) = self.next_before(until) {
            if !each(at, mark.as_deref().unwrap_or(REGULAR)) {
                return;
            }
        }
    }

    /// The next instant before another, with its mark; a mark goes before a regular instant of
    /// the same time.
    pub(super) fn next_before(&mut self, until: BootNs) -> Option<(BootNs, Option<Arc<str>>)> {
        let mark = self.marks.get(self.past_marks);
        let mark = mark.filter(|(at, _)| *at < until && *at <= self.next_regular);
        if let Some((at, label)) = mark {
            self.past_marks += 1;
            return Some((*at, Some(Arc::clone(label))));
        }
        let at = self.next_regular;
        (at < until).then(|| {
            self.next_regular = at + self.interval;
            (at, None)
        })
    }
}
