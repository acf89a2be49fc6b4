//! The one pass over `mem`: what each process holds at every instant, and the instant at which
//! all of them together hold most, every page once.
//!
//! `mem` is a step function per process, so the total changes by the difference that a row
//! makes, and a row costs the same whatever the number of processes. Rows of one time belong
//! together (a snapshot reads all processes at once): the total is compared when time moves on.
//!
//! Who made up the peak is kept without copying everyone at each new maximum. The maxima are
//! numbered; a process that changes first saves what it held, if it has not since the newest
//! maximum. At the end, a process held at the peak what it saved since then, or, if it never
//! changed after it, what it holds.

mod around;
mod slot;

pub(super) use around::{Around, Surroundings};
pub(super) use slot::Seen;

use super::groups::Groups;
use super::growth::{self, Growth};
use super::held::{Held, HeldKinds, HeldSum};
use super::phases::{Doubts, Gauges, RoleGauges, Tellings};
use super::roster::Roster;
use crate::model::tables::MemRow;
use crate::model::{BootNs, Bytes, Kind};
use crate::sweep::{Amounts, Gauge, High, Lane, LaneId, Lanes, Series, SeriesPoint, Totals};
use slot::Slot;
use std::collections::HashSet;

const TOTAL_BUCKETS: usize = 128;

/// Who held what at an instant.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) boot_ns: BootNs,
    pub(super) totals: Totals,
    /// Every page once.
    pub(super) once: HeldKinds,
    pub(super) held: Vec<(usize, Amounts)>,
    /// What moved from the reading of a cgroup before it to the one after it.
    pub(super) around: Option<Around>,
}

/// What the pass found out about the tree below one root.
#[derive(Clone, Copy, Debug)]
pub(super) struct TreeSeen {
    pub(super) root: usize,
    pub(super) tree: Option<High>,
    pub(super) descendants: Option<High>,
}

/// The findings of the pass.
#[derive(Debug)]
pub(super) struct Seens {
    pub(super) peak: Option<Snapshot>,
    /// What was held at the peak, within what it can have been at any time.
    pub(super) held_peak: Option<Held>,
    /// The highest sum of RSS.
    pub(super) rss_peak: Option<High>,
    pub(super) asked: Vec<Snapshot>,
    /// By position in the roster; `None` for a process without rows.
    pub(super) processes: Vec<Option<Seen>>,
    pub(super) trees: Vec<TreeSeen>,
    pub(super) growth: Option<Growth>,
    pub(super) curve: Vec<SeriesPoint>,
    pub(super) lanes: Lanes,
    /// The sum of each role.
    pub(super) roles: Vec<LaneId>,
    /// The memory at the boundaries of phases.
    pub(super) gauges: Gauges,
    pub(super) role_gauges: RoleGauges,
    /// The first and the last row.
    pub(super) span: Option<(BootNs, BootNs)>,
}

/// The sums of a tree.
#[derive(Debug)]
struct Tree {
    root: usize,
    all: LaneId,
    descendants: LaneId,
}

/// The books during the pass.
#[derive(Debug)]
pub(super) struct Ledger<'a> {
    roster: &'a mut Roster,
    slots: Vec<Slot>,
    /// Ends of processes, the latest first, so that the next one is popped.
    ends: Vec<(BootNs, usize)>,
    /// Processes that turn into something else, the latest first.
    turns: Vec<(BootNs, usize, u32)>,
    /// Instants that were asked for, the latest first.
    asked: Vec<BootNs>,
    snapshots: Vec<Snapshot>,
    trees: Vec<Tree>,
    lanes: Lanes,
    /// By group.
    roles: Vec<LaneId>,
    totals: Totals,
    held: HeldSum,
    peak: Option<(BootNs, Totals, HeldKinds)>,
    /// The highest that anything of it was.
    held_peak: Option<Held>,
    rss_peak: Option<High>,
    maximum: u32,
    now: Option<BootNs>,
    first: Option<BootNs>,
    row_count: u32,
    /// Of the sum of RSS, for growth, and of what is held.
    curve: Option<Series>,
    held_curve: Option<Series>,
    /// Of the sum, up to the end of the command where there is one, in the longest stretch
    /// without an OOM kill: a kill's fall says nothing of what led to it.
    growth: Option<Growth>,
    /// Where the stretch that is told begins, and how long it is.
    stretch_from: Option<BootNs>,
    stretch_ns: i64,
    has_stretches_ended: bool,
    /// Victims of the OOM killer.
    victims: HashSet<usize>,
    gauge: Gauge<Amounts>,
    tellings: Tellings,
    doubts: Doubts,
    surroundings: Surroundings,
}

