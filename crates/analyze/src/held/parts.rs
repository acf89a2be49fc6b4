//! What each process, and each role, has of what all hold: its certain part, its part of what forks
//! have copied and of what is shared, and what no RSS counts of it. The rest is of nobody.

use super::{HeldKinds, HeldSum};
use crate::groups::Groups;
use crate::shares::Share;
use memtrace_model::{BootNs, Bytes};
use memtrace_timeline::State;

/// What counters and readings say of a process: anonymous memory that is thought to be its own, and how
/// much of that only a later reading says, or one of a part of its pages; what it can have beside that
/// (copies of what a fork gave it; apart where nothing was read of them), shared memory in its RSS, huge
/// pages, page tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(super) own: i64,
    pub(super) supposed: i64,
    pub(super) inherited: i64,
    pub(super) unread: i64,
    pub(super) shmem: i64,
    pub(super) huge: i64,
    pub(super) tables: i64,
}

impl Part {
    pub(crate) fn plus(self, other: Self) -> Self {
        self.with(other, i64::saturating_add)
    }

    fn minus(self, other: Self) -> Self {
        self.with(other, i64::saturating_sub)
    }

    fn with(self, other: Self, each: fn(i64, i64) -> i64) -> Self {
        Self {
            own: each(self.own, other.own),
            supposed: each(self.supposed, other.supposed),
            inherited: each(self.inherited, other.inherited),
            unread: each(self.unread, other.unread),
            shmem: each(self.shmem, other.shmem),
            huge: each(self.huge, other.huge),
            tables: each(self.tables, other.tables),
        }
    }
}

/// Which part of that there is when every page counts once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Once {
    own: f64,
    inherited: f64,
    unread: f64,
    /// What all have copied at least and at most, and of how much.
    copied_at_least: f64,
    copied_at_most: f64,
    copyable: f64,
    /// What those that were read have copied since, and of how much.
    copied_since: f64,
    inherited_by_all: f64,
    shmem: f64,
    huge: f64,
    tables: f64,
}

impl Default for Once {
    fn default() -> Self {
        Self {
            own: 1.0,
            inherited: 0.0,
            unread: 0.0,
            copied_at_least: 0.0,
            copied_at_most: 0.0,
            copyable: 0.0,
            copied_since: 0.0,
            inherited_by_all: 0.0,
            shmem: 1.0,
            huge: 1.0,
            tables: 1.0,
        }
    }
}

impl Once {
    /// Where all together hold this, and have these parts.
    pub(crate) fn of_all(held: &HeldKinds, all: Part) -> Self {
        let part = |held: i64, counted: i64| match counted > held {
            true => held as f64 / counted as f64,
            false => 1.0,
        };
        let beyond = |held: i64, known: i64| held.saturating_sub(known).max(0);
        // Of those that were read it is known how much they have copied.
        let copied = beyond(held.anon.bytes.0, all.own);
        let copied_since = beyond(copied, all.unread);
        Self {
            own: part(held.anon.bytes.0, all.own),
            inherited: part(copied_since, all.inherited),
            unread: part(copied, all.unread),
            copied_at_least: beyond(held.anon.at_least.0, all.own) as f64,
            copied_at_most: beyond(held.anon.at_most.0, all.own) as f64,
            copyable: all.unread.saturating_add(all.inherited) as f64,
            copied_since: copied_since as f64,
            inherited_by_all: all.inherited as f64,
            shmem: part(held.shared.bytes.0, all.shmem),
            huge: part(held.huge.bytes.0, all.huge),
            tables: part(held.kernel.bytes.0, all.tables),
        }
    }

    /// Whether another differs by so little that what is held by it is the same to a person.
    pub(crate) fn is_like(self, other: Self) -> bool {
        const PART: f64 = 1.0 / 512.0;
        let is_like = |one: f64, other: f64| (one - other).abs() <= PART * one;
        is_like(self.own, other.own)
            && is_like(self.inherited, other.inherited)
            && is_like(self.unread, other.unread)
            && is_like(self.shmem, other.shmem)
            && is_like(self.huge, other.huge)
            && is_like(self.tables, other.tables)
    }

    /// What somebody with a part holds.
    pub(crate) fn of(self, part: Part) -> Bytes {
        self.share(0, part).bytes()
    }

    /// The same of a process, by kind.
    pub(crate) fn share(self, process: usize, part: Part) -> Share {
        let bytes = |amount: f64| Bytes(amount as i64);
        // All others can have copied the rest, or this one as much as there is.
        let off_by = |copy: f64, least: f64, most: f64| {
            let below = copy - least.clamp(0.0, copy);
            below.max(most - copy)
        };
        let unread = part.unread as f64;
        let copy = unread * self.unread;
        let least = self.copied_at_least - (self.copyable - unread);
        let unread_off_by = off_by(copy, least, unread.min(self.copied_at_most));
        let inherited = part.inherited as f64;
        let since = inherited * self.inherited;
        let least = self.copied_since - (self.inherited_by_all - inherited);
        let since_off_by = off_by(since, least, inherited.min(self.copied_since));
        let supposed = part.supposed as f64 * self.own;
        Share {
            process,
            anon_bytes: bytes(part.own as f64 * self.own + since + copy),
            off_by_bytes: bytes(supposed + since_off_by + unread_off_by),
            shmem_bytes: bytes(part.shmem as f64 * self.shmem),
            huge_bytes: bytes(part.huge as f64 * self.huge),
            page_tables_bytes: bytes(part.tables as f64 * self.tables),
            pinned_bytes: Bytes(0),
        }
    }
}

