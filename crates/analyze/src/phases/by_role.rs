//! The memory of each role at the boundaries of phases.
//!
//! A role's memory at an instant is that of the processes that had the role then. One that takes
//! another role within a phase is a loss of the one and a gain of the other.

use super::pair::Span;
use super::{RoleStretch, Stretch};
use crate::RunClock;
use crate::groups::Groups;
use crate::process::Process;
use memtrace_model::{BootNs, Order};
use memtrace_timeline::{Amounts, Gauge, Readings};
use std::cmp::Reverse;
use std::sync::Arc;

/// Roles that are distinguished, those of the highest peak.
const ROLES_MAX: usize = 16;

/// What the rest is called, as programs beyond so many are.
const OTHERS: &str = "others";

/// What the pass noted of roles.
pub(super) struct Roles<'a> {
    clock: &'a RunClock,
    groups: &'a Groups,
    reported: Vec<Role>,
    is_given_up: bool,
}

struct Role {
    group: usize,
    name: Arc<str>,
    /// Before this nobody had it.
    since: BootNs,
    readings: Readings<Amounts>,
}

impl<'a> Roles<'a> {
    pub(super) fn of(
        gauges: Option<Vec<Option<Gauge<Amounts>>>>,
        groups: &'a Groups,
        processes: &[Process],
        clock: &'a RunClock,
    ) -> Self {
        let since = groups.since(processes);
        let is_given_up = gauges.is_none();
        let gauges = gauges.into_iter().flatten().enumerate();
        let reported = gauges.filter_map(|(group, gauge)| {
            let name = &groups.list.get(group)?.name;
            let is_rest = **name == *OTHERS;
            Some(Role {
                group,
                name: Arc::clone(name),
                since: since.get(group).copied().flatten()?,
                readings: gauge.filter(|_| !is_rest)?.read(),
            })
        });
        let mut reported: Vec<Role> = reported.collect();
        reported.order_by_key(|role| (Reverse(role.readings.highest()), role.group));
        reported.truncate(ROLES_MAX);
        Self {
            clock,
            groups,
            reported,
            is_given_up,
        }
    }

    /// Whether there was too much to note.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// Nothing more is reported by role.
    pub(super) fn give_up(&mut self) {
        self.reported.clear();
        self.is_given_up = true;
    }

    /// How many there are, the rest counted as one; none where it was too much.
    pub(super) fn count(&self) -> usize {
        match self.reported.len() {
            0 => 0,
            count => count + 1,
        }
    }

    pub(super) fn name(&self, role: usize) -> Arc<str> {
        let role = self.reported.get(role);
        role.map_or_else(|| Arc::from(OTHERS), |role| Arc::clone(&role.name))
    }

    /// The role of a process at an instant, by its place here.
    pub(super) fn role_of(&self, process: usize, at: BootNs) -> usize {
        let group = self.groups.at(process, at);
        let mut reported = self.reported.iter();
        let place = reported.position(|role| Some(role.group) == group);
        place.unwrap_or(self.reported.len())
    }

    /// What a role held over a span, in which all together held `tree`.
    pub(super) fn stretch(
        &self,
        role: usize,
        span: &Span,
        tree: impl FnOnce() -> Stretch,
    ) -> Stretch {
        match self.reported.get(role) {
            Some(role) => role.stretch(span, self.clock),
            None => self.rest(span, &tree()),
        }
    }

    /// What each role held over a span, what changed most first, without those that held nothing.
    pub(super) fn stretches(&self, span: &Span, tree: &Stretch) -> Vec<RoleStretch> {
        let roles = (0..self.count()).map(|role| RoleStretch {
            name: self.name(role),
            stretch: self.stretch(role, span, || *tree),
        });
        let mut roles: Vec<RoleStretch> =
            roles.filter(|role| role.stretch.is_something()).collect();
        roles.order_by_key(|role| {
            let delta = role.stretch.delta.rss();
            let size = delta.map(|delta| delta.0.saturating_abs());
            Reverse((size, role.stretch.end.rss()))
        });
        roles
    }

    /// All that no reported role held. Where a role is unknown it is no part of the sum either.
    fn rest(&self, span: &Span, tree: &Stretch) -> Stretch {
        let (mut begin, mut end) = (tree.begin, tree.end);
        for role in &self.reported {
            let [held_first, held_last] = role.ends(span);
            begin = begin.less(&held_first);
            end = end.less(&held_last);
        }
        Stretch::of(begin, end, None)
    }
}

impl Role {
    fn ends(&self, span: &Span) -> [Amounts; 2] {
        let at = |instant: BootNs| match self.readings.at(instant) {
            Amounts::UNKNOWN if instant < self.since => Amounts::NONE,
            held => held,
        };
        [span.begin, span.known_end()].map(|end| end.map_or(Amounts::UNKNOWN, at))
    }

    fn stretch(&self, span: &Span, clock: &RunClock) -> Stretch {
        let [begin, end] = self.ends(span);
        let peak = span.peak(&self.readings, clock);
        Stretch::of(begin, end, peak.filter(|(bytes, _)| bytes.0 > 0))
    }
}

impl Stretch {
    pub(super) fn is_something(&self) -> bool {
        let is_held = |held: &Amounts| held.rss().is_some_and(|rss| rss.0 != 0);
        self.peak.is_some() || is_held(&self.begin) || is_held(&self.end)
    }
}
