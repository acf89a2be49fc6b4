//! The one pass over `mem` for a report: the instant at which all processes together hold most,
//! every page once, and what is asked of the time around it.

use super::bins::{Binned, Bins};
use super::curves::{Drawing, Drawn};
use super::groups::Groups;
use super::growth::{self, Growth};
use super::held::{Held, HeldKinds, HeldSum, Part, Parts};
use super::memory_tables::{HeldNow, RoleHeld, Tables};
use super::phases::{Boundaries, Doubts, Gauges};
use super::process::Process;
use super::process_table::ProcessTable;
use memtrace_model::tables::MemRow;
use memtrace_model::{BootNs, Bytes, Kind, Order};
use memtrace_timeline::{
    Amounts, Change, Gauge, Kept, Lane, LaneId, Member, Observe, Planned, Readings, Series,
    SeriesPoint, State, Sweep, Totals, Track, in_order,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

const BUCKETS: usize = 128;

/// What descends from a process is added up for so many of those above it.
const ABOVE_MAX: usize = 256;
/// In sums of what descends from a process, processes count so many times in all.
const BELOW_MAX: usize = 1_000_000;

/// Who held what at an instant.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) boot_ns: BootNs,
    pub(super) totals: Totals,
    /// Every page once.
    pub(super) once: HeldKinds,
    pub(super) held: Vec<(usize, Amounts)>,
    /// What each has of what all hold, by position in the process table.
    pub(super) parts: Vec<Part>,
}

/// What the pass is to look out for.
pub(super) struct Asked {
    /// Instants of which everybody's memory is kept.
    pub(super) instants: Vec<BootNs>,
    pub(super) boundaries: Boundaries,
    pub(super) held: HeldSum,
    /// Victims of the OOM killer.
    pub(super) victims: HashSet<usize>,
    /// Whether what is only for tables is wanted.
    pub(super) has_tables: bool,
    /// Instants at which it is wanted what is held, every page once, and the most between them.
    pub(super) held_at: Vec<BootNs>,
    /// Where what is held in each second is wanted.
    pub(super) bins: Option<Bins>,
    /// Where curves are wanted.
    pub(super) drawing: Option<Drawing>,
}

/// What the pass found.
#[derive(Debug)]
pub(super) struct Passed {
    pub(super) peak: Option<Snapshot>,
    /// What was held at the peak, within what it can have been at any time.
    pub(super) held_peak: Option<Held>,
    pub(super) asked: Vec<Snapshot>,
    /// Every process, by position in the process table, and every sum.
    pub(super) state: State,
    /// The sum of each role.
    pub(super) roles: Vec<LaneId>,
    pub(super) trees: Vec<Tree>,
    pub(super) growth: Option<Growth>,
    pub(super) curve: Vec<SeriesPoint>,
    /// The memory at the boundaries of phases.
    pub(super) gauges: Gauges,
    /// The memory of each role over time, where that is wanted.
    pub(super) role_mem: Vec<Kept<RoleHeld>>,
    /// What is held over time, where that is wanted.
    pub(super) held: Vec<Kept<HeldNow>>,
    /// What is held, every page once, at the boundaries of phases and where else that is wanted.
    pub(super) held_at: Arc<Readings<Option<Bytes>>>,
    /// What is held in each second, where that is wanted.
    pub(super) binned: Option<Binned>,
    /// Curves, where they are wanted.
    pub(super) drawn: Option<Drawn>,
    /// The first and the last row.
    pub(super) span: Option<(BootNs, BootNs)>,
}

/// The sums of the tree below one root.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    pub(super) root: usize,
    pub(super) all: LaneId,
    pub(super) descendants: LaneId,
}

pub(super) struct Pass<'a> {
    sweep: Sweep<Notes<'a>>,
    roles: Vec<LaneId>,
    trees: Vec<Tree>,
    /// By position: the sum of what descends from a process that has phases.
    below: HashMap<usize, LaneId>,
    has_tables: bool,
}

