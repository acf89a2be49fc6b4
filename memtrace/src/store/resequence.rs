//! Puts rows that arrive nearly in order of time into order, in bounded memory.
//!
//! Events wait in per-CPU buffers and a kept maximum is written later than it happened,
//! so a row may be up to about 2 s older than rows before it. Rows are held back until
//! they are [`WINDOW_NS`] older than the newest row seen, and leave sorted by time, then
//! by process, then by arrival. A row that comes later than the window allows is never
//! dropped: it leaves with the next rows, out of order.

use super::batch::{int64_values, times};
use super::schema::TIE_COLUMN;
use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

/// How long rows are held back: the disorder that collectors may cause, with a margin.
const WINDOW_NS: i64 = 3_000_000_000;
/// Rows that are gathered before they are sorted together.
const CHUNK_ROWS: usize = 8_192;
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
