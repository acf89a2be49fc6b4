//! What named phases cost: the table, the phases of one name, and a log of them.

mod log;
pub(super) mod one;
mod who;

pub use log::{checkpoints, table_of as startup_log};

use crate::keys::highest;
use crate::phases::numbered;
use crate::{
    Analysis, Level, Phase, PhaseEnd, PhaseForm, PhaseLine, Repeated, Report, Slope, Uncertain,
};
use memtrace_model::{Bytes, DurationNs, Kind, Order};
use memtrace_report::words::{self, change};
use memtrace_report::{Cell, Chapter, Mode, Section, Table, TableOf, one_part};
use serde_json::Value;
use who::Names;

/// The phases in order of time: those that mattered most, or all; or a log of them.
pub(super) const SECTION: Section<Report> = Section {
    name: "phases",
    doc: "what named phases cost",
    keys: &["phases"],
    modes: &[Mode::Whole, Mode::Startup],
    tables: Some(|analysis, top| one_part(log::table(analysis.phases.as_ref(), top))),
    tell: |analysis, view| {
        if view.mode == Mode::Startup {
            return vec![log::log(analysis)];
        }
        let Some(phases) = &analysis.phases else {
            let is_asked = view.style.has_phases || view.is_alone;
            return is_asked.then(unmarked).into_iter().collect();
        };
        let mut section = Chapter::new(format!(
            "Phases: {} in {}",
            words::count(phases.count),
            match phases.process_count {
                0 => "the whole recording".to_owned(),
                count => words::processes(count),
            }
        ));
        let shown = match view.style.has_phases {
            true => phases.lines.iter().collect(),
            false => heaviest(&phases.lines, view.top),
        };
        let single: Vec<&Phase> = shown.iter().filter_map(|line| single(line)).collect();
        let many: Vec<&Repeated> = shown.iter().filter_map(|line| many(line)).collect();
        let (stages, repeats): (Vec<&Repeated>, Vec<&Repeated>) =
            many.into_iter().partition(|many| many.steps.is_some());
        let names = Names::of(analysis);
        section.table(table(&single, &names, view.style.has_phases));
        doubt(&mut section, &single);
        stage_table(&mut section, &stages, &names);
        repeat_table(&mut section, &repeats, &names);
        let chapter = " more that changed less: --phases shows all.";
        section.rest(phases.lines.len(), shown.len(), words::count, chapter);
        explain(&mut section, analysis);
        vec![section]
    },
    ..Section::EMPTY
};

fn unmarked() -> Chapter {
    let mut section = Chapter::new("Phases: nothing was marked");
    section.say(
        "`memtrace mark NAME --begin` and `--end` mark a phase from outside; a traced program \
         does so through the socket in MEMTRACE_SOCKET.",
    );
    section
}

fn explain(section: &mut Chapter, analysis: &Analysis) {
    let Some(phases) = &analysis.phases else {
        return;
    };
    let from = words::after(phases.baseline_at.offset_ns);
    let held = words::bytes_or_unknown(phases.baseline_held_bytes);
    let bound = match phases.is_lower_bound {
        true => " It leaves out processes whose memory is unknown.",
        false => "",
    };
    let polled = match phases.peak_is_lower_bound {
        true => " PEAK is the highest that was polled, a lower bound.",
        false => "",
    };
    let gpu = match phases.has_gpu() {
        true => {
            "; GPU is the change of what is in use on all GPUs, by other processes and the \
             driver too"
        }
        false => "",
    };
    if let Some((first, rest)) = phases.missing.split_first() {
        let more = match rest.len() {
            0 => String::new(),
            more => format!(" and {} more", words::count(more)),
        };
        let chapter =
            format!("Not instrumented, because the installed version has no {first}{more}.");
        section.quiet(chapter);
    }
    section.quiet(format!(
        "SO FAR is what the tree held at the end of the phase, minus the {held} at \
         {from}.{bound}{polled}"
    ));
    section.explain(format!(
        "Phases: TREE is what all recorded processes gained from the start of the phase to its \
         end, every page once; OWN is what the process that marked it gained in RSS{gpu}."
    ));
    if phases.has_too_many_for_roles && analysis.phase.is_none() {
        let chapter = "Too many marks to split them by role; --phase NAME does that for one name.";
        section.quiet(chapter);
    }
}

fn single(line: &PhaseLine) -> Option<&Phase> {
    match line {
        PhaseLine::One(phase) => Some(phase),
        PhaseLine::Many(_) => None,
    }
}

fn many(line: &PhaseLine) -> Option<&Repeated> {
    match line {
        PhaseLine::Many(many) => Some(many),
        PhaseLine::One(_) => None,
    }
}

/// The lines that changed most, in the order of time. What many steps share is always there.
fn heaviest(lines: &[PhaseLine], top: usize) -> Vec<&PhaseLine> {
    let is_stage = |line: &PhaseLine| many(line).is_some_and(|many| many.steps.is_some());
    let mut places: Vec<usize> = (0..lines.len()).collect();
    places.order_by_key(|&place| {
        let line = &lines[place];
        (!is_stage(line), std::cmp::Reverse(line.weight()), place)
    });
    places.truncate(top);
    places.sort_unstable();
    places.into_iter().map(|place| &lines[place]).collect()
}