impl<'a> Pass<'a> {
    /// Nobody holds anything yet.
    pub(super) fn new(table: &'a mut ProcessTable, groups: &Groups, asked: Asked) -> Self {
        let mut boundaries = asked.boundaries;
        let mut instants = asked.instants;
        instants.order_by(|a, b| b.cmp(a));
        instants.dedup();
        let until = table.command_end();
        let mut held_at = asked.held_at;
        held_at.extend_from_slice(&boundaries.all);
        let notes = Notes {
            table,
            asked: instants,
            snapshots: Vec::new(),
            held: asked.held,
            peak: None,
            held_peak: None,
            curves: None,
            row_count: 0,
            victims: asked.victims,
            is_over: false,
            doubts: boundaries.doubts,
            parts: Parts::new(groups),
            tables: asked.has_tables.then(|| Tables::new(groups.list.len())),
            held_at: Some(Gauge::new(in_order(held_at))).filter(|gauge| !gauge.is_empty()),
            bins: asked.bins,
            drawing: asked.drawing,
        };
        let mut sweep = Sweep::new(notes, Lane::of_kinds(&boundaries.all));
        let role = |_: &_| {
            sweep
                .state
                .lanes
                .add(Lane::of_kinds(&boundaries.roles).with_course(until))
        };
        let roles: Vec<LaneId> = groups.list.iter().map(role).collect();
        let owners = boundaries.own.iter().filter(|_| asked.has_tables);
        let mut lanes = LanesOf::default();
        for (&owner, instants) in owners {
            let lane = Lane::of_rss().with_gauge(instants);
            lanes.below.insert(owner, sweep.state.lanes.add(lane));
        }
        let mut planned = Vec::new();
        for position in 0..sweep.observer.table.processes.len() {
            let whole = lanes.of(position, &mut sweep);
            let process = &sweep.observer.table.processes[position];
            let exit = process.exit_boot_ns();
            planned.extend(exit.map(|exit| (exit, Planned::End(position))));
            let own = groups.first.get(position);
            let gauge = boundaries.own.remove(&position).map(Gauge::new);
            let member = Member {
                whole,
                own: own.map(|group| roles[*group as usize]),
                copy_until: process.copy_until,
                has_curve: true,
                gauge: gauge.map(Box::new),
            };
            sweep.enter(member);
        }
        let role_changes = groups.role_changes().into_iter();
        let role_changes = role_changes.map(|(at, process, group)| {
            let lane = roles[group as usize];
            (at, Planned::Move(process, lane))
        });
        sweep.plan(role_changes.chain(planned));
        Self {
            sweep,
            roles,
            trees: lanes.trees,
            below: lanes.below,
            has_tables: asked.has_tables && lanes.below_count <= BELOW_MAX,
        }
    }

    /// Takes what a process measured of itself.
    pub(super) fn take_report(&mut self, row: &MemRow) {
        if let Some((position, rss, anon)) = self.sweep.observer.table.self_reported(row) {
            self.sweep.measured(row.boot_ns, position, rss, anon);
        }
    }

    /// Takes the next row. Answers whose it is.
    pub(super) fn take(&mut self, row: &MemRow) -> usize {
        let position = self.sweep.observer.table.position(row.upid, row.boot_ns);
        if position == self.sweep.state.processes.len() {
            self.sweep.enter(Member {
                has_curve: true,
                ..Member::default()
            });
        }
        self.sweep.row(row.boot_ns, position, Amounts::of(row));
        let row_count = &mut self.sweep.observer.row_count;
        *row_count = row_count.saturating_add(1);
        position
    }

    /// The recording is over.
    pub(super) fn finish(mut self, end: BootNs) -> Passed {
        let last = self.sweep.last();
        let end = self.sweep.time_of(end);
        self.sweep.finish(end);
        let Sweep {
            observer: mut notes,
            mut state,
            ..
        } = self.sweep;
        let once = notes.held.now();
        notes.parts.follow(end, &state, &mut notes.held, &once);
        notes.keep_asked(|asked| asked <= end, &state);
        notes.end_stretch(end);
        if let (Some(gauge), Some(_)) = (&mut notes.held_at, state.totals()[Kind::Rss].bytes()) {
            gauge.hold_to_the_end(end, Some(once.all().bytes));
        }
        let peak = notes.peak.map(|(boot_ns, totals, once)| Snapshot {
            boot_ns,
            totals,
            once,
            held: state.at_maximum(),
            parts: notes.parts.at_peak(),
        });
        for (process, track) in notes.table.processes.iter_mut().zip(&state.processes) {
            let end = process.exit_boot_ns().unwrap_or(end);
            let growth = || growth::of(track, end).map(Box::new);
            process.growth = process.growth.take().or_else(growth);
        }
        let own = state.processes.iter_mut().enumerate();
        let own = own.filter_map(|(position, track)| Some((position, *track.member.gauge.take()?)));
        let own = own.collect();
        let by_role = self.roles.iter();
        let by_role = by_role.map(|role| state.lanes[*role].take_gauge());
        let by_role = by_role.collect();
        let lanes = &mut state.lanes;
        let is_known = self.has_tables && !lanes.has_too_many_sums_of_rss;
        let below = self.below.into_iter().filter(|_| is_known);
        let below = below.filter_map(|(owner, lane)| Some((owner, lanes[lane].take_gauge()?)));
        let below = below.collect();
        let tables = notes.tables.map(Tables::finish);
        let (role_mem, held) = tables.unwrap_or_default();
        let curves = notes.curves.as_ref();
        let held_at = notes.held_at;
        let held_at = held_at.unwrap_or_else(|| Gauge::new(Arc::default()));
        let held_at = Arc::new(held_at.read());
        Passed {
            peak,
            held_peak: notes.held_peak,
            asked: notes.snapshots,
            roles: self.roles,
            trees: self.trees,
            growth: curves.and_then(|curves| curves.growth),
            curve: curves.map_or_else(Vec::new, |curves| curves.held.points().collect()),
            gauges: Gauges {
                tree: state.all.take_gauge(),
                held: Arc::clone(&held_at),
                own,
                below: is_known.then_some(below),
                roles: (!state.lanes.has_too_many_steps).then_some(by_role),
                doubts: notes.doubts,
            },
            span: curves.map(|curves| curves.first).zip(last),
            role_mem,
            held,
            held_at,
            binned: notes.bins.and_then(Bins::finish),
            drawn: notes.drawing.map(|drawing| drawing.finish(end)),
            state,
        }
    }
}

