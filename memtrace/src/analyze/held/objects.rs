//! Shared memory, every object once: what is mapped, and files of a tmpfs that nobody maps.
//!
//! An object is asked for its size once a second or so; in between, the shared memory in the RSS
//! of those who map it tells at once that there is more, but not of which object.

use super::Held;
use super::highest::Highest;
use super::histories::{Change, ObjectHistories};
use super::newcomers::{Newcomer, Newcomers};
use crate::model::{BootNs, Bytes, Order};
use std::collections::HashMap;
use std::sync::Arc;

/// Of so many objects that a process is going to be seen to map its memory can be at a time, of the
/// largest ones; what it has of others counts beside them.
const COMING_MAX: usize = 64;

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
    /// Whether a row told of it by now.
    is_seen: bool,
    mappers: Arc<[usize]>,
    /// Those that are going to be seen to map it.
    newcomers: Vec<usize>,
    /// While it is awaited: so much of it can be in their RSS.
    room: i64,
}

impl Object {
    fn seen(&self) -> Held {
        match self.is_awaited {
            true => Held::default(),
            false => self.held,
        }
    }

    fn awaited(&self) -> i64 {
        match self.is_awaited {
            true => self.held.at_most.0.min(self.room),
            false => 0,
        }
    }
}

/// An object that a process is going to be seen to map.
#[derive(Clone, Copy, Debug)]
struct Coming {
    object: usize,
    /// [`Mapper::risen`] when it could first map it.
    base: i64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mapper {
    /// Shared memory in its RSS.
    shmem: i64,
    /// All that ever came to be in there.
    risen: i64,
    /// At most so much is of objects that it was seen to map.
    known: i64,
    /// At most so much is of objects that it is going to be seen to map.
    expected: i64,
    /// The lowest base of these.
    base: i64,
    /// How many of these are awaited.
    awaited: usize,
    /// It gives back so much until it is seen what it maps.
    given_back: i64,
}

impl Mapper {
    /// So much of what it has can have come to be in its RSS since then.
    fn since(&self, base: i64) -> i64 {
        self.shmem.min(self.risen - base)
    }

    /// So much can be of awaited objects.
    fn room(&self) -> i64 {
        match self.awaited {
            0 => 0,
            _ => self.since(self.base),
        }
    }

