//! How far the memory of the recorded processes has moved, so that what it is held against is
//! read again when it has, and not a second later.

use memtrace_model::{BootNs, Bytes, DurationNs, MemSource, Record, Upid};
use std::collections::HashMap;

/// A reading is out of date when the sum has moved by one part in so many,
const PART: i64 = 32;
/// or by this, where that is more.
const LEAST: Bytes = Bytes(16 << 20);
/// Readings ahead of their turn take no more than one part in so many of the recorder's budget.
const BUDGET_PART: f64 = 4.0;

/// The sum of RSS of all recorded processes, as the rows tell it.
#[derive(Debug, Default)]
pub(super) struct Movement {
    held: HashMap<Upid, Bytes>,
    sum: Bytes,
    /// So many rows of the batch that is being filled are in the sum.
    noted: usize,
}

impl Movement {
    /// Takes in what was added to the batch since the last call.
    pub(super) fn note(&mut self, batch: &[Record]) {
        for record in batch.iter().skip(self.noted) {
            if let Record::Mem(row) = record
                && row.source != Some(MemSource::SelfReported)
            {
                let now = row.rss_bytes.unwrap_or_default();
                let before = match now {
                    Bytes(0) => self.held.remove(&row.upid),
                    _ => self.held.insert(row.upid, now),
                };
                self.sum = self.sum + now - before.unwrap_or_default();
            }
        }
        self.noted = batch.len();
    }

    /// The batch was handed over; the next one begins.
    pub(super) fn begin_batch(&mut self) {
        self.noted = 0;
    }
}

/// What the sum was when a collector was last asked, and when it may be asked ahead of its turn.
#[derive(Debug, Default)]
pub(super) struct LastAsked {
    sum: Bytes,
    not_before: BootNs,
}

impl LastAsked {
    /// Whether so much has moved since that what was read then is out of date.
    pub(super) fn is_out_of_date(&self, movement: &Movement) -> bool {
        let moved = (movement.sum - self.sum).0.abs();
        moved >= LEAST.0.max(movement.sum.0 / PART)
    }

    /// Whether what it took last leaves room in the budget.
    pub(super) fn may_be_asked(&self, now: BootNs) -> bool {
        now >= self.not_before
    }

    /// It was asked, and that took so long of a budget, which is a share of one CPU.
    pub(super) fn note(&mut self, movement: &Movement, now: BootNs, cost: DurationNs, budget: f64) {
        self.sum = movement.sum;
        let pause = (cost.0 as f64 * BUDGET_PART / budget) as i64;
        self.not_before = BootNs(now.0.saturating_add(pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::record::tick;
    use memtrace_collect::exit_row;

    const GIB: i64 = 1 << 30;

    fn holds(upid: i64, bytes: i64) -> Record {
        let mut row = exit_row(Upid(upid), BootNs(0), &tick(false));
        row.rss_bytes = Some(Bytes(bytes));
        Record::Mem(row)
    }

    #[test]
    fn what_was_read_is_out_of_date_when_the_sum_has_moved() {
        let (mut movement, mut last) = (Movement::default(), LastAsked::default());
        let mut batch = vec![holds(1, GIB), holds(2, GIB)];
        movement.note(&batch);
        assert!(last.is_out_of_date(&movement));
        last.note(&movement, BootNs(0), DurationNs(0), 0.02);
        assert!(!last.is_out_of_date(&movement));

        // A thirty-second of 2 GiB is 64 MiB.
        batch.push(holds(2, GIB + (63 << 20)));
        movement.note(&batch);
        assert!(!last.is_out_of_date(&movement));
        movement.begin_batch();
        movement.note(&[holds(2, GIB + (70 << 20))]);
        assert!(last.is_out_of_date(&movement));
    }

    #[test]
    fn a_process_that_ends_takes_what_it_held_out_of_the_sum() {
        let (mut movement, mut last) = (Movement::default(), LastAsked::default());
        movement.note(&[holds(1, GIB), holds(2, GIB)]);
        last.note(&movement, BootNs(0), DurationNs(0), 0.02);
        movement.begin_batch();
        movement.note(&[holds(1, 0)]);
        assert_eq!(movement.sum, Bytes(GIB));
        assert_eq!(movement.held.len(), 1);
        assert!(last.is_out_of_date(&movement));
    }

    #[test]
    fn a_reading_that_takes_long_is_not_made_at_every_turn() {
        let (mut movement, mut last) = (Movement::default(), LastAsked::default());
        last.note(&movement, BootNs(0), DurationNs(1_000_000), 0.02);
        movement.note(&[holds(1, GIB)]);
        assert!(!last.may_be_asked(BootNs(199_000_000)));
        assert!(last.may_be_asked(BootNs(200_000_000)));
        last.note(&Movement::default(), BootNs(0), DurationNs(1_000_000), 1.0);
        assert!(last.may_be_asked(BootNs(4_000_000)), "a large budget");
    }
}
