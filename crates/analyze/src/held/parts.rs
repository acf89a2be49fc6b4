//! What each process, and each role, has of what all hold: anonymous memory of its own, its part of
//! what is shared, and its part of what forks have copied. The kernel's memory is of nobody.

use super::{HeldKinds, HeldSum};
use crate::groups::Groups;
use memtrace_model::{BootNs, Bytes};
use memtrace_timeline::State;

/// Anonymous memory of its own, what it can have copied of what a fork gave it, and shared memory as it
/// stands in RSS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    own: i64,
    inherited: i64,
    shmem: i64,
}

impl Part {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            own: self.own.saturating_add(other.own),
            inherited: self.inherited.saturating_add(other.inherited),
            shmem: self.shmem.saturating_add(other.shmem),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            own: self.own.saturating_sub(other.own),
            inherited: self.inherited.saturating_sub(other.inherited),
            shmem: self.shmem.saturating_sub(other.shmem),
        }
    }
}

/// Which part of that there is when every page counts once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Once {
    own: f64,
    inherited: f64,
    shmem: f64,
}

impl Default for Once {
    fn default() -> Self {
        Self {
            own: 1.0,
            inherited: 0.0,
            shmem: 1.0,
        }
    }
}

impl Once {
    /// Whether another differs by so little that what is held by it is the same to a person.
    pub(crate) fn is_like(self, other: Self) -> bool {
        const PART: f64 = 1.0 / 512.0;
        let is_like = |one: f64, other: f64| (one - other).abs() <= PART * one;
        is_like(self.own, other.own)
            && is_like(self.inherited, other.inherited)
            && is_like(self.shmem, other.shmem)
    }

    pub(crate) fn of(self, part: Part) -> Bytes {
        let own = part.own as f64 * self.own + part.inherited as f64 * self.inherited;
        Bytes((own + part.shmem as f64 * self.shmem) as i64)
    }

    fn part(held: i64, counted: i64) -> f64 {
        match counted > held {
            true => held as f64 / counted as f64,
            false => 1.0,
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

/// Follows the parts of all processes.
#[derive(Debug)]
pub(crate) struct Parts {
    /// By position in the process table.
    own: Vec<Part>,
    group_of: Vec<Option<u32>>,
    /// Changes of roles that are to come, the latest first: when, who, and the place among the groups.
    role_changes: Vec<(BootNs, usize, u32)>,
    sum: Part,
    /// Processes that changed at this instant.
    changed: Vec<usize>,
    moved: Vec<Moved>,
    once: Once,
}

impl Parts {
    pub(crate) fn new(groups: &Groups) -> Self {
        Self {
            own: Vec::new(),
            group_of: groups.first.iter().copied().map(Some).collect(),
            role_changes: groups.role_changes(),
            sum: Part::default(),
            changed: Vec::new(),
            moved: Vec::new(),
            once: Once::default(),
        }
    }

    /// A process holds something else from now on.
    pub(crate) fn change(&mut self, process: usize) {
        self.changed.push(process);
    }

    /// All that changes at an instant is in.
    pub(crate) fn follow(
        &mut self,
        at: BootNs,
        state: &State,
        held: &mut HeldSum,
        once: &HeldKinds,
    ) {
        self.moved.clear();
        self.follow_roles(at);
        self.changed.extend(held.families.take_promoted());
        for process in self.changed.drain(..) {
            if process >= self.own.len() {
                self.own.resize(process + 1, Part::default());
            }
            let amounts = state.processes.get(process).and_then(|track| track.held());
            let shmem = amounts.and_then(|amounts| amounts.shmem());
            let (own, inherited) = held.families.own(process);
            let now = Part {
                own,
                inherited,
                shmem: shmem.unwrap_or_default().0,
            };
            let more = now.minus(std::mem::replace(&mut self.own[process], now));
            if more == Part::default() {
                continue;
            }
            self.sum = self.sum.plus(more);
            self.moved.push(Moved {
                process: Some(process),
                group: self.group_of.get(process).copied().flatten(),
                more,
            });
        }
        let copied = once.anon.bytes.0.saturating_sub(self.sum.own).max(0);
        self.once = Once {
            own: Once::part(once.anon.bytes.0, self.sum.own),
            inherited: Once::part(copied, self.sum.inherited),
            shmem: Once::part(once.shared.bytes.0, self.sum.shmem),
        };
    }

    /// What moved at this instant.
    pub(crate) fn moved(&self) -> &[Moved] {
        &self.moved
    }

    /// Which part of it there is when every page counts once.
    pub(crate) fn once(&self) -> Once {
        self.once
    }

    fn follow_roles(&mut self, until: BootNs) {
        while let Some((_, process, group)) = self.role_changes.pop_if(|(at, ..)| *at <= until) {
            let own = self.own.get(process).copied().unwrap_or_default();
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