    /// Shared memory of no object that is known. What it still has when it is seen what it maps is
    /// of that; only what it gives back until then can be of other objects.
    fn excess(&self) -> i64 {
        let unknown = (self.shmem - self.known).max(0);
        let unexpected = (unknown - self.expected.min(self.since(self.base))).max(0);
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
    /// By process.
    coming: HashMap<usize, Vec<Coming>>,
    /// Shared memory in the RSS of processes.
    shmem: Highest,
    /// What objects take that were seen.
    seen: Held,
    /// What awaited objects take, one by one, and what all of them can at most.
    awaited: i64,
    room: i64,
    excess: i64,
    /// What is to come, the latest first.
    events: Vec<(BootNs, Event)>,
}

impl Objects {
    /// Takes the rows of all objects, and their newcomers. What is later than `since` replaces what
    /// was known of that time; what is earlier has passed.
    pub(super) fn prepare(
        &mut self,
        histories: ObjectHistories,
        newcomers: Newcomers,
        start: BootNs,
        since: Option<BootNs>,
    ) {
        let mut events = Vec::new();
        let mut add = |at: BootNs, event: Event| {
            if since.is_none_or(|since| at > since) {
                events.push((at, event));
            }
        };
        let mut places = Vec::new();
        for (key, history) in histories.into_iter() {
            let next = self.places.len();
            let place = *self.places.entry(key).or_insert(next);
            let was_seen = self.objects.get(place).is_some_and(|object| object.is_seen);
            places.push(place);
            history.changes(place, start, was_seen, &mut |at, change| {
                add(at, Event::Change(change));
            });
        }
        for newcomer in &newcomers.list {
            let newcomer = Newcomer {
                object: places[newcomer.object],
                ..*newcomer
            };
            add(newcomer.from, Event::Comes(newcomer));
            add(newcomer.until, Event::IsSeen(newcomer));
        }
        for (at, process, left) in newcomers.given_back() {
            add(at, Event::GivesBack(process, left));
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
        let [before, after] = self.alter(process, |mapper| {
            let more = (shmem - mapper.shmem).max(0);
            mapper.risen = mapper.risen.saturating_add(more);
            mapper.shmem = shmem;
        });
        self.shmem.set(process, shmem);
        if after.awaited == 0 {
            return;
        }
        let coming = self.coming.remove(&process).unwrap_or_default();
        for Coming { object, base } in &coming {
            let more = after.since(*base) - before.since(*base);
            self.alter_object(*object, |object| object.room += more);
        }
        self.coming.insert(process, coming);
    }

    /// What all objects take.
    pub(super) fn held(&self) -> Held {
        let at_least = self.seen.at_least.max(Bytes(self.shmem.now()));
        let awaited = self.awaited.min(self.room);
        let at_most = self.seen.at_most + Bytes(awaited) + Bytes(self.excess);
        let at_most = at_most.max(at_least);
        Held {
            at_least,
            bytes: self.seen.bytes.clamp(at_least, at_most),
            at_most,
        }
    }

    fn change(&mut self, change: Change) {
        let place = change.object;
        let object = &mut self.objects[place];
        let more = change.held.at_most.0 - object.held.at_most.0;
        let was = object.held.at_most.0;
        let was_awaited = object.is_awaited;
        let newcomers = std::mem::take(&mut object.newcomers);
        let mappers = Arc::clone(&object.mappers);
        self.alter_object(place, |object| {
            object.held = change.held;
            object.is_awaited = change.is_awaited;
            object.is_seen |= !change.is_awaited;
            object.mappers = Arc::clone(&change.mappers);
        });
        for &process in mappers.iter() {
            self.alter(process, |mapper| mapper.known -= was);
        }
        for &process in change.mappers.iter() {
            self.alter(process, |mapper| mapper.known += change.held.at_most.0);
        }
        for &process in &newcomers {
            self.alter(process, |mapper| {
                mapper.expected += more;
                mapper.awaited -= usize::from(was_awaited);
                mapper.awaited += usize::from(change.is_awaited);
            });
        }
        self.objects[place].newcomers = newcomers;
    }

    fn expect(&mut self, newcomer: Newcomer) {
        let coming = self.coming.entry(newcomer.process).or_default();
        if coming.len() >= COMING_MAX {
            return;
        }
        let is_first = coming.is_empty();
        let object = &mut self.objects[newcomer.object];
        object.newcomers.push(newcomer.process);
        let (most, is_awaited) = (object.held.at_most.0, object.is_awaited);
        let [_, mapper] = self.alter(newcomer.process, |mapper| {
            mapper.expected += most;
            mapper.awaited += usize::from(is_awaited);
            if is_first {
                mapper.base = mapper.risen;
            }
        });
        // Nothing of it has come to be in its RSS yet.
        let coming = self.coming.entry(newcomer.process).or_default();
        coming.push(Coming {
            object: newcomer.object,
            base: mapper.risen,
        });
    }

    fn expect_no_more(&mut self, newcomer: Newcomer) {
        let Some(coming) = self.coming.get_mut(&newcomer.process) else {
            return;
        };
        let mut places = coming.iter().map(|coming| coming.object);
        // One of too many was not expected.
        let Some(position) = places.position(|object| object == newcomer.object) else {
            return;
        };
        coming.remove(position);
        let base = coming.iter().map(|coming| coming.base).min();
        if base.is_none() {
            self.coming.remove(&newcomer.process);
        }
        let object = &mut self.objects[newcomer.object];
        object
            .newcomers
            .retain(|process| *process != newcomer.process);
        let most = object.held.at_most.0;
        self.alter(newcomer.process, |mapper| {
            mapper.expected -= most;
            mapper.base = base.unwrap_or(mapper.risen);
        });
    }

    /// Changes what is known of a process. Gives that before and after.
    fn alter(&mut self, process: usize, change: impl FnOnce(&mut Mapper)) -> [Mapper; 2] {
        if process >= self.mappers.len() {
            self.mappers.resize(process + 1, Mapper::default());
        }
        let mapper = &mut self.mappers[process];
        let before = *mapper;
        change(mapper);
        self.excess += mapper.excess() - before.excess();
        self.room += mapper.room() - before.room();
        [before, *mapper]
    }

    /// Changes an object, and the sums with it.
    fn alter_object(&mut self, place: usize, change: impl FnOnce(&mut Object)) {
        let object = &mut self.objects[place];
        let (seen, awaited) = (object.seen(), object.awaited());
        change(object);
        self.seen = self.seen.minus(seen).plus(object.seen());
        self.awaited += object.awaited() - awaited;
    }
}
