//! What is drawn of the host's memory, followed during the pass.

use super::choice::{Choice, LANES_MAX};
use super::coded::{CurveSeries, Gaps};
use super::{CurveStack, Curves, HOST_VALUES, Levels};
use crate::RunClock;
use crate::groups::Groups;
use crate::held::{HeldKinds, Once, Part, Parts, UNNAMED};
use crate::process::Process;
use crate::process_table::ProcessTable;
use memtrace_model::{BootNs, Bytes, Kind, Order};
use memtrace_timeline::{Change, State, Thinned};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The functions of the lines.
const HELD: usize = 0;
const RSS: usize = 1;
const SWAP: usize = 2;
/// How far below what is held it can be, and how far above.
const BELOW: usize = 3;
const ABOVE: usize = 4;
const LINES: usize = 5;

/// Kinds of memory that is held.
const KINDS: [(&str, &str); 5] = [
    ("anon", "anonymous"),
    ("shmem", "shared memory"),
    ("huge", "huge pages"),
    ("kernel", "kernel memory"),
    ("unnamed", UNNAMED),
];

/// What gathers all others.
pub(super) const REST: &str = "rest";
/// What of it no counter of a process tells.
const NOBODYS: &str = "kernel memory, huge pages, files of a tmpfs";

const NOWHERE: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Drawing {
    choice: Choice,
    thinned: Thinned,
    /// The function of the first kind.
    kinds: usize,
    processes: Stack,
    roles: Stack,
    cgroups: Stack,
    /// By position in the process table: its place among those with a lane.
    lane_of: Vec<u32>,
    levels: Vec<Levels>,
}

/// Functions that add up to what is held with one more, for what is left over.
#[derive(Debug)]
struct Stack {
    first: usize,
    /// By process or role: its place among those that are drawn.
    place_of: Vec<u32>,
    parts: Vec<Part>,
    values: Vec<i64>,
    sum: i64,
    once: Once,
    /// Places that changed at this instant.
    changed: Vec<usize>,
}

impl Stack {
    /// The next so many functions, and one more.
    fn next(count: usize, place_of: Vec<u32>, function_count: &mut usize) -> Self {
        let first = *function_count;
        *function_count += count + 1;
        Self {
            first,
            place_of,
            parts: vec![Part::default(); count],
            values: vec![0; count],
            sum: 0,
            once: Once::default(),
            changed: Vec::new(),
        }
    }

    /// A process or role has so much more.
    fn add(&mut self, who: usize, more: Part) {
        let place = self.place_of.get(who).copied().unwrap_or(NOWHERE);
        if let Some(part) = self.parts.get_mut(place as usize) {
            *part = part.plus(more);
            self.changed.push(place as usize);
        }
    }

    /// Takes what these have by now.
    fn value(&mut self, places: &[usize]) {
        for &place in places {
            let value = self.once.of(self.parts[place]).0;
            let before = std::mem::replace(&mut self.values[place], value);
            self.sum = self.sum.saturating_add(value.saturating_sub(before));
        }
    }

    /// All that changes at an instant is in. What is left of what all hold is of none of them.
    fn set(&mut self, thinned: &mut Thinned, at: BootNs, once: Once, held: i64) {
        if !self.once.is_like(once) {
            self.once = once;
            self.changed = (0..self.parts.len()).collect();
        }
        self.changed.sort_unstable();
        self.changed.dedup();
        let changed = std::mem::take(&mut self.changed);
        self.value(&changed);
        let mut all = changed;
        if self.sum > held {
            self.once = once;
            all = (0..self.parts.len()).collect();
            self.value(&all);
        }
        for place in all {
            thinned.set(at, self.first + place, Some(Bytes(self.values[place])));
        }
        let rest = Bytes(held.saturating_sub(self.sum));
        thinned.set(at, self.first + self.values.len(), Some(rest));
    }
}

