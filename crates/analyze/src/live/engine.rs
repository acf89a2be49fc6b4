//! The sweep of a recording that goes on: taken as far as rows can't come any more, and copied to be
//! taken to what is newest.

use super::known::Known;
use crate::held::{Held, HeldSum};
use memtrace_model::tables::{MemRow, MemSource};
use memtrace_model::{BootNs, Bytes, RowSource, Upid};
use memtrace_timeline::{
    Amounts, Change, Lane, LaneId, Member, Observe, Planned, State, Sweep, Totals, Track,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The curve of the last minutes has a column for each second.
const SECOND_NS: i64 = 1_000_000_000;
/// So many of them.
const SECONDS_MAX: usize = 900;
/// So many without a row of their own are distinguished.
const STRANGERS_MAX: usize = 1_000;

/// The sweep, and who was put into it so far.
#[derive(Debug)]
pub(super) struct Engine {
    has_curves: bool,
    sweep: Sweep<Watch>,
    lanes: HashMap<Arc<str>, LaneId>,
    entered: Vec<Entered>,
    /// Of whom there were rows, and it is not known who they are.
    strangers: HashSet<Upid>,
    /// Whether something came to be known that would have been needed earlier.
    pub(super) is_contradicted: bool,
}

/// A process as it was put in.
#[derive(Clone, Debug)]
struct Entered {
    upid: Upid,
    /// The groups that it belongs to: the first, and from when on another.
    first: Arc<str>,
    steps: Vec<(BootNs, Arc<str>)>,
    copy_until: Option<BootNs>,
    has_end: bool,
}

/// What is noted beside sums.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    held: HeldSum,
    /// When most was held, every page once.
    pub(super) peak: Option<BootNs>,
    /// The highest that anything of it was.
    pub(super) held_peak: Option<Held>,
    /// Begins and ends of phases, the latest first.
    boundaries: Vec<BootNs>,
    /// What processes held at those that have passed, as far as that was news.
    pub(super) noted: Vec<MemRow>,
    /// By process: what was noted last.
    noted_last: Vec<Amounts>,
    /// The highest of each second.
    pub(super) seconds: Vec<(i64, Bytes)>,
}

impl Observe for Watch {
    fn next_change(&self, until: BootNs) -> Option<BootNs> {
        self.held.next_change(until)
    }

    fn pass(&mut self, until: BootNs) {
        self.held.pass(until);
    }

    fn changed(&mut self, change: Change<'_>) {
        self.held.change(change);
    }

    fn holds(&mut self, from: BootNs, until: BootNs, state: &State) -> bool {
        let once = self.held.now();
        let all = once.all();
        let best = self.held_peak.unwrap_or_default();
        let is_first = self.peak.is_none() && state.totals().rss_or_zero() > 0;
        let is_maximum = is_first || all.bytes > best.bytes;
        if is_maximum {
            self.peak = Some(from);
        }
        self.held_peak = Some(self.held.peak(self.held_peak, &once));
        while let Some(at) = self.boundaries.pop_if(|at| *at < until) {
            self.note(at, state);
        }
        self.draw(from, until, all.bytes);
        // Nobody asks here who has which part of it.
        self.held.take_touched(&mut Vec::new());
        is_maximum
    }
}

impl Watch {
    /// What is held now, every page once.
    pub(super) fn held(&self) -> Held {
        self.held.now().all()
    }

    fn note(&mut self, at: BootNs, state: &State) {
        self.noted_last.resize(state.processes.len(), Amounts::NONE);
        let processes = state.processes.iter().zip(&mut self.noted_last);
        for (place, (track, last)) in processes.enumerate() {
            let held = track.held().copied().unwrap_or(Amounts::NONE);
            if std::mem::replace(last, held) != held {
                // The place stands for the process until it is known who asks.
                self.noted.push(row(Upid(place as i64), at, &held));
            }
        }
    }

    /// Draws what was held until a time. Seconds without a change have no column.
    fn draw(&mut self, from: BootNs, until: BootNs, bytes: Bytes) {
        for second in [from.0 / SECOND_NS, (until.0 - 1) / SECOND_NS] {
            match self.seconds.last_mut() {
                Some((last, highest)) if *last == second => *highest = bytes.max(*highest),
                _ => self.seconds.push((second, bytes)),
            }
        }
        if self.seconds.len() > 2 * SECONDS_MAX {
            self.seconds.drain(..SECONDS_MAX);
        }
    }
}

