//! What the samples tell beside processes: marks, the node, Python's heap.

use super::{NodeReading, PythonHeap};
use crate::analyze::RowSource;
use crate::analyze::name::Interner;
use crate::model::tables::{MarkKind, MarkRow, NodeMemRow};
use crate::model::{BootNs, Bytes};
use serde_json::Value;
use std::sync::Arc;

/// The mark that tells Python's heap, and the beginning of the attributes by which others do.
const PYTHON_HEAP: &str = "python_heap";

/// What is known beside `mem`, each in the order of time.
#[derive(Default)]
pub(super) struct Beside {
    pub(super) marks: Vec<(BootNs, Arc<str>)>,
    pub(super) nodes: Vec<(BootNs, NodeReading)>,
    pub(super) heaps: Vec<(BootNs, PythonHeap)>,
}

impl Beside {
    pub(super) fn read<S: RowSource>(source: &S) -> Result<Self, S::Error> {
        let mut told = Self::default();
        let mut texts = Interner::default();
        let columns = &["ts", "boot_ns", "name", "kind", "attributes"];
        source.scan(columns, |row: MarkRow| {
            if let Some(heap) = row
                .attributes
                .as_deref()
                .and_then(|told| heap_of(&row.name, told))
            {
                told.heaps.push((row.boot_ns, heap));
            }
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
        told.marks.sort_by_key(|(at, _)| *at);
        told.heaps.sort_by_key(|(at, _)| *at);
        Ok(told)
    }
}

/// Of the mark `python_heap`, or of the end of a phase while tracemalloc was on.
fn heap_of(name: &str, attributes: &str) -> Option<PythonHeap> {
    if name != PYTHON_HEAP && !attributes.contains(PYTHON_HEAP) {
        return None;
    }
    let attributes: Value = serde_json::from_str(attributes).ok()?;
    let bytes = |name: &str| attributes.get(name)?.as_i64().map(Bytes);
    let [current, peak] = match name {
        PYTHON_HEAP => ["current_bytes", "peak_bytes"],
        _ => ["python_heap_bytes", "python_heap_peak_bytes"],
    };
    Some(PythonHeap {
        current: bytes(current)?,
        peak: bytes(peak),
    })
}

/// The last reading until an instant; `past` counts those before it.
pub(super) fn latest<T: Copy>(readings: &[(BootNs, T)], past: &mut usize, at: BootNs) -> Option<T> {
    while readings.get(*past).is_some_and(|(boot, _)| *boot <= at) {
        *past += 1;
    }
    Some(readings.get(past.checked_sub(1)?)?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_of_python_is_told_by_its_mark_and_by_phases() {
        let heap = |current, peak: Option<i64>| {
            Some(PythonHeap {
                current: Bytes(current),
                peak: peak.map(Bytes),
            })
        };
        let told = r#"{"current_bytes":1,"peak_bytes":2}"#;
        assert_eq!(heap_of("python_heap", told), heap(1, Some(2)));
        assert_eq!(heap_of("load", told), None);
        let told = r#"{"python_heap_bytes":3,"python_heap_peak_bytes":4}"#;
        assert_eq!(heap_of("load", told), heap(3, Some(4)));
        assert_eq!(heap_of("load", r#"{"python_heap_bytes":3}"#), heap(3, None));
        assert_eq!(heap_of("python_heap", "no json"), None);
    }
}
