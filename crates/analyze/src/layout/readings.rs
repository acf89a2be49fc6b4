//! The readings of one process: each is the rows of one time, and a few of them are kept.

use super::LayoutLine;
use memtrace_model::tables::{LayoutPart, LayoutRow};
use memtrace_model::{BootNs, Bytes, DurationNs, Order};
use std::collections::BTreeMap;
use std::sync::Arc;

/// So many are kept of a process, evenly over its life, and the last one and the highest.
const KEPT_MAX: usize = 32;

/// A part that is less of all does not matter.
const SMALL_PART: i64 = 10;

/// What tells parts of a process apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartKey {
    part: LayoutPart,
    unit: Option<Bytes>,
    /// Of regions to which the program gave one. What others are called can change.
    name: Option<Arc<str>>,
}

impl PartKey {
    pub(super) fn of(line: &LayoutLine) -> Self {
        let name = line.name.as_ref();
        Self {
            part: line.part,
            unit: line.unit_bytes,
            name: name.filter(|_| line.part == LayoutPart::Named).cloned(),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) at: BootNs,
    pub(super) span: DurationNs,
    /// Each as if it had gained what it holds.
    pub(super) parts: BTreeMap<PartKey, LayoutLine>,
}

impl Reading {
    /// The reading of a row, without a part yet.
    fn at(row: &LayoutRow) -> Self {
        Self {
            at: row.boot_ns,
            span: row.span_ns,
            parts: BTreeMap::new(),
        }
    }

    /// All of it.
    pub(super) fn sum(&self) -> Bytes {
        self.parts.values().map(|line| line.rss_bytes).sum()
    }

    /// Whether free blocks were looked for in what its heaps hold.
    pub(super) fn is_searched(&self) -> bool {
        self.parts.values().all(|line| {
            let is_small = line.rss_bytes.0 < self.sum().0 / SMALL_PART;
            is_small || line.searched_bytes.is_some() || !line.part.is_heap()
        })
    }

    /// What of it is anonymous.
    pub(super) fn anonymous(&self) -> Bytes {
        let parts = self.parts.values();
        let anonymous = parts.filter(|line| line.part.is_anonymous());
        anonymous.map(|line| line.rss_bytes).sum()
    }

    fn take(&mut self, row: LayoutRow, part: LayoutPart) {
        let line = LayoutLine::of(row, part);
        self.parts.insert(PartKey::of(&line), line);
    }
}

/// Readings as they come.
#[derive(Debug, Default)]
pub(super) struct Readings {
    kept: Vec<Reading>,
    /// Of so many readings one is kept.
    each: usize,
    count: usize,
    /// The one whose rows come.
    open: Option<Reading>,
    highest: Option<Reading>,
}

impl Readings {
    pub(super) fn take(&mut self, row: LayoutRow) {
        // A newer memtrace can know more parts.
        let Some(part) = row.part else { return };
        if self.open.as_ref().is_none_or(|open| open.at != row.boot_ns) {
            self.close(false);
            self.open = Some(Reading::at(&row));
        }
        if let Some(open) = &mut self.open {
            open.take(row, part);
        }
    }

    fn close(&mut self, is_last: bool) {
        let Some(reading) = self.open.take() else {
            return;
        };
        if self
            .highest
            .as_ref()
            .is_none_or(|highest| reading.sum() > highest.sum())
        {
            self.highest = Some(reading.clone());
        }
        self.each = self.each.max(1);
        if is_last || self.count.is_multiple_of(self.each) {
            self.kept.push(reading);
        }
        self.count += 1;
        if self.kept.len() > KEPT_MAX {
            let mut place = 0;
            self.kept.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.each *= 2;
        }
    }

    /// How many there were, and those that are kept, in the order of time.
    pub(super) fn finish(mut self) -> (usize, Vec<Reading>) {
        self.close(true);
        if let Some(highest) = self.highest.take() {
            let place = self.kept.partition_point(|one| one.at < highest.at);
            if self.kept.get(place).is_none_or(|one| one.at != highest.at) {
                self.kept.insert(place, highest);
            }
        }
        (self.count, self.kept)
    }
}

/// The parts of one reading, the largest first. They gained what they hold.
pub(crate) fn parts_of(rows: Vec<LayoutRow>) -> Option<Vec<LayoutLine>> {
    let mut reading = Reading::at(rows.first()?);
    for row in rows {
        if let Some(part) = row.part {
            reading.take(row, part);
        }
    }
    let mut parts: Vec<LayoutLine> = reading.parts.into_values().collect();
    parts.order_by_key(|line| std::cmp::Reverse(line.rss_bytes));
    Some(parts)
}
