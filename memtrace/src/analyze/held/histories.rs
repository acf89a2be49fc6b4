//! The rows of objects of shared memory: what each took from when until when, who mapped it, and who
//! came to map it.

use super::Held;
use super::newcomers::Newcomer;
use crate::analyze::process_table::ProcessTable;
use crate::model::tables::{PssRow, ShmObjectRow};
use crate::model::{BootNs, Bytes, DurationNs, MappingKind, Order};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A change is told of by the next look, which comes within this time where it is not known when
/// the one before was.
const LOOK: DurationNs = DurationNs(3_000_000_000);
/// No more that come to map an object are followed: where there are more the upper bound is wider.
/// A node of Ray has thousands.
const NEWCOMERS_MAX: usize = 1 << 18;

/// What an object takes from a time on, and who maps it.
#[derive(Clone, Debug)]
pub(super) struct ObjectChange {
    pub(super) object: usize,
    pub(super) held: Held,
    /// Whether it was not seen yet: it takes no more than what came to be in the RSS of those that
    /// come to map it.
    pub(super) is_awaited: bool,
    pub(super) mappers: Arc<[usize]>,
}

/// What an object takes, by a row.
#[derive(Clone, Debug)]
struct Look {
    at: BootNs,
    bytes: i64,
    mappers: Arc<[usize]>,
    /// Whether somebody could be asked.
    is_known: bool,
    /// Since when it may have been so.
    since: Option<BootNs>,
}

impl Look {
    /// What was not seen before this was not there before this either.
    fn horizon(&self) -> BootNs {
        self.at + DurationNs(-LOOK.0)
    }
}

/// The rows of an object.
#[derive(Debug, Default)]
pub(super) struct ObjectHistory {
    rows: Vec<Look>,
    is_trees: bool,
    is_others: bool,
    /// The most that it was seen to take.
    most: i64,
    /// When the first of those who came to map it can have done so, if that is before it was seen.
    came_with: Option<BootNs>,
}

/// The rows of all objects, by device and inode, while they are read.
#[derive(Debug, Default)]
pub(super) struct ObjectHistories(BTreeMap<(String, i64), ObjectHistory>);

impl ObjectHistories {
    pub(super) const COLUMNS: &[&str] = &[
        "boot_ns",
        "device",
        "inode",
        "kind",
        "allocated_bytes",
        "resident_bytes",
        "mappers",
        "first_mapper_upid",
        "first_opener_upid",
        "unchanged_until_boot_ns",
        "has_other_mapper",
    ];

    /// `find` gives the position of a process by its identity.
    pub(super) fn take(&mut self, row: ShmObjectRow, find: impl Fn(i64) -> Option<usize>) {
        // These are in no RSS, and a group is not charged for them.
        if row.kind == Some(MappingKind::Hugetlb) {
            return;
        }
        let bytes = row.in_memory_bytes();
        let upids = row.mappers.split(' ');
        let mappers = upids.filter_map(|upid| upid.parse().ok());
        let mut mappers: Vec<usize> = mappers.filter_map(find).collect();
        mappers.sort_unstable();
        mappers.dedup();
        let is_trees = row.first_user().is_some();
        let history = self.0.entry((row.device, row.inode)).or_default();
        history.is_trees |= is_trees;
        history.is_others |= row.has_other_mapper == Some(true);
        let last = history.rows.last();
        let mappers = match last {
            Some(last) if *last.mappers == *mappers => Arc::clone(&last.mappers),
            _ => mappers.into(),
        };
        let bytes_now = bytes.map_or_else(|| last.map_or(0, |last| last.bytes), |bytes| bytes.0);
        history.most = history.most.max(bytes_now);
        history.rows.push(Look {
            at: row.boot_ns,
            bytes: bytes_now,
            is_known: bytes.is_some(),
            mappers,
            since: row.unchanged_until_boot_ns,
        });
    }

    /// Who came to map an object, from when on each can have mapped it, and until when it has to be
    /// known what each gave back; those of the largest objects first. Takes from that since when each
    /// object can have been there.
    pub(super) fn newcomers(
        &mut self,
        table: &ProcessTable,
        readings: &ReadTimes,
        start: BootNs,
    ) -> Vec<Newcomer> {
        let mut histories: Vec<(usize, &mut ObjectHistory)> =
            self.0.values_mut().enumerate().collect();
        histories.order_by_key(|(object, history)| (Reverse(history.most), *object));
        let mut newcomers = Vec::new();
        for (object, history) in histories {
            let first = newcomers.len();
            history.newcomers(object, table, readings, &mut newcomers);
            if newcomers.len() > NEWCOMERS_MAX {
                return Vec::new();
            }
            history.note_newcomers(start, &mut newcomers[first..]);
        }
        newcomers
    }

    /// Who was seen to map each object at the first look at it, if that was after `since`; it is
    /// not known what they gave back before that.
    pub(super) fn first_mappers(&self, start: BootNs, since: Option<BootNs>) -> Vec<Newcomer> {
        let mut newcomers = Vec::new();
        for (object, history) in self.0.values().enumerate() {
            let look = history.rows.first();
            let Some(look) = look.filter(|look| since.is_none_or(|since| look.at > since)) else {
                continue;
            };
            let from = history.earliest(look, start);
            newcomers.extend(look.mappers.iter().map(|process| Newcomer {
                object,
                process: *process,
                from,
                read: look.at,
                until: look.at,
            }));
            if newcomers.len() > NEWCOMERS_MAX {
                return Vec::new();
            }
        }
        newcomers
    }

    /// All, in a stable order.
    pub(super) fn into_iter(self) -> impl Iterator<Item = ((String, i64), ObjectHistory)> {
        self.0.into_iter()
    }
}

