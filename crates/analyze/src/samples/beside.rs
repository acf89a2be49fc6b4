//! What the samples tell beside processes: marks, the node, allocators inside the programs.

use super::NodeReading;
use super::allocators::{Allocators, PYTHON_HEAP};
use super::schedule::Mark;
use crate::name::Interner;
use crate::process_table::ProcessTable;
use memtrace_model::tables::{MarkKind, MarkRow, NodeMemRow};
use memtrace_model::{BootNs, Order, RowSource, SelfReport};

/// What is known beside `mem`, each in the order of time.
#[derive(Default)]
pub(super) struct Beside {
    pub(super) marks: Vec<Mark>,
    pub(super) nodes: Vec<(BootNs, NodeReading)>,
    pub(super) allocators: Allocators,
}

impl Beside {
    pub(super) fn read<S: RowSource>(source: &S, table: &ProcessTable) -> Result<Self, S::Error> {
        let mut reported = Self::default();
        let mut texts = Interner::default();
        let columns = &["ts", "boot_ns", "upid", "name", "kind", "attributes"];
        source.scan(columns, |row: MarkRow| {
            reported.allocators.take(&row, table);
            let label = match row.kind {
                Some(MarkKind::Instant) if row.name == PYTHON_HEAP => return,
                Some(MarkKind::Instant | MarkKind::Kill) => texts.intern(&row.name),
                Some(MarkKind::Begin) => texts.intern(&format!("{} begin", row.name)),
                Some(MarkKind::End) => texts.intern(&format!("{} end", row.name)),
                Some(MarkKind::Peak) | None => return,
            };
            reported.marks.push(Mark {
                boot_ns: row.boot_ns,
                label,
                main: of_main(&row, table),
            });
        })?;
        let columns = &["ts", "boot_ns", "mem_total_bytes", "mem_available_bytes"];
        source.scan(columns, |row: NodeMemRow| {
            if let (Some(total), Some(available)) = (row.mem_total_bytes, row.mem_available_bytes) {
                reported
                    .nodes
                    .push((row.boot_ns, NodeReading { total, available }));
            }
        })?;
        // A line of a log can be read long after it was written.
        reported.marks.order_by_key(|mark| mark.boot_ns);
        reported.allocators.sort();
        Ok(reported)
    }
}

/// What the main process said in a mark of its own that it held.
fn of_main(row: &MarkRow, table: &ProcessTable) -> Option<SelfReport> {
    let process = &table.processes[table.find(row.upid?)?];
    let attributes = row.attributes.as_deref().filter(|_| process.is_main)?;
    let report = SelfReport::of(&serde_json::from_str(attributes).ok()?)?;
    let rss = process.can_have_held(report.rss)?;
    Some(SelfReport { rss, ..report })
}

/// The last reading until an instant; `past` counts those before it.
pub(super) fn latest<T: Copy>(readings: &[(BootNs, T)], past: &mut usize, at: BootNs) -> Option<T> {
    while readings.get(*past).is_some_and(|(boot, _)| *boot <= at) {
        *past += 1;
    }
    Some(readings.get(past.checked_sub(1)?)?.1)
}
