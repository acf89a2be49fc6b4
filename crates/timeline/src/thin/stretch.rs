//! What changes in a stretch of time, and what is kept of those that are over.

use memtrace_model::BootNs;

/// The changes of a stretch.
#[derive(Debug, Default)]
pub(super) struct Stretch {
    pub(super) instants: Vec<BootNs>,
    pub(super) changes: Vec<Change>,
}

/// A function is another from an instant of its stretch on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) instant: u32,
    pub(super) function: u32,
    pub(super) value: i64,
}

/// What is kept of finished stretches, one after the other.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Where the instants of each stretch end.
    pub(super) stretches: Vec<usize>,
    /// An instant, and where its values end.
    pub(super) instants: Vec<(BootNs, usize)>,
    pub(super) values: Vec<(u32, i64)>,
}

impl Stretch {
    /// The place of the instant of a change, or of the first.
    pub(super) fn instant_of(&self, change: u32) -> u32 {
        let change = self.changes.get(change as usize);
        change.map_or(0, |change| change.instant)
    }
}
