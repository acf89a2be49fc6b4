//! Shared memory, every object once: what is mapped, and files of a tmpfs that nobody maps.
//!
//! An object is asked for its size once a second or so; in between, the shared memory in the RSS
//! of those who map it tells at once that there is more, but not of which object.

use super::Held;
use super::highest::Highest;
use super::newcomers::{Newcomer, Newcomers};
use super::readings::Reading;
use crate::analyze::process_table::ProcessTable;
use crate::model::tables::ShmObjectRow;
use crate::model::{BootNs, Bytes, DurationNs, MappingKind, Order};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A change is told of by the next look, which comes within this time where it is not known when
/// the one before was.
const LOOK: DurationNs = DurationNs(3_000_000_000);

/// So many that come to map an object are followed, of the largest objects first; for others the
/// upper bound is wider. A node of Ray has thousands.
const NEWCOMERS_MAX: usize = 1 << 18;

/// What an object takes from a time on, and who maps it.
#[derive(Clone, Debug)]
struct Change {
    object: usize,
    held: Held,
    /// Whether it was not seen yet: it takes no more than what came to be in the RSS of those that
    /// come to map it.
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
    /// So much of it can be in their RSS.
    room: i64,
}

impl Object {
    fn taken(&self) -> Held {
        let at_most = match self.is_awaited {
            true => self.held.at_most.min(Bytes(self.room)),
            false => self.held.at_most,
        };
        Held {
            at_most,
            ..self.held
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Mapper {
    /// Shared memory in its RSS.
    shmem: i64,
    /// At most so much of that is of objects that it was seen to map.
    known: i64,
    /// How many objects it is going to be seen to map, and at most so much more is of them.
    awaiting: usize,
    expected: i64,
    /// So much came to be in its RSS since it can map them.
    risen: i64,
    /// It gives back so much until it is seen what it maps.
    given_back: i64,
}

impl Mapper {
    /// So much can be of objects that it is going to be seen to map.
    fn room(&self) -> i64 {
        self.shmem.min(self.risen)
    }

    /// Shared memory of no object that is known. What it still has when it is seen what it maps is
    /// of that; only what it gives back until then can be of other objects.
    fn excess(&self) -> i64 {
        let unknown = (self.shmem - self.known).max(0);
        let unexpected = (unknown - self.expected.min(self.room())).max(0);
        unexpected + self.given_back.min(unknown - unexpected)
    }
}

/// All objects, as they stand at an instant.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    objects: Vec<Object>,
    /// Their places, by device and inode.
    places: HashMap<(String, i64), usize>,
    /// By process.
    mappers: Vec<Mapper>,
    /// By process: the objects that it maps, and that were not seen yet.
    awaited: HashMap<usize, Vec<usize>>,
    /// Shared memory in the RSS of processes.
    shmem: Highest,
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

    /// Who came to map an object, when it is known what each gave back until it was read what it
    /// maps; `readings` are those of processes.
    pub(super) fn newcomers(
        &self,
        table: &ProcessTable,
        readings: &[Reading],
        start: BootNs,
    ) -> Vec<Newcomer> {
        let mut read = ReadTimes {
            table,
            start,
            by_process: HashMap::new(),
        };
        for (process, from, until) in readings.iter().map(Reading::of_whom) {
            let times = read.by_process.entry(process).or_default();
            times.push((from, until));
        }
        let mut histories: Vec<(usize, &ObjectHistory)> = self.0.values().enumerate().collect();
        histories.order_by_key(|(object, history)| (Reverse(history.most()), *object));
        let mut newcomers = Vec::new();
        for (object, history) in histories {
            history.newcomers(object, &read, &mut newcomers);
        }
        newcomers
    }

    /// Who was seen to map each object at the first look at it; it is not known what they gave back
    /// before that.
    pub(super) fn first_mappers(&self) -> Vec<Newcomer> {
        let mut newcomers = Vec::new();
        for (object, history) in self.0.values().enumerate() {
            let Some(look) = history.rows.first() else {
                continue;
            };
            newcomers.extend(look.mappers.iter().map(|process| Newcomer {
                object,
                process: *process,
                from: look.since.unwrap_or(look.horizon()),
                read: look.at,
                until: look.at,
            }));
        }
        newcomers
    }
}

/// When processes were read.
struct ReadTimes<'a> {
    table: &'a ProcessTable,
    /// Of the recording.
    start: BootNs,
    /// From when until when, in order.
    by_process: HashMap<usize, Vec<(BootNs, BootNs)>>,
}

impl ReadTimes<'_> {
    /// From when a process can have mapped what it was seen to map at a look, but not before
    /// `since`, and when that was read: it did not map it at the reading before, nor when it `left`.
    fn of_newcomer(
        &self,
        process: usize,
        left: Option<BootNs>,
        since: Option<BootNs>,
        look: BootNs,
    ) -> (BootNs, BootNs) {
        let times = self.by_process.get(&process).map_or(&[][..], Vec::as_slice);
        let past = &times[..times.partition_point(|(_, at)| *at <= look)];
        let told = past.last();
        let told = told.filter(|(_, at)| since.is_none_or(|since| *at > since));
        let before = past.iter().rev().nth(usize::from(told.is_some()));
        let began = self.table.processes[process].start.boot_ns;
        let from = match (before, left) {
            (Some((from, _)), _) => *from,
            (None, Some(left)) => left,
            (None, None) => began.max(self.start),
        };
        (from, told.map_or(look, |(_, at)| *at))
    }
}

