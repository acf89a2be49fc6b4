//! What named phases cost: the table, the phases of one name, and a log of them.

mod leaks;
mod log;
mod one;

use super::gpus::short;
use super::{Column, Section, figures, flexible, pid, words_in};
use crate::analyze::{
    Amounts, Analysis, Level, Phase, PhaseEnd, PhaseForm, PhaseLine, Repeated, Slope, Stretch,
    Uncertain,
};
use crate::model::{Bytes, DurationNs};
use crate::report::Style;
use crate::report::words::{self, change};
pub(super) use leaks::leaks;
use serde_json::Value;

/// What is told instead of the rest, for who asked for phases only.
pub(super) fn instead(analysis: &Analysis, style: &Style, top: usize) -> Option<Vec<Section>> {
    if let Some(focus) = &analysis.phase {
        return Some(one::one(analysis, focus, top));
    }
    style.is_startup_log.then(|| vec![log::log(analysis)])
}

/// The phases in order of time: those that mattered most, or all. `None` when nothing was marked.
pub(super) fn phases(analysis: &Analysis, style: &Style, top: usize) -> Option<Section> {
    let Some(phases) = &analysis.phases else {
        return style.has_phases.then(unmarked);
    };
    let mut section = Section::new(format!(
        "Phases: {} in {}",
        words::count(phases.count),
        match phases.process_count {
            0 => "the whole recording".to_owned(),
            count => words::processes(count),
        }
    ));
    let shown = match style.has_phases {
        true => phases.lines.iter().collect(),
        false => heaviest(&phases.lines, top),
    };
    let single: Vec<&Phase> = shown.iter().filter_map(|line| single(line)).collect();
    let many: Vec<&Repeated> = shown.iter().filter_map(|line| many(line)).collect();
    let (stages, repeats): (Vec<&Repeated>, Vec<&Repeated>) =
        many.into_iter().partition(|many| many.steps.is_some());
    table(&mut section, analysis, &single, style.has_phases);
    doubt(&mut section, &single);
    stage_table(&mut section, analysis, &stages);
    repeat_table(&mut section, analysis, &repeats);
    if shown.len() < phases.lines.len() {
        let rest = words::count(phases.lines.len() - shown.len());
        let told = format!("{rest} more that changed less: --phases shows all.");
        section.quiet(told);
    }
    explain(&mut section, analysis);
    Some(section)
}

fn unmarked() -> Section {
    let mut section = Section::new("Phases: nothing was marked");
    section.say(
        "`memtrace mark NAME --begin` and `--end` mark a phase from outside; a traced program \
         does so through the socket in MEMTRACE_SOCKET.",
    );
    section
}