/// A row of `mem` that says what a process holds.
pub(super) fn row(upid: Upid, boot_ns: BootNs, held: &Amounts) -> MemRow {
    MemRow {
        boot_ns,
        upid,
        rss_bytes: held.rss(),
        rss_anon_bytes: held.anon(),
        rss_file_bytes: held.file(),
        rss_shmem_bytes: held.shmem(),
        swap_bytes: held.get(memtrace_model::Kind::Swap),
        source: Some(MemSource::Snapshot),
        ..MemRow::default()
    }
}

impl Engine {
    /// Nobody is there yet. Of each a curve is kept if `has_curves`.
    pub(super) fn new(has_curves: bool) -> Self {
        Self {
            has_curves,
            sweep: Sweep::new(Watch::default(), Lane::of_kinds(&Arc::default())),
            lanes: HashMap::new(),
            entered: Vec::new(),
            strangers: HashSet::new(),
            is_contradicted: false,
        }
    }

    /// A copy that keeps no curves.
    pub(super) fn without_curves(&mut self) -> Self {
        Self {
            has_curves: false,
            sweep: self.sweep.without_curves(),
            lanes: self.lanes.clone(),
            entered: self.entered.clone(),
            strangers: self.strangers.clone(),
            is_contradicted: self.is_contradicted,
        }
    }

    /// What was noted.
    pub(super) fn watch(&self) -> &Watch {
        &self.sweep.observer
    }

    /// Takes out what was noted at begins and ends of phases: process by position, in the order of
    /// time.
    pub(super) fn take_noted(&mut self) -> Vec<MemRow> {
        std::mem::take(&mut self.sweep.observer.noted)
    }

    /// Whose memory is in no figure, in a sentence; `None` where it is everybody's.
    pub(super) fn left_out(&self) -> Option<String> {
        let who = match self.strangers.len() {
            0 => return None,
            1 => "1 process".to_owned(),
            STRANGERS_MAX.. => format!("{STRANGERS_MAX} processes or more"),
            count => format!("{count} processes"),
        };
        Some(format!(
            "{who} without a row in process: left out here, see memtrace report"
        ))
    }

    /// What everybody holds.
    pub(super) fn state(&self) -> &State {
        &self.sweep.state
    }

    /// The process at a position, once it was put in.
    pub(super) fn track(&self, position: usize) -> Option<&Track> {
        self.sweep.state.processes.get(position)
    }

    /// The sum of those of a group; `None` where nobody of it was put in.
    pub(super) fn group(&self, name: &str) -> Option<&Lane> {
        let lane = self.lanes.get(name)?;
        Some(&self.sweep.state.lanes[*lane])
    }

    /// What is known of sums of all.
    pub(super) fn totals(&self) -> &Totals {
        self.sweep.state.totals()
    }

    /// Takes what is known by now of who there is, and what is going to happen to them.
    pub(super) fn prepare<S: RowSource>(
        &mut self,
        source: &S,
        known: &Known,
    ) -> Result<(), S::Error> {
        let mut strangers = self.strangers.iter();
        let is_met = strangers.any(|upid| known.table.find(*upid).is_some());
        self.is_contradicted |= is_met || !self.is_still(known);
        let since = self.sweep.last();
        for position in 0..self.entered.len() {
            self.follow(position, known);
        }
        let held = &mut self.sweep.observer.held;
        held.prepare(source, &known.table, &known.execs, known.whole, since)?;
        let later = known.boundaries.iter().copied();
        let mut later: Vec<BootNs> = later
            .filter(|at| since.is_none_or(|since| *at >= since))
            .collect();
        later.reverse();
        self.sweep.observer.boundaries = later;
        Ok(())
    }

    /// Whether those who were put in are where they were.
    fn is_still(&self, known: &Known) -> bool {
        let mut entered = self.entered.iter().enumerate();
        entered.all(|(position, entered)| {
            let process = known.table.processes.get(position);
            process.is_some_and(|process| process.upid == entered.upid)
        })
    }

