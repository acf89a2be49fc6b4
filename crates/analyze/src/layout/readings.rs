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
    pub(super) part: LayoutPart,
    pub(super) unit: Option<Bytes>,
    /// Of regions to which the program gave one. What others are called can change.
    name: Option<Arc<str>>,
}

impl PartKey {
    pub(super) fn new(part: LayoutPart, unit: Option<Bytes>, name: Option<&Arc<str>>) -> Self {
        Self {
            part,
            unit,
            name: name.filter(|_| part == LayoutPart::Named).cloned(),
        }
    }

    pub(super) fn of(line: &LayoutLine) -> Self {
        Self::new(line.part, line.unit_bytes, line.name.as_ref())
    }
}

/// What was read of one part.
#[derive(Clone, Debug, Default)]
pub(super) struct Amounts {
    pub(super) name: Option<Arc<str>>,
    pub(super) item_count: i64,
    pub(super) size: Bytes,
    pub(super) rss: Bytes,
    pub(super) private: Bytes,
    pub(super) searched: Option<Bytes>,
    pub(super) searched_age: Option<DurationNs>,
    pub(super) free: Option<Bytes>,
    pub(super) free_pages: Option<Bytes>,
    pub(super) zero: Option<Bytes>,
    pub(super) huge: Option<Bytes>,
    pub(super) lazy_free: Option<Bytes>,
}

impl Amounts {
    /// Memory that its allocator keeps free, from what was searched.
    pub(super) fn free_of_all(&self) -> Option<f64> {
        let share = super::share(self.free?, self.searched?)?;
        Some(share * self.rss.0 as f64)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) at: BootNs,
    pub(super) span: DurationNs,
    pub(super) parts: BTreeMap<PartKey, Amounts>,
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
        self.parts.values().map(|amounts| amounts.rss).sum()
    }

    /// Whether free blocks were looked for in what its heaps hold.
    pub(super) fn is_searched(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.all(|(key, amounts)| {
            let is_small = amounts.rss.0 < self.sum().0 / SMALL_PART;
            is_small || amounts.searched.is_some() || !key.part.is_heap()
        })
    }

    /// What of it is anonymous.
    pub(super) fn anonymous(&self) -> Bytes {
        let parts = self.parts.iter();
        let anonymous = parts.filter(|(key, _)| key.part.is_anonymous());
        anonymous.map(|(_, amounts)| amounts.rss).sum()
    }

    fn take(&mut self, row: LayoutRow, part: LayoutPart) {
        let name = row.name.map(Arc::from);
        let key = PartKey::new(part, row.unit_bytes, name.as_ref());
        let amounts = Amounts {
            name,
            item_count: row.item_count,
            size: row.size_bytes,
            rss: row.rss_bytes,
            private: row.private_bytes,
            searched: row.searched_bytes,
            searched_age: row.searched_age_ns,
            free: row.free_bytes,
            free_pages: row.free_page_bytes,
            zero: row.zero_bytes,
            huge: row.huge_bytes,
            lazy_free: row.lazy_free_bytes,
        };
        self.parts.insert(key, amounts);
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
    let parts = reading.parts.iter();
    let mut parts: Vec<LayoutLine> = parts
        .map(|(key, amounts)| LayoutLine::of(key, amounts, None))
        .collect();
    parts.order_by_key(|line| std::cmp::Reverse(line.rss_bytes));
    Some(parts)
}
