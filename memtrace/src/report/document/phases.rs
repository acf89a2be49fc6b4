//! What named phases cost: the table, the phases of one name, and a log of them.

use super::{Section, Tone, figures, flexible, name, pid};
use crate::analyze::{
    Amounts, Analysis, Phase, PhaseEnd, PhaseFocus, PhaseForm, PhaseLine, Repeated, Slope, Spread,
    Stretch,
};
use crate::model::{Bytes, DurationNs};
use crate::report::Style;
use crate::report::words::{self, change};
use serde_json::Value;

/// A rise by less than this over all steps is not worth an alarm.
const WORTH_TELLING: f64 = 16.0 * 1024.0 * 1024.0;

/// What is told instead of the rest, for who asked for phases only.
pub(super) fn instead(analysis: &Analysis, style: &Style, top: usize) -> Option<Vec<Section>> {
    if let Some(focus) = &analysis.phase {
        return Some(one(analysis, focus, top));
    }
    style.is_startup_log.then(|| vec![log(analysis)])
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
    stage_table(&mut section, &stages);
    repeat_table(&mut section, analysis, &repeats);
    if let Some(leak) = steepest(&stages) {
        section.say(Tone::Alert, leak);
    }
    if shown.len() < phases.lines.len() {
        let rest = words::count(phases.lines.len() - shown.len());
        let told = format!("{rest} more that changed less: --phases shows all.");
        section.say(Tone::Quiet, told);
    }
    explain(&mut section, analysis);
    Some(section)
}

fn unmarked() -> Section {
    let mut section = Section::new("Phases: nothing was marked");
    section.say(
        Tone::Plain,
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
    if let Some((first, rest)) = phases.missing.split_first() {
        let more = match rest.len() {
            0 => String::new(),
            more => format!(" and {} more", words::count(more)),
        };
        let told = format!("Not instrumented, for the installed version has no {first}{more}.");
        section.say(Tone::Quiet, told);
    }
    section.say(
        Tone::Quiet,
        format!(
            "TREE is what all recorded processes gained from begin to end, OWN what the process \
             did that marked it; SO FAR counts from the {held} at {from}.{bound}"
        ),
    );
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
        figures("OWN PEAK", 3),
        figures("ANON", 5),
        figures("FILE", 7),
        figures("SHMEM", 6),
        figures("AT BEGIN", 8),
        figures("AT END", 8),
        figures("SAID", 9),
    ];
    let rows = phases.iter().map(|phase| {
        let mut row = row(analysis, phase);
        row.push(match has_attributes {
            true => attributes(phase).trim_start().to_owned(),
            false => String::new(),
        });
        row
    });
    section.table(columns, rows.collect());
}

fn row(analysis: &Analysis, phase: &Phase) -> Vec<String> {
    let begin = phase.begin_boot_ns.unwrap_or(phase.end_boot_ns);
    let own = |kind| phase.own.unwrap_or(phase.tree).delta(kind);
    let change = |bytes| match is_end_of_nothing(phase) {
        true => "-".to_owned(),
        false => change(bytes),
    };
    let own_change = phase.own.map(|own| change(own.rss_delta()));
    vec![
        words::offset(&analysis.clock, begin),
        label(phase),
        pid_of(analysis, phase.process),
        took(phase),
        change(phase.tree.rss_delta()),
        own_change.unwrap_or_default(),
        words::change(phase.since_baseline),
        peak(&phase.tree),
        phase.own.as_ref().map_or_else(String::new, peak),
        change(own(Amounts::anon)),
        change(own(Amounts::file)),
        change(own(Amounts::shmem)),
        words::bytes_or_unknown(phase.tree.begin.rss()),
        words::bytes_or_unknown(phase.tree.end.rss()),
    ]
}

