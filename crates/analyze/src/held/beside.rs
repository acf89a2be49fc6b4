//! What processes hold that no RSS counts: page tables, and huge pages of hugetlbfs. Both are as they
//! were when the process was read last. Huge pages that a fork shares count in each process, so all of
//! them are no more than the machine has in use.

use super::Held;
use super::objects::{ObjectHistories, Objects};
use memtrace_model::tables::PssRow;
use memtrace_model::{BootNs, Bytes, Order};

/// What a reading of a process tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    process: usize,
    at: BootNs,
    page_tables: i64,
    huge: i64,
}

impl Reading {
    pub(super) fn of(process: usize, row: &PssRow) -> Self {
        Self {
            process,
            at: row.boot_ns,
            page_tables: row.page_tables_bytes.unwrap_or_default().0.max(0),
            huge: row.hugetlb_bytes.unwrap_or_default().0.max(0),
        }
    }
}

/// The sums over all processes, as they stand at an instant.
#[derive(Clone, Debug, Default)]
pub(super) struct Beside {
    /// By position in the process table.
    page_tables: Vec<i64>,
    page_table_sum: i64,
    huge: Objects,
    /// What the machine has in use of huge pages, and what it is going to have, the latest first.
    used: Option<i64>,
    used_later: Vec<(BootNs, i64)>,
    has_ended: Vec<bool>,
    /// What is to come, the latest first.
    readings: Vec<Reading>,
    /// Of whom something else is known, since this was asked last.
    touched: Vec<usize>,
}

impl Beside {
    /// Takes readings, the rows of objects of hugetlbfs, and what the machine has in use of it. What is
    /// later than `since` replaces what was known of that time; what is earlier has passed. Of `used_later`
    /// the latest comes first.
    pub(super) fn prepare(
        &mut self,
        mut readings: Vec<Reading>,
        objects: ObjectHistories,
        used_later: Vec<(BootNs, i64)>,
        start: BootNs,
        since: Option<BootNs>,
    ) {
        self.huge.prepare(objects, start, since);
        readings.retain(|reading| since.is_none_or(|since| reading.at > since));
        readings.order_by_key(|reading| (reading.at, reading.process));
        readings.reverse();
        self.readings = readings;
        self.used_later = used_later;
    }

    /// When something changes by itself.
    pub(super) fn next_change(&self) -> Option<BootNs> {
        let reading = self.readings.last().map(|reading| reading.at);
        let used = self.used_later.last().map(|(at, _)| *at);
        [reading, used, self.huge.next_change()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Takes what changes by itself until an instant.
    pub(super) fn pass(&mut self, until: BootNs) {
        while let Some(reading) = self.readings.pop_if(|reading| reading.at <= until) {
            self.set(reading.process, reading.page_tables, reading.huge);
        }
        while let Some((_, used)) = self.used_later.pop_if(|(at, _)| *at <= until) {
            self.used = Some(used);
        }
        self.huge.pass(until);
    }

    /// A process has ended: what was read of it before counts no more, nor does what comes late.
    pub(super) fn end(&mut self, process: usize) {
        self.set(process, 0, 0);
        if process >= self.has_ended.len() {
            self.has_ended.resize(process + 1, false);
        }
        self.has_ended[process] = true;
    }

    fn set(&mut self, process: usize, page_tables: i64, huge: i64) {
        if self.has_ended.get(process) == Some(&true) {
            return;
        }
        if process >= self.page_tables.len() {
            if page_tables == 0 && huge == 0 {
                return;
            }
            self.page_tables.resize(process + 1, 0);
        }
        let before = std::mem::replace(&mut self.page_tables[process], page_tables);
        self.page_table_sum = self.page_table_sum.saturating_add(page_tables - before);
        self.huge.set(process, huge);
        self.touched.push(process);
    }

    /// What was last read of a process: huge pages, page tables.
    pub(super) fn part(&self, process: usize) -> (i64, i64) {
        let tables = self.page_tables.get(process).copied();
        (self.huge.part(process), tables.unwrap_or(0))
    }

    /// Those whose part may have moved since this was asked last.
    pub(super) fn take_touched(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.touched)
    }

    /// What page tables take.
    pub(super) fn page_tables(&self) -> Held {
        Held::exact(self.page_table_sum)
    }

    /// What huge pages take.
    pub(super) fn huge(&self) -> Held {
        let counted = self.huge.held_with_private();
        let next = self.used_later.last().map(|(_, used)| *used);
        // Between two readings it is within both.
        let most = self.used.max(next).map_or(counted.at_most, Bytes);
        let at_most = counted.at_most.min(most).max(counted.at_least);
        Held {
            at_least: counted.at_least,
            bytes: counted.bytes.min(at_most).max(counted.at_least),
            at_most,
        }
    }
}
