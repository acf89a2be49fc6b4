//! The phases of one name: each of them, then who gained and lost over all of them, by role, on
//! GPUs, and process by process.

use super::super::gpus::short;
use super::who::Names;
use super::{doubt, explain, per_step, repeat_table, stage_table, table};
use crate::keys::highest;
use crate::{Amounts, Analysis, GpuChange, Phase, PhaseFocus, PhasePart, Report, Slope};
use memtrace_model::{Bytes, Kind};
use memtrace_report::{
    Cell, Chapter, MORE_IN_JSON, Mode, Section, TableOf, one_part, shorten, words,
};

/// Longer places leave no room for who it is.
const PLACE_WIDTH: usize = 52;

/// The column of what grows from step to step.
const PER_STEP: (&str, &str) = ("bytes_per_step", "PER STEP");

pub(in crate::sections) const SECTION: Section<Report> = Section {
    name: "phase",
    doc: "the phases of the name that --phase gives: who gained, who lost",
    keys: &["phase"],
    modes: &[Mode::Phase],
    tables: Some(|analysis, top| {
        one_part(table(
            &first(analysis.phase.as_ref(), top),
            &Names::of(analysis),
            true,
        ))
    }),
    tell: |analysis, view| {
        let Some(focus) = &analysis.phase else {
            return Vec::new();
        };
        let clock = &analysis.clock;
        let what = match focus.phases.len() {
            _ if focus.is_window => "Window:".to_owned(),
            1 => format!("Phase {}: once", focus.name),
            count => format!("Phase {}: {} times", focus.name, words::count(count)),
        };
        let [begin, end] = [focus.begin, focus.end].map(|at| clock.when(at));
        let names = Names::of(analysis);
        let mut section = Chapter::new(format!("{what} from {begin} to {end}"));
        if let Some(beyond) = focus.beyond {
            section.say(format!(
                "Until then the recording is only {} long, not {}: `memtrace list` shows whether there is one \
                 before it.",
                words::duration(focus.end.offset_ns),
                words::duration(beyond)
            ));
        }
        if view.style.has_only_rows {
            let shown = first(Some(focus), view.style.top.unwrap_or(usize::MAX));
            section.table(table(&shown, &names, true));
            doubt(&mut section, &shown);
            let chapter = " more after them: --top N shows N.";
            section.rest(focus.phases.len(), shown.len(), words::count, chapter);
            return vec![section];
        }
        if let Some(many) = &focus.line {
            match many.steps {
                Some(_) => stage_table(&mut section, &[many], &names),
                None => repeat_table(&mut section, &[many], &names),
            }
        }
        let shown = both_ends(&focus.phases, view.top);
        section.table(table(&shown, &names, true));
        doubt(&mut section, &shown);
        let chapter = " more between the first and the last: --top N shows N.";
        section.rest(focus.phases.len(), shown.len(), words::count, chapter);
        explain(&mut section, analysis);
        let parts = [by_role(focus, view.top), around(analysis, focus)];
        let mut sections = vec![section];
        sections.extend(parts.into_iter().flatten());
        sections.push(holders(focus, view.top));
        sections.extend(allocated(focus, view.top));
        sections
    },
    ..Section::EMPTY
};

/// The first ones, so many at most.
fn first(focus: Option<&PhaseFocus>, count: usize) -> Vec<&Phase> {
    let phases = focus.into_iter().flat_map(|focus| &focus.phases);
    phases.take(count).collect()
}

/// The first ones and the last ones, so many in all: what changed lies between them.
fn both_ends(phases: &[Phase], count: usize) -> Vec<&Phase> {
    let left_out = phases.len().saturating_sub(count);
    let first = (phases.len() - left_out).div_ceil(2);
    let places = 0..phases.len();
    let shown = places.filter(|&place| place < first || place >= first + left_out);
    shown.map(|place| &phases[place]).collect()
}

/// When the columns of the sections below are.
fn ends(focus: &PhaseFocus) -> &'static str {
    match focus.phases.len() {
        1 => "at its start and at its end",
        _ => "at the first start and at the last end",
    }
}

/// Host and GPUs by role; `None` where there is nothing to tell apart.
fn by_role(focus: &PhaseFocus, top: usize) -> Option<Chapter> {
    let has_gpu = focus.roles.iter().any(|role| role.gpu.is_some());
    if focus.roles.is_empty() {
        return None;
    }
    let mut section = Chapter::new(format!("By role, {}", ends(focus)));
    let roles = focus.roles.iter().take(top).map(|role| {
        let roles = focus.line.iter().flat_map(|line| &line.roles);
        (
            &*role.name,
            role.stretch,
            role.gpu,
            slope_of(roles, &role.name),
        )
    });
    let all = (focus.roles.len() > 1).then(|| {
        let gpu = focus.roles.iter().map(|role| role.gpu);
        let gpu = gpu.fold(Some([Some(Bytes(0)); 2]), together);
        let steps = focus.line.as_ref().and_then(|line| line.steps.as_ref());
        ("all", focus.tree, gpu, steps.and_then(|steps| steps.tree))
    });
    let table = TableOf::of(roles.chain(all)).flexible("role", |(name, ..)| *name);
    let table = host(table, [2, 1], |(_, stretch, ..)| {
        [stretch.begin, stretch.end]
    });
    let table = table.figures("peak_bytes", 4, |(_, stretch, ..)| match stretch.peak {
        Some((peak, _)) => peak.into(),
        None => Cell::from(""),
    });
    on_gpu(table, 1, has_gpu, |(.., gpu, _)| *gpu)
        .figures(PER_STEP, 0, |(.., slope)| per_step(*slope))
        .only_if(has_steps(focus))
        .add_to(&mut section);
    let less = " that changed less.";
    section.rest(focus.roles.len(), top, words::more_roles, less);
    section.explain(
        "A process counts under the role that it has at the time: one that changed its role in \
         between is a loss of the old role and a gain of the new one. Shared pages count in every \
         process that maps them.",
    );
    Some(section)
}

