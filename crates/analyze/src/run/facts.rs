//! The first stage: what is known before the pass over memory, and what it is to look out for.

use super::shutdown::{Shutdown, Tail};
use super::{AnalyzeError, Options, noted_clock};
use crate::clock::RunClock;
use crate::conditions::Requests;
use crate::cost::{self, RecorderCost};
use crate::gpu::GpuTimeline;
use crate::groups::Groups;
use crate::leftovers;
use crate::log_kills::KillLine;
use crate::moment::{self, Moment, MomentError, SECOND_NS};
use crate::oom::{self, Windows};
use crate::phases::{ConditionSpan, Marks, Timeline};
use crate::process_table::ProcessTable;
use crate::sharing::{self, Execs};
use crate::titles::Titles;
use memtrace_model::tables::{FirstSeenBy, MemRow, MemSource, OomRow};
use memtrace_model::{BootNs, DurationNs, Kind, RowSource, RunInfo};

/// Recorders have begun to look at processes so long after their start.
const LONGEST_START: DurationNs = DurationNs(10 * SECOND_NS);

/// The first look at all who ran before takes no longer.
const LONGEST_LOOK: DurationNs = DurationNs(2 * SECOND_NS);

/// Who there was, what was named, what was killed, and the instants that are asked for.
pub(super) struct Facts {
    pub(super) cost: Option<RecorderCost>,
    pub(super) kills: Vec<OomRow>,
    /// Kills that a log tells of.
    pub(super) log_kills: Vec<KillLine>,
    pub(super) unread_kill_count: usize,
    pub(super) table: ProcessTable,
    /// Its span is as far as it is known without memory.
    pub(super) clock: RunClock,
    /// The instant of [`Options::at`], unless that is the peak.
    pub(super) at: Option<BootNs>,
    pub(super) phases: Timeline,
    pub(super) groups: Groups,
    /// When processes executed programs, by their titles.
    pub(super) execs: Execs,
    pub(super) load: Vec<ConditionSpan>,
    pub(super) requests: Requests,
    pub(super) gpus: GpuTimeline,
    /// Instants of which it is asked who held what.
    pub(super) instants: Vec<BootNs>,
    pub(super) windows: Windows,
    /// When the first survivors were looked at.
    pub(super) left_at: Option<BootNs>,
    /// Instants around which curves keep their detail.
    pub(super) foci: Vec<BootNs>,
}

impl Facts {
    pub(super) fn read<S>(
        info: &RunInfo,
        source: &S,
        options: &Options,
    ) -> Result<Self, AnalyzeError<S::Error>>
    where
        S: RowSource,
        S::Error: std::error::Error + 'static,
    {
        let cost = cost::read(source)?;
        let kills = oom::read(source)?;
        let mut table = ProcessTable::read(source, info)?;
        let clock = noted_clock(info, options.last_boot_ns, cost.as_ref(), &table);
        let clock = clock.in_zone(options.zone.clone());
        let at = resolve(options.at, &clock, &kills, &table)?;
        // Before that only some are known, or nobody.
        let first_known = match at.is_some_and(|at| at - clock.start() <= LONGEST_START) {
            true => first_known(source, &table)?,
            false => None,
        };
        let at = at.map(|at| at.max(first_known.unwrap_or(at).min(clock.end())));
        let mut marks = Marks::read(source, &mut table)?;
        let log_kills = std::mem::take(&mut marks.kills);
        let unread_kill_count = marks.unread_kill_count;
        let titles = Titles::read(source, &table)?;
        for process in &mut table.processes {
            process.copy_until = sharing::copy_until(process, &titles.execs);
        }
        let mut phases = Timeline::of(marks, titles.calls, &table.processes);
        let shutdown = shutdown(source, options, &phases, (&table, &clock))?;
        if let Some(shutdown) = &shutdown {
            phases.end_open(shutdown.begin(), |begin| shutdown.highest_since(begin));
        }
        let groups = Groups::of(&table.processes, titles.roles);
        let highest = shutdown.map(|shutdown| shutdown.highest());
        focus(&mut phases, source, options, (&table, &clock, highest))?;
        let load = phases.conditions();
        let requests = match options.only_saves {
            true => Requests::default(),
            false => Requests::read(source, &load)?,
        };
        phases.watch(requests.before_failures());
        let gpus = GpuTimeline::read(source, &table, clock.end(), phases.named())?;
        let left_at = leftovers::looked_at(source)?;
        let instants = oom::instants(&kills, &table)
            .chain(at)
            .chain(left_at)
            .chain(options.instants.iter().copied())
            .chain(phases.instants(clock.end()))
            .chain(gpus.instants());
        let instants = instants.collect();
        let foci = phases
            .longest(clock.end())
            .chain(oom::instants(&kills, &table));
        let foci = foci.chain(at).collect();
        let windows = Windows::of(&kills, &clock, &table.processes);
        Ok(Self {
            cost,
            kills,
            log_kills,
            unread_kill_count,
            table,
            clock,
            at,
            phases,
            groups,
            execs: titles.execs,
            load,
            requests,
            gpus,
            instants,
            windows,
            left_at,
            foci,
        })
    }

