//! Shared memory, every object once: what is mapped, and files of a tmpfs that nobody maps.
//!
//! An object is asked for its size once a second or so; in between, the shared memory in the RSS of
//! those who map it tells at once that there is more, but not of which object.

use super::Held;
use super::highest::Highest;
use memtrace_model::tables::ShmObjectRow;
use memtrace_model::{BootNs, Bytes, DurationNs, Order};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A change is seen by the next look, which comes within this time where it is not known when the
/// one before was.
const LOOK: DurationNs = DurationNs(3_000_000_000);

/// What a hostile recording can have in all of it fits.
type Sum = i128;

/// What an object takes, by a row.
#[derive(Clone, Debug)]
struct Look {
    at: BootNs,
    bytes: Bytes,
    mappers: Arc<[usize]>,
    /// Whether somebody could be asked.
    is_known: bool,
    /// Since when it may have been so.
    since: Option<BootNs>,
}

/// The rows of an object.
#[derive(Debug, Default)]
struct ObjectHistory {
    looks: Vec<Look>,
    is_trees: bool,
    is_others: bool,
}

/// The rows of all objects, by device and inode, while they are read.
#[derive(Debug, Default)]
pub(super) struct ObjectHistories(BTreeMap<(String, i64), ObjectHistory>);

/// What an object takes from a time on, and who maps it.
#[derive(Clone, Debug)]
struct Change {
    object: usize,
    held: Held,
    mappers: Arc<[usize]>,
}

#[derive(Clone, Debug, Default)]
struct Object {
    held: Held,
    mappers: Arc<[usize]>,
    is_seen: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mapper {
    /// Shared memory in its RSS.
    shmem: Sum,
    /// At most so much is of objects that it was seen to map.
    known: Sum,
}

impl Mapper {
    /// Shared memory of no object that is known.
    fn excess(&self) -> Sum {
        (self.shmem - self.known).max(0)
    }
}

/// All objects, as they stand at an instant.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    objects: Vec<Object>,
    /// Their places, by device and inode.
    places: HashMap<(String, i64), usize>,
    /// By position in the process table.
    mappers: Vec<Mapper>,
    /// Shared memory in the RSS of processes.
    shmem: Highest,
    /// What all objects take.
    seen: Held,
    excess: Sum,
    /// What is to come, the latest first.
    events: Vec<(BootNs, Change)>,
}

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
        let last = history.looks.last();
        let mappers = match last {
            Some(last) if *last.mappers == *mappers => Arc::clone(&last.mappers),
            _ => mappers.into(),
        };
        let reported = bytes.or(last.map(|last| last.bytes));
        history.looks.push(Look {
            at: row.boot_ns,
            bytes: reported.unwrap_or_default(),
            is_known: bytes.is_some(),
            mappers,
            since: row.unchanged_until_boot_ns,
        });
    }
}

impl ObjectHistory {
    /// What it took from when on: from one look to the next it is within both.
    ///
    /// Of a file of a tmpfs that nobody recorded had open when it was looked at, it is not known
    /// whose it is, unless it was there before.
    fn changes(
        &self,
        object: usize,
        start: BootNs,
        was_seen: bool,
        give: &mut impl FnMut(BootNs, Change),
    ) {
        let Some(first) = self.looks.first() else {
            return;
        };
        let is_new = first.since.is_some() || (first.at - start).0 > 2 * LOOK.0;
        if !self.is_trees && (self.is_others || !is_new) {
            return;
        }
        let held = |look: &Look| Held {
            at_least: match self.is_trees && look.is_known {
                true => look.bytes,
                false => Bytes(0),
            },
            bytes: if self.is_trees { look.bytes } else { Bytes(0) },
            at_most: look.bytes,
        };
        let mut before: Option<&Look> = None;
        for look in &self.looks {
            let since = look.since.unwrap_or(look.at + DurationNs(-LOOK.0));
            let change = |held: Held, mappers: &Arc<[usize]>| Change {
                object,
                held,
                mappers: Arc::clone(mappers),
            };
            match before {
                Some(before) => {
                    let held = held(before).hull(held(look));
                    give(before.at.max(since), change(held, &before.mappers));
                }
                None if !was_seen => {
                    let unseen = Held::default().hull(held(look));
                    give(since.max(start), change(unseen, &look.mappers));
                }
                None => {}
            }
            give(look.at, change(held(look), &look.mappers));
            before = Some(look);
        }
    }
}

