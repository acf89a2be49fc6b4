//! What the samples tell beside processes: marks, the node, allocators inside the programs.

use super::NodeReading;
use super::allocators::{Allocators, PYTHON_HEAP};
use crate::analyze::RowSource;
use crate::analyze::name::Interner;
use crate::analyze::process_table::ProcessTable;
use crate::model::tables::{MarkKind, MarkRow, NodeMemRow};
use crate::model::{BootNs, Order};
use std::sync::Arc;

/// What is known beside `mem`, each in the order of time.
#[derive(Default)]
pub(super) struct Beside {
    pub(super) marks: Vec<(BootNs, Arc<str>)>,
    pub(super) nodes: Vec<(BootNs, NodeReading)>,
    pub(super) allocators: Allocators,
}

impl Beside {
    pub(super) fn read<S: RowSource>(source: &S, table: &ProcessTable) -> Result<Self, S::Error> {
        let mut told = Self::default();
        let mut texts = Interner::default();
        let columns = &["ts", "boot_ns", "upid", "name", "kind", "attributes"];
        source.scan(columns, |row: MarkRow| {
            told.allocators.take(&row, table);
            let label = match row.kind {
                Some(MarkKind::Instant) if row.name == PYTHON_HEAP => return,
                Some(MarkKind::Instant) => texts.intern(&row.name),
                Some(MarkKind::Begin) => texts.intern(&format!("{} begin", row.name)),
                Some(MarkKind::End) => texts.intern(&format!("{} end", row.name)),
                Some(MarkKind::Peak) | None => return,
            };
            told.marks.push((row.boot_ns, label));
        })?;
        let columns = &["ts", "boot_ns", "mem_total_bytes", "mem_available_bytes"];
        source.scan(columns, |row: NodeMemRow| {
            if let (Some(total), Some(available)) = (row.mem_total_bytes, row.mem_available_bytes) {
                told.nodes
                    .push((row.boot_ns, NodeReading { total, available }));
            }
        })?;
        // A line of a log can be read long after it was written.
        told.marks.order_by_key(|(at, _)| *at);
        told.allocators.sort();
        Ok(told)
    }
}

/// The last reading until an instant; `past` counts those before it.
pub(super) fn latest<T: Copy>(readings: &[(BootNs, T)], past: &mut usize, at: BootNs) -> Option<T> {
    while readings.get(*past).is_some_and(|(boot, _)| *boot <= at) {
        *past += 1;
    }
    Some(readings.get(past.checked_sub(1)?)?.1)
}