    /// When the recording ends, as far as that is known without memory.
    pub(super) fn end(&self) -> BootNs {
        self.clock.end()
    }
}

/// Whether the last part is asked for.
fn is_of_last(options: &Options) -> bool {
    options.from.is_some_and(Moment::is_of_last)
}

/// How the tree ended, where that is asked for or a phase is open then.
fn shutdown<S: RowSource>(
    source: &S,
    options: &Options,
    phases: &Timeline,
    (table, clock): (&ProcessTable, &RunClock),
) -> Result<Option<Shutdown>, S::Error> {
    let tail = Tail::of(table, clock, phases.begins());
    let tail = tail.filter(|tail| is_of_last(options) || phases.has_open_at(tail.earliest()));
    tail.map(|tail| tail.read(source, table)).transpose()
}

/// Turns to the phase, or the window, that is asked for. The last part of a recording ends at `highest`.
fn focus<S>(
    phases: &mut Timeline,
    source: &S,
    options: &Options,
    (table, clock, highest): (&ProcessTable, &RunClock, Option<BootNs>),
) -> Result<(), AnalyzeError<S::Error>>
where
    S: RowSource,
    S::Error: std::error::Error + 'static,
{
    if options.is_unfolded {
        phases.unfold();
    }
    if let Some(name) = &options.phase {
        phases.focus_on(name).map_err(AnalyzeError::Phase)?;
    }
    if options.from.is_some() || options.to.is_some() {
        let is_last = is_of_last(options);
        let clock = match highest.filter(|_| is_last) {
            Some(highest) => clock.until(highest),
            None => clock.clone(),
        };
        // A recording that has only begun has no last part, and one that is shorter is all of it.
        if is_last && clock.duration().0 <= 0 {
            return Ok(());
        }
        let beyond = options.from.and_then(|from| from.beyond(&clock));
        let is_all = |from: &Moment| is_last && from.resolve(&clock) == Ok(Some(clock.start()));
        let from = options.from.filter(|from| !is_all(from));
        let begin = from.and_then(|from| from.resolve(&clock).ok().flatten());
        let first_known = match begin.is_none_or(|begin| begin - clock.start() <= LONGEST_START) {
            true => first_known(source, table)?,
            false => None,
        };
        let window = moment::window(from, options.to, first_known, &clock);
        phases.focus_on_window(window.map_err(AnalyzeError::Window)?, beyond);
    }
    Ok(())
}

/// When the memory of everybody is first known: those that ran before the recording are looked at one
/// after the other.
fn first_known<S: RowSource>(source: &S, table: &ProcessTable) -> Result<Option<BootNs>, S::Error> {
    let (mut first, mut known) = (None, None);
    let mut is_known = vec![false; table.processes.len()];
    let columns = ["boot_ns", "upid", Kind::Rss.column(), "source"];
    source.scan(&columns, |row: MemRow| {
        let is_measured = row.source != Some(MemSource::SelfReported) && row.rss_bytes.is_some();
        let Some(place) = table.find(row.upid).filter(|_| is_measured) else {
            return;
        };
        let first = *first.get_or_insert(row.boot_ns);
        let was_there = table.processes[place].first_seen_by == Some(FirstSeenBy::Snapshot);
        let is_new = !std::mem::replace(&mut is_known[place], true);
        // Whoever was added to the targets later was not there yet.
        if known.is_none() || is_new && was_there && row.boot_ns - first <= LONGEST_LOOK {
            known = Some(row.boot_ns);
        }
    })?;
    Ok(known)
}

fn resolve<E: std::error::Error + 'static>(
    moment: Option<Moment>,
    clock: &RunClock,
    kills: &[OomRow],
    table: &ProcessTable,
) -> Result<Option<BootNs>, AnalyzeError<E>> {
    let resolve = |moment| match moment {
        Moment::OomKill => {
            let last = kills.last().map(std::slice::from_ref);
            let at = last.and_then(|last| oom::instants(last, table).next());
            at.map(Some).ok_or(MomentError::NoKill)
        }
        moment => moment.resolve(clock),
    };
    let at = moment.map(resolve).transpose();
    Ok(at.map_err(AnalyzeError::Moment)?.flatten())
}