impl Objects {
    /// Takes the rows of all objects. What is later than `since` replaces what was known of that
    /// time; what is earlier has passed.
    pub(super) fn prepare(
        &mut self,
        histories: ObjectHistories,
        start: BootNs,
        since: Option<BootNs>,
    ) {
        let mut events = Vec::new();
        for (key, history) in histories.0 {
            let next = self.places.len();
            let place = *self.places.entry(key).or_insert(next);
            let was_seen = self.objects.get(place).is_some_and(|object| object.is_seen);
            history.changes(place, start, was_seen, &mut |at, change| {
                if since.is_none_or(|since| at > since) {
                    events.push((at, change));
                }
            });
        }
        // Stable: those of one instant stay in their order.
        events.order_by_key(|(at, _)| *at);
        events.reverse();
        self.objects.resize(self.places.len(), Object::default());
        self.events = events;
    }

    /// When something changes by itself.
    pub(super) fn next_change(&self) -> Option<BootNs> {
        self.events.last().map(|(at, _)| *at)
    }

    /// Takes what changes by itself until an instant.
    pub(super) fn pass(&mut self, until: BootNs) {
        while let Some((_, change)) = self.events.pop_if(|(at, _)| *at <= until) {
            self.change(change);
        }
    }

    /// A process has so much shared memory in its RSS from now on.
    pub(super) fn set(&mut self, process: usize, shmem: i64) {
        if shmem == 0 && process >= self.mappers.len() {
            return;
        }
        self.shmem.set(process, shmem);
        self.alter(process, |mapper| mapper.shmem = shmem.into());
    }

    /// Shared memory in the RSS of a process.
    pub(super) fn part(&self, process: usize) -> i64 {
        let mapper = self.mappers.get(process);
        mapper.map_or(0, |mapper| i64::try_from(mapper.shmem).unwrap_or(i64::MAX))
    }

    /// The largest part of shared memory in any one process.
    #[inline]
    pub(super) fn largest(&self) -> i64 {
        self.shmem.now()
    }

    /// What all objects take, and what is of none, which each process can have alone.
    pub(super) fn held_with_private(&self) -> Held {
        let held = self.held();
        let private = Bytes(i64::try_from(self.excess).unwrap_or(i64::MAX));
        Held {
            bytes: (self.seen.bytes + private).clamp(held.at_least, held.at_most),
            ..held
        }
    }

    /// What all objects take.
    pub(super) fn held(&self) -> Held {
        let at_least = self.seen.at_least.max(Bytes(self.shmem.now()));
        let at_most = self.seen.at_most + Bytes(i64::try_from(self.excess).unwrap_or(i64::MAX));
        let at_most = at_most.max(at_least);
        Held {
            at_least,
            bytes: self.seen.bytes.clamp(at_least, at_most),
            at_most,
        }
    }

    fn change(&mut self, change: Change) {
        let object = &mut self.objects[change.object];
        object.is_seen = true;
        let was = std::mem::replace(&mut object.held, change.held);
        let mappers = std::mem::replace(&mut object.mappers, Arc::clone(&change.mappers));
        self.seen = self.seen.minus(was).plus(change.held);
        for &process in mappers.iter() {
            self.alter(process, |mapper| mapper.known -= Sum::from(was.at_most.0));
        }
        for &process in change.mappers.iter() {
            let most = Sum::from(change.held.at_most.0);
            self.alter(process, |mapper| mapper.known += most);
        }
    }

    /// An object takes so much from now on.
    #[cfg(test)]
    pub(super) fn put(&mut self, object: usize, bytes: i64, mappers: &Arc<[usize]>) {
        if object >= self.objects.len() {
            self.objects.resize(object + 1, Object::default());
        }
        self.change(Change {
            object,
            held: Held::exact(bytes),
            mappers: Arc::clone(mappers),
        });
    }

    fn alter(&mut self, process: usize, change: impl FnOnce(&mut Mapper)) {
        if process >= self.mappers.len() {
            self.mappers.resize(process + 1, Mapper::default());
        }
        let mapper = &mut self.mappers[process];
        let before = mapper.excess();
        change(mapper);
        self.excess += mapper.excess() - before;
    }
}