/// A process, or a role that a process took or left, has so much more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    /// `None` where only its role is another.
    pub(crate) process: Option<usize>,
    /// The place among the groups of roles.
    pub(crate) group: Option<u32>,
    pub(crate) more: Part,
}

/// The part of a process, and what it was at the last peak, where it changed since.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    now: Part,
    then: Part,
    /// Of which peak `then` is.
    peak: u32,
    /// Whether it is among those that changed.
    is_changed: bool,
}

/// Follows the parts of all processes.
#[derive(Debug)]
pub(crate) struct Parts {
    /// By position in the process table.
    own: Vec<Own>,
    group_of: Vec<Option<u32>>,
    /// By place among the groups of roles.
    of_groups: Vec<Part>,
    /// Changes of roles that are to come, the latest first: when, who, and the place among the groups.
    role_changes: Vec<(BootNs, usize, u32)>,
    sum: Part,
    /// How many peaks there were.
    peak: u32,
    /// Processes that changed since this was followed last.
    changed: Vec<usize>,
    moved: Vec<Moved>,
    once: Once,
}

impl Parts {
    pub(crate) fn new(groups: &Groups) -> Self {
        Self {
            own: Vec::new(),
            group_of: groups.first.iter().copied().map(Some).collect(),
            of_groups: vec![Part::default(); groups.list.len()],
            role_changes: groups.role_changes(),
            sum: Part::default(),
            peak: 0,
            changed: Vec::new(),
            moved: Vec::new(),
            once: Once::default(),
        }
    }

    /// A process holds something else from now on.
    pub(crate) fn change(&mut self, process: usize) {
        if !std::mem::replace(&mut self.own(process).is_changed, true) {
            self.changed.push(process);
        }
    }

    fn own(&mut self, process: usize) -> &mut Own {
        if process >= self.own.len() {
            self.own.resize(process + 1, Own::default());
        }
        &mut self.own[process]
    }

    /// Takes all that changed until an instant, at which nothing more does. What is asked of it before
    /// is of the last time.
    pub(crate) fn follow(
        &mut self,
        at: BootNs,
        state: &State,
        held: &mut HeldSum,
        once: &HeldKinds,
    ) {
        self.moved.clear();
        self.follow_roles(at);
        held.take_touched(&mut self.changed);
        let mut changed = std::mem::take(&mut self.changed);
        for process in changed.drain(..) {
            let amounts = state.processes.get(process).and_then(|track| track.held());
            let shmem = amounts.and_then(|amounts| amounts.shmem());
            let now = held.part(process, shmem.unwrap_or_default());
            let peak = self.peak;
            let own = self.own(process);
            own.is_changed = false;
            let more = now.minus(own.now);
            if more == Part::default() {
                continue;
            }
            if own.peak != peak {
                (own.then, own.peak) = (own.now, peak);
            }
            own.now = now;
            self.sum = self.sum.plus(more);
            self.moved.push(Moved {
                process: Some(process),
                group: self.group_of.get(process).copied().flatten(),
                more,
            });
        }
        // It keeps its room.
        self.changed = changed;
        for moved in &self.moved {
            let place = moved.group.map(|group| group as usize);
            if let Some(part) = place.and_then(|place| self.of_groups.get_mut(place)) {
                *part = part.plus(moved.more);
            }
        }
        self.once = Once::of_all(once, self.sum);
    }

    /// What the processes of each role have by now.
    pub(crate) fn roles(&self) -> impl Iterator<Item = (usize, Part)> {
        self.of_groups.iter().copied().enumerate()
    }

    /// The same of those that moved at this instant.
    pub(crate) fn roles_moved(&self) -> impl Iterator<Item = (usize, Part)> {
        let groups = self.moved.iter().filter_map(|moved| moved.group);
        groups.filter_map(|group| Some((group as usize, *self.of_groups.get(group as usize)?)))
    }

    /// What moved at this instant.
    pub(crate) fn moved(&self) -> &[Moved] {
        &self.moved
    }

    /// Which part of it there is when every page counts once.
    pub(crate) fn once(&self) -> Once {
        self.once
    }

    /// What each has now, by position in the process table.
    pub(crate) fn now(&self) -> Vec<Part> {
        self.own.iter().map(|own| own.now).collect()
    }

    /// This is a peak.
    pub(crate) fn note_peak(&mut self) {
        self.peak += 1;
    }

    /// What each had at the last peak.
    pub(crate) fn at_peak(&self) -> Vec<Part> {
        let then = |own: &Own| match own.peak == self.peak {
            true => own.then,
            false => own.now,
        };
        self.own.iter().map(then).collect()
    }

    fn follow_roles(&mut self, until: BootNs) {
        while let Some((_, process, group)) = self.role_changes.pop_if(|(at, ..)| *at <= until) {
            let own = self.own.get(process).copied().unwrap_or_default().now;
            let Some(group_of) = self.group_of.get_mut(process) else {
                continue;
            };
            let before = group_of.replace(group);
            let moved = [(before, Part::default().minus(own)), (Some(group), own)];
            self.moved.extend(moved.map(|(group, more)| Moved {
                process: None,
                group,
                more,
            }));
        }
    }
}
