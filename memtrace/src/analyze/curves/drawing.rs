//! What is drawn of the host's memory, followed during the pass.

use super::choice::{Choice, LANES_MAX};
use super::coded::{CurveSeries, Gaps};
use super::{CurveStack, Curves, HOST_VALUES, Levels};
use crate::analyze::RunClock;
use crate::analyze::groups::Groups;
use crate::analyze::process::Process;
use crate::analyze::process_table::ProcessTable;
use crate::model::{BootNs, Bytes, Kind, Label, Order};
use crate::sweep::{Change, State, Thinned};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The functions of the lines.
const HELD: usize = 0;
const RSS: usize = 1;
const SWAP: usize = 2;
const LINES: usize = 3;

/// Kinds of resident memory; what is in none of them is of unknown kind.
const KINDS: [Kind; 3] = [Kind::Anon, Kind::File, Kind::Shmem];

/// What gathers all others.
pub(super) const REST: &str = "rest";

const NOWHERE: u32 = u32::MAX;

/// Follows memory.
#[derive(Debug)]
pub(in crate::analyze) struct Drawing {
    choice: Choice,
    thinned: Thinned,
    kinds: Stack,
    processes: Stack,
    roles: Stack,
    cgroups: Stack,
    /// By position in the process table: its place among those chosen.
    place_of: Vec<u32>,
    /// The same of its cgroup.
    cgroup_of: Vec<u32>,
    /// By place among the groups.
    place_of_role: Vec<u32>,
    /// Processes that changed at this instant.
    changed: Vec<usize>,
    /// What the processes of each chosen cgroup hold.
    in_cgroups: Vec<i64>,
    changed_cgroups: Vec<u32>,
    /// By position in the process table: its place among those with a lane.
    lane_of: Vec<u32>,
    levels: Vec<Levels>,
}

/// Functions that add up to the sum of RSS with one more, for what is left over.
#[derive(Debug)]
struct Stack {
    first: usize,
    values: Vec<i64>,
    sum: i64,
}

impl Stack {
    /// The next so many functions, and one more.
    fn next(count: usize, function_count: &mut usize) -> Self {
        let first = *function_count;
        *function_count += count + 1;
        Self {
            first,
            values: vec![0; count],
            sum: 0,
        }
    }

    fn set(&mut self, thinned: &mut Thinned, at: BootNs, place: usize, bytes: Option<Bytes>) {
        let value = bytes.unwrap_or_default().0;
        let before = std::mem::replace(&mut self.values[place], value);
        self.sum = self.sum.saturating_add(value.saturating_sub(before));
        thinned.set(at, self.first + place, bytes);
    }

    /// What is left over of the sum of RSS.
    fn close(&self, thinned: &mut Thinned, at: BootNs, rss: i64) {
        let rest = Bytes(rss.saturating_sub(self.sum));
        thinned.set(at, self.first + self.values.len(), Some(rest));
    }
}

impl Drawing {
    /// `foci` are instants that people look at.
    pub(in crate::analyze) fn new(
        choice: Choice,
        table: &ProcessTable,
        groups: &Groups,
        clock: &RunClock,
        foci: Vec<BootNs>,
    ) -> Self {
        let mut count = LINES;
        let kinds = Stack::next(KINDS.len(), &mut count);
        let processes = Stack::next(choice.processes.len(), &mut count);
        let roles = Stack::next(choice.roles.len(), &mut count);
        let cgroups = Stack::next(choice.cgroups.len(), &mut count);
        let places = |chosen: &[usize], count: usize| {
            let mut places = vec![NOWHERE; count];
            for (place, &one) in chosen.iter().enumerate() {
                places[one] = place as u32;
            }
            places
        };
        let paths = choice.cgroups.iter().zip(0_u32..);
        let paths: HashMap<&Arc<str>, u32> = paths.collect();
        let cgroup_of = table.processes.iter().map(|process| {
            let path = process.cgroup.as_ref();
            path.and_then(|path| paths.get(path).copied())
                .unwrap_or(NOWHERE)
        });
        Self {
            thinned: Thinned::new(count, HOST_VALUES, clock.duration(), foci),
            place_of: places(&choice.processes, table.processes.len()),
            place_of_role: places(&choice.roles, groups.list.len()),
            cgroup_of: cgroup_of.collect(),
            in_cgroups: vec![0; choice.cgroups.len()],
            changed: Vec::new(),
            changed_cgroups: Vec::new(),
            lane_of: places(&choice.lanes, table.processes.len()),
            levels: vec![Levels::default(); choice.lanes.len()],
            kinds,
            processes,
            roles,
            cgroups,
            choice,
        }
    }

