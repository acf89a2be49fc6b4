//! Shared memory that processes gave back before it was seen what they map.
//!
//! A look tells what a process maps at its time. Of the time before it tells as much: what the
//! process had and did not give back until then is of what it maps then. How much it gave back
//! stands in `mem`, which is read for it once more, where somebody came to map something.

use crate::analyze::RowSource;
use crate::analyze::process_table::ProcessTable;
use crate::model::tables::MemRow;
use crate::model::{BootNs, DurationNs, Order};
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// Each process has a row of `mem` within this time, also one that does not change: every 10 s,
/// and later where the recorder waits for a CPU.
const ROW_AT_LEAST_EVERY: DurationNs = DurationNs(30_000_000_000);

/// By process: from when until when it is not known what it maps.
#[derive(Debug, Default)]
pub(super) struct Windows(HashMap<usize, Vec<(BootNs, BootNs)>>);

/// A time in which it is not known what a process maps.
#[derive(Debug)]
struct Window {
    from: BootNs,
    until: BootNs,
    /// What it gave back in it, and when.
    steps: Vec<(BootNs, i64)>,
}

/// What a process gave back, in order of time.
#[derive(Debug)]
struct Course {
    windows: Vec<Window>,
    /// The first window that has not ended.
    next: usize,
    /// Shared memory in its RSS.
    shmem: i64,
}

/// What was given back in all windows.
#[derive(Debug)]
pub(super) struct GivenBack(HashMap<usize, Course>);

impl Windows {
    pub(super) fn add(&mut self, process: usize, from: BootNs, until: BootNs) {
        self.0.entry(process).or_default().push((from, until));
    }

    /// Windows that overlap become one.
    fn merged(self) -> GivenBack {
        let courses = self.0.into_iter().map(|(process, mut spans)| {
            merge(&mut spans);
            let windows = spans.into_iter().map(|(from, until)| Window {
                from,
                until,
                steps: Vec::new(),
            });
            let windows = windows.collect();
            let course = Course {
                windows,
                next: 0,
                shmem: 0,
            };
            (process, course)
        });
        GivenBack(courses.collect())
    }
}

impl GivenBack {
    /// Reads what was given back.
    pub(super) fn read<S: RowSource>(
        source: &S,
        table: &ProcessTable,
        windows: Windows,
    ) -> Result<Self, S::Error> {
        let mut given_back = windows.merged();
        let times = given_back.times();
        if times.is_empty() {
            return Ok(given_back);
        }
        let columns = ["boot_ns", "upid", "rss_shmem_bytes"];
        source.scan_within(&times, &columns, |row: MemRow| {
            let process = table.find(row.upid);
            let course = process.and_then(|process| given_back.0.get_mut(&process));
            if let (Some(course), Some(shmem)) = (course, row.rss_shmem_bytes) {
                course.take(row.boot_ns, shmem.0);
            }
        })?;
        Ok(given_back)
    }

    /// All windows of all processes, and before each what tells how much there was when it began.
    fn times(&self) -> Vec<RangeInclusive<BootNs>> {
        let windows = self.0.values().flat_map(|course| &course.windows);
        let mut spans: Vec<(BootNs, BootNs)> = windows
            .map(|window| (BootNs(window.from.0 - ROW_AT_LEAST_EVERY.0), window.until))
            .collect();
        merge(&mut spans);
        let spans = spans.into_iter();
        spans.map(|(from, until)| from..=until).collect()
    }

    /// At times, by process: what it gives back from then until its window ends.
    pub(super) fn left(self) -> impl Iterator<Item = (BootNs, usize, i64)> {
        self.0.into_iter().flat_map(|(process, course)| {
            let windows = course.windows.into_iter();
            windows.flat_map(move |window| {
                let steps = window.steps.iter();
                let all = steps.clone().map(|(_, bytes)| *bytes).sum();
                let left = steps.scan(all, |left: &mut i64, (at, bytes)| {
                    *left -= *bytes;
                    Some((*at, process, *left))
                });
                let left: Vec<(BootNs, usize, i64)> = left.collect();
                std::iter::once((window.from, process, all)).chain(left)
            })
        })
    }
}

/// Puts spans in order, and makes one of those that overlap.
fn merge(spans: &mut Vec<(BootNs, BootNs)>) {
    spans.order_by_key(|span| *span);
    spans.dedup_by(|(from, until), last| {
        let overlaps = *from < last.1;
        if overlaps {
            last.1 = last.1.max(*until);
        }
        overlaps
    });
}

impl Course {
    fn take(&mut self, at: BootNs, shmem: i64) {
        let less = std::mem::replace(&mut self.shmem, shmem) - shmem;
        let past = self.windows[self.next..].iter();
        self.next += past.take_while(|window| window.until < at).count();
        if let Some(window) = self.windows.get_mut(self.next)
            && window.from < at
            && less > 0
        {
            window.steps.push((at, less));
        }
    }
}