impl Drawing {
    /// `foci` are instants that people look at.
    pub(crate) fn new(
        choice: Choice,
        table: &ProcessTable,
        groups: &Groups,
        clock: &RunClock,
        foci: Vec<BootNs>,
    ) -> Self {
        let places = |chosen: &[usize], count: usize| {
            let mut places = vec![NOWHERE; count];
            for (place, &one) in chosen.iter().enumerate() {
                places[one] = place as u32;
            }
            places
        };
        let process_count = table.processes.len();
        let role_of = places(&choice.roles, groups.list.len());
        let paths = choice.cgroups.iter().zip(0_u32..);
        let paths: HashMap<&Arc<str>, u32> = paths.collect();
        let cgroup_of = table.processes.iter().map(|process| {
            let path = process.cgroup.as_ref();
            path.and_then(|path| paths.get(path).copied())
                .unwrap_or(NOWHERE)
        });
        let kinds = LINES;
        let mut count = LINES + KINDS.len();
        let place_of = places(&choice.processes, process_count);
        let processes = Stack::next(choice.processes.len(), place_of, &mut count);
        let roles = Stack::next(choice.roles.len(), role_of, &mut count);
        let cgroups = Stack::next(choice.cgroups.len(), cgroup_of.collect(), &mut count);
        Self {
            thinned: Thinned::new(count, HOST_VALUES, clock.duration(), foci),
            lane_of: places(&choice.lanes, process_count),
            levels: vec![Levels::default(); choice.lanes.len()],
            kinds,
            processes,
            roles,
            cgroups,
            choice,
        }
    }

    /// A process holds something else from now on.
    pub(crate) fn change(&mut self, change: &Change<'_>) {
        let process = change.process;
        let after = match change.after {
            Some(after) => after.rss(),
            None => Some(Bytes(0)),
        };
        if process >= self.lane_of.len() {
            self.meet(process);
        }
        if let Some(levels) = self.levels.get_mut(self.lane_of[process] as usize) {
            match change.after {
                Some(_) => levels.set(change.boot_ns, after),
                None => levels.finish(change.boot_ns),
            }
        }
    }

    /// A process without a row of its own gets a lane where there is room.
    fn meet(&mut self, process: usize) {
        self.lane_of.resize(process + 1, NOWHERE);
        if self.levels.len() < LANES_MAX {
            self.lane_of[process] = self.levels.len() as u32;
            self.levels.push(Levels::default());
        }
    }

    /// All that changes at an instant is in. `held` is what all hold.
    pub(crate) fn note(&mut self, at: BootNs, state: &State, held: &HeldKinds, parts: &Parts) {
        for moved in parts.moved() {
            if let Some(process) = moved.process {
                self.processes.add(process, moved.more);
                self.cgroups.add(process, moved.more);
            }
            if let Some(group) = moved.group {
                self.roles.add(group as usize, moved.more);
            }
        }
        let totals = state.totals();
        let thinned = &mut self.thinned;
        let whole = held.all();
        let all = whole.bytes;
        let is_held_known = totals[Kind::Rss].bytes().is_some();
        thinned.set(at, HELD, Some(all).filter(|_| is_held_known));
        thinned.set(at, BELOW, Some(all - whole.at_least));
        thinned.set(at, ABOVE, Some(whole.at_most - all));
        thinned.set(at, RSS, totals[Kind::Rss].bytes());
        thinned.set(at, SWAP, totals.known(Kind::Swap));
        let kinds = [held.anon, held.shared, held.huge, held.kernel, held.unnamed];
        for (function, kind) in (self.kinds..).zip(kinds) {
            thinned.set(at, function, Some(kind.bytes));
        }
        for stack in [&mut self.processes, &mut self.roles, &mut self.cgroups] {
            stack.set(thinned, at, parts.once(), all.0);
        }
    }

    /// The recording is over.
    pub(crate) fn finish(mut self, end: BootNs) -> Drawn {
        for levels in &mut self.levels {
            levels.finish(end);
        }
        Drawn(self)
    }
}

/// What was drawn, before everybody has a name.
#[derive(Debug)]
pub(crate) struct Drawn(Drawing);