    /// Puts in everyone who has started by then.
    pub(super) fn enter(&mut self, known: &Known, until: BootNs) {
        let more = known.table.processes.iter().skip(self.entered.len());
        let count = more
            .take_while(|process| process.start.boot_ns <= until)
            .count();
        for _ in 0..count {
            self.enter_next(known);
        }
    }

    fn enter_next(&mut self, known: &Known) {
        let position = self.entered.len();
        let Some(process) = known.table.processes.get(position) else {
            return;
        };
        let first = known.first_group(position);
        let lane = self.lane(&first);
        self.sweep.enter(Member {
            own: Some(lane),
            copy_until: process.copy_until,
            has_curve: self.has_curves,
            ..Member::default()
        });
        self.entered.push(Entered {
            upid: process.upid,
            first,
            steps: Vec::new(),
            copy_until: process.copy_until,
            has_end: false,
        });
        self.follow(position, known);
    }

    fn lane(&mut self, group: &Arc<str>) -> LaneId {
        if let Some(lane) = self.lanes.get(group) {
            return *lane;
        }
        let lane = self.sweep.state.lanes.add(Lane::of_kinds(&Arc::default()));
        self.lanes.insert(Arc::clone(group), lane);
        lane
    }

    /// Plans what has come to be known of a process that was put in.
    fn follow(&mut self, position: usize, known: &Known) {
        let Some(process) = known.table.processes.get(position) else {
            return;
        };
        let last = self.sweep.last();
        let has_passed = |at: BootNs| last.is_some_and(|last| at < last);
        let has_rows = self
            .track(position)
            .is_some_and(|track| track.row_count > 0);
        let steps = known.steps(position);
        let first = known.first_group(position);
        let entered = &self.entered[position];
        let is_new_image = entered.copy_until != process.copy_until && has_rows;
        let is_other = entered.first != first || !steps.starts_with(&entered.steps);
        let mut moves: Vec<(BootNs, Arc<str>)> = Vec::new();
        if is_other {
            // It counts from now on, until the recording is read anew.
            let now = last.unwrap_or(process.start.boot_ns);
            let here = steps.iter().rev().find(|(at, _)| *at <= now);
            moves.push((now, Arc::clone(here.map_or(&first, |(_, group)| group))));
            moves.extend(steps.iter().filter(|(at, _)| *at > now).cloned());
        } else {
            moves.extend(steps[entered.steps.len()..].iter().cloned());
        }
        let exit = process.exit_boot_ns().filter(|_| !entered.has_end);
        let is_late = moves.iter().any(|(at, _)| has_passed(*at)) || exit.is_some_and(has_passed);
        self.is_contradicted |= has_rows && (is_new_image || is_other || is_late);
        let moves: Vec<(BootNs, Planned)> = moves
            .into_iter()
            .map(|(at, group)| (at, Planned::Move(position, self.lane(&group))))
            .collect();
        let end = exit.map(|exit| (exit, Planned::End(position)));
        if end.is_some() || !moves.is_empty() {
            self.sweep.plan(moves.into_iter().chain(end));
        }
        let entered = &mut self.entered[position];
        entered.has_end |= exit.is_some();
        (entered.first, entered.steps, entered.copy_until) = (first, steps, process.copy_until);
    }

    /// Takes the next row.
    pub(super) fn take(&mut self, row: &MemRow, known: &Known) {
        if row.source == Some(MemSource::SelfReported) {
            if let Some((position, rss, anon)) = known.table.self_reported(row) {
                self.sweep.measured(row.boot_ns, position, rss, anon);
            }
            return;
        }
        let Some(position) = known.table.find(row.upid) else {
            if self.strangers.len() < STRANGERS_MAX {
                self.strangers.insert(row.upid);
            }
            return;
        };
        // By ticks of a clock a process can begin after its first row.
        while self.entered.len() <= position {
            self.enter_next(known);
        }
        self.sweep.row(row.boot_ns, position, Amounts::of(row));
    }

    /// No more is known than until then.
    pub(super) fn finish(&mut self, end: BootNs) {
        let end = self.sweep.time_of(end);
        self.sweep.finish(end);
    }
}