/// The sums over trees, and over what descends from a process.
#[derive(Default)]
struct LanesOf {
    trees: Vec<Tree>,
    tree_of_root: HashMap<usize, usize>,
    below: HashMap<usize, LaneId>,
    below_count: usize,
    /// Most processes are part of the same sums as others.
    sets: HashSet<Arc<[LaneId]>>,
}

impl LanesOf {
    /// Those that a process is part of.
    fn of(&mut self, position: usize, sweep: &mut Sweep<Notes<'_>>) -> Arc<[LaneId]> {
        let processes = &sweep.observer.table.processes;
        let tree = processes[position].root.map(|root| {
            let place = *self.tree_of_root.entry(root).or_insert_with(|| {
                let mut lane = || sweep.state.lanes.add(Lane::of_rss());
                self.trees.push(Tree {
                    root,
                    all: lane(),
                    descendants: lane(),
                });
                self.trees.len() - 1
            });
            let tree = &self.trees[place];
            let is_root = root == position;
            [Some(tree.all), (!is_root).then_some(tree.descendants)]
        });
        let above = above(processes, position, &self.below);
        self.below_count += above.len();
        if self.below_count > BELOW_MAX {
            self.below.clear();
        }
        let whole = tree.into_iter().flatten().flatten().chain(above).collect();
        let whole = self.sets.get(&whole).cloned().unwrap_or(whole);
        self.sets.insert(Arc::clone(&whole));
        whole
    }
}

/// The sums of what descends from those above a process.
fn above(processes: &[Process], position: usize, below: &HashMap<usize, LaneId>) -> Vec<LaneId> {
    let mut found: Vec<LaneId> = Vec::new();
    if below.is_empty() {
        return found;
    }
    let parent = |place: &usize| processes.get(*place)?.parent;
    for above in std::iter::successors(parent(&position), parent).take(ABOVE_MAX) {
        match below.get(&above) {
            // In a recording that was made up someone can be above itself.
            Some(lane) if found.contains(lane) => break,
            lane => found.extend(lane),
        }
    }
    found
}

/// What is noted beside sums of rows.
#[derive(Debug)]
struct Notes<'a> {
    table: &'a mut ProcessTable,
    /// Instants that were asked for, the latest first.
    asked: Vec<BootNs>,
    snapshots: Vec<Snapshot>,
    held: HeldSum,
    peak: Option<(BootNs, Totals, HeldKinds)>,
    /// The highest that anything of it was.
    held_peak: Option<Held>,
    /// `None` before the first row.
    curves: Option<Curves>,
    row_count: u32,
    victims: HashSet<usize>,
    /// Whether the command has ended.
    is_over: bool,
    doubts: Doubts,
    parts: Parts,
    tables: Option<Tables>,
    /// Where it is wanted.
    held_at: Option<Gauge<Option<Bytes>>>,
    /// Where it is wanted for many hosts.
    bins: Option<Bins>,
    drawing: Option<Drawing>,
}