impl<'a> Ledger<'a> {
    /// Empty books for the processes of a roster; the state at each instant of `asked` is kept,
    /// and the sums are noted in `gauges`. What processes measured of themselves counts as rows.
    /// `surroundings` keeps what moves near the states that are kept.
    pub(super) fn new(
        roster: &'a mut Roster,
        groups: &Groups,
        mut asked: Vec<BootNs>,
        mut gauges: Gauges,
        (tellings, held): (Tellings, HeldSum),
        victims: HashSet<usize>,
        surroundings: Surroundings,
    ) -> Self {
        asked.sort_unstable_by(|a, b| b.cmp(a));
        asked.dedup();
        let mut ends: Vec<_> = roster
            .processes
            .iter()
            .enumerate()
            .filter_map(|(position, process)| Some((process.exit_boot_ns?, position)))
            .collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let mut lanes = Lanes::default();
        let until = roster.command_end();
        let role = |_: &_| lanes.add(Lane::of_kinds(until).noted_at(&gauges.roles));
        let roles = groups.list.iter().map(role).collect();
        let mut ledger = Self {
            slots: Vec::with_capacity(roster.processes.len()),
            ends,
            turns: groups.turns(),
            asked,
            snapshots: Vec::new(),
            trees: Vec::new(),
            lanes,
            roles,
            totals: Totals::default(),
            held,
            peak: None,
            held_peak: None,
            rss_peak: None,
            maximum: 0,
            now: None,
            first: None,
            row_count: 0,
            curve: None,
            held_curve: None,
            growth: None,
            stretch_from: None,
            stretch_ns: -1,
            has_stretches_ended: false,
            victims,
            gauge: gauges.tree,
            tellings,
            doubts: gauges.doubts,
            surroundings,
            roster,
        };
        let mut tree_of_root = std::collections::HashMap::new();
        for position in 0..ledger.roster.processes.len() {
            let root = ledger.roster.processes[position].root;
            let tree = root.map(|root| {
                let place = *tree_of_root.entry(root).or_insert_with(|| {
                    let [all, descendants] = [0; 2].map(|_| ledger.lanes.add(Lane::of_rss()));
                    ledger.trees.push(Tree {
                        root,
                        all,
                        descendants,
                    });
                    ledger.trees.len() - 1
                });
                &ledger.trees[place]
            });
            let descendants = tree.filter(|tree| tree.root != position);
            let in_trees = [
                tree.map(|tree| tree.all),
                descendants.map(|tree| tree.descendants),
            ];
            let group = groups.first.get(position);
            let mut slot = Slot::new(in_trees, group.map(|&group| ledger.roles[group as usize]));
            slot.copy_until = ledger.roster.processes[position].copy_until;
            slot.gauge = gauges.own.remove(&position).map(Box::new);
            ledger.slots.push(slot);
        }
        ledger
    }

    /// Takes the next row.
    pub(super) fn take(&mut self, row: &MemRow) {
        // In a storm of rows one can come too late for its place. It still counts, from now on.
        let time = self.now.map_or(row.boot_ns, |now| now.max(row.boot_ns));
        let amounts = Amounts::of(row);
        self.tell_until(time);
        self.end_processes_until(time);
        self.move_to(time);
        let position = self.roster.position(row.upid, row.boot_ns);
        if position == self.slots.len() {
            self.slots.push(Slot::new([None; 2], None));
        }
        self.slots[position].saw(amounts, row.boot_ns);
        self.row_count = self.row_count.saturating_add(1);
        if !self.slots[position].has_ended {
            self.doubt(position, &amounts, time);
            self.change(position, Some(amounts), time);
        }
    }

    /// Takes what processes measured of themselves before an instant. Before its first row a
    /// process is not in the books: until its exec, a command is not even itself.
    fn tell_until(&mut self, time: BootNs) {
        while let Some(telling) = self.tellings.before(time) {
            let time = self
                .now
                .map_or(telling.boot_ns, |now| now.max(telling.boot_ns));
            self.end_processes_until(time);
            let Some(slot) = self.slots.get_mut(telling.process) else {
                continue;
            };
            if slot.is_present {
                let amounts = slot.now.measured(telling.rss, telling.anon);
                slot.saw(amounts, time);
                self.move_to(time);
                self.doubt(telling.process, &amounts, time);
                self.change(telling.process, Some(amounts), time);
            }
        }
    }

