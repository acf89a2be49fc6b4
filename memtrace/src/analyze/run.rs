//! The order in which a recording is read: who there was, the one pass over memory, then
//! names and surroundings for the instants that the pass found.

use super::analysis::{Analysis, CurvePoint, TreeFinding};
use super::bins::Bins;
use super::clock::RunClock;
use super::composition::{self, Composition};
use super::conditions::{self, Requests};
use super::cost::{self, RecorderCost};
use super::curves::{self, Choice, Drawing, Drawings};
use super::gpu::{GpuTimeline, OnGpus};
use super::groups::Groups;
use super::held::{HeldSum, Whole};
use super::host_clock::{HostClock, HostSeen};
use super::life::{self, ProcessError};
use super::moment::{self, Moment, MomentError};
use super::near::NearReadings;
use super::pass::{Asked, Pass, Snapshot, Tree};
use super::phases::{Marks, Noted, PhaseError, Timeline};
use super::process_table::ProcessTable;
use super::process_tree::ProcessTree;
use super::sections::Report;
use super::sharing::{self, Execs, Forks};
use super::titles::Titles;
use super::{
    RowSource, attributor, layout, leftovers, losses, mappings, memory_tables, oom, roles,
    surroundings,
};
use crate::model::tables::{Finding, MemRow, MemSource};
use crate::model::{BootNs, Bytes, Kind, Label, Order, RunInfo, RunState, Target};
use crate::sweep::{High, Lanes};
use jiff::tz::TimeZone;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What the pass needs of a row of `mem`.
pub(super) fn mem_columns() -> Vec<&'static str> {
    let others = ["ts", "boot_ns", "upid", "vm_size_bytes", "source"];
    let kinds = Kind::ALL.iter().map(|kind| kind.column());
    others.into_iter().chain(kinds).collect()
}

/// What to look at beside the peak.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// An instant of interest.
    pub at: Option<Moment>,
    /// More such instants, for what each role held then.
    pub instants: Vec<BootNs>,
    /// The name of a phase of interest, or a pattern of names: `*` stands for any text, `?` for
    /// one character.
    pub phase: Option<String>,
    /// The process of interest: its id, or words of its name or role.
    pub process: Option<String>,
    /// The begin of a window of interest; its first row of memory if only the end is given.
    pub from: Option<Moment>,
    /// Its end; the end of the recording if only its begin is given.
    pub to: Option<Moment>,
    /// Whether memory over time is wanted, for drawing it.
    pub has_curves: bool,
    /// Whether what is held in each second of the wall clock is wanted, for adding up hosts.
    pub has_bins: bool,
    /// Tell each marked phase by itself, not those of one name together.
    pub is_unfolded: bool,
    /// The reader's time zone; UTC where it is none.
    pub zone: Option<TimeZone>,
    /// The recording's place, for telling the person how to close it.
    pub path: Option<String>,
    /// Whether a recorder still writes to it.
    pub is_live: bool,
    /// Whether it went on where it comes from, and later rows may come yet.
    pub is_open: bool,
    /// The last row of any table, for a recording that was not closed.
    pub last_boot_ns: Option<BootNs>,
}

/// Why there are no findings.
#[derive(Debug, thiserror::Error)]
pub enum AnalyzeError<E: std::error::Error + 'static> {
    /// The rows could not be read.
    #[error(transparent)]
    Rows(#[from] E),
    /// The instant of interest is not part of the recording.
    #[error(transparent)]
    Moment(MomentError),
    /// The window of interest is not part of the recording, or is none.
    #[error(transparent)]
    Window(MomentError),
    /// The phase of interest is not part of the recording.
    #[error(transparent)]
    Phase(PhaseError),
    /// The process of interest is not part of the recording.
    #[error(transparent)]
    Process(ProcessError),
}

/// Reads a recording and says what there is to know.
///
/// Tables are read as streams, the large ones once, and where somebody came to map shared memory
/// `mem` near that once more. Memory grows with the number of processes, not with the number of rows
/// of `mem`.
///
/// # Errors
/// When the rows can't be read, or the instant that was asked for is not part of the recording.
pub fn analyze<S>(
    info: &RunInfo,
    source: &S,
    options: Options,
) -> Result<Report, AnalyzeError<S::Error>>
where
    S: RowSource,
    S::Error: std::error::Error + 'static,
{
    analyze_into(info, source, options, None)
}