    /// A process holds something else from now on.
    pub(in crate::analyze) fn change(&mut self, change: &Change<'_>) {
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
        if self
            .place_of
            .get(process)
            .is_some_and(|&place| place != NOWHERE)
        {
            self.changed.push(process);
        }
        if let Some(&cgroup) = self
            .cgroup_of
            .get(process)
            .filter(|&&place| place != NOWHERE)
        {
            let before = change.before.map_or(0, |held| held.rss_or_zero());
            let more = after.unwrap_or_default().0.saturating_sub(before);
            let held = &mut self.in_cgroups[cgroup as usize];
            *held = held.saturating_add(more);
            if self.changed_cgroups.last() != Some(&cgroup) {
                self.changed_cgroups.push(cgroup);
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

    /// All that changes at an instant is in. `held` is what all hold, every page once.
    pub(in crate::analyze) fn note(&mut self, at: BootNs, state: &State, held: Bytes) {
        let totals = state.totals();
        let rss = totals.rss_or_zero();
        let thinned = &mut self.thinned;
        let is_held_known = totals[Kind::Anon].bytes().is_some();
        thinned.set(at, HELD, Some(held).filter(|_| is_held_known));
        thinned.set(at, RSS, totals[Kind::Rss].bytes());
        thinned.set(at, SWAP, totals.known(Kind::Swap));
        for (place, &kind) in KINDS.iter().enumerate() {
            self.kinds.set(thinned, at, place, totals[kind].bytes());
        }
        for process in self.changed.drain(..) {
            let place = self.place_of[process] as usize;
            let own = state.processes[process].own_now();
            let rss = own.map_or(Some(Bytes(0)), |own| own.rss());
            self.processes.set(thinned, at, place, rss);
        }
        for &lane in state.lanes.changed() {
            let place = self.place_of_role.get(lane.place());
            if let Some(&place) = place.filter(|&&place| place != NOWHERE) {
                let rss = state.lanes[lane].now.known(Kind::Rss);
                self.roles.set(thinned, at, place as usize, rss);
            }
        }
        for cgroup in self.changed_cgroups.drain(..) {
            let rss = Bytes(self.in_cgroups[cgroup as usize]);
            self.cgroups.set(thinned, at, cgroup as usize, Some(rss));
        }
        for stack in [&self.kinds, &self.processes, &self.roles] {
            stack.close(thinned, at, rss);
        }
        // Where the cgroup of nobody is known there is nothing to tell apart.
        if !self.cgroups.values.is_empty() {
            self.cgroups.close(&mut self.thinned, at, rss);
        }
    }

    /// The recording is over.
    pub(in crate::analyze) fn finish(mut self, end: BootNs) -> Drawn {
        for levels in &mut self.levels {
            levels.finish(end);
        }
        Drawn(self)
    }
}

/// What stands beside a kind of resident memory.
fn in_words(kind: Kind) -> &'static str {
    match kind {
        Kind::Anon => "anonymous",
        Kind::File => "mapped files",
        Kind::Shmem => "shared memory",
        Kind::Rss | Kind::Swap => kind.shown(),
    }
}

/// What was drawn, before everybody has a name.
#[derive(Debug)]
pub(in crate::analyze) struct Drawn(Drawing);

impl Drawn {
    /// With names.
    pub(in crate::analyze) fn told(
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
        let stack = |by, label, of: &Stack, named: Vec<CurveSeries>, rest: String| {
            let functions = thin.steps[of.first..].iter();
            let rest = CurveSeries::new(REST, rest);
            let series = named.into_iter().chain([rest]).zip(functions);
            let mut series: Vec<CurveSeries> =
                series.map(|(series, steps)| series.with(steps)).collect();
            let rest = series.pop();
            series.order_by_key(|series| Reverse(series.highest()));
            // What is of no role and of no kind is mostly nothing.
            series.extend(rest.filter(|rest| !rest.is_nothing()));
            CurveStack {
                by,
                label,
                total: "rss",
                series,
            }
        };
        let by_kind = KINDS
            .iter()
            .map(|kind| CurveSeries::new(kind.as_str(), in_words(*kind)));
        let by_process = choice.processes.iter().map(|&process| {
            let process = &processes[process];
            let id = process.upid.to_string();
            CurveSeries {
                pid: process.tgid,
                upid: Some(process.upid),
                ..CurveSeries::new(id, &*process.name)
            }
        });
        let by_role = choice.roles.iter().map(|&role| {
            let name = &*groups.list[role].name;
            CurveSeries::new(name, name)
        });
        let by_cgroup = choice
            .cgroups
            .iter()
            .map(|path| CurveSeries::new(&**path, &**path));
        let rest = |all: usize, chosen: usize, what: &str| match all.saturating_sub(chosen) {
            0 => "copies that fork made, until their exec".to_owned(),
            others => format!("{others} other {what}"),
        };
        let other_processes = rest(processes.len(), choice.processes.len(), "processes");
        let other_roles = rest(choice.role_count, choice.roles.len(), "roles");
        let other_cgroups = match choice.cgroup_count.saturating_sub(choice.cgroups.len()) {
            0 => "of unknown cgroup".to_owned(),
            others => format!("{others} other cgroups"),
        };
        let mut stacks = vec![
            stack(
                "role",
                "RSS by role",
                &roles,
                by_role.collect(),
                other_roles,
            ),
            stack(
                "kind",
                "RSS by kind of memory",
                &kinds,
                by_kind.collect(),
                "of unknown kind".to_owned(),
            ),
            stack(
                "process",
                "RSS by process",
                &own,
                by_process.collect(),
                other_processes,
            ),
        ];
        if !cgroups.values.is_empty() {
            stacks.push(stack(
                "cgroup",
                "RSS by cgroup",
                &cgroups,
                by_cgroup.collect(),
                other_cgroups,
            ));
        }
        let curves = Curves {
            start_boot_ns: clock.start(),
            start_unix_ns: clock.to_wall(clock.start()),
            end_ns: clock.duration(),
            time_ns: Gaps::of_instants(&thin.instants, clock.start()),
            stacks,
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
