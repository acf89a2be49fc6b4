//! What the lines of all processes held together at one instant.

use super::SITES_MAX;
use super::line::{CodeLine, by_line};
use super::resident::{RssThen, StackHeld, frames_of, read_held_at};
use super::source::SourceLines;
use crate::process_table::ProcessTable;
use crate::who::Who;
use memtrace_model::{Bytes, Instant, Order, RowSource, Upid};
use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What the lines of all processes held together at one instant.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HeldByLine {
    /// The instant at which it was held.
    pub at: Instant,
    /// The number of processes that held some of it.
    pub process_count: i64,
    /// What they had touched anew and was not known to be given back, without memory that several map. By
    /// samples; of each no more than its RSS and swap without mapped files. What was given back up to 0.1 s before or touched up to a
    /// second after can take the place of other memory in it.
    pub not_returned_bytes: Bytes,
    /// Standard error of that.
    pub not_returned_error_bytes: Bytes,
    /// The lines, the one with most first; at most 50.
    pub lines: Vec<LineHolding>,
}

/// What one line held in all processes together.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LineHolding {
    /// Which line it is.
    #[serde(flatten)]
    pub line: CodeLine,
    /// The number of processes in which it did.
    pub process_count: i64,
    /// The one in which it held most.
    pub holder: Who,
    /// What it held, as `not_returned_bytes` of all.
    pub not_returned_bytes: Bytes,
    /// Standard error of that.
    pub not_returned_error_bytes: Bytes,
    /// All that was touched anew there by then, whatever became of it.
    pub grown_bytes: Bytes,
}

/// The sum of independent samples.
#[derive(Default)]
struct Sum {
    held: Bytes,
    /// In bytes squared.
    variance: f64,
    grown: Bytes,
    by_process: BTreeMap<Upid, Bytes>,
}

impl Sum {
    fn add(&mut self, (upid, one): (Upid, &StackHeld)) {
        self.held = self.held + one.bytes;
        self.variance += one.error * one.error;
        self.grown = self.grown + one.grown;
        let of_process = self.by_process.entry(upid).or_default();
        *of_process = *of_process + one.bytes;
    }

    fn holder(&self) -> Option<Upid> {
        let most = self.by_process.iter().max_by_key(|(_, held)| **held);
        most.map(|(upid, _)| *upid)
    }

    fn error(&self) -> Bytes {
        Bytes(self.variance.sqrt() as i64)
    }
}

/// Adds up what was held at an instant; `None` where that is nothing, or no stacks were recorded.
pub(crate) fn held_by_line<S: RowSource>(
    source: &S,
    table: &ProcessTable,
    at: &RssThen,
    lines: &mut SourceLines,
) -> Result<Option<HeldByLine>, S::Error> {
    let held = read_held_at(source, at)?;
    let wanted = held.values().flatten().map(|one| one.stack_id);
    let stacks = frames_of(source, &wanted.collect(), lines)?;
    let rows = held.iter().flat_map(|(upid, held)| {
        let held = held.iter();
        held.map(move |one| (one.stack_id, (*upid, one)))
    });
    let mut rows: Vec<_> = rows.collect();
    // The first stack of a line is the one that is shown of it.
    rows.order_by_key(|(stack_id, (upid, one))| (Reverse(one.bytes), *stack_id, *upid));
    let mut all = Sum::default();
    for (_, row) in &rows {
        all.add(*row);
    }
    let lines = by_line(rows.into_iter(), &stacks, Sum::add).into_iter();
    let lines = lines.filter_map(|(line, sum)| {
        Some(LineHolding {
            line,
            process_count: sum.by_process.len() as i64,
            holder: Who::from(&table.processes[table.find(sum.holder()?)?]),
            not_returned_bytes: sum.held,
            not_returned_error_bytes: sum.error(),
            grown_bytes: sum.grown,
        })
    });
    let mut lines: Vec<LineHolding> = lines.collect();
    lines.order_by_key(|line| Reverse(line.not_returned_bytes));
    lines.truncate(SITES_MAX);
    Ok((!lines.is_empty()).then(|| HeldByLine {
        at: at.at,
        process_count: all.by_process.len() as i64,
        not_returned_bytes: all.held,
        not_returned_error_bytes: all.error(),
        lines,
    }))
}
