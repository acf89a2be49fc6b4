//! The figures of a recording that goes on, from the rows that came since the last look.
//!
//! Rows can arrive some time after what they tell of. So there are two sweeps: one is taken as far as
//! rows can't come any more, and its copy to the newest row. What only comes to be known later (what
//! a process became, that a fork was going to execute another program) can't be taken in by a sweep
//! that has passed: [`Live::is_contradicted`] then says that the recording is to be read anew.

mod engine;
mod kept;
mod known;
#[cfg(test)]
mod tests;

use super::clock::RunClock;
use super::held::Held;
use super::keys::PeakAt;
use super::phases::PhaseLine;
use super::process::Process;
use super::process_tree::ProcessTree;
use super::run::{Options, analyze, mem_columns};
use super::sections::{Report, gpus, ledger};
use super::{Moment, cost, losses, roles};
use crate::model::tables::{
    CowRow, DiagRow, MarkRow, MemRow, ProcessRow, PssRow, SelfCostRow, Severity, ShmObjectRow,
    TitleRow,
};
use crate::model::{BootNs, Bytes, DurationNs, Kind, Row, RunInfo};
use crate::report::Chapter;
use crate::sweep::{Amounts, Totals};
use engine::Engine;
use jiff::tz::TimeZone;
use kept::Kept;
use known::Known;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

/// Rows arrive no later than this after what they tell of: as when a recorder puts them in order.
const WINDOW: DurationNs = DurationNs(3_000_000_000);
/// What is kept to look back at, in bytes.
const HISTORY_BYTES: usize = 16 << 20;
/// How far one can look back.
const HISTORY: DurationNs = DurationNs(600_000_000_000);
/// Of what processes held at begins and ends of phases so many rows are kept.
const NOTED_MAX: usize = 200_000;
/// So many rows of `mem` wait until it is looked how far the sweep can go.
const PENDING: usize = 100_000;
/// How much further a recording goes until its processes are named again, as their peaks tell.
const NAMED_EVERY: DurationNs = DurationNs(2_000_000_000);

/// Where the rows of a recording come from that goes on.
pub trait FreshRows {
    /// What can go wrong while reading.
    type Error;

    /// Hands every row of a table to `each` that came since it was last asked for, in the order of
    /// arrival. An empty list of columns stands for all.
    ///
    /// # Errors
    /// When the recording can't be read.
    fn fresh<R: Row>(&mut self, columns: &[&str], each: impl FnMut(R)) -> Result<(), Self::Error>;
}

/// What everybody held at an instant.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// The instant.
    pub at: BootNs,
    /// All of it, every page once.
    pub held: Held,
    /// The sum of RSS of those of whom it is known.
    pub rss: Option<Bytes>,
    /// By process, in the order of positions: those who were there.
    pub held_by: Vec<(u32, Amounts)>,
}

impl Frame {
    /// What a process held; `None` where it was not there.
    pub fn held_by(&self, process: usize) -> Option<&Amounts> {
        let process = u32::try_from(process).ok()?;
        let place = self.held_by.binary_search_by_key(&process, |held| held.0);
        self.held_by.get(place.ok()?).map(|(_, held)| held)
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.held_by.len() * size_of::<(u32, Amounts)>()
    }
}

/// The processes of one role at an instant.
#[derive(Clone, Debug)]
pub struct RoleNow {
    /// What they are called.
    pub name: Arc<str>,
    /// How many of them are there.
    pub process_count: usize,
    /// How many ever were one.
    pub ever_count: usize,
    /// What they hold, shared pages in each.
    pub totals: Totals,
    /// The highest sum of RSS so far, and when; `None` where nothing was ever known.
    pub peak: Option<PeakAt>,
}

/// The limit that is nearest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The cgroup; `None` for the memory of the machine.
    pub cgroup: Option<String>,
    /// What is in use of it.
    pub used: Bytes,
    /// How much there is.
    pub limit: Bytes,
}

/// What takes longer to find out, as the report does.
#[derive(Debug)]
pub struct Deep {
    /// The report of what is kept: its instant of interest is the newest one.
    pub report: Report,
    /// Which one that was.
    pub at: BootNs,
}