/// The same, with what stands in tables beside the recording: `save` gets their rows.
///
/// # Errors
/// As [`analyze`].
pub fn analyze_into<S>(
    info: &RunInfo,
    source: &S,
    options: Options,
    mut save: Option<&mut dyn FnMut(Finding)>,
) -> Result<Report, AnalyzeError<S::Error>>
where
    S: RowSource,
    S::Error: std::error::Error + 'static,
{
    let cost = cost::read(source)?;
    let kills = oom::read(source)?;
    let mut table = ProcessTable::read(source, info)?;

    let clock = noted_clock(info, options.last_boot_ns, cost.as_ref(), &table);
    let clock = clock.in_zone(options.zone.clone());
    let at = resolve(options.at, &clock)?;
    let marks = Marks::read(source, &mut table)?;
    let titles = Titles::read(source, &table)?;
    let mut phases = Timeline::of(marks, titles.calls, &table.processes);
    let mut groups = Groups::of(&table.processes, titles.roles);
    if options.is_unfolded {
        phases.unfold();
    }
    if let Some(name) = &options.phase {
        phases.focus_on(name).map_err(AnalyzeError::Phase)?;
    }
    if options.from.is_some() || options.to.is_some() {
        let first_row = match options.from {
            Some(_) => None,
            None => first_row(source, &table)?,
        };
        let window = moment::window(options.from, options.to, first_row, &clock);
        phases.focus_on_window(window.map_err(AnalyzeError::Window)?);
    }
    let instants = oom::instants(&kills, &table).chain(at);
    let instants = instants.chain(options.instants.iter().copied());
    let load = phases.conditions();
    let requests = Requests::read(source, &load)?;
    phases.watch(requests.before_failures());
    let gpus = GpuTimeline::read(source, &table, clock.end(), phases.named())?;
    let instants = instants.chain(phases.instants(clock.end()));
    let instants: Vec<BootNs> = instants.chain(gpus.instants()).collect();
    let windows = oom::Windows::of(&kills, &clock, &table.processes);
    let asked = instants.iter().copied().chain(windows.instants());
    let victims = kills
        .iter()
        .filter_map(|kill| table.find(kill.victim_upid?));
    let victims: HashSet<usize> = victims.collect();
    for process in &mut table.processes {
        process.copy_until = sharing::copy_until(process, &titles.execs);
    }
    let mut held = HeldSum::default();
    let whole = Whole::of(info, clock.start());
    held.prepare(source, &table, &titles.execs, whole, None)?;
    let foci = phases
        .longest(clock.end())
        .chain(oom::instants(&kills, &table));
    let foci: Vec<BootNs> = foci.chain(at).collect();
    let host_clock = match options.has_bins {
        true => Some(HostClock::read(source, info)?),
        false => None,
    };
    let bins = host_clock.as_ref();
    let bins = bins.map(|clock| Bins::new(clock.wall_clock(), groups.list.len()));
    let drawing = match options.has_curves {
        true => {
            let choice = Choice::of(source, &table, &groups)?;
            Some(Drawing::new(choice, &table, &groups, &clock, foci.clone()))
        }
        false => None,
    };
    let asked = Asked {
        instants: asked.collect(),
        boundaries: phases.to_note(info.interval_ns),
        held,
        victims,
        near: NearReadings::new(surroundings::times(source)?),
        // Of tables, only the phases cross hosts.
        has_tables: save.is_some() && !options.has_bins,
        held_at: conditions::instants(&load, &requests, clock.end()).collect(),
        bins,
        drawing,
    };
    let mut sizes = mappings::Sizes::default();
    let mut execs = Execs::new();
    let end = clock.end();
    let mut pass = Pass::new(&mut table, &groups, asked);
    source.scan(&mem_columns(), |row: MemRow| {
        match row.source {
            Some(MemSource::SelfReported) => return pass.take_report(&row),
            Some(MemSource::Exec) => execs.entry(row.upid).or_default().push(row.boot_ns),
            _ => {}
        }
        sizes.note(pass.take(&row), row.vm_size_bytes);
    })?;
    let mut seen = pass.finish(end);
    let clock = RunClock::new(
        info.clocks.clone(),
        hull(span_of(&clock), seen.span),
        is_closed(info),
    )
    .in_zone(options.zone);

    let mut losses = losses::read(source, info, cost.as_ref(), &clock)?;
    losses.splice(0..0, table.overflow());
    let growth = seen.growth.map(|growth| growth.settled(&clock));
    let command = table.command;
    let tracks = seen.state.processes.iter();
    let at_end = tracks.map(|track| track.at_end.anon().filter(|_| track.row_count > 0));
    let at_end: Vec<Option<Bytes>> = at_end.collect();
    table.take_peaks(&seen.state.processes, &clock);
    for process in &mut table.processes {
        process.growth = process.growth.map(|growth| growth.settled(&clock));
    }
    table.note_kills(&kills);
    table.name(source, &groups)?;
    let mappings = mappings::read(source, &sizes, &mut table, &clock)?;
    for process in &mut table.processes {
        process.settle(&clock);
    }
    let layouts = layout::read(source, &table, &clock)?;

    // Of the starts of windows nothing but the holders is asked.
    let (states, earlier): (Vec<Snapshot>, Vec<Snapshot>) =
        (seen.asked.drain(..)).partition(|state| instants.contains(&state.boot_ns));
    let all: Vec<&Snapshot> = seen.peak.iter().chain(&states).collect();
    let uses = surroundings::read(source, &table.processes, &kills, &all)?;
    let is_everyone_recorded = matches!(info.target, Target::All);
    let forks = Forks::of(&table.processes, &execs);
    let processes = &table.processes;
    let known = attributor::Known {
        processes,
        forks: &forks,
        at_end: &at_end,
        is_everyone_recorded,
    };
    let mut attributed = attributor::read(source, known, &all, &uses)?.into_iter();
    groups.complete(&table.processes);
    let by_role: Vec<BootNs> = seen.role_mem.iter().map(|(at, _)| *at).collect();
    let of_roles = (&table, &groups, by_role.as_slice());
    let OnGpus {
        gpus,
        ledgers,
        by_role: on_gpus,
    } = gpus.told(source, of_roles, phases.marks(), &clock, &all)?;

    let mut ledgers = ledgers.into_iter();
    let mut known = uses.into_iter().map(|uses| composition::Known {
        uses,
        attributed: attributed.next(),
        gpus: ledgers.next().unwrap_or_default(),
    });
    let mut state = |snapshot| {
        let known = known.next().unwrap_or_default();
        Composition::of(snapshot, known, &table.processes, &clock, info.is_polled())
    };
    let peak = seen.peak.take().map(&mut state);
    let states: Vec<Composition> = states.into_iter().map(&mut state).collect();
    let earlier: Vec<Composition> = earlier.into_iter().map(&mut state).collect();
    let earlier: Vec<&Composition> = earlier.iter().chain(&states).collect();
    let leftovers = leftovers::read(source, &table)?;
    let left = &leftovers.objects;
    let ooms = oom::explain(
        source,
        kills,
        &windows,
        (&table, &clock),
        (&states, &earlier),
        left,
    )?;
    let concerning = ooms.iter().filter(|kill| !kill.is_elsewhere);
    let killed_in = concerning.filter_map(|kill| kill.row.memcg.clone());
    let killed_in: Vec<String> = killed_in.collect();
    let drawings = match seen.drawn.take() {
        Some(drawn) => {
            let known = curves::Known {
                table: &table,
                groups: &groups,
                clock: &clock,
                foci: &foci,
                peak: peak.as_ref(),
                killed_in,
                gpus: gpus.as_ref(),
                host: &info.hostname,
            };
            let (curves, levels) = curves::told(source, drawn, known)?;
            Some(Box::new(Drawings {
                curves,
                bands: phases.bands(&table.processes, &clock),
                moments: phases.moments(&clock),
                levels,
            }))
        }
        None => None,
    };
    // Until its exec the command is held, and everyone else is there because of it.
    let execs_of_command = command.and_then(|command| execs.get(&command));
    let command_begin = execs_of_command.and_then(|execs| execs.iter().min().copied());
    let begin = command_begin.unwrap_or(clock.start());
    let last = end.max(clock.end());
    let means_until = table
        .command_end()
        .map_or(last, |command| command.min(last));
    let seconds = (means_until - begin).as_secs_f64();
    let sums = seen.roles.iter().map(|&role| &seen.state.lanes[role]);
    let kinds = sums
        .map(|sum| roles::figures(sum, seconds, &clock))
        .collect();
    let roles = roles::findings(
        &groups,
        &table.processes,
        kinds,
        peak.as_ref(),
        gpus.as_ref(),
    );
    if let Some(save) = &mut save {
        let gpus_from = gpus.as_ref().and_then(|gpus| gpus.known_from);
        let gpus_from = gpus_from.map(|from| from.boot_ns);
        let once = memory_tables::once_over_time(&seen.held);
        let rows =
            memory_tables::role_rows(seen.role_mem, once, on_gpus, gpus_from, &groups, &clock);
        rows.for_each(|row| save(row.into()));
        let rows = memory_tables::held_rows(seen.held, &clock);
        rows.for_each(|row| save(row.into()));
    }
    let noted = Noted {
        save: save.map(|save| save as &mut dyn FnMut(Finding)),
        gauges: seen.gauges,
        device_history: phases.device_history(source, &clock)?,
        is_polled: info.is_polled(),
        processes: &table.processes,
        groups: &groups,
        states: &states,
    };
    let (phases, phase, under_load) = phases.told(noted, &clock, end);
    let conditions = conditions::told(load, &requests, under_load, &seen.held_at, &clock, end);

    let process = options.process.as_deref();
    let process = process.map(|wanted| life::find(&table.processes, wanted));
    let process = process.transpose().map_err(AnalyzeError::Process)?;
    let is_held_known = peak.as_ref().is_some_and(|peak| peak.held.is_some());
    let process_tree = ProcessTree::of(&table.processes);
    let at = match options.at {
        Some(Moment::Peak) => peak.clone(),
        _ => at.and_then(|at| states.iter().find(|state| state.at.boot_ns == at).cloned()),
    };
    let roles_at = options.instants.iter().filter_map(|&instant| {
        let state = states.iter().find(|state| state.at.boot_ns == instant)?;
        Some((instant, roles::at(&groups, state)))
    });
    let roles_at = roles_at.collect();
    let trees = trees(
        (&seen.trees, &seen.state.lanes),
        peak.as_ref(),
        &table,
        &clock,
    );
    let curve = seen.curve.iter().map(|point| CurvePoint {
        offset_ns: clock.offset(point.boot_ns),
        mean_bytes: Bytes(point.mean_bytes as i64),
        max_bytes: point.max_bytes,
    });
    let curve = curve.collect();
    let rss_peak = seen.state.all.highest[Kind::Rss];
    let rss_peak = rss_peak.map(|high| (high.bytes, clock.at(high.boot_ns)));
    let binned = seen.binned.take();
    let host_seen = host_clock.map(|clock| {
        let names = groups.list.iter().map(|group| Arc::clone(&group.name));
        Box::new(HostSeen {
            clock,
            binned,
            role_names: names.collect(),
        })
    });
    let analysis = Analysis {
        info: info.clone(),
        clock,
        path: options.path,
        is_live: options.is_live,
        is_open: options.is_open,
        problems: Vec::new(),
        losses,
        cost,
        trees,
        mappings,
        gpus,
        command_begin,
        ooms,
        layouts,
        leftovers,
        process_tree,
        held_peak: seen.held_peak.filter(|_| is_held_known),
        rss_peak,
        peak,
        at,
        roles_at,
        roles,
        phases,
        phase,
        process,
        conditions,
        growth,
        curve,
        drawings,
        host_seen,
        processes: table.processes,
    };
    Ok(Report::find(source, analysis)?)
}

