//! Shared memory, every object once: what is mapped, and files of a tmpfs that nobody maps.
//!
//! An object is asked for its size once a second or so; in between, the shared memory in the RSS
//! of those who map it tells at once that there is more, but not of which object.

use super::Held;
use crate::model::tables::ShmObjectRow;
use crate::model::{BootNs, Bytes, DurationNs, MappingKind, Order};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A change is told of by the next look, which comes within this time where it is not known when
/// the one before was.
const LOOK: DurationNs = DurationNs(3_000_000_000);

/// What an object takes from a time on, and who maps it.
#[derive(Clone, Debug)]
struct Change {
    object: usize,
    held: Held,
    /// Whether it was not seen yet: it takes no more than its mappers have in their RSS.
    is_awaited: bool,
    mappers: Arc<[usize]>,
}

#[derive(Clone, Debug, Default)]
struct Object {
    held: Held,
    is_awaited: bool,
    mappers: Arc<[usize]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mapper {
    /// Shared memory in its RSS.
    shmem: i64,
    /// At most so much of that is of objects that are known.
    known: i64,
}

impl Mapper {
    /// Shared memory of no object that is known.
    fn excess(&self) -> i64 {
        (self.shmem - self.known).max(0)
    }
}

/// All objects, as they stand at an instant.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    objects: Vec<Object>,
    /// Their places, by device and inode.
    places: HashMap<(String, i64), usize>,
    mappers: HashMap<usize, Mapper>,
    /// By process: the objects that it maps, and that were not seen yet.
    awaited: HashMap<usize, Vec<usize>>,
    /// How many processes have how much shared memory.
    shmem: BTreeMap<i64, usize>,
    excess: i64,
    sum: Held,
    /// What is to come, the latest first.
    changes: Vec<(BootNs, Change)>,
}

/// What an object takes, by a row.
#[derive(Clone, Debug)]
struct ObjectReading {
    at: BootNs,
    bytes: i64,
    mappers: Arc<[usize]>,
    /// Whether somebody could be asked.
    is_known: bool,
    /// Since when it may have been so.
    since: Option<BootNs>,
}

/// The rows of an object.
#[derive(Debug, Default)]
struct ObjectHistory {
    rows: Vec<ObjectReading>,
    is_trees: bool,
    is_others: bool,
}

/// The rows of all objects, while they are read.
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
        let mappers: Arc<[usize]> = upids
            .filter_map(|upid| upid.parse().ok())
            .filter_map(find)
            .collect();
        let is_trees = row.first_user().is_some();
        let course = self.0.entry((row.device, row.inode)).or_default();
        course.is_trees |= is_trees;
        course.is_others |= row.has_other_mapper == Some(true);
        let last = course.rows.last();
        let mappers = match last {
            Some(last) if last.mappers == mappers => Arc::clone(&last.mappers),
            _ => mappers,
        };
        course.rows.push(ObjectReading {
            at: row.boot_ns,
            bytes: bytes.map_or_else(|| last.map_or(0, |last| last.bytes), |bytes| bytes.0),
            is_known: bytes.is_some(),
            mappers,
            since: row.unchanged_until_boot_ns,
        });
    }
}

impl ObjectHistory {
    /// Of a file of a tmpfs that nobody recorded had open when it was looked at, it is not known
    /// whose it is, unless it was there before.
    fn changes(self, object: usize, start: BootNs, give: &mut impl FnMut(BootNs, Change)) {
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
        let mut before: Option<&ObjectReading> = None;
        for look in &self.rows {
            let is = held(look.bytes, look.is_known);
            let was = before.map_or(held(0, true), |before| held(before.bytes, before.is_known));
            let since = look.since.unwrap_or(BootNs(look.at.0 - LOOK.0));
            let change = Change {
                object,
                held: was.hull(is),
                is_awaited: before.is_none() && !look.mappers.is_empty(),
                mappers: Arc::clone(before.map_or(&look.mappers, |before| &before.mappers)),
            };
            give(before.map_or(start, |before| before.at).max(since), change);
            let change = Change {
                object,
                held: is,
                is_awaited: false,
                mappers: Arc::clone(&look.mappers),
            };
            give(look.at, change);
            before = Some(look);
        }
    }
}

