//! Shared memory, every object once: what is mapped, and files of a tmpfs that nobody maps.
//!
//! An object is asked for its size once a second or so; in between, the shared memory in the RSS
//! of those who map it tells at once that there is more, but not of which object.

use super::Held;
use super::newcomers::{Newcomer, Newcomers};
use super::readings::Reading;
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

/// What happens without a row of `mem`.
#[derive(Clone, Debug)]
enum Event {
    Change(Change),
    /// What it has can be of the object from now on.
    Comes(Newcomer),
    /// It is seen to map the object.
    IsSeen(Newcomer),
    /// From now on until it is seen what it maps a process gives back so much shared memory.
    GivesBack(usize, Bytes),
}

#[derive(Clone, Debug, Default)]
struct Object {
    held: Held,
    is_awaited: bool,
    mappers: Arc<[usize]>,
    /// Those that are going to be seen to map it.
    newcomers: Vec<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mapper {
    /// Shared memory in its RSS.
    shmem: i64,
    /// At most so much of that is of objects that it was seen to map.
    known: i64,
    /// At most so much more is of objects that it is going to be seen to map.
    expected: i64,
    /// It gives back so much until then.
    given_back: i64,
}

impl Mapper {
    /// Shared memory of no object that is known. What it still has when it is seen what it maps is
    /// of that; only what it gives back until then can be of other objects.
    fn excess(&self) -> i64 {
        let unknown = (self.shmem - self.known).max(0);
        let unexpected = (unknown - self.expected).max(0);
        unexpected + self.given_back.min(unknown - unexpected)
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
    events: Vec<(BootNs, Event)>,
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
        let mappers = upids.filter_map(|upid| upid.parse().ok());
        let mut mappers: Vec<usize> = mappers.filter_map(find).collect();
        mappers.sort_unstable();
        mappers.dedup();
        let is_trees = row.first_user().is_some();
        let course = self.0.entry((row.device, row.inode)).or_default();
        course.is_trees |= is_trees;
        course.is_others |= row.has_other_mapper == Some(true);
        let last = course.rows.last();
        let mappers = match last {
            Some(last) if *last.mappers == *mappers => Arc::clone(&last.mappers),
            _ => mappers.into(),
        };
        course.rows.push(ObjectReading {
            at: row.boot_ns,
            bytes: bytes.map_or_else(|| last.map_or(0, |last| last.bytes), |bytes| bytes.0),
            is_known: bytes.is_some(),
            mappers,
            since: row.unchanged_until_boot_ns,
        });
    }