/// When the memory of anybody is first known.
fn first_row<S: RowSource>(source: &S, table: &ProcessTable) -> Result<Option<BootNs>, S::Error> {
    let mut first = None;
    let columns = ["boot_ns", "upid", Kind::Rss.column(), "source"];
    source.scan(&columns, |row: MemRow| {
        let is_measured = row.source != Some(MemSource::SelfReported) && row.rss_bytes.is_some();
        if first.is_none() && is_measured && table.find(row.upid).is_some() {
            first = Some(row.boot_ns);
        }
    })?;
    Ok(first)
}

fn resolve<E: std::error::Error + 'static>(
    moment: Option<Moment>,
    clock: &RunClock,
) -> Result<Option<BootNs>, AnalyzeError<E>> {
    let at = moment.map(|moment| moment.resolve(clock)).transpose();
    Ok(at.map_err(AnalyzeError::Moment)?.flatten())
}

fn is_closed(info: &RunInfo) -> bool {
    info.state == RunState::Closed
}

/// The span of the recording as far as it is known before the pass over memory: by the clock
/// readings, or for a recording that was cut off by its other tables.
pub(super) fn noted_clock(
    info: &RunInfo,
    last: Option<BootNs>,
    cost: Option<&RecorderCost>,
    table: &ProcessTable,
) -> RunClock {
    let seen = table.processes.iter().flat_map(|process| {
        let instants = [Some(process.first_seen.boot_ns), process.exit_boot_ns()];
        instants.map(|instant| instant.map(|instant| (instant, instant)))
    });
    let last = last.map(|last| (last, last));
    let observed = hull(cost.map(|cost| cost.span), last);
    let observed = seen.flatten().map(Some).fold(observed, hull);
    RunClock::new(info.clocks.clone(), observed, is_closed(info))
}

