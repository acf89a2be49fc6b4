//! When samples are taken: at regular times and at marks.

use memtrace_model::{BootNs, DurationNs, SelfReport};
use std::sync::Arc;

/// The label of a sample that no mark asked for.
pub(super) const REGULAR: &str = "interval";

/// A mark that a sample is taken for.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) boot_ns: BootNs,
    pub(super) label: Arc<str>,
    /// What the main process said that it held then, where it is the main process's.
    pub(super) main: Option<SelfReport>,
}

/// The instants that are still to come.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// In the order of time.
    marks: Arc<[Mark]>,
    past_marks: usize,
    next_regular: BootNs,
    interval: DurationNs,
}

impl Schedule {
    pub(super) fn new(marks: Vec<Mark>, start: BootNs, interval: DurationNs) -> Self {
        Self {
            marks: marks.into(),
            past_marks: 0,
            next_regular: start,
            interval,
        }
    }

    pub(super) fn mark(&self, place: usize) -> &Mark {
        &self.marks[place]
    }

    /// Hands on every instant before another, until `each` wants no more.
    pub(super) fn each_before(
        &mut self,
        until: BootNs,
        mut each: impl FnMut(BootNs, &str) -> bool,
    ) {
        while let Some((at, mark)) = self.next_before(until) {
            let mark = mark.map(|place| &self.marks[place]);
            if !each(at, mark.map_or(REGULAR, |mark| &mark.label)) {
                return;
            }
        }
    }

    /// The next instant before another, with the position of its mark; a mark goes before a regular
    /// instant of the same time.
    pub(super) fn next_before(&mut self, until: BootNs) -> Option<(BootNs, Option<usize>)> {
        let place = self.past_marks;
        let at = self.marks.get(place).map(|mark| mark.boot_ns);
        if let Some(at) = at.filter(|at| *at < until && *at <= self.next_regular) {
            self.past_marks += 1;
            return Some((at, Some(place)));
        }
        let at = self.next_regular;
        (at < until).then(|| {
            self.next_regular = at + self.interval;
            (at, None)
        })
    }
}
