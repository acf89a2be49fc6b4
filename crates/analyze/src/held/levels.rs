//! An amount that hardly moves, as it was read.

use memtrace_model::BootNs;

/// Each level that differs from the one before it, and since when.
#[derive(Debug, Default)]
pub(super) struct Levels(Vec<(BootNs, i64)>);

impl Levels {
    /// Takes a later reading.
    pub(super) fn push(&mut self, at: BootNs, level: i64) {
        if self.0.last().is_none_or(|(_, last)| *last != level) {
            self.0.push((at, level));
        }
    }

    /// The level at an instant; before the first reading, that one.
    pub(super) fn at(&self, at: BootNs) -> Option<i64> {
        let past = self.0.partition_point(|(time, _)| *time <= at);
        self.0.get(past.max(1) - 1).map(|(_, level)| *level)
    }

    /// Those after an instant, the latest first.
    pub(super) fn into_later(mut self, since: Option<BootNs>) -> Vec<(BootNs, i64)> {
        self.0
            .retain(|(at, _)| since.is_none_or(|since| *at > since));
        self.0.reverse();
        self.0
    }
}
