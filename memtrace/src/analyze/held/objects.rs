//! Shared memory, every object once: what is mapped, and files of a tmpfs that nobody maps.
//!
//! An object is asked for its size once a second or so; in between, the shared memory in the RSS
//! of those who map it tells at once that there is more, but not of which object.

use super::Held;
use super::highest::Highest;
use super::histories::{ObjectChange, ObjectHistories};
use super::newcomers::{Newcomer, Newcomers};
use crate::model::{BootNs, Bytes, Order};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// So many objects that a process is going to be seen to map explain what it has at a time. Where
/// there are more, nothing but what it was seen to map does.
const COMING_MAX: usize = 64;

/// What a hostile recording can have in all of it fits.
type Sum = i128;

/// What happens without a row of `mem`.
#[derive(Clone, Debug)]
enum Event {
    Change(ObjectChange),
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
    /// Whether it is taken to be known by now what it takes.
    is_seen: bool,
    mappers: Arc<[usize]>,
    /// Those that are going to be seen to map it.
    newcomers: BTreeSet<usize>,
    /// While it is awaited: so much of it can be in their RSS.
    room: Sum,
}

impl Object {
    fn seen(&self) -> Held {
        match self.is_awaited {
            true => Held::default(),
            false => self.held,
        }
    }

    fn awaited(&self) -> Sum {
        match self.is_awaited {
            true => Sum::from(self.held.at_most.0).min(self.room),
            false => 0,
        }
    }
}

/// An object that a process is going to be seen to map.
#[derive(Clone, Copy, Debug)]
struct Coming {
    object: usize,
    /// [`Mapper::risen`] when it could first map it.
    base: Sum,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mapper {
    /// Shared memory in its RSS.
    shmem: Sum,
    /// All that ever came to be in there.
    risen: Sum,
    /// At most so much is of objects that it was seen to map.
    known: Sum,
    /// At most so much is of objects that it is going to be seen to map.
    expected: Sum,
    /// The lowest base of these.
    base: Sum,
    /// How many of these are awaited.
    awaited: usize,
    /// How many there are, if they are too many to be followed; then none of them is.
    refused: usize,
    /// It gives back so much until it is seen what it maps.
    given_back: Sum,
}

impl Mapper {
    /// So much of what it has can have come to be in its RSS since then.
    fn since(&self, base: Sum) -> Sum {
        self.shmem.min(self.risen - base)
    }

    /// So much can be of awaited objects.
    fn room(&self) -> Sum {
        match self.awaited {
            0 => 0,
            _ => self.since(self.base),
        }
    }