/// ` gib=12.66 seconds=31.5`: what its marks say, but for what other columns show.
fn attributes(phase: &Phase) -> String {
    const SHOWN: [&str; 12] = [
        "rss_delta_bytes",
        "rss_bytes",
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
    format!("{indent}{}{odd}", phase.name)
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

fn stage_table(section: &mut Section, stages: &[&Repeated]) {
    let columns = vec![
        flexible("STAGE"),
        figures("STEPS", 0),
        figures("MEAN TIME", 3),
        figures("MEAN AT END", 1),
        figures("P95", 2),
        figures("TREE, PER STEP", 0),
        figures("OWN, PER STEP", 0),
    ];
    let rows = stages.iter().filter_map(|stage| {
        let steps = stage.steps?;
        let mean_ns = stage.total_ns.0 / i64::try_from(stage.count.max(1)).unwrap_or(1);
        let end = stage.tree.end;
        let end_mean = end.map(|end| Bytes(end.mean_bytes as i64));
        Some(vec![
            stage.name.to_string(),
            format!("{}-{}", steps.first, steps.last),
            words::duration(DurationNs(mean_ns)),
            words::bytes_or_unknown(end_mean),
            words::bytes_or_unknown(end.map(|end| end.p95)),
            per_step(steps.tree),
            per_step(steps.own),
        ])
    });
    section.table(columns, rows.collect());
}

/// `+12.0 MiB ±0.8 MiB`: the slope and its 95 % interval.
fn per_step(slope: Option<Slope>) -> String {
    let Some(slope) = slope else {
        return words::UNKNOWN.to_owned();
    };
    let [rise, margin] =
        [slope.bytes_per_step, slope.margin_bytes].map(|bytes| Bytes(bytes.round() as i64));
    let sign = if rise.0 > 0 { "+" } else { "" };
    format!("{sign}{} ±{}", words::bytes(rise), words::bytes(margin))
}

/// The stage whose memory surely grows, and most; one with a begin and an end rather than a
/// mark for a moment, which only says when.
fn steepest(stages: &[&Repeated]) -> Option<String> {
    let rise =
        |slope: &Slope| slope.bytes_per_step * slope.last_step.abs_diff(slope.first_step) as f64;
    let slopes = stages
        .iter()
        .filter_map(|stage| Some((stage, stage.steps?, stage.steps?.tree?)));
    let (stage, steps, slope) = slopes
        .filter(|(.., slope)| slope.is_growing() && rise(slope) >= WORTH_TELLING)
        .max_by(|(a_stage, _, a), (b_stage, _, b)| {
            let is_phase = |stage: &Repeated| stage.form != PhaseForm::Moment;
            let by_form = is_phase(a_stage).cmp(&is_phase(b_stage));
            by_form.then(rise(a).total_cmp(&rise(b)))
        })?;
    let own = match steps.own.filter(Slope::is_growing) {
        Some(own) => format!(
            "; its own process by {}",
            words::bytes(Bytes(own.bytes_per_step as i64))
        ),
        None => String::new(),
    };
    Some(format!(
        "Memory of the tree at the end of {} grows by {} per step (95 % interval {} to {}){own}: {} from step {} \
         to {}.",
        stage.name,
        words::bytes(Bytes(slope.bytes_per_step as i64)),
        words::bytes(Bytes((slope.bytes_per_step - slope.margin_bytes) as i64)),
        words::bytes(Bytes((slope.bytes_per_step + slope.margin_bytes) as i64)),
        words::bytes(Bytes(rise(&slope) as i64)),
        slope.first_step,
        slope.last_step,
    ))
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
    ];
    let rows = repeats.iter().map(|many| {
        let measures = many.own.unwrap_or(many.tree);
        let delta = measures.delta;
        let pid = match (many.process, many.process_count) {
            (None, count @ 1..) => format!("{} ×", words::count(count)),
            (process, _) => pid_of(analysis, process),
        };
        vec![
            words::offset(&analysis.clock, many.begin_boot_ns),
            many.name.to_string(),
            pid,
            words::count(many.count),
            words::duration(many.total_ns),
            change(delta.map(|delta| delta.sum)),
            change(delta.map(|delta| Bytes(delta.mean_bytes as i64))),
            change(delta.map(|delta| delta.p95)),
            words::bytes_or_unknown(many.tree.peak.map(|(bytes, _)| bytes)),
        ]
    });
    section.table(columns, rows.collect());
}

/// The phases of one name, then who gained and lost over all of them.
fn one(analysis: &Analysis, focus: &PhaseFocus, top: usize) -> Vec<Section> {
    let clock = &analysis.clock;
    let mut section = Section::new(format!(
        "Phase {}: {} from {} to {}",
        focus.name,
        match focus.phases.len() {
            1 => "once".to_owned(),
            count => format!("{} times", words::count(count)),
        },
        words::when(clock, focus.begin_boot_ns),
        words::when(clock, focus.end_boot_ns),
    ));
    if let Some(many) = &focus.line {
        match many.steps {
            Some(_) => stage_table(&mut section, &[many]),
            None => repeat_table(&mut section, analysis, &[many]),
        }
    }
    let shown: Vec<&Phase> = focus.phases.iter().take(top).collect();
    table(&mut section, analysis, &shown, true);
    if shown.len() < focus.phases.len() {
        let rest = words::count(focus.phases.len() - shown.len());
        section.say(Tone::Quiet, format!("{rest} more: --top N shows N."));
    }
    explain(&mut section, analysis);
    vec![section, holders(analysis, focus, top)]
}

fn holders(analysis: &Analysis, focus: &PhaseFocus, top: usize) -> Section {
    let mut section = Section::new(match focus.phases.len() {
        1 => "Who held what at its begin and at its end",
        _ => "Who held what at the first begin and at the last end",
    });
    let columns = vec![
        figures("PID", 0),
        flexible("PROCESS"),
        figures("BEGIN", 1),
        figures("END", 1),
        figures("CHANGE", 0),
        figures("ANON", 2),
        figures("FILE", 4),
        figures("SHMEM", 3),
    ];
    let rows = focus.holders.iter().take(top).map(|holder| {
        let stretch = Stretch {
            begin: holder.before,
            end: holder.after,
            peak: None,
        };
        vec![
            pid(&analysis.processes[holder.process]),
            name(analysis, holder.process),
            words::bytes_or_dash(holder.before.rss()),
            words::bytes_or_dash(holder.after.rss()),
            change(stretch.rss_delta()),
            change(stretch.delta(Amounts::anon)),
            change(stretch.delta(Amounts::file)),
            change(stretch.delta(Amounts::shmem)),
        ]
    });
    section.table(columns, rows.collect());
    if focus.holders.len() > top {
        let rest = words::processes(focus.holders.len() - top);
        section.say(Tone::Quiet, format!("{rest} more that changed less."));
    }
    section
}

/// Phases as they ended, with what each added and the sum so far, in MiB.
fn log(analysis: &Analysis) -> Section {
    let Some(phases) = &analysis.phases else {
        return unmarked();
    };
    let mut section = Section::new(format!(
        "Phases as they ended, above the {} at {}",
        words::bytes_or_unknown(phases.baseline.rss()),
        words::offset(&analysis.clock, phases.baseline_boot_ns),
    ));
    let columns = vec![
        figures("ENDED", 0),
        figures("TOOK", 1),
        flexible("PHASE"),
        figures("PID", 3),
        figures("OWN MiB", 2),
        figures("DELTA MiB", 0),
        figures("SUM MiB", 0),
    ];
    let mut lines: Vec<&PhaseLine> = phases.lines.iter().collect();
    lines.sort_by_key(|line| match line {
        PhaseLine::One(phase) => phase.end_boot_ns,
        PhaseLine::Many(many) => many.end_boot_ns,
    });
    let rows = lines.into_iter().map(|line| match line {
        PhaseLine::One(phase) => vec![
            words::offset(&analysis.clock, phase.end_boot_ns),
            took(phase),
            label(phase) + &attributes(phase),
            pid_of(analysis, phase.process),
            phase
                .own
                .map_or_else(String::new, |own| gained(phase, own.rss_delta())),
            gained(phase, phase.tree.rss_delta()),
            mebibytes(phase.since_baseline),
        ],
        PhaseLine::Many(many) => {
            let sum = |delta: Option<Spread>| mebibytes(delta.map(|d| d.sum));
            vec![
                words::offset(&analysis.clock, many.end_boot_ns),
                words::duration(many.total_ns),
                format!("{} ({} ×)", many.name, words::count(many.count)),
                pid_of(analysis, many.process),
                many.own.map_or_else(String::new, |own| sum(own.delta)),
                sum(many.tree.delta),
                mebibytes(many.since_baseline),
            ]
        }
    });
    section.table(columns, rows.collect());
    section
}

fn gained(phase: &Phase, bytes: Option<Bytes>) -> String {
    match is_end_of_nothing(phase) {
        true => "-".to_owned(),
        false => mebibytes(bytes),
    }
}

/// A moment that nothing came before is the end of no stretch.
fn is_end_of_nothing(phase: &Phase) -> bool {
    phase.form == PhaseForm::Moment && phase.begin_boot_ns.is_none()
}

fn mebibytes(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(
        || words::UNKNOWN.to_owned(),
        |bytes| format!("{:+.1}", bytes.0 as f64 / (1024.0 * 1024.0)),
    )
}