fn explain(section: &mut Section, analysis: &Analysis) {
    let Some(phases) = &analysis.phases else {
        return;
    };
    let from = words::offset(&analysis.clock, phases.baseline_boot_ns);
    let held = words::bytes_or_unknown(phases.baseline.rss());
    let bound = match phases.is_lower_bound {
        true => " Some process's memory is unknown and not part of it.",
        false => "",
    };
    let polled = match analysis.is_polled() {
        true => " PEAK is the highest that was polled, and at least that.",
        false => "",
    };
    let gpu = match phases.has_gpu() {
        true => ", GPU what came into use on all GPUs, by others and the driver too",
        false => "",
    };
    if let Some((first, rest)) = phases.missing.split_first() {
        let more = match rest.len() {
            0 => String::new(),
            more => format!(" and {} more", words::count(more)),
        };
        let told = format!("Not instrumented, for the installed version has no {first}{more}.");
        section.quiet(told);
    }
    section.quiet(format!(
            "TREE is what the sum of RSS of all recorded processes gained from begin to end, OWN what the process \
             did that marked it{gpu}; SO FAR counts from the {held} at {from}.{bound}{polled}"
        ),
    );
    if phases.has_too_many_for_roles && analysis.phase.is_none() {
        let told = "Too many marks to tell them by role; --phase NAME does for one name.";
        section.quiet(told);
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
    places.sort_by_key(|&place| {
        let line = &lines[place];
        (!is_stage(line), std::cmp::Reverse(line.weight()), place)
    });
    places.truncate(top);
    places.sort_unstable();
    places.into_iter().map(|place| &lines[place]).collect()
}

fn table(section: &mut Section, analysis: &Analysis, phases: &[&Phase], has_attributes: bool) {
    let columns = vec![
        figures("BEGIN", 0),
        flexible("PHASE"),
        figures("PID", 3),
        figures("TOOK", 1),
        figures("TREE", 0),
        figures("OWN", 0),
        figures("SO FAR", 1),
        figures("PEAK", 2),
        figures("GPU", 0),
        figures("GPU PEAK", 4),
        figures("OWN PEAK", 3),
        figures("OWN ANON", 5),
        figures("OWN FILE", 7),
        figures("OWN SHMEM", 6),
        figures("AT BEGIN", 9),
        figures("AT END", 9),
        words_in("MOST OF IT", 8),
        figures("PAGE CACHE", 8),
        words_in("SAID", 10),
    ];
    let rows = phases.iter().map(|phase| {
        let mut row = row(analysis, phase);
        row.push(match has_attributes {
            true => attributes(phase).trim_start().to_owned(),
            false => String::new(),
        });
        row
    });
    let (columns, rows) = filled(columns, rows.collect());
    section.old_table(columns, rows);
}

fn doubt(section: &mut Section, phases: &[&Phase]) {
    let is_uncertain =
        |phase: &&Phase| phase.tree_uncertain.is_any() || phase.own_uncertain.is_any();
    let mut stretches = phases.iter().filter(|phase| !is_end_of_nothing(phase));
    if stretches.any(is_uncertain) {
        section.quiet(
            "~ where memory moved around a mark that does not tell what its process held: on \
             which side of the mark is not known. `memtrace.phase` tells it.",
        );
    }
}

/// Only the columns that say anything.
fn filled(columns: Vec<Column>, rows: Vec<Vec<String>>) -> (Vec<Column>, Vec<Vec<String>>) {
    let is_filled: Vec<bool> = (0..columns.len())
        .map(|place| {
            rows.iter()
                .any(|row| row.get(place).is_some_and(|cell| !cell.is_empty()))
        })
        .collect();
    let kept = |place: usize| is_filled.get(place).copied().unwrap_or(true);
    let columns = columns
        .into_iter()
        .enumerate()
        .filter(|(place, _)| kept(*place));
    let rows = rows.into_iter().map(|row| {
        let cells = row
            .into_iter()
            .enumerate()
            .filter(|(place, _)| kept(*place));
        cells.map(|(_, cell)| cell).collect()
    });
    (columns.map(|(_, column)| column).collect(), rows.collect())
}

fn row(analysis: &Analysis, phase: &Phase) -> Vec<String> {
    let begin = phase.begin_boot_ns.unwrap_or(phase.end_boot_ns);
    let change = |bytes| match is_end_of_nothing(phase) {
        true => "-".to_owned(),
        false => change(bytes),
    };
    let level = |level: Option<Level>| level.map_or_else(String::new, |told| change(told.delta()));
    let own = |kind| {
        let own = phase.own.as_ref();
        own.map_or_else(String::new, |own| change(own.delta(kind)))
    };
    let gpu_peak = phase
        .gpu
        .map(|gpu| words::bytes_or_unknown(gpu.peak.map(|(peak, _)| peak)));
    vec![
        words::offset(&analysis.clock, begin),
        label(phase),
        pid_of(analysis, phase.process),
        took(phase),
        about(phase, phase.tree_uncertain, change(phase.tree.rss_delta())),
        about(phase, phase.own_uncertain, own(Amounts::rss)),
        words::change(phase.since_baseline),
        peak(&phase.tree),
        level(phase.gpu),
        gpu_peak.unwrap_or_default(),
        phase.own.as_ref().map_or_else(String::new, peak),
        own(Amounts::anon),
        own(Amounts::file),
        own(Amounts::shmem),
        words::bytes_or_unknown(phase.tree.begin.rss()),
        words::bytes_or_unknown(phase.tree.end.rss()),
        most_of_it(phase),
        level(phase.page_cache),
    ]
}

/// A change that may be off.
fn about(phase: &Phase, uncertain: Uncertain, change: String) -> String {
    match uncertain.is_any() && !change.is_empty() && !is_end_of_nothing(phase) {
        true => format!("~{change}"),
        false => change,
    }
}

/// The role that gained or lost most, where there are several to choose from.
fn most_of_it(phase: &Phase) -> String {
    let most = phase.roles.first().filter(|_| phase.roles.len() > 1);
    let most = most.and_then(|most| Some((&most.name, most.stretch.rss_delta()?)));
    match most {
        Some((name, delta)) if delta.0 != 0 => format!("{name} {}", change(Some(delta))),
        _ => String::new(),
    }
}

/// ` gib=12.66 seconds=31.5`: what its marks say, but for what other columns show.
fn attributes(phase: &Phase) -> String {
    const SHOWN: [&str; 13] = [
        "rss_delta_bytes",
        "rss_bytes",
        "rss_anon_bytes",
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
    let mut told = String::new();
    for (name, value) in &phase.attributes {
        let value = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        if SHOWN.contains(&name.as_str()) || told.len() + name.len() + value.len() > LENGTH_MAX {
            continue;
        }
        told.push_str(&format!(" {name}={value}"));
    }
    told
}

/// The name, indented below what it is part of, with what is odd about it.
fn label(phase: &Phase) -> String {
    const MAX_INDENT: usize = 8;
    let indent = "  ".repeat(phase.depth.min(MAX_INDENT));
    let odd = match (phase.ended_by, phase.begin_boot_ns) {
        _ if phase.is_after_exit => " (after its process ended)",
        (PhaseEnd::Process, _) => " (until its process ended)",
        (PhaseEnd::Recording, _) => " (open)",
        (PhaseEnd::Marked, None) if phase.form == PhaseForm::Marked => " (no begin)",
        (PhaseEnd::Marked, None) => " (nothing before it)",
        (PhaseEnd::Marked, _) => "",
    };
    let step = phase
        .step
        .map_or_else(String::new, |step| format!(" (step {step})"));
    format!("{indent}{}{step}{odd}", phase.name)
}

fn pid_of(analysis: &Analysis, process: Option<usize>) -> String {
    process.map_or_else(|| "-".to_owned(), |place| pid(&analysis.processes[place]))
}

fn took(phase: &Phase) -> String {
    match phase.duration() {
        Some(length) => words::duration(length),
        None if is_end_of_nothing(phase) => "-".to_owned(),
        None => words::UNKNOWN.to_owned(),
    }
}

fn peak(stretch: &Stretch) -> String {
    words::bytes_or_unknown(stretch.peak.map(|(bytes, _)| bytes))
}

fn stage_table(section: &mut Section, analysis: &Analysis, stages: &[&Repeated]) {
    let columns = vec![
        flexible("STAGE"),
        figures("PID", 4),
        figures("STEPS", 0),
        figures("MEAN TIME", 3),
        figures("MEAN AT END", 1),
        figures("P95", 2),
        figures("TREE, PER STEP", 0),
        figures("OWN, PER STEP", 0),
        figures("GPU, PER STEP", 0),
    ];
    let rows = stages.iter().filter_map(|stage| {
        let steps = stage.steps?;
        let mean_ns = stage.total_ns.0 / i64::try_from(stage.count.max(1)).unwrap_or(1);
        let end = stage.tree.end;
        let end_mean = end.map(|end| Bytes(end.mean_bytes as i64));
        let beside = |measures: Option<_>, slope| match measures {
            Some(_) => per_step(slope),
            None => String::new(),
        };
        Some(vec![
            stage.name.to_string(),
            pids_of(analysis, stage),
            format!("{}-{}", steps.first, steps.last),
            words::duration(DurationNs(mean_ns)),
            words::bytes_or_unknown(end_mean),
            words::bytes_or_unknown(end.map(|end| end.p95)),
            per_step(steps.tree),
            beside(stage.own, steps.own),
            beside(stage.gpu, steps.gpu),
        ])
    });
    let (columns, rows) = filled(columns, rows.collect());
    section.old_table(columns, rows);
}

/// The process of all of them, or how many there are.
fn pids_of(analysis: &Analysis, many: &Repeated) -> String {
    match (many.process, many.process_count) {
        (None, count @ 1..) => format!("{} ×", words::count(count)),
        (process, _) => pid_of(analysis, process),
    }
}

/// `+12.0 MiB ±0.8 MiB`: the slope and its 95 % interval.
pub(super) fn per_step(slope: Option<Slope>) -> String {
    let Some(slope) = slope else {
        return words::UNKNOWN.to_owned();
    };
    let rise = Bytes(slope.bytes_per_step.round() as i64);
    let sign = if rise.0 > 0 { "+" } else { "" };
    format!(
        "{sign}{} ±{}",
        words::bytes(rise),
        words::margin(slope.margin_bytes())
    )
}

/// The short name of a device of `gpu_device`.
fn device_name(analysis: &Analysis, device: &str) -> String {
    let gpus = analysis.gpus.as_ref();
    let place = gpus.and_then(|gpus| {
        let mut devices = gpus.devices.iter();
        Some((gpus, devices.position(|known| known.device == device)?))
    });
    place.map_or_else(|| device.to_owned(), |(gpus, place)| short(gpus, place))
}

fn repeat_table(section: &mut Section, analysis: &Analysis, repeats: &[&Repeated]) {
    let columns = vec![
        figures("BEGIN", 3),
        flexible("PHASE"),
        figures("PID", 4),
        figures("TIMES", 0),
        figures("TOOK", 1),
        figures("GAINED", 0),
        figures("MEAN", 1),
        figures("P95", 2),
        figures("PEAK", 5),
        figures("GPU", 0),
    ];
    let rows = repeats.iter().map(|many| {
        let measures = many.own.unwrap_or(many.tree);
        let delta = measures.delta;
        vec![
            words::offset(&analysis.clock, many.begin_boot_ns),
            many.name.to_string(),
            pids_of(analysis, many),
            words::count(many.count),
            words::duration(many.total_ns),
            change(
                many.own
                    .map_or(many.tree_delta, |_| delta.map(|delta| delta.sum)),
            ),
            change(delta.map(|delta| Bytes(delta.mean_bytes as i64))),
            change(delta.map(|delta| delta.p95)),
            words::bytes_or_unknown(many.tree.peak.map(|(bytes, _)| bytes)),
            many.gpu
                .map_or_else(String::new, |_| change(many.gpu_delta)),
        ]
    });
    let (columns, rows) = filled(columns, rows.collect());
    section.old_table(columns, rows);
}

/// A moment that nothing came before is the end of no stretch.
fn is_end_of_nothing(phase: &Phase) -> bool {
    phase.form == PhaseForm::Moment && phase.begin_boot_ns.is_none()
}