impl Deep {
    /// The ledger of the cgroup that holds most, or of the node; `None` where nothing is known of
    /// what is in use.
    pub fn ledger(&self, top: usize) -> Option<Chapter> {
        let analysis = &self.report.analysis;
        ledger::ledger(analysis, analysis.at.as_ref()?, top.min(ledger::MAX_LINES))
    }

    /// The memory of GPUs and who holds it; `None` without a GPU.
    pub fn gpus(&self, top: usize) -> Option<Chapter> {
        let analysis = &self.report.analysis;
        gpus::at(analysis, analysis.at.as_ref()?, top)
    }

    /// The phases so far, in the order of their begins. What each held at most within is not known.
    pub fn phases(&self) -> &[PhaseLine] {
        let phases = self.report.analysis.phases.as_ref();
        phases.map_or(&[], |phases| &phases.lines)
    }
}

/// The figures of a recording that goes on.
#[derive(Debug)]
pub struct Live {
    info: RunInfo,
    zone: Option<TimeZone>,
    kept: Kept,
    known: Known,
    /// Whether the sweep was prepared for all that is known.
    is_prepared: bool,
    /// What the recorder says of losses, in a sentence each.
    losses: Vec<String>,
    /// Rows of `mem` that still may have to wait for others, in the order of arrival.
    pending: Vec<MemRow>,
    /// As far as rows can't come any more.
    settled: Engine,
    settled_until: Option<BootNs>,
    /// To the newest row.
    tip: Engine,
    first: Option<BootNs>,
    last: Option<BootNs>,
    clock: RunClock,
    /// What processes held at begins and ends of phases.
    noted: Vec<MemRow>,
    named_at: Option<BootNs>,
    tree: ProcessTree,
    now: Frame,
    history: VecDeque<Frame>,
}

impl Live {
    /// A recording of which nothing was read.
    pub fn new(info: RunInfo, zone: Option<TimeZone>) -> Self {
        let kept = Kept::default();
        let known = Known::of(&kept, &info);
        let clock = RunClock::new(info.clocks.clone(), None, false).in_zone(zone.clone());
        Self {
            info,
            zone,
            kept,
            known,
            is_prepared: false,
            losses: Vec::new(),
            pending: Vec::new(),
            settled: Engine::new(),
            settled_until: None,
            tip: Engine::new(),
            first: None,
            last: None,
            clock,
            noted: Vec::new(),
            named_at: None,
            tree: ProcessTree::default(),
            now: Frame::default(),
            history: VecDeque::new(),
        }
    }

    /// Takes what came. Answers whether there was anything.
    ///
    /// # Errors
    /// When the rows can't be read.
    pub fn take<S: FreshRows>(&mut self, source: &mut S) -> Result<bool, S::Error> {
        // Of a recording that is long already, it has to be known who there is before its memory is
        // read: not all of that fits. Later, who comes after it has everyone of whom it tells.
        let is_first = self.last.is_none();
        if is_first {
            self.take_kept(source)?;
        }
        let mut count = 0_usize;
        let mut limit = PENDING;
        source.fresh(&mem_columns(), |row: MemRow| {
            count += 1;
            self.note_time(row.boot_ns);
            self.pending.push(row);
            if self.pending.len() >= limit {
                self.settle_behind();
                limit = self.pending.len() + PENDING;
            }
        })?;
        let (has_kept, is_about_processes) = self.take_kept(source)?;
        if count == 0 && !has_kept && !is_first {
            return Ok(false);
        }
        let span = self.first.zip(self.last);
        self.clock =
            RunClock::new(self.info.clocks.clone(), span, false).in_zone(self.zone.clone());
        let Some(last) = self.last else {
            return Ok(true);
        };
        self.settle_behind();
        self.look_to(last, is_about_processes || is_first);
        Ok(true)
    }