fn table(phases: &[&Phase], names: &Names, has_attributes: bool) -> Table {
    let own = |phase: &Phase, kind| Some(gained(phase, phase.own?.delta.get(kind)));
    let level = |phase: &Phase, level: Option<Level>| Some(gained(phase, level?.delta_bytes));
    TableOf::of(phases)
        .figures(("begin_s", "START"), 0, |phase| {
            phase.begin.unwrap_or(phase.end)
        })
        .flexible("phase", |phase| {
            Cell::from(&*phase.name).shown_as(label(phase))
        })
        .known("step", |phase| step(phase))
        .words(("pid", "WHO"), 2, |phase| names.cell(&phase.who))
        .figures("took_s", 1, |phase| took(phase))
        .figures("tree_bytes", 0, |phase| {
            let tree = gained(phase, phase.held.delta_bytes);
            about(phase, phase.tree_uncertain, tree)
        })
        .figures("own_bytes", 0, |phase| {
            let own = own(phase, Kind::Rss);
            own.map(|own| about(phase, phase.own_uncertain, own))
        })
        .change("so_far_bytes", 1, |phase| phase.since_baseline_bytes)
        .figures("peak_bytes", 2, |phase| highest(phase.held.peak))
        .figures("gpu_bytes", 0, |phase| level(phase, phase.gpu))
        .figures("gpu_peak_bytes", 4, |phase| {
            phase.gpu.map(|gpu| Cell::Bytes(highest(gpu.peak)))
        })
        .figures("own_peak_bytes", 3, |phase| {
            phase.own.map(|own| Cell::Bytes(highest(own.peak)))
        })
        .kinds(("own_", "OWN "), 5, |phase, kind| own(phase, kind))
        .figures(("at_begin_bytes", "AT START"), 9, |phase| {
            phase.held.begin_bytes
        })
        .figures("at_end_bytes", 9, |phase| phase.held.end_bytes)
        .words("most_of_it", 8, |phase| most_of_it(phase))
        .figures("page_cache_bytes", 8, |phase| {
            level(phase, phase.page_cache)
        })
        .words("said", 10, |phase| {
            let said = attributes(phase);
            (!said.is_empty()).then(|| Cell::from(said.trim_start()))
        })
        .only_if(has_attributes)
        .done()
}

/// The number that its marks tell, or else its name. Titles are names of code.
fn step(phase: &Phase) -> Option<i64> {
    let of_name = || numbered(&phase.name).map(|(_, number)| number);
    let is_named = phase.form != PhaseForm::Title;
    phase.step.or_else(|| is_named.then(of_name)?)
}

fn doubt(section: &mut Chapter, phases: &[&Phase]) {
    let is_uncertain =
        |phase: &&Phase| phase.tree_uncertain.is_any() || phase.own_uncertain.is_any();
    let mut stretches = phases.iter().filter(|phase| !is_end_of_nothing(phase));
    if stretches.any(is_uncertain) {
        section.explain(
            "~ marks a change near which memory moved while the mark does not say what its \
             process held: on which side of the mark it moved is unknown. `memtrace.phase` \
             records that.",
        );
    }
}

/// What was gained from begin to end, where there are both.
fn gained(phase: &Phase, change: Option<Bytes>) -> Cell {
    match is_end_of_nothing(phase) {
        true => Cell::shown_only("-"),
        false => Cell::Change(change),
    }
}

/// A change that may be off.
fn about(phase: &Phase, uncertain: Uncertain, change: Cell) -> Cell {
    match uncertain.is_any() && !is_end_of_nothing(phase) {
        true => change.shown_as(format!("~{}", change.shown())),
        false => change,
    }
}

/// The role that gained or lost most, where there are several to choose from.
fn most_of_it(phase: &Phase) -> Option<Cell> {
    let most = phase.roles.first().filter(|_| phase.roles.len() > 1)?;
    let delta = most.stretch.delta.rss().filter(|delta| delta.0 != 0);
    Some(format!("{} {}", most.name, change(Some(delta?))).into())
}

/// ` gib=12.66 seconds=31.5`: what its marks say, but for what other columns show.
fn attributes(phase: &Phase) -> String {
    const SHOWN: [&str; 14] = [
        "rss_delta_bytes",
        "rss_bytes",
        "rss_anon_bytes",
        "vm_size_bytes",
        "line",
        "pid",
        "function",
        "step",
        "begin_bytes",
        "end_bytes",
        "peak_bytes",
        "peak_source",
        "python_heap_bytes",
        "python_heap_peak_bytes",
    ];
    const LENGTH_MAX: usize = 60;
    let mut chapter = String::new();
    for (name, value) in &phase.attributes {
        let value = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let is_shown = SHOWN.contains(&name.as_str()) || name.starts_with("torch_");
        if is_shown || chapter.len() + name.len() + value.len() > LENGTH_MAX {
            continue;
        }
        chapter.push_str(&format!(" {name}={value}"));
    }
    chapter
}