    /// What a process turns out to hold tells how far its last row can be relied on.
    fn doubt(&mut self, position: usize, amounts: &Amounts, time: BootNs) {
        let slot = &self.slots[position];
        if slot.is_present {
            let before = (slot.changed_boot_ns, &slot.now);
            self.doubts.note(position, before, (time, amounts));
        }
    }

    /// Closes the books at the end of the recording.
    pub(super) fn finish(mut self, end: BootNs) -> Seens {
        let last = self.now;
        let end = last.map_or(end, |last| last.max(end));
        self.tell_until(end);
        self.end_processes_until(end);
        self.move_to(end);
        self.settle();
        self.keep_asked_until(end, true);
        if last.is_some() {
            self.gauge_until(BootNs(i64::MAX), end);
        }
        let mut peak = self.peak.map(|(boot_ns, totals, once)| Snapshot {
            boot_ns,
            totals,
            once,
            held: self.held_by(|slot| slot.at_maximum(self.maximum)),
            around: None,
        });
        let (around_peak, around_asked) = std::mem::take(&mut self.surroundings).finish(end);
        if let Some(peak) = &mut peak {
            peak.around = around_peak;
        }
        for (place, around) in around_asked {
            if let Some(snapshot) = self.snapshots.get_mut(place) {
                snapshot.around = Some(around);
            }
        }
        self.end_stretch(end);
        let ends = self
            .roster
            .processes
            .iter()
            .map(|process| process.exit_boot_ns);
        let processes = self.slots.iter_mut().zip(ends);
        let processes = processes
            .map(|(slot, exit)| slot.finish(exit.unwrap_or(end)))
            .collect();
        let own = self.slots.iter_mut().enumerate();
        let own = own.filter_map(|(position, slot)| Some((position, *slot.gauge.take()?)));
        self.lanes.finish(end);
        let gauges = self.roles.iter().map(|&role| self.lanes.take_gauge(role));
        let gauges: Vec<_> = gauges.collect();
        let role_gauges = (!self.lanes.has_too_many_steps()).then_some(gauges);
        let lanes = &self.lanes;
        let trees = self.trees.iter().map(|tree| TreeSeen {
            root: tree.root,
            tree: lanes.get(tree.all).highest(Kind::Rss),
            descendants: lanes.get(tree.descendants).highest(Kind::Rss),
        });
        let trees = trees.collect();
        Seens {
            peak,
            held_peak: self.held_peak,
            rss_peak: self.rss_peak,
            asked: self.snapshots,
            processes,
            gauges: Gauges {
                own: own.collect(),
                tree: self.gauge,
                roles: std::sync::Arc::default(),
                doubts: self.doubts,
            },
            trees,
            role_gauges,
            roles: self.roles,
            lanes: self.lanes,
            growth: self.growth,
            curve: self.held_curve.iter().flat_map(Series::points).collect(),
            span: self.first.zip(last),
        }
    }

    fn end_processes_until(&mut self, time: BootNs) {
        while let Some(&(end, position)) = self.ends.last()
            && end <= time
        {
            self.ends.pop();
            self.turn_until(end);
            let end = self.now.map_or(end, |now| now.max(end));
            self.move_to(end);
            // What is left running after a command says nothing of its growth.
            if self.victims.contains(&position) || self.roster.is_command(position) {
                self.end_stretch(end);
                self.has_stretches_ended |= self.roster.is_command(position);
            }
            self.slots[position].has_ended = true;
            self.slots[position].at_end = self.slots[position].now;
            if self.slots[position].is_present {
                self.change(position, None, end);
            }
            self.slots[position].fit_until(end);
        }
        self.turn_until(time);
    }

    /// What processes hold goes over to what they are from now on.
    fn turn_until(&mut self, time: BootNs) {
        while let Some(&(at, position, group)) = self.turns.last()
            && at <= time
        {
            self.turns.pop();
            let at = self.now.map_or(at, |now| now.max(at));
            if self.now.is_some() {
                self.move_to(at);
            }
            let slot = &mut self.slots[position];
            let role = self.roles[group as usize];
            let before = slot.in_role.replace(role);
            if slot.is_present {
                if let Some(before) = before {
                    self.lanes.change(before, Some(&slot.own_now), None, at);
                }
                self.lanes.change(role, None, Some(&slot.own_now), at);
            }
        }
    }

    /// What is held changes with readings, too, between rows of `mem`.
    fn move_to(&mut self, time: BootNs) {
        while let Some(at) = self.held.next_change(time) {
            if let Some(now) = self.now {
                self.step_to(now.max(at));
            }
            self.held.pass(at);
        }
        self.step_to(time);
        self.held.pass(time);
    }