fn span_of(clock: &RunClock) -> Option<(BootNs, BootNs)> {
    let is_known = clock.start() != clock.end() || clock.start() != BootNs(0);
    is_known.then_some((clock.start(), clock.end()))
}

fn hull(a: Option<(BootNs, BootNs)>, b: Option<(BootNs, BootNs)>) -> Option<(BootNs, BootNs)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    }
}

fn trees(
    (seen, lanes): (&[Tree], &Lanes),
    peak: Option<&Composition>,
    table: &ProcessTable,
    clock: &RunClock,
) -> Vec<TreeFinding> {
    let mut descendant_counts: HashMap<usize, usize> = HashMap::new();
    for (position, process) in table.processes.iter().enumerate() {
        if let Some(root) = process.root.filter(|&root| root != position) {
            *descendant_counts.entry(root).or_default() += 1;
        }
    }
    let mut roots_held: HashMap<usize, Option<Bytes>> = HashMap::new();
    let mut descendants_held: HashMap<usize, Bytes> = HashMap::new();
    for holder in peak.iter().flat_map(|peak| &peak.holders) {
        match table.processes[holder.process].root {
            Some(root) if root == holder.process => {
                roots_held.insert(root, holder.amounts.rss());
            }
            Some(root) => {
                let held = descendants_held.entry(root).or_default();
                *held = *held + Bytes(holder.amounts.rss_or_zero());
            }
            None => {}
        }
    }
    let nothing = peak.map(|_| Bytes(0));
    let bytes = |high: Option<High>| high.map(|high| high.bytes);
    let at = |high: Option<High>| high.map(|high| clock.at(high.boot_ns));
    let finding = |tree: &Tree| {
        let [all, descendants] =
            [tree.all, tree.descendants].map(|lane| lanes[lane].highest[Kind::Rss]);
        let root = &table.processes[tree.root];
        TreeFinding {
            root: tree.root,
            root_pid: root.tgid,
            root_upid: root.upid,
            root_name: Arc::clone(&root.name),
            descendant_count: descendant_counts.get(&tree.root).copied().unwrap_or(0),
            root_at_peak_bytes: roots_held.get(&tree.root).copied().unwrap_or(nothing),
            descendants_at_peak_bytes: descendants_held.get(&tree.root).copied().or(nothing),
            root_peak_bytes: root.peak.rss_bytes,
            descendants_peak_bytes: bytes(descendants),
            descendants_peak_at: at(descendants),
            tree_peak_bytes: bytes(all),
            tree_peak_at: at(all),
        }
    };
    let mut trees: Vec<TreeFinding> = seen.iter().map(finding).collect();
    trees.order_by_key(|tree| std::cmp::Reverse(tree.tree_peak_bytes));
    trees
}
