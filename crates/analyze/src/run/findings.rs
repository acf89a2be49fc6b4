//! The last stage: the findings, and the rows that stand in tables beside the recording.

use super::facts::Facts;
use super::holdings::Holdings;
use super::swept::Swept;
use super::{AnalyzeError, Options};
use crate::allocations::{RssThen, SourceLines};
use crate::analysis::{Analysis, CurvePoint, TreeFinding};
use crate::bins::Binned;
use crate::clock::RunClock;
use crate::composition::Composition;
use crate::curves::{self, Drawings, Drawn};
use crate::groups::Groups;
use crate::held::Held;
use crate::host_clock::{HostClock, HostSeen};
use crate::leftovers::{self, Leftovers};
use crate::moment::Moment;
use crate::pass::Tree;
use crate::phases::Noted;
use crate::process_table::ProcessTable;
use crate::process_tree::ProcessTree;
use crate::roles::{self, RoleFinding, RoleHolding};
use crate::{
    OomFinding, allocations, conditions, life, limits, log_kills, losses, memory_tables, oom,
    recycled, torch,
};
use memtrace_model::tables::Finding;
use memtrace_model::{BootNs, Bytes, Kind, Order, RowSource, RunInfo};
use memtrace_timeline::{High, Lanes, SeriesPoint};
use std::collections::HashMap;
use std::sync::Arc;

/// Everything that is known of a recording; `save` gets the rows of tables.
pub(super) fn of<S>(
    info: &RunInfo,
    source: &S,
    (mut facts, mut swept, mut holdings): (Facts, Swept, Holdings),
    options: Options,
    mut save: Option<&mut dyn FnMut(Finding)>,
) -> Result<Analysis, AnalyzeError<S::Error>>
where
    S: RowSource,
    S::Error: std::error::Error + 'static,
{
    let end = facts.end();
    let mut losses = losses::read(source, info, facts.cost.as_ref(), &swept.clock)?;
    losses.splice(0..0, facts.table.overflow());
    let leftovers = left(source, &facts, &holdings)?;
    // Of a recording that goes on, no sums of before are kept.
    let has_earlier = !options.is_live;
    let lines = &mut match options.has_source_lines {
        true => SourceLines::new(),
        false => SourceLines::none(),
    };
    let recorded_end = facts.clock.end();
    let allocations = allocations::read(source, &facts.table, recorded_end, has_earlier, lines)?;
    let mut ooms = killed(source, &mut facts, (&swept, &holdings), &leftovers)?;
    if !allocations.is_empty() {
        name_lines(source, &mut ooms, &facts, lines)?;
    }
    let drawings = match swept.seen.drawn.take() {
        Some(drawn) => {
            let known = (&facts, &swept, &holdings);
            Some(drawings(info, source, drawn, known, &ooms)?)
        }
        None => None,
    };
    let command_begin = command_begin(&facts);
    let roles = of_roles(&facts, &swept, &holdings, command_begin);
    if let Some(save) = &mut save {
        save_memory(&facts, &mut swept, &mut holdings, save);
    }
    let Swept { seen, clock, .. } = swept;
    let torch_snapshots = torch::read(source, &facts.table, &clock)?;
    let limits = limits::read(source, &swept.sizes, &facts.table, &clock)?;
    let mut log_kills = log_kills::joined(facts.log_kills, &mut facts.table, &clock);
    let recycled = recycled::found(&facts.table.processes, &log_kills);
    log_kills.extend(recycled);
    let processes = &facts.table.processes;
    let noted = Noted {
        save: save.map(|save| save as &mut dyn FnMut(Finding)),
        gauges: seen.gauges,
        device_history: facts.phases.device_history(source, &clock)?,
        is_polled: info.is_polled(),
        processes,
        groups: &facts.groups,
        states: &holdings.states,
    };
    let (phases, mut phase, under_load) = facts.phases.reported(noted, &clock, end);
    if let Some(focus) = phase.as_mut().filter(|_| !allocations.is_empty()) {
        let ends = [focus.begin, focus.end].map(|at| at.boot_ns);
        focus.allocated = allocations::gained(source, &facts.table, ends, lines)?;
    }
    let at = at(&options, facts.at, &holdings);
    let shown = at.as_ref().or(holdings.peak.as_ref());
    let shown = shown.filter(|_| has_earlier && !allocations.is_empty());
    let held_by_line =
        shown.map(|shown| allocations::held_by_line(source, &facts.table, &shown.into(), lines));
    let (load, requests) = (facts.load, &facts.requests);
    let conditions = conditions::reported(load, requests, under_load, &seen.held_at, &clock, end);
    let process = options.process.as_deref();
    let process = process.map(|wanted| life::find(processes, wanted));
    let trees_seen = (&*seen.trees, &seen.state.lanes);
    Ok(Analysis {
        info: info.clone(),
        is_live: options.is_live,
        is_open: options.is_open,
        problems: Vec::new(),
        losses,
        cost: facts.cost,
        trees: trees(trees_seen, holdings.peak.as_ref(), &facts.table, &clock),
        command_begin,
        ooms,
        limits,
        log_kills,
        unread_kill_count: facts.unread_kill_count,
        leftovers,
        allocations,
        held_by_line: held_by_line.transpose()?.flatten(),
        torch_snapshots,
        process_tree: ProcessTree::of(processes),
        held_peak: held_peak(seen.held_peak, &holdings),
        rss_peak: seen.state.all.highest[Kind::Rss]
            .map(|high| (high.bytes, clock.at(high.boot_ns))),
        at,
        roles_at: roles_at(&options, &facts.groups, &holdings),
        roles,
        phases,
        phase,
        process: process.transpose().map_err(AnalyzeError::Process)?,
        conditions,
        growth: seen.growth.map(|growth| growth.settled(&clock)),
        curve: curve(&seen.curve, &clock),
        drawings,
        host_seen: host_seen(swept.host_clock, seen.binned, &facts.groups),
        mappings: holdings.mappings,
        gpus: holdings.gpus,
        layouts: holdings.layouts,
        peak: holdings.peak,
        path: options.path,
        processes: facts.table.processes,
        clock,
    })
}

