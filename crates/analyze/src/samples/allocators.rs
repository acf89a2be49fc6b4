//! What allocators inside the programs hold, as the programs themselves tell it in marks: Python's
//! heap and torch's memory. Nobody else can know it.

use crate::process_table::ProcessTable;
use memtrace_model::tables::MarkRow;
use memtrace_model::{BootNs, Bytes, DurationNs, Order, Upid};
use serde_json::Value;
use std::collections::HashMap;

/// The mark of the Python package that tells Python's heap.
pub(super) const PYTHON_HEAP: &str = "python_heap";

/// Every figure, by the attribute of a mark that tells it.
const FIGURES: [&str; 6] = [
    "python_heap_bytes",
    "python_heap_peak_bytes",
    "torch_cuda_alloc_bytes",
    "torch_cuda_reserved_bytes",
    "torch_mps_alloc_bytes",
    "torch_mps_driver_bytes",
];

/// The figures of one mark, in the order of [`FIGURES`].
type Figures = [Option<Bytes>; FIGURES.len()];

/// A figure at an instant: the sum of what each process that still runs reported last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// The sum over processes.
    pub bytes: Bytes,
    /// For how long the oldest part of it has not been reported again.
    pub age: DurationNs,
}

/// Every figure at an instant; `None` for one that no running process reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations([Option<Allocated>; FIGURES.len()]);

impl Allocations {
    /// Every figure with the attribute of a mark that tells it.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Option<Allocated>)> {
        FIGURES.into_iter().zip(self.0)
    }

    /// One of them.
    pub fn get(&self, attribute: &str) -> Option<Allocated> {
        self.iter().find(|(name, _)| *name == attribute)?.1
    }

    /// The age of those whose attribute begins so, the oldest counts.
    pub fn age(&self, prefix: &str) -> Option<DurationNs> {
        let reported = self.iter().filter(|(name, _)| name.starts_with(prefix));
        reported
            .filter_map(|(_, allocated)| Some(allocated?.age))
            .max()
    }
}

/// What one mark tells of its sender.
#[derive(Debug)]
struct SelfReport {
    boot_ns: BootNs,
    /// `None` for a sender that is not recorded.
    upid: Option<Upid>,
    /// When the sender ended.
    exit_boot_ns: Option<BootNs>,
    figures: Figures,
}

/// All marks that tell such figures, and what stands at the instant that was asked for last.
#[derive(Debug, Default)]
pub(super) struct Allocators {
    reports: Vec<SelfReport>,
    past: usize,
    /// By process and figure: its position in `reports`.
    latest: HashMap<Option<Upid>, [Option<usize>; FIGURES.len()]>,
}

impl Allocators {
    pub(super) fn take(&mut self, row: &MarkRow, table: &ProcessTable) {
        let figures = row
            .attributes
            .as_deref()
            .and_then(|attributes| figures_of(&row.name, attributes));
        if let Some(figures) = figures {
            let process = row.upid.and_then(|upid| table.find(upid));
            self.reports.push(SelfReport {
                boot_ns: row.boot_ns,
                upid: row.upid,
                exit_boot_ns: process.and_then(|place| table.processes[place].exit_boot_ns()),
                figures,
            });
        }
    }

    /// When all marks are taken: a line of a log can be read long after it was written.
    pub(super) fn sort(&mut self) {
        self.reports.order_by_key(|reported| reported.boot_ns);
    }