    /// Shared memory of no object that is known. What it still has when it is seen what it maps is
    /// of that; only what it gives back until then can be of other objects.
    fn excess(&self) -> Sum {
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
    awaited: Sum,
    room: Sum,
    excess: Sum,
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
            places.push((place, was_seen));
            history.changes(place, start, was_seen, &mut |at, change| {
                add(at, Event::Change(change));
            });
        }
        for newcomer in &newcomers.list {
            let (object, was_seen) = places[newcomer.object];
            if was_seen {
                continue;
            }
            let newcomer = Newcomer {
                object,
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
                    self.alter(process, |mapper| mapper.given_back = left.0.into());
                }
            }
        }
    }

    /// A process has so much shared memory in its RSS from now on.
    pub(super) fn set(&mut self, process: usize, shmem: i64) {
        if shmem == 0 && process >= self.mappers.len() {
            return;
        }
        self.shmem.set(process, shmem);
        let shmem = Sum::from(shmem);
        let [before, after] = self.alter(process, |mapper| {
            mapper.risen += (shmem - mapper.shmem).max(0);
            mapper.shmem = shmem;
        });
        let coming = self.coming.get_mut(&process).filter(|_| after.awaited > 0);
        let coming = coming.map(std::mem::take).unwrap_or_default();
        for Coming { object, base } in &coming {
            let more = after.since(*base) - before.since(*base);
            if self.objects[*object].is_awaited {
                self.alter_object(*object, |object| object.room += more);
            }
        }
        if !coming.is_empty() {
            self.coming.insert(process, coming);
        }
    }

    /// The largest part of shared memory in any one process.
    #[inline]
    pub(super) fn largest(&self) -> i64 {
        self.shmem.now()
    }

    /// What all objects take.
    pub(super) fn held(&self) -> Held {
        let at_least = self.seen.at_least.max(Bytes(self.shmem.now()));
        let more = self.awaited.min(self.room) + self.excess;
        let at_most = self.seen.at_most + Bytes(i64::try_from(more).unwrap_or(i64::MAX));
        let at_most = at_most.max(at_least);
        Held {
            at_least,
            bytes: self.seen.bytes.clamp(at_least, at_most),
            at_most,
        }
    }

    fn change(&mut self, change: ObjectChange) {
        let place = change.object;
        let object = &mut self.objects[place];
        let newcomers = std::mem::take(&mut object.newcomers);
        let mappers = Arc::clone(&object.mappers);
        let was_awaited = object.is_awaited;
        let was = Sum::from(object.held.at_most.0);
        let is = Sum::from(change.held.at_most.0);
        let room = match change.is_awaited {
            true => newcomers.iter().map(|one| self.came(place, *one)).sum(),
            false => 0,
        };
        self.alter_object(place, |object| {
            object.held = change.held;
            object.room = room;
            object.is_awaited = change.is_awaited;
            object.is_seen |= !change.is_awaited;
            object.mappers = Arc::clone(&change.mappers);
        });
        for &process in mappers.iter() {
            self.alter(process, |mapper| mapper.known -= was);
        }
        for &process in change.mappers.iter() {
            self.alter(process, |mapper| mapper.known += is);
        }
        for &process in &newcomers {
            self.alter(process, |mapper| {
                mapper.expected += is - was;
                mapper.awaited += usize::from(change.is_awaited);
                mapper.awaited -= usize::from(was_awaited);
            });
        }
        self.objects[place].newcomers = newcomers;
    }

    /// What can have come to be in the RSS of a process of an object that it comes to map.
    fn came(&self, place: usize, process: usize) -> Sum {
        let mut coming = self.coming.get(&process).into_iter().flatten();
        let coming = coming.find(|coming| coming.object == place);
        coming.map_or(0, |coming| self.mappers[process].since(coming.base))
    }

    fn expect(&mut self, newcomer: Newcomer) {
        let (place, process) = (newcomer.object, newcomer.process);
        if self.objects[place].newcomers.contains(&process) {
            return;
        }
        let count = self.coming.get(&process).map_or(0, Vec::len);
        let mapper = self.mappers.get(process).copied().unwrap_or_default();
        if count == COMING_MAX || mapper.refused > 0 {
            let coming = self.coming.get(&process).cloned().unwrap_or_default();
            for Coming { object, .. } in coming {
                self.forget(object, process);
            }
            self.alter(process, |mapper| mapper.refused += count + 1);
            return;
        }
        let object = &mut self.objects[place];
        object.newcomers.insert(process);
        let most = Sum::from(object.held.at_most.0);
        let is_awaited = object.is_awaited;
        // Nothing of it has come to be in its RSS yet.
        self.coming.entry(process).or_default().push(Coming {
            object: place,
            base: mapper.risen,
        });
        self.alter(process, |mapper| {
            mapper.expected += most;
            mapper.awaited += usize::from(is_awaited);
            if count == 0 {
                mapper.base = mapper.risen;
            }
        });
    }

    fn expect_no_more(&mut self, newcomer: Newcomer) {
        if !self.forget(newcomer.object, newcomer.process) {
            self.alter(newcomer.process, |mapper| {
                mapper.refused = mapper.refused.saturating_sub(1);
            });
        }
    }

    /// Expects no more that a process is seen to map an object. Answers whether that was.
    fn forget(&mut self, place: usize, process: usize) -> bool {
        let came = self.came(place, process);
        if !self.objects[place].newcomers.remove(&process) {
            return false;
        }
        self.alter_object(place, |object| object.room -= came);
        let object = &self.objects[place];
        let most = Sum::from(object.held.at_most.0);
        let is_awaited = object.is_awaited;
        let coming = self.coming.entry(process).or_default();
        coming.retain(|coming| coming.object != place);
        // The first has the lowest, for what ever came to be grows.
        let base = coming.first().map(|coming| coming.base);
        if base.is_none() {
            self.coming.remove(&process);
        }
        self.alter(process, |mapper| {
            mapper.expected -= most;
            mapper.awaited -= usize::from(is_awaited);
            mapper.base = base.unwrap_or(mapper.risen);
        });
        true
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

#[cfg(test)]
mod tests;