fn has_steps(focus: &PhaseFocus) -> bool {
    let line = focus.line.as_ref();
    line.is_some_and(|line| line.steps.is_some())
}

/// What they held at both ends, and how it changed. The ranks are those of what was held at the
/// begin and of the kinds.
fn host<R>(
    table: TableOf<R>,
    [begin, kinds]: [u8; 2],
    get: impl Fn(&R) -> [Amounts; 2],
) -> TableOf<R> {
    let delta = |row: &R, kind| {
        let [begin, end] = get(row);
        end.since(&begin).get(kind)
    };
    table
        .held(("begin_bytes", "START"), begin, |row| get(row)[0].rss())
        .held("end_bytes", 1, |row| get(row)[1].rss())
        .change("change_bytes", 0, |row| delta(row, Kind::Rss))
        .kinds(("", ""), kinds, |row, kind| Cell::Change(delta(row, kind)))
}

/// What they held on GPUs at the end, and the change until then.
fn on_gpu<R>(
    table: TableOf<R>,
    rank: u8,
    has_gpu: bool,
    get: impl Fn(&R) -> Option<GpuChange>,
) -> TableOf<R> {
    let ends = |row: &R| get(row).unwrap_or_default();
    let delta = |[begin, end]: GpuChange| Some(end? - begin?);
    table
        .held("on_gpu_bytes", rank, |row| ends(row)[1])
        .only_if(has_gpu)
        .change("gpu_change_bytes", 0, |row| delta(ends(row)))
        .only_if(has_gpu)
}

fn together(a: Option<GpuChange>, b: Option<GpuChange>) -> Option<GpuChange> {
    let (a, b) = (a?, b?);
    let sum = |end: usize| Some(a[end]? + b[end]?);
    Some([sum(0), sum(1)])
}

fn slope_of<'a>(parts: impl IntoIterator<Item = &'a PhasePart>, name: &str) -> Option<Slope> {
    let mut parts = parts.into_iter();
    parts.find(|part| &*part.name == name)?.slope
}

/// Memory of the devices, and the page cache; `None` where neither was recorded.
fn around(analysis: &Analysis, focus: &PhaseFocus) -> Option<Chapter> {
    if focus.devices.is_empty() && focus.page_cache.is_none() {
        return None;
    }
    let mut section = Chapter::new(match (focus.devices.len(), &focus.page_cache) {
        (0, _) => "The page cache",
        (_, None) => "On each GPU",
        (_, Some(_)) => "On each GPU, and the page cache",
    });
    let devices = focus.devices.iter().map(|device| {
        let devices = focus.line.iter().flat_map(|line| &line.devices);
        let slope = per_step(slope_of(devices, &device.device));
        let name = format!("GPU {}", short(analysis, &device.device));
        (name, &device.level, slope)
    });
    let cache = focus.page_cache.iter();
    let cache = cache.map(|cache| ("page cache of the machine".to_owned(), cache, "".into()));
    TableOf::of(devices.chain(cache))
        .words("memory_of", 0, |(name, ..)| name.clone())
        .figures(("begin_bytes", "START"), 1, |(_, level, _)| {
            level.begin_bytes
        })
        .figures("end_bytes", 1, |(_, level, _)| level.end_bytes)
        .change("change_bytes", 0, |(_, level, _)| level.delta_bytes)
        .figures("peak_bytes", 2, |(_, level, _)| highest(level.peak))
        .figures(PER_STEP, 0, |(.., slope)| slope.clone())
        .only_if(has_steps(focus) && !focus.devices.is_empty())
        .add_to(&mut section);
    let lists = match focus.devices.len() {
        0 => "",
        _ => "; GPU memory by role and process from the driver's last list",
    };
    section.quiet(format!("From the last readings before{lists}."));
    Some(section)
}

/// Which lines of code came to hold most.
fn allocated(focus: &PhaseFocus, top: usize) -> Option<Chapter> {
    if focus.allocated.is_empty() {
        return None;
    }
    let from_to = match focus.phases.len() {
        1 => "its start to its end",
        _ => "the first start to the last end",
    };
    let mut section = Chapter::new(format!("Who allocated from {from_to}"));
    let shown = TableOf::of(focus.allocated.iter().take(top));
    shown
        .who(|gain| gain.who.cells())
        .figures("gained_bytes", 0, |gain| gain.gained_bytes)
        .flexible("place", |gain| {
            shorten(&gain.line.place(), PLACE_WIDTH).into_owned()
        })
        .add_to(&mut section);
    section.rest(focus.allocated.len(), top, words::count, MORE_IN_JSON);
    section.quiet("What was allocated up to a second before or after can count, too.");
    Some(section)
}

fn holders(focus: &PhaseFocus, top: usize) -> Chapter {
    let mut section = Chapter::new(format!("Who held what {}", ends(focus)));
    let has_gpu = focus.holders.iter().any(|holder| holder.gpu.is_some());
    let shown = TableOf::of(focus.holders.iter().take(top));
    let table = shown.who(|holder| holder.who.cells());
    let table = host(table, [1, 2], |holder| [holder.begin, holder.end]);
    on_gpu(table, 2, has_gpu, |holder| holder.gpu).add_to(&mut section);
    let less = " more that changed less.";
    section.rest(focus.holders.len(), top, words::processes, less);
    section
}
