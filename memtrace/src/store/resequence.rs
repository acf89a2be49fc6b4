//! Puts rows that arrive nearly in order of time into order, in bounded memory.
//!
//! Events wait in per-CPU buffers and a kept maximum is written later than it happened,
//! so a row may be up to about 2 s older than rows before it. Rows are held back until
//! they are [`WINDOW_NS`] older than the newest row seen, and leave sorted by time, then
//! by process, then by arrival. A row that comes later than the window allows is never
//! dropped: it leaves with the next rows, out of order.

use super::batch::{int64_values, times};
use super::schema::TIE_COLUMN;
use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;

/// How long rows are held back: the disorder that collectors may cause, with a margin.
const WINDOW_NS: i64 = 3_000_000_000;
/// Rows that are gathered before they are sorted together.
const CHUNK_ROWS: usize = 4_096;
/// Rows that are held back at most. The recorder converts segments within its memory
/// budget; where more rows than this arrive per window, the window shrinks.
const MAX_HELD_ROWS: usize = 32_768;

/// Holds rows back and gives them out in order.
///
/// At any time exactly the rows not later than [`Resequencer::watermark`] have left.
#[derive(Debug)]
pub(super) struct Resequencer {
    schema: SchemaRef,
    held: Vec<RecordBatch>,
    held_rows: usize,
    drain_at_rows: usize,
    newest_ns: i64,
    watermark_ns: i64,
}

impl Resequencer {
    /// Expects batches of this schema. Rows not later than `watermark_ns` have left before.
    pub(super) fn new(schema: SchemaRef, watermark_ns: i64) -> Self {
        Self {
            schema,
            held: Vec::new(),
            held_rows: 0,
            drain_at_rows: CHUNK_ROWS,
            newest_ns: i64::MIN,
            watermark_ns,
        }
    }

    /// The time up to which rows have left.
    pub(super) fn watermark_ns(&self) -> i64 {
        self.watermark_ns
    }

