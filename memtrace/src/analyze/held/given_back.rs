//! Shared memory that processes gave back before it was seen what they map.
//!
//! A look tells what a process maps at its time. Of the time before it tells as much: what the
//! process had and did not give back until then is of what it maps then. How much it gave back
//! stands in `mem`, which is read for it once more, where somebody came to map something.

use crate::analyze::RowSource;
use crate::analyze::process_table::ProcessTable;
use crate::model::tables::MemRow;
use crate::model::{BootNs, Order};
use std::collections::HashMap;

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
            spans.order_by_key(|span| *span);
            let mut windows: Vec<Window> = Vec::new();
            for (from, until) in spans {
                match windows.last_mut() {
                    Some(last) if from < last.until => last.until = last.until.max(until),
                    _ => windows.push(Window {
                        from,
                        until,
                        steps: Vec::new(),
                    }),
                }
            }
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
        if !given_back.0.is_empty() {
            source.scan(&["boot_ns", "upid", "rss_shmem_bytes"], |row: MemRow| {
                let process = table.find(row.upid);
                let course = process.and_then(|process| given_back.0.get_mut(&process));
                if let (Some(course), Some(shmem)) = (course, row.rss_shmem_bytes) {
                    course.take(row.boot_ns, shmem.0);
                }
            })?;
        }
        Ok(given_back)
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