    /// Who came to map an object that was known before; `readings` are those of processes.
    pub(super) fn newcomers(&self, readings: &[Reading]) -> Vec<Newcomer> {
        let mut read: HashMap<usize, Vec<BootNs>> = HashMap::new();
        for (process, at) in readings.iter().map(Reading::of_whom) {
            read.entry(process).or_default().push(at);
        }
        let mut newcomers = Vec::new();
        for (object, course) in self.0.values().enumerate() {
            course.newcomers(object, &read, &mut newcomers);
        }
        newcomers
    }
}

impl ObjectReading {
    /// What was not seen before this was not there before this either.
    fn horizon(&self) -> BootNs {
        self.at + DurationNs(-LOOK.0)
    }
}

impl ObjectHistory {
    /// `read` is when each process was read, in order of time.
    fn newcomers(
        &self,
        object: usize,
        read: &HashMap<usize, Vec<BootNs>>,
        found: &mut Vec<Newcomer>,
    ) {
        // Until when each that maps it no more was seen to map it.
        let mut left: HashMap<usize, BootNs> = HashMap::new();
        for pair in self.rows.windows(2) {
            let [before, look] = pair else { continue };
            if Arc::ptr_eq(&before.mappers, &look.mappers) {
                continue;
            }
            let is_in = |mappers: &[usize], process| mappers.binary_search(process).is_ok();
            for process in before.mappers.iter() {
                if !is_in(&look.mappers, process) {
                    left.insert(*process, look.at);
                }
            }
            for process in look.mappers.iter() {
                if !is_in(&before.mappers, process) {
                    let left = left.get(process).copied();
                    // Of the readings since the object was looked at before, the last told it.
                    let read = read.get(process).map_or(&[][..], Vec::as_slice);
                    let past = read.partition_point(|read| *read <= look.at);
                    let last = past.checked_sub(1).map(|last| read[last]);
                    let since = look.since.unwrap_or(before.at);
                    found.push(Newcomer {
                        object,
                        process: *process,
                        from: look.horizon().max(left.unwrap_or(look.horizon())),
                        read: last.filter(|last| *last > since).unwrap_or(look.at),
                        until: look.at,
                    });
                }
            }
        }
    }

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
            let change = Change {
                object,
                held: was.hull(is),
                is_awaited: before.is_none() && !look.mappers.is_empty(),
                mappers: Arc::clone(before.map_or(&look.mappers, |before| &before.mappers)),
            };
            let since = look.since.unwrap_or(look.horizon());
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
    /// Takes the rows of all objects, and where they are known their newcomers. What is later than
    /// `since` replaces what was known of that time; what is earlier has passed.
    pub(super) fn prepare(
        &mut self,
        courses: ObjectHistories,
        newcomers: Option<Newcomers>,
        start: BootNs,
        since: Option<BootNs>,
    ) {
        let mut events = Vec::new();
        let mut places = Vec::with_capacity(courses.0.len());
        for (key, course) in courses.0 {
            let next = self.places.len();
            let object = *self.places.entry(key).or_insert(next);
            places.push(object);
            course.changes(object, start, &mut |at, change| {
                events.push((at, Event::Change(change)));
            });
        }
        if let Some(newcomers) = newcomers {
            for newcomer in &newcomers.list {
                let object = places[newcomer.object];
                let newcomer = Newcomer {
                    object,
                    ..*newcomer
                };
                events.push((newcomer.from, Event::Comes(newcomer)));
                events.push((newcomer.until, Event::IsSeen(newcomer)));
            }
            let given_back = newcomers.given_back();
            events.extend(
                given_back.map(|(at, process, left)| (at, Event::GivesBack(process, left))),
            );
        }
        events.retain(|(at, _)| since.is_none_or(|since| *at > since));
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
        while let Some((_, event)) = self.events.pop_if(|(at, _)| *at <= until) {
            match event {
                Event::Change(change) => self.change(change),
                Event::Comes(newcomer) => self.expect(newcomer),
                Event::IsSeen(newcomer) => self.expect_no_more(newcomer),
                Event::GivesBack(process, left) => {
                    self.alter(process, |mapper| mapper.given_back = left.0);
                }
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
        let before = self.alter(process, |mapper| {
            std::mem::replace(&mut mapper.shmem, shmem)
        });
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
        let object = &mut self.objects[place];
        let was = std::mem::replace(&mut object.held, change.held);
        let was_awaited = std::mem::replace(&mut object.is_awaited, change.is_awaited);
        let mappers = std::mem::replace(&mut object.mappers, Arc::clone(&change.mappers));
        let newcomers = std::mem::take(&mut object.newcomers);
        for &process in mappers.iter() {
            self.alter(process, |mapper| mapper.known -= was.at_most.0);
            if was_awaited && let Some(awaited) = self.awaited.get_mut(&process) {
                awaited.retain(|object| *object != place);
            }
        }
        for &process in change.mappers.iter() {
            self.alter(process, |mapper| mapper.known += change.held.at_most.0);
            if change.is_awaited {
                self.awaited.entry(process).or_default().push(place);
            }
        }
        for &process in &newcomers {
            let more = change.held.at_most.0 - was.at_most.0;
            self.alter(process, |mapper| mapper.expected += more);
        }
        self.objects[place].newcomers = newcomers;
        self.sum = self.sum.plus(self.held_by(place));
    }

    fn expect(&mut self, newcomer: Newcomer) {
        let object = &mut self.objects[newcomer.object];
        object.newcomers.push(newcomer.process);
        let most = object.held.at_most.0;
        self.alter(newcomer.process, |mapper| mapper.expected += most);
    }

    fn expect_no_more(&mut self, newcomer: Newcomer) {
        let object = &mut self.objects[newcomer.object];
        object
            .newcomers
            .retain(|process| *process != newcomer.process);
        let most = object.held.at_most.0;
        self.alter(newcomer.process, |mapper| mapper.expected -= most);
    }

    /// Changes what is known of a process.
    fn alter<T>(&mut self, process: usize, change: impl FnOnce(&mut Mapper) -> T) -> T {
        let mapper = self.mappers.entry(process).or_insert_with(|| {
            *self.shmem.entry(0).or_default() += 1;
            Mapper::default()
        });
        self.excess -= mapper.excess();
        let answer = change(mapper);
        self.excess += mapper.excess();
        answer
    }
}