impl Objects {
    /// Takes the rows of all objects. What is later than `since` replaces what was known of that
    /// time; what is earlier has passed.
    pub(super) fn prepare(
        &mut self,
        courses: ObjectHistories,
        start: BootNs,
        since: Option<BootNs>,
    ) {
        let mut changes = Vec::new();
        for (key, course) in courses.0 {
            let next = self.places.len();
            let object = *self.places.entry(key).or_insert(next);
            course.changes(object, start, &mut |at, change| changes.push((at, change)));
        }
        changes.retain(|(at, _)| since.is_none_or(|since| *at > since));
        changes.order_by_key(|(at, _)| *at);
        changes.reverse();
        self.objects.resize(self.places.len(), Object::default());
        self.changes = changes;
    }

    /// When something changes by itself.
    pub(super) fn next_change(&self) -> Option<BootNs> {
        self.changes.last().map(|(at, _)| *at)
    }

    /// Takes what changes by itself until an instant.
    pub(super) fn pass(&mut self, until: BootNs) {
        while let Some((at, _)) = self.changes.last()
            && *at <= until
        {
            if let Some((_, change)) = self.changes.pop() {
                self.change(change);
            }
        }
    }

    /// A process has so much shared memory in its RSS from now on.
    pub(super) fn set(&mut self, process: usize, shmem: i64) {
        if shmem == 0 && !self.mappers.contains_key(&process) {
            return;
        }
        let awaited = self.awaited.get(&process).cloned().unwrap_or_default();
        for &object in &awaited {
            self.sum = self.sum.minus(self.held_by(object));
        }
        let mapper = self.mappers.entry(process).or_default();
        self.excess -= mapper.excess();
        let before = std::mem::replace(&mut mapper.shmem, shmem);
        self.excess += mapper.excess();
        if let Some(count) = self.shmem.get_mut(&before) {
            *count -= 1;
            if *count == 0 {
                self.shmem.remove(&before);
            }
        }
        *self.shmem.entry(shmem).or_default() += 1;
        for object in awaited {
            self.sum = self.sum.plus(self.held_by(object));
        }
    }

    /// What all objects take.
    pub(super) fn held(&self) -> Held {
        let most = self.shmem.last_key_value().map_or(0, |(shmem, _)| *shmem);
        let at_least = self.sum.at_least.max(Bytes(most));
        let at_most = self.sum.at_most + Bytes(self.excess);
        let at_most = at_most.max(at_least);
        Held {
            at_least,
            bytes: self.sum.bytes.clamp(at_least, at_most),
            at_most,
        }
    }

    fn held_by(&self, place: usize) -> Held {
        let object = &self.objects[place];
        if !object.is_awaited {
            return object.held;
        }
        let shmem = |process| self.mappers.get(process).map_or(0, |mapper| mapper.shmem);
        let room: i64 = object.mappers.iter().map(shmem).sum();
        Held {
            at_most: object.held.at_most.min(Bytes(room)),
            ..object.held
        }
    }

    fn change(&mut self, change: Change) {
        let place = change.object;
        self.sum = self.sum.minus(self.held_by(place));
        let known = self.objects[place].held.at_most.0;
        let old = std::mem::take(&mut self.objects[place].mappers);
        for &process in old.iter() {
            self.know(process, -known);
            if self.objects[place].is_awaited
                && let Some(awaited) = self.awaited.get_mut(&process)
            {
                awaited.retain(|object| *object != place);
            }
        }
        for &process in change.mappers.iter() {
            self.know(process, change.held.at_most.0);
            if change.is_awaited {
                self.awaited.entry(process).or_default().push(place);
            }
        }
        self.objects[place] = Object {
            held: change.held,
            is_awaited: change.is_awaited,
            mappers: change.mappers,
        };
        self.sum = self.sum.plus(self.held_by(place));
    }

    fn know(&mut self, process: usize, more: i64) {
        let mapper = self.mappers.entry(process).or_insert_with(|| {
            *self.shmem.entry(0).or_default() += 1;
            Mapper::default()
        });
        self.excess -= mapper.excess();
        mapper.known += more;
        self.excess += mapper.excess();
    }
}