/// When processes were read what they map.
#[derive(Debug, Default)]
pub(super) struct ReadTimes(HashMap<usize, Vec<(BootNs, BootNs)>>);

impl ReadTimes {
    /// Rows of a process come in order of time.
    pub(super) fn take(&mut self, process: usize, row: &PssRow) {
        let began = row.boot_ns + DurationNs(-row.span_ns.0);
        self.0
            .entry(process)
            .or_default()
            .push((began, row.boot_ns));
    }

    /// The last reading of a process by an instant, if it was later than `since`, and when the one
    /// before began.
    fn told(
        &self,
        process: usize,
        since: Option<BootNs>,
        by: BootNs,
    ) -> (Option<BootNs>, Option<BootNs>) {
        let times = self.0.get(&process).map_or(&[][..], Vec::as_slice);
        let mut past = times[..times.partition_point(|(_, at)| *at <= by)]
            .iter()
            .rev();
        let told = past.clone().next().map(|(_, at)| *at);
        let told = told.filter(|at| since.is_none_or(|since| *at > since));
        let before = past.nth(usize::from(told.is_some()));
        (told, before.map(|(began, _)| *began))
    }
}

impl ObjectHistory {
    fn newcomers(
        &self,
        object: usize,
        table: &ProcessTable,
        readings: &ReadTimes,
        found: &mut Vec<Newcomer>,
    ) {
        // When each that mapped it was first seen not to do so.
        let mut left: HashMap<usize, BootNs> = HashMap::new();
        let mut before: Option<&Look> = None;
        for look in &self.rows {
            let mapped = before.map_or(&[][..], |before| &before.mappers);
            let since = look.since.or(before.map(|before| before.at));
            let is_unchanged = before.is_some_and(|was| Arc::ptr_eq(&was.mappers, &look.mappers));
            before = Some(look);
            if is_unchanged {
                continue;
            }
            let is_in = |mappers: &[usize], process| mappers.binary_search(process).is_ok();
            for process in mapped {
                if !is_in(&look.mappers, process) {
                    left.insert(*process, look.at);
                }
            }
            let came = look.mappers.iter();
            for process in came.filter(|process| !is_in(mapped, process)) {
                if found.len() > NEWCOMERS_MAX {
                    return;
                }
                let (told, before) = readings.told(*process, since, look.at);
                // It did not map it at the reading before, nor when it had left.
                let started = table.processes[*process].start.boot_ns;
                let from = before.unwrap_or(started);
                let from = left.get(process).map_or(from, |left| from.max(*left));
                // The reading that told it can have been lost, and this one be of long before.
                let read = told.filter(|told| *told >= look.horizon());
                found.push(Newcomer {
                    object,
                    process: *process,
                    from,
                    read: read.unwrap_or(look.at),
                    until: look.at,
                });
            }
        }
    }

    /// Takes since when it can have been there: nobody had anything of it before the first of those
    /// who came to map it could.
    fn note_newcomers(&mut self, start: BootNs, newcomers: &mut [Newcomer]) {
        let Some(look) = self.rows.first() else {
            return;
        };
        let times = newcomers.iter().map(|newcomer| newcomer.from);
        self.came_with = times.filter(|from| *from <= look.at).min();
        let earliest = self.earliest(look, start);
        for newcomer in newcomers {
            newcomer.from = newcomer.from.max(earliest).min(newcomer.until);
        }
    }

    /// Since when what its first row tells can have been so.
    fn earliest(&self, first: &Look, start: BootNs) -> BootNs {
        let since = first.since.or(self.came_with);
        since.unwrap_or(first.horizon()).max(start)
    }

    /// What it took from when on; one that was not seen before is awaited first.
    ///
    /// Of a file of a tmpfs that nobody recorded had open when it was looked at, it is not known
    /// whose it is, unless it was there before.
    pub(super) fn changes(
        self,
        object: usize,
        start: BootNs,
        was_seen: bool,
        give: &mut impl FnMut(BootNs, ObjectChange),
    ) {
        let Some(first) = self.rows.first() else {
            return;
        };
        let is_new = first.since.is_some() || (first.at - start).0 > 2 * LOOK.0;
        if !self.is_trees && (self.is_others || !is_new) {
            return;
        }
        let held = |bytes: i64, is_known: bool| Held {
            at_least: Bytes(if self.is_trees && is_known { bytes } else { 0 }),
            bytes: Bytes(if self.is_trees { bytes } else { 0 }),
            at_most: Bytes(bytes),
        };
        let mut before: Option<&Look> = None;
        for look in &self.rows {
            let is = held(look.bytes, look.is_known);
            let change = |from: &Look| ObjectChange {
                object,
                held: held(from.bytes, from.is_known).hull(is),
                is_awaited: false,
                mappers: Arc::clone(&from.mappers),
            };
            match before {
                Some(before) => {
                    let since = look.since.unwrap_or(look.horizon());
                    give(before.at.max(since), change(before));
                }
                None if !was_seen => {
                    let unseen = |is_awaited: bool| ObjectChange {
                        object,
                        held: held(0, true).hull(is),
                        is_awaited,
                        mappers: [].into(),
                    };
                    let is_mapped = !look.mappers.is_empty();
                    if is_mapped || look.since.is_none() {
                        give(self.earliest(look, start), unseen(true));
                    }
                    if !is_mapped {
                        let since = look.since.unwrap_or(look.horizon());
                        give(since.max(start), unseen(false));
                    }
                }
                None => {}
            }
            give(look.at, change(look));
            before = Some(look);
        }
    }
}
