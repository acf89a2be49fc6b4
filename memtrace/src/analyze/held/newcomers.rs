//! Processes that came to map shared memory, and what they gave back before they were seen to.
//!
//! What a process has of shared memory before it is seen what it maps, and still has then, is of
//! the objects that it maps then; only what it gave back meanwhile can be of others. How much that
//! was stands in `mem`, which is read once more for it, from where somebody can have come to map
//! something until it was read.

use crate::analyze::RowSource;
use crate::analyze::process_table::ProcessTable;
use crate::model::tables::MemRow;
use crate::model::{BootNs, Bytes, DurationNs, Order};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Each process has a row of `mem` so often, also one that does not change: every 10 s, and some
/// time later where the recorder waits for a CPU.
const ROW_EVERY: DurationNs = DurationNs(30_000_000_000);
/// So many times are told apart at which one gives back memory; of more, two count as the later one.
const STEPS_MAX: usize = 64;

/// A process that was seen to map an object that it was not seen to map before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newcomer {
    /// The place of the object: among all histories, and then among all objects.
    pub(super) object: usize,
    pub(super) process: usize,
    /// From when what it has can be of the object.
    pub(super) from: BootNs,
    /// When it was read what it maps.
    pub(super) read: BootNs,
    /// When a row said so.
    pub(super) until: BootNs,
}

/// A time before it was read what a process maps. That of the next reading can overlap it.
#[derive(Debug)]
struct Window {
    from: BootNs,
    until: BootNs,
    /// What it gave back in it, and when.
    steps: Vec<(BootNs, Bytes)>,
}

/// A process, while `mem` is read.
#[derive(Debug)]
struct Course {
    windows: Vec<Window>,
    /// The first window that has not ended.
    next: usize,
    last: BootNs,
    /// Shared memory in its RSS.
    shmem: Option<Bytes>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Newcomers {
    pub(super) list: Vec<Newcomer>,
    /// By process.
    courses: BTreeMap<usize, Course>,
}

impl Newcomers {
    /// Those of whom it is not known what they gave back.
    pub(super) fn unread(list: Vec<Newcomer>) -> Self {
        Self {
            list,
            courses: BTreeMap::new(),
        }
    }

    /// Reads what they gave back. A row of `mem` tells of the time up to `interval` before it.
    pub(super) fn read<S: RowSource>(
        source: &S,
        table: &ProcessTable,
        list: Vec<Newcomer>,
        interval: DurationNs,
    ) -> Result<Self, S::Error> {
        let mut courses: BTreeMap<usize, Vec<(BootNs, BootNs)>> = BTreeMap::new();
        for one in &list {
            let spans = courses.entry(one.process).or_default();
            spans.push((one.from, one.read + interval));
        }
        let courses = courses.into_iter();
        let mut newcomers = Self {
            list,
            courses: courses
                .map(|(process, spans)| (process, Course::of(spans)))
                .collect(),
        };
        let times = newcomers.times();
        if times.is_empty() {
            return Ok(newcomers);
        }
        let columns = ["boot_ns", "upid", "rss_shmem_bytes"];
        source.scan_within(&times, &columns, |row: MemRow| {
            let process = table.find(row.upid);
            let course = process.and_then(|process| newcomers.courses.get_mut(&process));
            if let (Some(course), Some(shmem)) = (course, row.rss_shmem_bytes) {
                course.take(row.boot_ns, shmem);
            }
        })?;
        Ok(newcomers)
    }

    /// All windows, and before each what tells how much there was when it began.
    fn times(&self) -> Vec<RangeInclusive<BootNs>> {
        let windows = self.courses.values().flat_map(|course| &course.windows);
        let spans = windows.map(|window| (window.from + DurationNs(-ROW_EVERY.0), window.until));
        let spans = merged(spans.collect()).into_iter();
        spans.map(|(from, until)| from..=until).collect()
    }

    /// At times, by process: what it gives back from then on until it is read what it maps. Where
    /// windows overlap that is of the later one, in which all that is left of the other is, too.
    pub(super) fn given_back(&self) -> impl Iterator<Item = (BootNs, usize, Bytes)> {
        self.courses.iter().flat_map(|(process, course)| {
            let next = course
                .windows
                .iter()
                .skip(1)
                .map(|window| Some(window.from));
            let windows = course.windows.iter().zip(next.chain([None]));
            windows.flat_map(|(window, next)| {
                let left = window.left();
                let left = left.filter(move |(at, _)| next.is_none_or(|next| *at < next));
                left.map(|(at, left)| (at, *process, left))
            })
        })
    }
}

impl Window {
    /// At times: what is given back from then on.
    fn left(&self) -> impl Iterator<Item = (BootNs, Bytes)> {
        let mut left = Vec::with_capacity(self.steps.len() + 1);
        let mut later = Bytes(0);
        for (at, bytes) in self.steps.iter().rev() {
            left.push((*at, later));
            later = later + *bytes;
        }
        left.push((self.from, later));
        left.into_iter().rev()
    }

    fn take(&mut self, at: BootNs, bytes: Bytes) {
        if self.steps.len() == STEPS_MAX {
            let pairs = self.steps.chunks_exact(2);
            self.steps = pairs
                .map(|pair| (pair[1].0, pair[0].1 + pair[1].1))
                .collect();
        }
        self.steps.push((at, bytes));
    }
}

impl Course {
    fn of(mut spans: Vec<(BootNs, BootNs)>) -> Self {
        spans.order_by_key(|(from, until)| (*from, Reverse(*until)));
        // None is within another: both ends are in order.
        spans.dedup_by(|(_, until), last| *until <= last.1);
        let windows = spans.into_iter().map(|(from, until)| Window {
            from,
            until,
            steps: Vec::new(),
        });
        Self {
            windows: windows.collect(),
            next: 0,
            last: BootNs(0),
            shmem: None,
        }
    }

    fn take(&mut self, at: BootNs, shmem: Bytes) {
        // A row that came much too late counts from now on.
        let at = at.max(self.last);
        let last = std::mem::replace(&mut self.last, at);
        let before = self.shmem.replace(shmem).unwrap_or(shmem);
        let past = self.windows.get(self.next..).unwrap_or_default().iter();
        self.next += past.take_while(|window| window.until < at).count();
        let windows = self.windows.get_mut(self.next..).unwrap_or_default();
        for window in windows.iter_mut().take_while(|window| window.from < at) {
            // Rows before that may have been left out.
            if last >= window.from + DurationNs(-ROW_EVERY.0) && before > shmem {
                window.take(at, before - shmem);
            }
        }
    }
}

/// Spans in order, those that overlap as one.
fn merged(mut spans: Vec<(BootNs, BootNs)>) -> Vec<(BootNs, BootNs)> {
    spans.order_by_key(|span| *span);
    spans.dedup_by(|(from, until), last| {
        let overlaps = *from < last.1;
        if overlaps {
            last.1 = last.1.max(*until);
        }
        overlaps
    });
    spans
}