    /// Takes what came to other tables than `mem`. Answers whether there was anything, and whether
    /// it was of who there is and what they are called.
    fn take_kept<S: FreshRows>(&mut self, source: &mut S) -> Result<(bool, bool), S::Error> {
        let news = self.kept.take(source)?;
        let is_about_processes = news.has::<ProcessRow>() || news.has::<TitleRow>();
        if is_about_processes || news.has::<MarkRow>() {
            self.known = Known::of(&self.kept, &self.info);
            self.is_prepared = false;
        }
        if news.has::<PssRow>() || news.has::<CowRow>() || news.has::<ShmObjectRow>() {
            self.is_prepared = false;
        }
        if news.has::<DiagRow>() || news.has::<SelfCostRow>() {
            self.losses = self.read_losses();
        }
        if let Some(last) = self.kept.last() {
            self.note_time(last);
        }
        Ok((news.is_any(), is_about_processes))
    }

    fn note_time(&mut self, at: BootNs) {
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
        self.last = self.last.max(Some(at));
    }

    /// Takes the sweep as far as no more rows come, by what is newest.
    fn settle_behind(&mut self) {
        if let Some(last) = self.last {
            self.settle(BootNs(last.0.saturating_sub(WINDOW.0)));
        }
    }

    /// Takes all rows that came so far: there will be no more.
    pub fn finish(&mut self) {
        if let Some(last) = self.last {
            self.settle(last);
            self.look_to(last, true);
        }
    }

    /// Whether something came to be known that would have been needed for what has passed: some
    /// figures can be off until the recording is read anew.
    pub fn is_contradicted(&self) -> bool {
        self.settled.is_contradicted
    }

    /// Takes the sweep to a time.
    fn settle(&mut self, until: BootNs) {
        let processes = self.known.table.processes.iter_mut();
        for (process, peak) in processes.zip(&self.known.peaks) {
            process.peak = *peak;
        }
        if !std::mem::replace(&mut self.is_prepared, true) {
            let Ok(()) = self.settled.prepare(&self.kept, &self.known);
        }
        self.settled.enter(&self.known, until);
        // Stable: rows of one process and time stay in the order of arrival.
        self.pending.sort_by_key(|row| (row.boot_ns, row.upid));
        let count = self.pending.partition_point(|row| row.boot_ns <= until);
        for row in self.pending.drain(..count) {
            self.settled.take(&row, &self.known);
        }
        self.settled_until = Some(until);
        self.note();
        self.kept.forget(until);
    }

    /// Keeps what was noted at begins and ends of phases; of what is too much the beginning becomes
    /// one state.
    fn note(&mut self) {
        let processes = &self.known.table.processes;
        let named = named_rows(self.settled.take_noted(), processes);
        self.noted.extend(named);
        if self.noted.len() > NOTED_MAX {
            let rest = self.noted.split_off(NOTED_MAX / 2);
            let begin = rest.first().map_or(BootNs(0), |row| row.boot_ns);
            let mut last = std::collections::BTreeMap::new();
            for row in self.noted.drain(..) {
                last.insert(
                    row.upid,
                    MemRow {
                        boot_ns: begin,
                        ..row
                    },
                );
            }
            self.noted.extend(last.into_values());
            self.noted.extend(rest);
        }
    }

    /// Looks on to the newest row, which others may still come before.
    fn look_to(&mut self, last: BootNs, has_news: bool) {
        self.tip = self.settled.clone();
        self.tip.enter(&self.known, last);
        for row in &self.pending {
            self.tip.take(row, &self.known);
        }
        self.tip.finish(last);
        self.name(last, has_news);
        let state = self.tip.state();
        let held_by = state.processes.iter().enumerate();
        let held_by = held_by.filter_map(|(place, track)| Some((place as u32, *track.held()?)));
        self.now = Frame {
            at: last,
            held: self.tip.watch().held(),
            rss: self.tip.totals()[Kind::Rss].bytes(),
            held_by: held_by.collect(),
        };
        self.remember();
    }

    /// Settles peaks, and the names that follow from them.
    fn name(&mut self, last: BootNs, has_news: bool) {
        let command = self.known.table.command;
        let processes = self.known.table.processes.iter_mut().enumerate();
        for ((place, process), peak) in processes.zip(&self.known.peaks) {
            let track = self.tip.track(place).filter(|track| track.row_count > 0);
            if let Some(track) = track {
                let ran_before =
                    process.start.boot_ns < self.clock.start() && command != Some(process.upid);
                process.peak = peak.with_series(track.highest, track.highest_boot_ns, ran_before);
            }
        }
        let is_due = self
            .named_at
            .is_none_or(|named| last - named >= NAMED_EVERY);
        if has_news || is_due {
            let Ok(()) = self.known.table.name(&self.kept, &self.known.groups);
            self.tree = ProcessTree::of(&self.known.table.processes);
            self.named_at = Some(last);
        }
        for process in &mut self.known.table.processes {
            process.settle(&self.clock);
        }
    }