    fn step_to(&mut self, time: BootNs) {
        let Some(now) = self.now else {
            self.now = Some(time);
            return;
        };
        if time <= now {
            return;
        }
        self.settle();
        self.keep_asked_until(time, false);
        // Where nothing is known the curve has a gap.
        if let (Some(curve), Some(rss)) = (&mut self.curve, self.totals[Kind::Rss].bytes()) {
            curve.hold(now, time, rss.0);
            if let Some(curve) = &mut self.held_curve {
                curve.hold(now, time, self.held.now().all().bytes.0);
            }
        }
        self.gauge_until(time, now);
        self.surroundings.pass(time);
        self.now = Some(time);
    }

    fn end_stretch(&mut self, end: BootNs) {
        let Some((first, curve)) = self.first.zip(self.curve.as_ref()) else {
            return;
        };
        let from = self.stretch_from.replace(end).unwrap_or(first);
        if self.has_stretches_ended || (end - from).0 <= self.stretch_ns {
            return;
        }
        self.stretch_ns = (end - from).0;
        self.growth = growth::fit(curve.points(), (from, end), self.row_count);
    }

    fn gauge_until(&mut self, time: BootNs, from: BootNs) {
        if self.gauge.is_empty() {
            return;
        }
        self.gauge.hold(from, time, self.totals.amounts());
        if self.totals[Kind::Rss].unknown_count() > 0 {
            self.gauge.note_unknown();
        }
    }

    /// All rows of one time are in: compares the totals with the maxima.
    fn settle(&mut self) {
        let Some(now) = self.now else { return };
        let once = self.held.now();
        let all = once.all();
        let best = self.held_peak.unwrap_or_default();
        let is_first = self.peak.is_none() && self.totals.rss_or_zero() > 0;
        if is_first || all.bytes > best.bytes {
            self.peak = Some((now, self.totals, once));
            self.maximum += 1;
            self.surroundings.note_peak();
        }
        self.held_peak = Some(best.highest(all));
        High::raise(&mut self.rss_peak, Bytes(self.totals.rss_or_zero()), now);
        self.lanes.settle(now);
    }

    fn keep_asked_until(&mut self, time: BootNs, is_inclusive: bool) {
        while let Some(&asked) = self.asked.last()
            && (asked < time || (is_inclusive && asked == time))
        {
            self.asked.pop();
            self.surroundings.pass(asked);
            self.surroundings.note_asked(self.snapshots.len());
            self.snapshots.push(Snapshot {
                boot_ns: asked,
                totals: self.totals,
                once: self.held.now(),
                held: self.held_by(|slot| slot.now),
                around: None,
            });
        }
    }

    fn held_by(&self, amounts: impl Fn(&Slot) -> Amounts) -> Vec<(usize, Amounts)> {
        self.slots
            .iter()
            .map(amounts)
            .enumerate()
            .filter(|(_, amounts)| amounts.rss() != Some(Bytes(0)))
            .collect()
    }

    /// A process holds something else from `time` on; `None` when it has ended.
    fn change(&mut self, position: usize, amounts: Option<Amounts>, time: BootNs) {
        let slot = &mut self.slots[position];
        if slot.saved_at_maximum != self.maximum {
            slot.saved = slot.now;
            slot.saved_at_maximum = self.maximum;
        }
        slot.hold_until(time);
        let before = slot.now;
        let was = Some(&before).filter(|_| slot.is_present);
        self.totals.replace(was, amounts.as_ref());
        for lane in slot.in_trees.into_iter().flatten() {
            self.lanes.change(lane, was, amounts.as_ref(), time);
        }
        let own = amounts.map(|amounts| slot.own(amounts));
        if let Some(role) = slot.in_role {
            let was = Some(&slot.own_now).filter(|_| slot.is_present);
            self.lanes.change(role, was, own.as_ref(), time);
        }
        slot.own_now = own.unwrap_or(Amounts::NONE);
        self.held.set(position, amounts.as_ref());
        slot.now = amounts.unwrap_or(Amounts::NONE);
        slot.is_present = amounts.is_some();
        self.surroundings.note(time, position, before, slot.now);
        if self.first.is_none() {
            self.first = Some(time);
            self.curve = Some(Series::new(time, TOTAL_BUCKETS));
            self.held_curve = Some(Series::new(time, TOTAL_BUCKETS));
        }
    }
}