/// The name, indented below what it is part of, with what is odd about it.
fn label(phase: &Phase) -> String {
    const MAX_INDENT: usize = 8;
    let indent = "  ".repeat(phase.depth.min(MAX_INDENT));
    let odd = match (phase.ended_by, phase.begin) {
        _ if phase.is_after_exit => " (after its process ended)",
        (PhaseEnd::Process, _) => " (until its process ended)",
        (PhaseEnd::Recording, _) => " (open)",
        (PhaseEnd::Marked, None) if phase.form == PhaseForm::Marked => " (start unknown)",
        (PhaseEnd::Marked, None) => " (nothing before it)",
        (PhaseEnd::Marked, _) => "",
    };
    let step = phase
        .step
        .map_or_else(String::new, |step| format!(" (step {step})"));
    format!("{indent}{}{step}{odd}", phase.name)
}

fn took(phase: &Phase) -> Cell {
    match phase.duration_ns {
        None if is_end_of_nothing(phase) => Cell::shown_only("-"),
        length => Cell::Took(length),
    }
}

/// What several took together; unknown where that is known of none.
fn took_together(many: &Repeated) -> Cell {
    Cell::Took((many.timed_count > 0).then_some(many.total_ns))
}

fn stage_table(section: &mut Chapter, stages: &[&Repeated], names: &Names) {
    let mean = |stage: &Repeated| {
        let count = i64::try_from(stage.timed_count).unwrap_or(0);
        Cell::Took(stage.total_ns.0.checked_div(count).map(DurationNs))
    };
    let steps = stages.iter();
    let steps = steps.filter_map(|stage| Some((*stage, stage.held.end, stage.steps.as_ref()?)));
    TableOf::of(steps)
        .flexible("stage", |(stage, ..)| stage.name.to_string())
        .words(("pid", "WHO"), 4, |(stage, ..)| names.of_all(stage))
        .figures("steps", 0, |(.., steps)| {
            format!("{}-{}", steps.first, steps.last)
        })
        .figures("mean_time_s", 3, |(stage, ..)| mean(stage))
        .figures("mean_at_end_bytes", 1, |(_, end, _)| {
            end.map(|end| Bytes(end.mean_bytes as i64))
        })
        .figures("p95_bytes", 2, |(_, end, _)| end.map(|end| end.p95))
        .figures(
            ("tree_bytes_per_step", "TREE, PER STEP"),
            0,
            |(.., steps)| per_step(steps.tree),
        )
        .figures(
            ("own_bytes_per_step", "OWN, PER STEP"),
            0,
            |(stage, _, steps)| stage.own.map(|_| per_step(steps.own)),
        )
        .figures(
            ("gpu_bytes_per_step", "GPU, PER STEP"),
            0,
            |(stage, _, steps)| stage.gpu.map(|_| per_step(steps.gpu)),
        )
        .add_to(section);
}

/// `+12.0 MiB ±0.8 MiB`: the slope and its 95 % interval.
pub(crate) fn per_step(slope: Option<Slope>) -> Cell {
    let Some(slope) = slope else {
        return Cell::Text(None);
    };
    let rise = Bytes(slope.bytes_per_step.round() as i64);
    let sign = if rise.0 > 0 { "+" } else { "" };
    let margin = words::margin(slope.margin_bytes());
    Cell::from(rise).shown_as(format!("{sign}{} ±{margin}", words::bytes(rise)))
}

fn repeat_table(section: &mut Chapter, repeats: &[&Repeated], names: &Names) {
    let delta = |many: &Repeated| many.own.unwrap_or(many.held).delta;
    TableOf::of(repeats)
        .figures(("begin_s", "START"), 3, |many| many.begin)
        .flexible("phase", |many| many.name.to_string())
        .words(("pid", "WHO"), 4, |many| names.of_all(many))
        .figures("times", 0, |many| words::count(many.count))
        .figures("took_s", 1, |many| took_together(many))
        .change("gained_bytes", 0, |many| match many.own {
            Some(own) => own.delta.map(|delta| delta.sum),
            None => many.tree_delta_bytes,
        })
        .change("mean_bytes", 1, |many| {
            delta(many).map(|delta| Bytes(delta.mean_bytes as i64))
        })
        .change("p95_bytes", 2, |many| delta(many).map(|delta| delta.p95))
        .figures("peak_bytes", 5, |many| highest(many.held.peak))
        .figures("gpu_bytes", 0, |many| {
            many.gpu.map(|_| Cell::Change(many.gpu_delta_bytes))
        })
        .add_to(section);
}

/// A moment that nothing came before is the end of no stretch.
fn is_end_of_nothing(phase: &Phase) -> bool {
    phase.form == PhaseForm::Moment && phase.begin.is_none()
}