/// What was left behind, and what it held when the first survivors were looked at.
fn left<S: RowSource>(
    source: &S,
    facts: &Facts,
    holdings: &Holdings,
) -> Result<Leftovers, S::Error> {
    let mut leftovers = leftovers::read(source, &facts.table)?;
    let left_at = facts.left_at;
    if let Some(state) = left_at.and_then(|at| holdings.at(at)) {
        leftovers.note(state, &facts.table);
    }
    Ok(leftovers)
}

/// The OOM kills, explained.
fn killed<S: RowSource>(
    source: &S,
    facts: &mut Facts,
    (swept, holdings): (&Swept, &Holdings),
    leftovers: &Leftovers,
) -> Result<Vec<OomFinding>, S::Error> {
    let earlier = holdings.earlier.iter().chain(&holdings.states);
    let earlier: Vec<&Composition> = earlier.collect();
    oom::explain(
        source,
        std::mem::take(&mut facts.kills),
        &facts.windows,
        (&facts.table, &swept.clock),
        (&holdings.states, &earlier),
        &leftovers.objects,
    )
}

/// Names the lines of code that had allocated what grew before each kill.
fn name_lines<S: RowSource>(
    source: &S,
    ooms: &mut [OomFinding],
    facts: &Facts,
    lines: &mut SourceLines,
) -> Result<(), S::Error> {
    for kill in ooms {
        let grower = kill.led_to_it().map(|place| &facts.table.processes[place]);
        if let (Some(found), Some(grower)) = (&mut kill.post_mortem, grower) {
            found.allocated = allocations::at(source, grower, kill.row.boot_ns, lines)?;
        }
    }
    Ok(())
}

/// What was held at most, where it is known what is held.
fn held_peak(highest: Option<Held>, holdings: &Holdings) -> Option<Held> {
    let peak = holdings.peak.as_ref();
    highest.filter(|_| peak.is_some_and(|peak| peak.held.is_some()))
}

/// Who held what at the instant that was asked for.
fn at(options: &Options, at: Option<BootNs>, holdings: &Holdings) -> Option<Composition> {
    match options.at {
        Some(Moment::Peak) => holdings.peak.clone(),
        _ => holdings.at(at?).cloned(),
    }
}

/// What roles held at further instants.
fn roles_at(
    options: &Options,
    groups: &Groups,
    holdings: &Holdings,
) -> Vec<(BootNs, Vec<RoleHolding>)> {
    let instants = options.instants.iter();
    let known = instants.filter_map(|&at| Some((at, roles::at(groups, holdings.at(at)?))));
    known.collect()
}

