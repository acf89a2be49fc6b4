//! Who asked the CUDA driver for memory: the lines whose calls took what a process held at its highest.

use super::resident::{Stacks, frames_of};
use super::source::SourceLines;
use super::{CodeLine, by_line};
use crate::process_table::ProcessTable;
use crate::who::Who;
use memtrace_model::tables::CudaCallRow;
use memtrace_model::{BootNs, Bytes, CudaKind, Instant, Order, RowSource, Upid};
use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// Lines of one process.
const LINES_MAX: usize = 50;

/// What lines of one process had taken of the CUDA driver when they had taken most, with
/// `record --stacks`: calls of 16 MiB and more whose stack is known. From `cuda_call`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CudaLines {
    /// The process that called.
    #[serde(flatten)]
    pub who: Who,
    /// When they had taken most.
    pub at: Instant,
    /// What they had taken together, and not given back.
    pub bytes: Bytes,
    /// The lines, the one that had taken most first; at most 50.
    pub lines: Vec<CudaLine>,
}

/// A line of Python, or a native function where no Python runs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CudaLine {
    /// Which line it is.
    #[serde(flatten)]
    pub line: CodeLine,
    /// What it had taken.
    pub bytes: Bytes,
    /// In so many calls.
    pub call_count: usize,
}

/// A call that took memory, or gave back what one had taken.
struct Change {
    at: BootNs,
    stack_id: i64,
    /// Negative where it gave back.
    bytes: i64,
}

/// Calls whose stack is known, as they are read.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// By process and time: the stack, and how much it took.
    taken: HashMap<(Upid, BootNs), (i64, i64)>,
    /// Whose memory was given back: process, when it was taken, and when that was.
    given: Vec<(Upid, BootNs, BootNs)>,
}

impl Taken {
    pub(crate) fn note(&mut self, row: &CudaCallRow) {
        // Rows come in the order of time.
        if let Some(before) = row.taken_boot_ns {
            if self.taken.contains_key(&(row.upid, before)) {
                self.given.push((row.upid, before, row.boot_ns));
            }
        } else if row.result == 0
            && let (Some(stack_id), Some(size)) = (row.stack_id, row.size_bytes)
            && size.0 > 0
            && row.kind.is_some_and(is_on_device)
        {
            let took = (stack_id, size.0);
            self.taken.insert((row.upid, row.boot_ns), took);
        }
    }

    /// What each process had taken when it had taken most.
    pub(crate) fn lines<S: RowSource>(
        &self,
        source: &S,
        table: &ProcessTable,
        instant: impl Fn(BootNs) -> Instant,
    ) -> Result<Vec<CudaLines>, S::Error> {
        if self.taken.is_empty() {
            return Ok(Vec::new());
        }
        let mut changes: BTreeMap<Upid, Vec<Change>> = BTreeMap::new();
        let mut add = |upid, at, stack_id, bytes| {
            let change = Change {
                at,
                stack_id,
                bytes,
            };
            changes.entry(upid).or_default().push(change);
        };
        for ((upid, at), (stack_id, bytes)) in &self.taken {
            add(*upid, *at, *stack_id, *bytes);
        }
        for (upid, before, at) in &self.given {
            if let Some((stack_id, bytes)) = self.taken.get(&(*upid, *before)) {
                add(*upid, *at, *stack_id, -bytes);
            }
        }
        let wanted = self.taken.values().map(|(stack_id, _)| *stack_id);
        let stacks = frames_of(source, &wanted.collect(), &mut SourceLines::none())?;
        let lines = changes.into_iter().filter_map(|(upid, changes)| {
            let process = &table.processes[table.find(upid)?];
            of_process(Who::from(process), changes, &stacks, &instant)
        });
        let mut all: Vec<CudaLines> = lines.collect();
        all.order_by_key(|one| (Reverse(one.bytes), one.who.upid));
        Ok(all)
    }
}

fn is_on_device(kind: CudaKind) -> bool {
    matches!(kind, CudaKind::Direct | CudaKind::Vmm | CudaKind::Pool)
}

fn of_process(
    who: Who,
    mut changes: Vec<Change>,
    stacks: &Stacks,
    instant: impl Fn(BootNs) -> Instant,
) -> Option<CudaLines> {
    changes.order_by_key(|change| (change.at, change.bytes));
    let (mut now, mut most) = (0, (0, BootNs(0)));
    for change in &changes {
        now = change.bytes.saturating_add(now);
        if now > most.0 {
            most = (now, change.at);
        }
    }
    let (bytes, at) = most;
    let mut by_stack: BTreeMap<i64, (i64, usize)> = BTreeMap::new();
    for change in changes.iter().take_while(|change| change.at <= at) {
        let (bytes, count) = by_stack.entry(change.stack_id).or_default();
        *bytes = change.bytes.saturating_add(*bytes);
        *count = match change.bytes {
            0.. => *count + 1,
            _ => count.saturating_sub(1),
        };
    }
    // The stack that took most is the one that is shown of a line.
    let mut stacked: Vec<(i64, (i64, usize))> = by_stack.into_iter().collect();
    stacked.order_by_key(|(stack_id, (bytes, _))| (Reverse(*bytes), *stack_id));
    let summed = by_line(
        stacked.into_iter(),
        stacks,
        |sum: &mut (i64, usize), one| {
            sum.0 = one.0.saturating_add(sum.0);
            sum.1 += one.1;
        },
    );
    let named = summed
        .into_iter()
        .map(|(line, (bytes, call_count))| CudaLine {
            line,
            bytes: Bytes(bytes),
            call_count,
        });
    let mut lines: Vec<CudaLine> = named.filter(|line| line.bytes.0 > 0).collect();
    lines.order_by_key(|line| Reverse(line.bytes));
    lines.truncate(LINES_MAX);
    (bytes > 0).then(|| CudaLines {
        who,
        at: instant(at),
        bytes: Bytes(bytes),
        lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocations::frame::tests::frame;
    use memtrace_model::FrameKind;

    #[test]
    fn the_lines_are_those_of_the_moment_at_which_most_was_taken() {
        let of = |line| {
            vec![frame(
                FrameKind::Python,
                Some("load"),
                "/x/model.py",
                Some(line),
            )]
        };
        let stacks = HashMap::from([(1, of(7)), (2, of(7)), (3, of(9))]);
        let change = |at, stack_id, gib: i64| Change {
            at: BootNs(at),
            stack_id,
            bytes: gib << 30,
        };
        // The first is given back before the third is taken, which is taken for a moment.
        let changes = vec![
            change(1, 1, 4),
            change(2, 2, 2),
            change(5, 3, 3),
            change(3, 1, -4),
            change(6, 3, -3),
        ];
        let who = Who::default();
        let lines = of_process(who, changes, &stacks, |_| Instant::default()).unwrap();
        assert_eq!(lines.bytes, Bytes(6 << 30));
        let named: Vec<_> = lines
            .lines
            .iter()
            .map(|line| (line.line.place(), line.bytes, line.call_count))
            .collect();
        assert_eq!(named, [("model.py:7 load".to_owned(), Bytes(6 << 30), 2)]);
    }
}