    /// Takes a batch in, and gives rows out when enough have gathered.
    pub(super) fn push(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>, ArrowError> {
        let newest = times(&batch).iter().copied().max();
        self.newest_ns = self.newest_ns.max(newest.unwrap_or(i64::MIN));
        self.held_rows += batch.num_rows();
        self.held.push(batch);
        if self.held_rows < self.drain_at_rows {
            return Ok(None);
        }
        self.drain()
    }

    /// Gives out the rows that are older than the window.
    pub(super) fn drain(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        self.watermark_ns = self
            .watermark_ns
            .max(self.newest_ns.saturating_sub(WINDOW_NS));
        self.release()
    }

    /// Gives out all rows.
    pub(super) fn finish(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        self.watermark_ns = i64::MAX;
        self.release()
    }

    fn release(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let sorted = sorted_by_time(&concat_batches(&self.schema, &self.held)?)?;
        let times = times(&sorted);
        let too_many = times.len().saturating_sub(MAX_HELD_ROWS / 2);
        if times.len() > MAX_HELD_ROWS
            && let Some(&forced) = times.get(too_many)
        {
            self.watermark_ns = self.watermark_ns.max(forced);
        }
        let ready = times.partition_point(|&time| time <= self.watermark_ns);
        let kept = sorted.slice(ready, sorted.num_rows() - ready);
        self.held_rows = kept.num_rows();
        self.drain_at_rows = self.held_rows + CHUNK_ROWS;
        self.held.clear();
        if kept.num_rows() > 0 {
            self.held.push(kept);
        }
        Ok((ready > 0).then(|| sorted.slice(0, ready)))
    }
}

/// Sorts by time, then by process, then by arrival.
fn sorted_by_time(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let times = times(batch);
    let ties = int64_values(batch, TIE_COLUMN);
    let tie = |row: usize| ties.and_then(|ties| ties.get(row).copied()).unwrap_or(0);
    let mut keys: Vec<(i64, i64, u32)> = times
        .iter()
        .enumerate()
        .map(|(row, &time)| (time, tie(row), row as u32))
        .collect();
    // The common case costs one pass: nothing came out of order.
    if keys.is_sorted() {
        return Ok(batch.clone());
    }
    keys.sort_unstable();
    let order: UInt32Array = keys.into_iter().map(|(_, _, row)| row).collect();
    take_record_batch(batch, &order)
}

/// An iterator of batches in order of time.
pub(super) struct Resequenced<I> {
    batches: I,
    resequencer: Resequencer,
    is_finished: bool,
}

impl<I> Resequenced<I> {
    /// Puts the rows of `batches` in order.
    pub(super) fn new(batches: I, schema: SchemaRef) -> Self {
        Self {
            batches,
            resequencer: Resequencer::new(schema, i64::MIN),
            is_finished: false,
        }
    }
}

impl<I: Iterator<Item = RecordBatch>> Iterator for Resequenced<I> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_finished {
            let released = match self.batches.next() {
                Some(batch) => self.resequencer.push(batch),
                None => {
                    self.is_finished = true;
                    self.resequencer.finish()
                }
            };
            if let Some(item) = released.transpose() {
                return Some(item);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Int64Array;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn batch(rows: &[(i64, i64)]) -> RecordBatch {
        let column = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as _;
        RecordBatch::try_from_iter([
            ("boot_ns", column(rows.iter().map(|row| row.0).collect())),
            ("upid", column(rows.iter().map(|row| row.1).collect())),
        ])
        .unwrap()
    }

    fn rows(batch: &RecordBatch) -> Vec<(i64, i64)> {
        let upids = int64_values(batch, "upid").unwrap();
        times(batch)
            .iter()
            .copied()
            .zip(upids.iter().copied())
            .collect()
    }

    fn resequenced(batches: &[&[(i64, i64)]]) -> Vec<(i64, i64)> {
        let schema = batch(&[]).schema();
        Resequenced::new(batches.iter().map(|rows| batch(rows)), schema)
            .flat_map(|batch| rows(&batch.unwrap()))
            .collect()
    }

    #[test]
    fn rows_of_one_time_are_in_order_of_process_then_of_arrival() {
        let read = resequenced(&[&[(5, 2), (5, 1)], &[(4, 9), (5, 1)]]);
        assert_eq!(read, [(4, 9), (5, 1), (5, 1), (5, 2)]);
    }

    #[test]
    fn rows_within_the_window_wait_and_older_ones_leave() {
        let mut resequencer = Resequencer::new(batch(&[]).schema(), i64::MIN);
        assert_eq!(resequencer.push(batch(&[(0, 1), (1, 1)])).unwrap(), None);
        resequencer.push(batch(&[(WINDOW_NS, 1)])).unwrap();
        let left = resequencer.drain().unwrap().unwrap();
        assert_eq!(rows(&left), [(0, 1)]);
        assert_eq!(resequencer.watermark_ns(), 0);
        let left = resequencer.finish().unwrap().unwrap();
        assert_eq!(rows(&left), [(1, 1), (WINDOW_NS, 1)]);
        assert_eq!(resequencer.finish().unwrap(), None);
    }

    #[test]
    fn no_more_rows_are_held_than_the_limit_however_many_come_at_once() {
        let mut resequencer = Resequencer::new(batch(&[]).schema(), i64::MIN);
        let mut left = 0;
        for chunk in 0..40 {
            let rows: Vec<(i64, i64)> = (0..4096).map(|i| (chunk * 4096 + i, 1)).collect();
            left += resequencer
                .push(batch(&rows))
                .unwrap()
                .map_or(0, |batch| batch.num_rows());
            assert!(resequencer.held_rows <= MAX_HELD_ROWS + CHUNK_ROWS);
        }
        assert!(left > 0);
        left += resequencer.finish().unwrap().unwrap().num_rows();
        assert_eq!(left, 40 * 4096);
    }

    proptest! {
        #[test]
        fn rows_that_come_within_the_window_leave_in_order_and_none_is_lost(
            // Time from row to row and lateness, in ns; batches of some rows.
            steps in proptest::collection::vec((0..100_000_000_i64, 0..2_000_000_000_i64, 0..3_i64), 1..2000),
            batch_rows in 1..300_usize,
        ) {
            let mut now = 0;
            let all: Vec<(i64, i64)> = steps
                .iter()
                .map(|&(step, late, upid)| {
                    now += step;
                    (now - late, upid)
                })
                .collect();
            let batches: Vec<&[(i64, i64)]> = all.chunks(batch_rows).collect();
            let mut expected = all.clone();
            expected.sort();
            prop_assert_eq!(resequenced(&batches), expected);
        }
    }
}