    /// What stands at an instant, none of them before the one that was asked for last.
    pub(super) fn at(&mut self, at: BootNs) -> Allocations {
        while let Some(reported) = self
            .reports
            .get(self.past)
            .filter(|reported| reported.boot_ns <= at)
        {
            let latest = self.latest.entry(reported.upid).or_default();
            for (place, figure) in latest.iter_mut().zip(reported.figures) {
                *place = figure.map(|_| self.past).or(*place);
            }
            self.past += 1;
        }
        let reports = &self.reports;
        let has_ended = |place: usize| reports[place].exit_boot_ns.is_some_and(|exit| exit <= at);
        self.latest
            .retain(|_, places| !places.iter().flatten().any(|place| has_ended(*place)));
        let mut sums = Allocations::default();
        for places in self.latest.values() {
            for (figure, (sum, place)) in sums.0.iter_mut().zip(places).enumerate() {
                let Some(reported) = place.map(|place| &reports[place]) else {
                    continue;
                };
                let before = sum.unwrap_or(Allocated {
                    bytes: Bytes(0),
                    age: DurationNs(0),
                });
                *sum = Some(Allocated {
                    bytes: before.bytes + reported.figures[figure].unwrap_or_default(),
                    age: before.age.max(at - reported.boot_ns),
                });
            }
        }
        sums
    }
}

/// What a mark tells; `None` when that is nothing.
fn figures_of(name: &str, attributes: &str) -> Option<Figures> {
    let is_heap = name == PYTHON_HEAP;
    if !is_heap && !attributes.contains(PYTHON_HEAP) && !attributes.contains("torch_") {
        return None;
    }
    let attributes: Value = serde_json::from_str(attributes).ok()?;
    let figure = |attribute| {
        let attribute = match attribute {
            "python_heap_bytes" if is_heap => "current_bytes",
            "python_heap_peak_bytes" if is_heap => "peak_bytes",
            attribute => attribute,
        };
        let bytes = attributes.get(attribute)?.as_i64();
        bytes.filter(|bytes| *bytes >= 0).map(Bytes)
    };
    let figures = FIGURES.map(figure);
    figures.iter().any(Option::is_some).then_some(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(name: &str, attributes: &str) -> Option<[Option<i64>; 6]> {
        figures_of(name, attributes).map(|figures| figures.map(|figure| figure.map(|it| it.0)))
    }

    #[test]
    fn figures_are_reported_by_the_mark_of_the_heap_and_by_phases() {
        let heap = |current, peak| Some([Some(current), peak, None, None, None, None]);
        let both = r#"{"current_bytes":1,"peak_bytes":2}"#;
        assert_eq!(reported("python_heap", both), heap(1, Some(2)));
        assert_eq!(reported("load", both), None);
        let both = r#"{"python_heap_bytes":3,"python_heap_peak_bytes":4}"#;
        assert_eq!(reported("load", both), heap(3, Some(4)));
        assert_eq!(
            reported("load", r#"{"python_heap_bytes":3}"#),
            heap(3, None)
        );
        assert_eq!(reported("python_heap", "no json"), None);
        let torch = r#"{"torch_cuda_alloc_bytes":5,"torch_cuda_reserved_bytes":6}"#;
        let cuda = Some([None, None, Some(5), Some(6), None, None]);
        assert_eq!(reported("load", torch), cuda);
        assert_eq!(reported("load", r#"{"torch_mps_alloc_bytes":-1}"#), None);
    }

    #[test]
    fn each_process_counts_with_what_it_reported_last_until_it_ends() {
        let text = |boot, upid, exit: Option<i64>, bytes| SelfReport {
            boot_ns: BootNs(boot),
            upid: Some(Upid(upid)),
            exit_boot_ns: exit.map(BootNs),
            figures: [Some(Bytes(bytes)), None, None, None, None, None],
        };
        let mut allocators = Allocators {
            reports: vec![
                text(10, 1, None, 100),
                text(20, 2, Some(40), 50),
                text(30, 1, None, 7),
            ],
            ..Allocators::default()
        };
        let mut at = |boot| {
            let heap = allocators.at(BootNs(boot)).get("python_heap_bytes")?;
            Some((heap.bytes.0, heap.age.0))
        };
        assert_eq!(at(5), None);
        assert_eq!(at(15), Some((100, 5)));
        assert_eq!(at(25), Some((150, 15)));
        assert_eq!(at(35), Some((57, 15)));
        assert_eq!(at(45), Some((7, 15)), "what has ended holds nothing");
    }
}