impl ObjectReading {
    /// What was not seen before this was not there before this either.
    fn horizon(&self) -> BootNs {
        self.at + DurationNs(-LOOK.0)
    }
}

impl ObjectHistory {
    /// The most that it was seen to take.
    fn most(&self) -> i64 {
        self.rows.iter().map(|row| row.bytes).max().unwrap_or(0)
    }

    fn newcomers(&self, object: usize, read: &ReadTimes<'_>, found: &mut Vec<Newcomer>) {
        // Until when each that maps it no more was seen to map it.
        let mut left: HashMap<usize, BootNs> = HashMap::new();
        let mut before: Option<&ObjectReading> = None;
        for look in &self.rows {
            let was = before.map_or(&[][..], |before| &before.mappers);
            let since = look.since.or(before.map(|before| before.at));
            let is_known = before.is_some_and(|was| Arc::ptr_eq(&was.mappers, &look.mappers));
            before = Some(look);
            if is_known {
                continue;
            }
            let is_in = |mappers: &[usize], process| mappers.binary_search(process).is_ok();
            for process in was {
                if !is_in(&look.mappers, process) {
                    left.insert(*process, look.at);
                }
            }
            for process in look.mappers.iter().filter(|process| !is_in(was, process)) {
                if found.len() >= NEWCOMERS_MAX {
                    return;
                }
                let left = left.get(process).copied();
                let (from, read) = read.of_newcomer(*process, left, since, look.at);
                let from = self.came_to_be().map_or(from, |at| from.max(at));
                found.push(Newcomer {
                    object,
                    process: *process,
                    from: from.min(look.at),
                    read,
                    until: look.at,
                });
            }
        }
    }

    /// When it was not there yet, where that is known.
    fn came_to_be(&self) -> Option<BootNs> {
        self.rows.first().and_then(|look| look.since)
    }