impl Drawn {
    /// The curves with the names of those who are drawn.
    pub(crate) fn reported(
        self,
        processes: &[Process],
        groups: &Groups,
        clock: &RunClock,
    ) -> (Curves, BTreeMap<usize, Levels>) {
        let Drawing {
            choice,
            thinned,
            lane_of,
            levels,
            kinds,
            processes: own,
            roles,
            cgroups,
            ..
        } = self.0;
        let thin = thinned.finish();
        let line = |function: usize, id: &str, name: &str| {
            CurveSeries::new(id, name).with(&thin.steps[function])
        };
        let by_kind = KINDS.iter().zip(kinds..);
        let by_kind = by_kind.map(|((id, name), function)| line(function, id, name));
        let stack = |by, label, of: &Stack, named, (all, what)| CurveStack {
            by,
            label,
            total: "held",
            series: stacked(&thin.steps[of.first..], named, all, what),
        };
        let mut stacks = vec![
            stack(
                "role",
                "held by role",
                &roles,
                choice.role_series(groups),
                (choice.role_count, "roles"),
            ),
            CurveStack {
                by: "kind",
                label: "held by kind of memory",
                total: "held",
                series: highest_first(by_kind.filter(|series| !series.is_nothing()).collect()),
            },
            stack(
                "process",
                "held by process",
                &own,
                choice.process_series(processes),
                (processes.len(), "processes"),
            ),
        ];
        // Where the cgroup of nobody is known there is nothing to tell apart.
        if !cgroups.parts.is_empty() {
            let all = (choice.cgroup_count, "cgroups");
            let series = choice.cgroup_series();
            stacks.push(stack("cgroup", "held by cgroup", &cgroups, series, all));
        }
        let curves = Curves {
            start_boot_ns: clock.start(),
            start_unix_ns: clock.to_wall(clock.start()),
            end_ns: clock.duration(),
            time_ns: Gaps::of_instants(&thin.instants, clock.start()),
            stacks,
            bounds: [
                line(BELOW, "below", "less than that, at most by"),
                line(ABOVE, "above", "more than that, at most by"),
            ],
            lines: vec![
                line(HELD, "held", "memory held, every page once"),
                line(RSS, "rss", "sum of RSS"),
                line(SWAP, "swap", "swapped out"),
            ],
            ..Curves::default()
        };
        let levels = lane_of.iter().enumerate().filter_map(|(process, lane)| {
            let levels = levels.get(*lane as usize)?;
            Some((process, levels.clone()))
        });
        (curves, levels.collect())
    }
}

impl Choice {
    fn role_series(&self, groups: &Groups) -> Vec<CurveSeries> {
        let names = self.roles.iter().map(|&role| &*groups.list[role].name);
        names.map(|name| CurveSeries::new(name, name)).collect()
    }

    fn cgroup_series(&self) -> Vec<CurveSeries> {
        let series = self.cgroups.iter();
        series
            .map(|path| CurveSeries::new(&**path, &**path))
            .collect()
    }

    fn process_series(&self, processes: &[Process]) -> Vec<CurveSeries> {
        let series = self.processes.iter().map(|&process| {
            let process = &processes[process];
            let id = process.upid.to_string();
            CurveSeries {
                pid: process.tgid,
                upid: Some(process.upid),
                ..CurveSeries::new(id, &*process.name)
            }
        });
        series.collect()
    }
}

/// The series of a stack that shows some of `all`: the highest first, the rest of them last.
fn stacked(
    functions: &[Vec<(u32, Option<Bytes>)>],
    mut series: Vec<CurveSeries>,
    all: usize,
    what: &str,
) -> Vec<CurveSeries> {
    // What no counter of a process tells is of nobody.
    let rest = match all.saturating_sub(series.len()) {
        0 => NOBODYS.to_owned(),
        others => format!("{others} other {what}, {NOBODYS}"),
    };
    series.push(CurveSeries::new(REST, rest));
    let drawn = series.into_iter().zip(functions);
    let mut drawn: Vec<CurveSeries> = drawn.map(|(series, steps)| series.with(steps)).collect();
    let rest = drawn.pop();
    let mut drawn = highest_first(drawn);
    // What is of no role and of no kind is mostly nothing.
    drawn.extend(rest.filter(|rest| !rest.is_nothing()));
    drawn
}

fn highest_first(mut series: Vec<CurveSeries>) -> Vec<CurveSeries> {
    series.order_by_key(|series| Reverse(series.highest()));
    series
}
