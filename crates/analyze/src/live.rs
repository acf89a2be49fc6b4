//! The figures of a recording that goes on, from the rows that came since the last look.
//!
//! Rows can arrive some time after what they tell of. So there are two sweeps: one is taken as far as
//! rows can't come any more, and its copy to the newest row. What only comes to be known later (what
//! a process became, that a fork was going to execute another program) can't be taken in by a sweep
//! that has passed: [`Live::is_contradicted`] then says that the recording is to be read anew.

mod engine;
mod figures;
mod kept;
mod known;
mod metrics;
mod series;
#[cfg(test)]
mod tests;

use super::clock::RunClock;
use super::process::Process;
use super::process_tree::ProcessTree;
use super::run::mem_columns;
use super::{cost, losses};
use engine::Engine;
pub use figures::{Deep, Frame, Limit, RoleNow};
use jiff::tz::TimeZone;
use kept::Kept;
use known::Known;
use memtrace_model::tables::{
    CgroupMemRow, DiagRow, MarkRow, MemRow, NodeMemRow, ProcessRow, PssRow, SelfCostRow, Severity,
    ShmObjectRow, TitleRow,
};
use memtrace_model::{BootNs, DurationNs, FreshRows, Kind, RunInfo};
pub use metrics::{METRICS, Metric, OOM_KILLS, RECORDER_UP};
pub use series::{Family, SERIES_MAX};
use std::collections::VecDeque;

/// Rows arrive no later than this after what they tell of: as when a recorder puts them in order.
const WINDOW: DurationNs = DurationNs(3_000_000_000);
/// What is kept to look back at, in bytes.
const HISTORY_BYTES: usize = 16 << 20;
/// How far one can look back.
const HISTORY: DurationNs = DurationNs(600_000_000_000);
/// Of what processes held at begins and ends of phases so many rows are kept.
const NOTED_MAX: usize = 200_000;
/// So many rows of `mem` wait until it is looked how far the sweep can go,
const PENDING: usize = 100_000;
/// and no more than so many in all, in bytes: in a storm of rows those that come too late for their
/// time count from then on.
const PENDING_MAX: usize = (64 << 20) / size_of::<MemRow>();
/// How much further a recording goes until its processes are named again, as their peaks tell.
const NAMED_EVERY: DurationNs = DurationNs(2_000_000_000);

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
            settled: Engine::new(false),
            tip: Engine::new(false),
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

    /// The same, without those that had ended before that time: who follows a recording for days needs
    /// no more than what is so now.
    pub fn without_ended_before(
        info: RunInfo,
        zone: Option<TimeZone>,
        ended_before: BootNs,
    ) -> Self {
        Self {
            kept: Kept::without_ended_before(ended_before),
            ..Self::new(info, zone)
        }
    }

    /// The same, with a curve of each process, which [`Live::growth`] asks for.
    #[must_use]
    pub fn with_curves(self) -> Self {
        Self {
            settled: Engine::new(true),
            ..self
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
            if self.kept.is_left_out(row.upid) {
                return;
            }
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
            // Of these nothing is named yet, and how they ended is not settled.
            self.named_at = None;
        }
        let of_processes = news.has::<PssRow>() || news.has::<ShmObjectRow>();
        if of_processes || news.has::<CgroupMemRow>() || news.has::<NodeMemRow>() {
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

    /// Takes the sweep as far as no more rows come, by what is newest; further where too many wait.
    fn settle_behind(&mut self) {
        if let Some(last) = self.last {
            self.settle(BootNs(last.0.saturating_sub(WINDOW.0)));
        }
        if self.pending.len() > PENDING_MAX {
            let middle = self.pending[PENDING_MAX / 2].boot_ns;
            self.settle(middle);
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
        self.tip = self.settled.without_curves();
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

    fn read_losses(&self) -> Vec<String> {
        let Ok(cost) = cost::read(&self.kept);
        let Ok(losses) = losses::read(&self.kept, &self.info, cost.as_ref(), &self.clock);
        let reported = losses
            .into_iter()
            .filter(|loss| loss.severity == Severity::Loss);
        reported
            .map(|loss| match loss.count {
                Some(count) => format!("{} ({count}): {}", loss.subject, loss.detail),
                None => format!("{}: {}", loss.subject, loss.detail),
            })
            .collect()
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
