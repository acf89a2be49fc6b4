//! Puts rows that arrive nearly in order of time into order, in bounded memory.
//!
//! Events wait in per-CPU buffers and a kept maximum is written later than it happened,
//! so a row may be up to about 2 s older than rows before it. Rows are held back until
//! they are [`WINDOW_NS`] older than the newest row seen, and leave sorted by time, then
//! by process, then by arrival. A row that comes later than the window allows is never
//! dropped: it leaves with the next rows, out of order.

use super::batch::{int64_values, slice_bytes, times};
use super::gather::{concat, take};
use super::schema::TIE_COLUMN;
use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};

/// How long rows are held back: the disorder that collectors may cause, with a margin.
pub(super) const WINDOW_NS: i64 = 3_000_000_000;
/// What is gathered before it is sorted together.
const RUN_BYTES: usize = 256 << 10;
/// What is held back at most: some 80,000 rows of `mem`. The recorder converts segments within
/// its memory budget; where more than this arrives per window, the window shrinks.
const MAX_HELD_BYTES: usize = 8 << 20;

/// Holds rows back and gives them out in order.
///
/// At any time exactly the rows not later than [`Resequencer::watermark`] have left.
#[derive(Debug)]
pub(super) struct Resequencer {
    schema: SchemaRef,
    /// What came since the last run was sorted.
    fresh: Vec<RecordBatch>,
    fresh_bytes: usize,
    /// In the order of arrival.
    runs: Vec<Run>,
    newest_ns: i64,
    watermark_ns: i64,
}

/// Rows in order of time that came one after the other.
#[derive(Debug)]
struct Run {
    rows: RecordBatch,
    /// How many have left and still take memory.
    left_count: usize,
}

impl Resequencer {
    /// Expects batches of this schema. Rows not later than `watermark_ns` have left before.
    pub(super) fn new(schema: SchemaRef, watermark_ns: i64) -> Self {
        Self {
            schema,
            fresh: Vec::new(),
            fresh_bytes: 0,
            runs: Vec::new(),
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
        self.fresh_bytes += slice_bytes(&batch);
        self.fresh.push(batch);
        if self.fresh_bytes < RUN_BYTES {
            return Ok(None);
        }
        self.drain()
    }

    /// Says that it is so late by now: what comes from here on is no older than a row of that time
    /// could be followed by.
    pub(super) fn note_time(&mut self, now_ns: i64) {
        self.newest_ns = self.newest_ns.max(now_ns);
    }

    /// Gives out the rows that are older than the window.
    pub(super) fn drain(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let window = self.newest_ns.saturating_sub(WINDOW_NS);
        self.watermark_ns = self.watermark_ns.max(window);
        self.release()
    }

    /// Gives out all rows.
    pub(super) fn finish(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        self.watermark_ns = i64::MAX;
        self.release()
    }

    fn release(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        self.runs.push(Run {
            rows: sorted_by_time(&concat(&self.schema, &self.fresh)?)?,
            left_count: 0,
        });
        self.fresh.clear();
        self.fresh_bytes = 0;
        let forced = self.time_of_excess().unwrap_or(i64::MIN);
        self.watermark_ns = self.watermark_ns.max(forced);
        let mut ready = Vec::new();
        for run in &mut self.runs {
            ready.push(run.take_until(self.watermark_ns)?);
        }
        self.runs.retain(|run| run.rows.num_rows() > 0);
        ready.retain(|rows| rows.num_rows() > 0);
        let ready = sorted_by_time(&concat(&self.schema, &ready)?)?;
        Ok((ready.num_rows() > 0).then_some(ready))
    }

    /// The time until which rows must leave, where more is held than may be.
    fn time_of_excess(&self) -> Option<i64> {
        let held_bytes: usize = self.runs.iter().map(|run| slice_bytes(&run.rows)).sum();
        let excess_bytes = held_bytes.checked_sub(MAX_HELD_BYTES)?;
        let runs = self.runs.iter();
        let mut times: Vec<i64> = runs.flat_map(|run| times(&run.rows)).copied().collect();
        let excess_rows = times.len() * excess_bytes / held_bytes;
        let (_, last, _) = times.select_nth_unstable(excess_rows.checked_sub(1)?);
        Some(*last)
    }
}

impl Run {
    fn take_until(&mut self, time_ns: i64) -> Result<RecordBatch, ArrowError> {
        let ready = times(&self.rows).partition_point(|&time| time <= time_ns);
        let taken = self.rows.slice(0, ready);
        let rest = self.rows.num_rows() - ready;
        self.rows = self.rows.slice(ready, rest);
        self.left_count += ready;
        // A slice keeps all of what it was cut from in memory.
        if self.left_count > rest {
            self.rows = take(&self.rows, 0..rest)?;
            self.left_count = 0;
        }
        Ok(taken)
    }
}

/// Sorts by time, then by process, then by arrival.
fn sorted_by_time(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let times = times(batch);
    let ties = int64_values(batch, TIE_COLUMN);
    let tie = |row: usize| ties.and_then(|ties| ties.get(row).copied()).unwrap_or(0);
    let mut keys: Vec<(i64, i64, usize)> = times
        .iter()
        .enumerate()
        .map(|(row, &time)| (time, tie(row), row))
        .collect();
    // The common case costs one pass: nothing came out of order.
    if keys.is_sorted() {
        return Ok(batch.clone());
    }
    keys.sort_unstable();
    take(batch, keys.into_iter().map(|(_, _, row)| row))
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
    use arrow_array::{ArrayRef, Int64Array, StringArray};
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

    /// Rows of about 1 KiB, of which every tenth comes so much late.
    fn storm(late_ns: i64) -> (Vec<RecordBatch>, Vec<i64>) {
        const STEP_NS: i64 = 250_000;
        let times: Vec<i64> = (0..40_000)
            .map(|row| row * STEP_NS - if row % 10 == 0 { late_ns } else { 0 })
            .collect();
        let text = "x".repeat(1_000);
        let batches = times.chunks(64).map(|times| {
            let texts = StringArray::from(vec![text.as_str(); times.len()]);
            let times = Int64Array::from(times.to_vec());
            RecordBatch::try_from_iter([
                ("boot_ns", Arc::new(times) as ArrayRef),
                ("title", Arc::new(texts) as ArrayRef),
            ])
            .unwrap()
        });
        (batches.collect(), times)
    }

    #[test]
    fn a_storm_is_held_back_within_bounds_and_put_in_order_as_far_as_that_reaches() {
        for (late_ns, is_in_order) in [(1_000_000_000, true), (2_900_000_000, false)] {
            let (batches, mut expected) = storm(late_ns);
            let mut resequencer = Resequencer::new(batches[0].schema(), i64::MIN);
            let mut left: Vec<i64> = Vec::new();
            for batch in batches {
                let released = resequencer.push(batch).unwrap();
                left.extend(released.iter().flat_map(times));
                let runs = resequencer.runs.iter();
                let held: usize = runs.map(|run| slice_bytes(&run.rows)).sum();
                assert!(held <= MAX_HELD_BYTES + RUN_BYTES, "{held}");
            }
            left.extend(times(&resequencer.finish().unwrap().unwrap()));
            assert_eq!(left.is_sorted(), is_in_order);
            left.sort_unstable();
            expected.sort_unstable();
            assert_eq!(left, expected);
        }
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