fn curve(points: &[SeriesPoint], clock: &RunClock) -> Vec<CurvePoint> {
    let points = points.iter().map(|point| CurvePoint {
        offset_ns: clock.offset(point.boot_ns),
        mean_bytes: Bytes(point.mean_bytes as i64),
        max_bytes: point.max_bytes,
    });
    points.collect()
}

/// What the report of a run over many hosts needs.
fn host_seen(
    clock: Option<HostClock>,
    binned: Option<Binned>,
    groups: &Groups,
) -> Option<Box<HostSeen>> {
    let names = groups.list.iter().map(|group| Arc::clone(&group.name));
    clock.map(|clock| {
        Box::new(HostSeen {
            clock,
            binned,
            role_names: names.collect(),
        })
    })
}

/// When the command began: until its exec it is held, and everyone else is there because of it.
fn command_begin(facts: &Facts) -> Option<BootNs> {
    let execs = facts.execs.get(&facts.table.command?)?;
    execs.iter().min().copied()
}

fn drawings<S: RowSource>(
    info: &RunInfo,
    source: &S,
    drawn: Drawn,
    (facts, swept, holdings): (&Facts, &Swept, &Holdings),
    ooms: &[OomFinding],
) -> Result<Box<Drawings>, S::Error> {
    let concerning = ooms.iter().filter(|kill| !kill.is_elsewhere);
    let killed_in = concerning.filter_map(|kill| kill.row.memcg.clone());
    let clock = &swept.clock;
    let known = curves::Known {
        table: &facts.table,
        groups: &facts.groups,
        clock,
        foci: &facts.foci,
        peak: holdings.peak.as_ref(),
        killed_in: killed_in.collect(),
        gpus: holdings.gpus.as_ref(),
        host: &info.hostname,
    };
    let at_peak = known.peak.map(RssThen::from);
    let (curves, levels) = curves::reported(source, drawn, known)?;
    Ok(Box::new(Drawings {
        curves,
        bands: facts.phases.bands(&facts.table.processes, clock),
        moments: facts.phases.moments(clock),
        levels,
        flames: allocations::flames(source, None)?,
        flames_at_peak: at_peak
            .map_or(Ok(Vec::new()), |at| allocations::flames(source, Some(&at)))?,
    }))
}

fn of_roles(
    facts: &Facts,
    swept: &Swept,
    holdings: &Holdings,
    command_begin: Option<BootNs>,
) -> Vec<RoleFinding> {
    let clock = &swept.clock;
    let begin = command_begin.unwrap_or(clock.start());
    let last = facts.end().max(clock.end());
    let command_end = facts.table.command_end();
    let means_until = command_end.map_or(last, |command| command.min(last));
    let seconds = (means_until - begin).as_secs_f64();
    let lanes = &swept.seen.state.lanes;
    let sums = swept.seen.roles.iter().map(|&role| &lanes[role]);
    let kinds = sums.map(|sum| roles::figures(sum, seconds, clock));
    roles::findings(
        &facts.groups,
        &facts.table.processes,
        kinds.collect(),
        holdings.peak.as_ref(),
        holdings.gpus.as_ref(),
    )
}

/// The rows of `role_mem` and `held`.
fn save_memory(
    facts: &Facts,
    swept: &mut Swept,
    holdings: &mut Holdings,
    save: &mut dyn FnMut(Finding),
) {
    let (seen, clock) = (&mut swept.seen, &swept.clock);
    let gpus_from = holdings.gpus.as_ref().and_then(|gpus| gpus.known_from);
    let gpus_from = gpus_from.map(|from| from.boot_ns);
    let (role_mem, held) = (
        std::mem::take(&mut seen.role_mem),
        std::mem::take(&mut seen.held),
    );
    let once = memory_tables::once_over_time(&held);
    let on_gpus = std::mem::take(&mut holdings.on_gpus);
    let rows = memory_tables::role_rows(role_mem, once, on_gpus, gpus_from, &facts.groups, clock);
    rows.for_each(|row| save(row.into()));
    let rows = memory_tables::held_rows(held, clock);
    rows.for_each(|row| save(row.into()));
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