    /// Keeps this for looking back, and forgets what is too old or too much: where there are many
    /// processes, one can look back less far.
    fn remember(&mut self) {
        let is_new = self.history.back().is_none_or(|last| last.at < self.now.at);
        if !is_new {
            self.history.pop_back();
        }
        self.history.push_back(self.now.clone());
        let mut bytes: usize = self.history.iter().map(Frame::bytes).sum();
        while let Some(oldest) = self.history.front()
            && self.history.len() > 1
            && (bytes > HISTORY_BYTES || self.now.at - oldest.at > HISTORY)
        {
            bytes -= oldest.bytes();
            self.history.pop_front();
        }
    }

    /// What the recording says about itself.
    pub fn info(&self) -> &RunInfo {
        &self.info
    }

    /// When it was, so far.
    pub fn clock(&self) -> &RunClock {
        &self.clock
    }

    /// Every process, in the order in which they started.
    pub fn processes(&self) -> &[Process] {
        &self.known.table.processes
    }

    /// Who descends from whom.
    pub fn tree(&self) -> &ProcessTree {
        &self.tree
    }

    /// The newest state.
    pub fn now(&self) -> &Frame {
        &self.now
    }

    /// States of the last minutes, the oldest first; the last of them is the newest.
    pub fn history(&self) -> &VecDeque<Frame> {
        &self.history
    }

    /// When most was held so far, every page once, and how much; `None` before the first row.
    pub fn held_peak(&self) -> Option<(BootNs, Held)> {
        let watch = self.tip.watch();
        watch.peak.zip(watch.held_peak)
    }

    /// The state in which most was held so far, every page once; `None` before the first row.
    pub fn peak(&self) -> Option<Frame> {
        let (at, held) = self.held_peak()?;
        let held_by = self.tip.state().at_maximum().into_iter();
        let mut frame = Frame {
            at,
            held,
            rss: None,
            held_by: held_by.map(|(place, held)| (place as u32, held)).collect(),
        };
        let mut totals = Totals::default();
        frame.held_by.iter().for_each(|(_, held)| totals.add(held));
        frame.rss = totals[Kind::Rss].bytes();
        frame.held_by.sort_unstable_by_key(|(place, _)| *place);
        Some(frame)
    }

    /// The highest sum of RSS so far, and when.
    pub fn rss_peak(&self) -> Option<PeakAt> {
        let high = self.tip.state().all.highest[Kind::Rss]?;
        Some((high.bytes, self.clock.at(high.boot_ns)))
    }

    /// The highest that was held in each second, the oldest first, as seconds on the boot clock; a
    /// second in which nothing changed is left out.
    pub fn seconds(&self) -> &[(i64, Bytes)] {
        &self.tip.watch().seconds
    }

    /// The roles at an instant, the one that holds most first. Sums of the newest one are those of
    /// the sweep.
    pub fn roles(&self, frame: &Frame) -> Vec<RoleNow> {
        let groups = &self.known.groups;
        let members = groups.members();
        let mut found: Vec<RoleNow> = groups
            .list
            .iter()
            .zip(&members)
            .map(|(group, members)| {
                let lane = self.tip.group(&group.name);
                let high = lane.and_then(|lane| lane.highest[Kind::Rss]);
                let high = high.map(|high| (high.bytes, self.clock.at(high.boot_ns)));
                let of_one = roles::peak_of_one(members, groups, self.processes());
                RoleNow {
                    name: Arc::clone(&group.name),
                    process_count: 0,
                    ever_count: members.len(),
                    totals: Totals::default(),
                    peak: of_one.or(high),
                }
            })
            .collect();
        for (process, held) in &frame.held_by {
            let place = groups.at(*process as usize, frame.at);
            if let Some(role) = place.and_then(|place| found.get_mut(place)) {
                role.process_count += 1;
                role.totals.add(held);
            }
        }
        if frame.at == self.now.at {
            for role in &mut found {
                if let Some(lane) = self.tip.group(&role.name) {
                    role.totals = lane.now;
                }
            }
        }
        found.retain(|role| role.ever_count > 0);
        found.sort_by_key(|role| {
            let rss = role.totals[Kind::Rss].bytes();
            (Reverse(rss), Reverse(role.peak.map(|(bytes, _)| bytes)))
        });
        found
    }

