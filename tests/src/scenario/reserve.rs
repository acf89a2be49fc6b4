//! Address space that grows without a page that comes or goes.

use super::book::{Book, Score, bytes, no_loss, series};
use crate::recorder::record;
use crate::workload::{self, number};
use anyhow::{Context, Result};
use memtrace_model::tables::SelfCostRow;

/// Until then mapped address space must show: the full sweep comes once a second, at an
/// interval of the tick, on a machine that others use.
const SHOWS_WITHIN_NS: i64 = 2_000_000_000;
/// And so many of the recorder's intervals later, which it makes longer, and tells, to stay within its
/// budget.
const INTERVALS: i64 = 2;

/// A mapping of 1 GiB that nobody touches.
///
/// # Errors
/// When the run itself fails.
pub fn reserve(words: &[&str]) -> Result<Vec<Score>> {
    let recorded = record(words, &workload::command(&["reserve"])?)?;
    let book = Book::open(&recorded)?;
    let lines = workload::parse(&recorded.output)?;
    let truth = lines.first().context("the workload said nothing")?;
    let process = book.expect(number(truth, "pid")?)?;
    let mapped_ns = number(truth, "mapped_boot_ns")?;
    let reserved = number(truth, "before_bytes")? + number(truth, "mapped_bytes")?;
    let rows = series(&recorded, process.upid)?;
    let shown = rows
        .iter()
        .find(|row| bytes(row.vm_size_bytes).is_some_and(|size| size >= reserved))
        .map(|row| row.boot_ns.0 - mapped_ns);
    let costs: Vec<SelfCostRow> = recorded.recording.rows()?;
    let slowest = costs.iter().map(|row| row.interval_ns.0).max();
    let within = SHOWS_WITHIN_NS + slowest.unwrap_or(0) * INTERVALS;
    let is_in_time = shown.is_some_and(|after| after <= within);
    let score = Score::of("mapped and untouched memory shows", is_in_time, || {
        format!("{reserved} bytes of address space shown after {shown:?} ns")
    });
    Ok(vec![score, no_loss(&recorded)?])
}