impl Observe for Notes<'_> {
    fn next_change(&self, until: BootNs) -> Option<BootNs> {
        self.held.next_change(until)
    }

    fn pass(&mut self, until: BootNs) {
        self.held.pass(until);
    }

    fn changed(&mut self, change: Change<'_>) {
        self.curves
            .get_or_insert_with(|| Curves::new(change.boot_ns));
        if let (Some(before), Some(after)) = (change.before, change.after) {
            let (from, to) = ((change.since, before), (change.boot_ns, after));
            self.doubts.note(change.process, from, to);
        }
        self.held.change(change);
        self.parts.change(change.process);
        if let Some(drawing) = &mut self.drawing {
            drawing.change(&change);
        }
    }

    fn holds(&mut self, from: BootNs, until: BootNs, state: &State) -> bool {
        let totals = state.totals();
        let once = self.held.now();
        let all = once.all();
        let best = self.held_peak.unwrap_or_default();
        let is_first = self.peak.is_none() && totals.rss_or_zero() > 0;
        let is_maximum = is_first || all.bytes > best.bytes;
        let is_asked = self.asked.last().is_some_and(|asked| *asked < until);
        if is_maximum || is_asked || self.keeps_parts() {
            self.parts.follow(from, state, &mut self.held, &once);
        }
        if is_maximum {
            self.peak = Some((from, *totals, self.held.now_at(from)));
            self.parts.note_peak();
        }
        self.held_peak = Some(self.held.peak(self.held_peak, &once));
        self.keep_asked(|asked| asked < until, state);
        // Where nothing is known the curve has a gap.
        if let (Some(curves), Some(rss)) = (&mut self.curves, totals[Kind::Rss].bytes()) {
            // What comes with the last row is held for an instant at least.
            let until = until.max(BootNs(from.0 + 1));
            curves.rss.hold(from, until, rss.0);
            curves.held.hold(from, until, all.bytes.0);
        }
        if let (Some(gauge), Some(_)) = (&mut self.held_at, totals[Kind::Rss].bytes()) {
            gauge.hold(from, until, Some(all.bytes));
        }
        if let Some(tables) = &mut self.tables {
            tables.note(from, state, &once, &self.parts);
        }
        if let Some(bins) = &mut self.bins {
            note_bins(bins, (from, until), once, (state, &self.parts));
        }
        if let Some(drawing) = &mut self.drawing {
            drawing.note(from, state, &once, &self.parts);
        }
        is_maximum
    }

    fn ended(&mut self, process: usize, at: BootNs, track: &Track) {
        let is_command = self.table.is_command(process);
        if is_command || self.victims.contains(&process) {
            self.end_stretch(at);
            // What is left running after a command says nothing of its growth.
            self.is_over |= is_command;
        }
        self.table.processes[process].growth = growth::of(track, at).map(Box::new);
    }
}

impl Notes<'_> {
    /// Whether parts are kept of every instant, and not of peaks and of what was asked alone.
    fn keeps_parts(&self) -> bool {
        self.tables.is_some() || self.bins.is_some() || self.drawing.is_some()
    }

    fn end_stretch(&mut self, end: BootNs) {
        if let (Some(curves), false) = (&mut self.curves, self.is_over) {
            curves.end_stretch(end, self.row_count);
        }
    }

    fn keep_asked(&mut self, is_due: impl Fn(BootNs) -> bool, state: &State) {
        while let Some(asked) = self.asked.pop_if(|asked| is_due(*asked)) {
            self.snapshots.push(Snapshot {
                boot_ns: asked,
                totals: *state.totals(),
                once: self.held.now_at(asked),
                held: state.now(),
                parts: self.parts.now(),
            });
        }
    }
}

fn note_bins(
    bins: &mut Bins,
    (from, until): (BootNs, BootNs),
    once: HeldKinds,
    (state, parts): (&State, &Parts),
) {
    if state.totals()[Kind::Rss].bytes().is_some() {
        bins.hold(from, until, once.all());
        bins.set_shared(from, once.shared.bytes);
    }
    let is_once_changed = bins.note_once(parts.once());
    let once = parts.once();
    let mut set = |(role, part)| bins.set_role(role, from, once.share(role, part).anon_bytes);
    // Then all hold more or less, also those whose own part did not move.
    match is_once_changed {
        true => parts.roles().for_each(&mut set),
        false => parts.roles_moved().for_each(&mut set),
    }
}

/// How the sum of all processes went.
#[derive(Debug)]
struct Curves {
    first: BootNs,
    rss: Series,
    /// Every page once.
    held: Series,
    /// Of RSS, up to the end of the command where there is one, in the longest stretch without an
    /// OOM kill: a kill's fall says nothing of what led to it.
    growth: Option<Growth>,
    stretch_from: BootNs,
    longest_ns: i64,
}

impl Curves {
    fn new(first: BootNs) -> Self {
        Self {
            first,
            rss: Series::new(first, BUCKETS),
            held: Series::new(first, BUCKETS),
            growth: None,
            stretch_from: first,
            longest_ns: -1,
        }
    }

    fn end_stretch(&mut self, end: BootNs, row_count: u32) {
        let from = std::mem::replace(&mut self.stretch_from, end);
        if (end - from).0 > self.longest_ns {
            self.longest_ns = (end - from).0;
            self.growth = growth::fit(self.rss.points(), (from, end), row_count);
        }
    }
}