    /// Of a file of a tmpfs that nobody recorded had open when it was looked at, it is not known
    /// whose it is, unless it was there before.
    /// Where it is not known from when on it was there, that is `appears`.
    fn changes(
        self,
        object: usize,
        start: BootNs,
        appears: Option<BootNs>,
        give: &mut impl FnMut(BootNs, Change),
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
        let mut before: Option<&ObjectReading> = None;
        for look in &self.rows {
            let is = held(look.bytes, look.is_known);
            let was = before.map_or(held(0, true), |before| held(before.bytes, before.is_known));
            let change = Change {
                object,
                held: was.hull(is),
                is_awaited: before.is_none() && !look.mappers.is_empty(),
                mappers: before.map_or_else(|| [].into(), |before| Arc::clone(&before.mappers)),
            };
            let unseen = appears.filter(|_| before.is_none());
            let since = look.since.or(unseen).unwrap_or(look.horizon());
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
    /// Takes the rows of all objects, and their newcomers. What is later than
    /// `since` replaces what was known of that time; what is earlier has passed.
    pub(super) fn prepare(
        &mut self,
        courses: ObjectHistories,
        newcomers: Newcomers,
        start: BootNs,
        since: Option<BootNs>,
    ) {
        let mut firsts: HashMap<usize, BootNs> = HashMap::new();
        for newcomer in &newcomers.list {
            let first = firsts.entry(newcomer.object).or_insert(newcomer.from);
            *first = newcomer.from.min(*first);
        }
        let mut events = Vec::new();
        let mut places = Vec::with_capacity(courses.0.len());
        for (position, (key, course)) in courses.0.into_iter().enumerate() {
            let next = self.places.len();
            let object = *self.places.entry(key).or_insert(next);
            places.push(object);
            let first = firsts.get(&position).copied();
            course.changes(object, start, first, &mut |at, change| {
                events.push((at, Event::Change(change)));
            });
        }
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
        events.extend(given_back.map(|(at, process, left)| (at, Event::GivesBack(process, left))));
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
        if shmem == 0 && process >= self.mappers.len() {
            return;
        }
        self.alter(process, |mapper| {
            mapper.risen += (shmem - mapper.shmem).max(0);
            mapper.shmem = shmem;
        });
        self.shmem.set(process, shmem);
    }

    /// What all objects take.
    pub(super) fn held(&self) -> Held {
        let at_least = self.sum.at_least.max(Bytes(self.shmem.now()));
        let at_most = self.sum.at_most + Bytes(self.excess);
        let at_most = at_most.max(at_least);
        Held {
            at_least,
            bytes: self.sum.bytes.clamp(at_least, at_most),
            at_most,
        }
    }

    /// Changes an object, and the sum with it.
    fn alter_object<T>(&mut self, place: usize, change: impl FnOnce(&mut Object) -> T) -> T {
        let object = &mut self.objects[place];
        self.sum = self.sum.minus(object.taken());
        let answer = change(object);
        self.sum = self.sum.plus(object.taken());
        answer
    }

    fn change(&mut self, change: Change) {
        let place = change.object;
        let before = self.alter_object(place, |object| {
            let after = Object {
                held: change.held,
                is_awaited: change.is_awaited,
                mappers: Arc::clone(&change.mappers),
                newcomers: object.newcomers.clone(),
                room: object.room,
            };
            std::mem::replace(object, after)
        });
        for &process in before.mappers.iter() {
            self.alter(process, |mapper| mapper.known -= before.held.at_most.0);
        }
        for &process in change.mappers.iter() {
            self.alter(process, |mapper| mapper.known += change.held.at_most.0);
        }
        for &process in &before.newcomers {
            let more = change.held.at_most.0 - before.held.at_most.0;
            self.alter(process, |mapper| mapper.expected += more);
            if !change.is_awaited
                && let Some(awaited) = self.awaited.get_mut(&process)
            {
                awaited.retain(|object| *object != place);
            }
        }
    }

    fn expect(&mut self, newcomer: Newcomer) {
        let (place, process) = (newcomer.object, newcomer.process);
        let object = &self.objects[place];
        let (most, is_awaited) = (object.held.at_most.0, object.is_awaited);
        let room = self.alter(process, |mapper| {
            if mapper.awaiting == 0 {
                mapper.risen = 0;
            }
            mapper.awaiting += 1;
            mapper.expected += most;
            mapper.room()
        });
        self.alter_object(place, |object| {
            object.newcomers.push(process);
            object.room += room;
        });
        if is_awaited {
            self.awaited.entry(process).or_default().push(place);
        }
    }

    fn expect_no_more(&mut self, newcomer: Newcomer) {
        let object = &mut self.objects[newcomer.object];
        let mut newcomers = object.newcomers.iter();
        // One that came before what is known now was known is not expected.
        let Some(position) = newcomers.position(|process| *process == newcomer.process) else {
            return;
        };
        object.newcomers.swap_remove(position);
        let most = object.held.at_most.0;
        self.alter(newcomer.process, |mapper| {
            mapper.awaiting -= 1;
            mapper.expected -= most;
        });
    }

    /// Changes what is known of a process.
    fn alter<T>(&mut self, process: usize, change: impl FnOnce(&mut Mapper) -> T) -> T {
        if process >= self.mappers.len() {
            self.mappers.resize(process + 1, Mapper::default());
        }
        let mapper = &mut self.mappers[process];
        let (excess, room) = (mapper.excess(), mapper.room());
        let answer = change(mapper);
        self.excess += mapper.excess() - excess;
        let more = mapper.room() - room;
        if more == 0 || mapper.awaiting == 0 {
            return answer;
        }
        for &place in self.awaited.get(&process).into_iter().flatten() {
            let object = &mut self.objects[place];
            self.sum = self.sum.minus(object.taken());
            object.room += more;
            self.sum = self.sum.plus(object.taken());
        }
        answer
    }
}