    /// What a process is called together with those that do the same.
    pub fn role_of(&self, process: usize, at: BootNs) -> Option<&str> {
        let place = self.known.groups.at(process, at)?;
        let group = self.known.groups.list.get(place)?;
        Some(&group.name)
    }

    /// The limit that is nearest, of the cgroups that hold recorded processes; where none has one,
    /// the memory of the machine.
    pub fn limit(&self) -> Option<Limit> {
        let limits = self.kept.cgroups().filter_map(|row| {
            Some(Limit {
                cgroup: Some(row.cgroup.clone()),
                used: row.current_bytes?,
                limit: row.limit_bytes.filter(|limit| limit.0 > 0)?,
            })
        });
        let share = |limit: &Limit| limit.used.0 as f64 / limit.limit.0 as f64;
        let nearest = limits.max_by(|a, b| share(a).total_cmp(&share(b)));
        nearest.or_else(|| {
            let node = self.kept.node()?;
            let limit = node.mem_total_bytes.filter(|limit| limit.0 > 0)?;
            Some(Limit {
                cgroup: None,
                used: limit - node.mem_available_bytes?,
                limit,
            })
        })
    }

    /// What was lost, in a sentence each; none where nothing was.
    pub fn losses(&self) -> Vec<Cow<'_, str>> {
        let told = self.losses.iter().map(|loss| Cow::Borrowed(loss.as_str()));
        told.chain(self.settled.left_out().map(Cow::Owned))
            .collect()
    }

    fn read_losses(&self) -> Vec<String> {
        let Ok(cost) = cost::read(&self.kept);
        let Ok(losses) = losses::read(&self.kept, &self.info, cost.as_ref(), &self.clock);
        let told = losses
            .into_iter()
            .filter(|loss| loss.severity == Severity::Loss);
        told.map(|loss| match loss.count {
            Some(count) => format!("{} ({count}): {}", loss.subject, loss.detail),
            None => format!("{}: {}", loss.subject, loss.detail),
        })
        .collect()
    }

    /// What the report finds at the newest instant: ledgers, GPUs, phases. It takes as long as a
    /// report of a recording of a few seconds. `None` before the first row, and where there are no
    /// findings.
    pub fn deep(&mut self) -> Option<Deep> {
        let at = self.now.at;
        let last = self.last?;
        let processes = &self.known.table.processes;
        let mut rows = self.noted.clone();
        rows.extend(named_rows(self.tip.watch().noted.clone(), processes));
        rows.extend(processes.iter().enumerate().filter_map(|(place, process)| {
            let held = self.now.held_by(place)?;
            Some(engine::row(process.upid, at, held))
        }));
        rows.sort_by_key(|row| (row.boot_ns, row.upid));
        self.kept.mem = rows;
        let options = Options {
            at: Some(Moment::Offset(self.clock.offset(at))),
            is_unfolded: true,
            is_live: true,
            last_boot_ns: Some(last),
            zone: self.zone.clone(),
            ..Options::default()
        };
        let report = analyze(&self.info, &self.kept, options).ok();
        self.kept.mem = Vec::new();
        Some(Deep {
            report: report?,
            at,
        })
    }
}

/// Rows of processes by position as rows of processes by identity.
fn named_rows(rows: Vec<MemRow>, processes: &[Process]) -> impl Iterator<Item = MemRow> {
    rows.into_iter().filter_map(|row| {
        let place = usize::try_from(row.upid.0).ok()?;
        let upid = processes.get(place)?.upid;
        Some(MemRow { upid, ..row })
    })
}
