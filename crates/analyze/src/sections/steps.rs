//! The sentences about what grows from step to step, and who grows most: they stand among the
//! first lines of a report.

use super::gpus::short;
use crate::{Analysis, PhaseForm, PhaseLine, PhasePart, Repeated, Report, Slope, Verdict, Who};
use memtrace_model::Bytes;
use memtrace_report::{Chapter, Section, Tone, words};

/// A rise by less than this over all steps is not worth an alarm.
const WORTH_TELLING: f64 = 16.0 * 1024.0 * 1024.0;

/// The stage for which a figure surely grows, and most; one with a begin and an end rather than
/// a mark for a moment, which only says when.
fn steepest<'a>(
    stages: &[&'a Repeated],
    slope_of: impl Fn(&Repeated) -> Option<Slope>,
) -> Option<(&'a Repeated, Slope)> {
    let slopes = stages
        .iter()
        .filter_map(|&stage| Some((stage, slope_of(stage)?)));
    slopes
        .filter(|(_, slope)| slope.is_growing() && slope.rise_bytes() >= WORTH_TELLING)
        .max_by(|(a_stage, a), (b_stage, b)| {
            let is_phase = |stage: &Repeated| stage.form != PhaseForm::Moment;
            let by_form = is_phase(a_stage).cmp(&is_phase(b_stage));
            by_form.then(a.rise_bytes().total_cmp(&b.rise_bytes()))
        })
}

/// What surely grows from step to step: what the tree holds, every page once, and what is in use on GPUs.
pub(super) const SECTION: Section<Report> = Section {
    name: "steps",
    doc: "what grows from step to step, and who grows most",
    keys: &["phases"],
    tell: |analysis, view| {
        let reported = sentences(analysis);
        // In the whole report one is among the first lines.
        if reported.len() < 1 + usize::from(view.is_below_the_answer()) {
            return Vec::new();
        }
        let mut section = Chapter::alarming("Grows from step to step");
        section.tell(Tone::Strong, reported);
        vec![section]
    },
    ..Section::EMPTY
};

/// What grows from step to step, in a sentence.
pub(super) fn in_short(analysis: &Analysis) -> Option<String> {
    let [_, gpu] = steepest_of_each(analysis);
    let mut sentences = sentences(analysis).into_iter();
    let first = sentences.next()?;
    match (sentences.next(), gpu) {
        (Some(_), Some((_, slope))) => {
            let per_step = per_step_bytes(&slope);
            Some(format!("{first} Memory of all GPUs grows by {per_step}."))
        }
        _ => Some(first),
    }
}

/// A sentence for the host, and one for GPUs.
fn sentences(analysis: &Analysis) -> Vec<String> {
    let [host, gpu] = steepest_of_each(analysis);
    let host = host.map(|(stage, slope)| {
        let who = who_leaks(analysis, stage);
        grows("What the tree holds", stage, &slope, &who)
    });
    let gpu = gpu.map(|(stage, slope)| {
        let who = grower(&stage.devices).map_or_else(String::new, |(name, slope)| {
            let device = short(analysis, name);
            format!("; most of it on GPU {device} ({})", per_step_bytes(&slope))
        });
        grows("Memory of all GPUs", stage, &slope, &who)
    });
    host.into_iter().chain(gpu).collect()
}

/// The stage at the end of which most was gained, as `--phase` takes it.
pub(super) fn growing_stage(analysis: &Analysis) -> Option<String> {
    let [host, gpu] = steepest_of_each(analysis);
    let (stage, _) = host.or(gpu)?;
    Some(stage.name.replace("<N>", "*"))
}

/// Where the memory of the tree surely grows, and that of all GPUs.
fn steepest_of_each(analysis: &Analysis) -> [Option<(&Repeated, Slope)>; 2] {
    let lines = analysis.phases.iter().flat_map(|phases| &phases.lines);
    let stages: Vec<&Repeated> = lines
        .filter_map(|line| match line {
            PhaseLine::Many(many) => Some(many.as_ref()),
            PhaseLine::One(_) => None,
        })
        .collect();
    [
        steepest(&stages, |stage| stage.steps.as_ref()?.tree),
        steepest(&stages, |stage| stage.steps.as_ref()?.gpu),
    ]
}

/// Who grows most: the process that passes the steps, or a role that grows more.
fn who_leaks(analysis: &Analysis, stage: &Repeated) -> String {
    /// By a tenth more: the same memory, seen at a slightly other time, is no other grower.
    const MORE: f64 = 1.1;
    let own = stage.steps.as_ref().and_then(|steps| {
        let one = || Some((&stage.who, steps.own?)).filter(|(who, _)| who.upid.is_some());
        let grower = steps.grower.as_ref();
        let grower = grower.map(|grower| (&grower.who, grower.slope));
        grower.or_else(one).filter(|(_, slope)| slope.is_growing())
    });
    let own_rise = own.as_ref().map_or(0.0, |(_, slope)| slope.bytes_per_step);
    let role = stage.roles.iter();
    let role = role.filter_map(|part| Some((part, part.slope.filter(Slope::is_growing)?)));
    let role = role.max_by(|(_, a), (_, b)| a.bytes_per_step.total_cmp(&b.bytes_per_step));
    let role = role.filter(|(_, role)| role.bytes_per_step > own_rise * MORE);
    match (role, own) {
        (Some((part, slope)), _) => format!(
            "; most of it in {} ({})",
            members(analysis, part, stage),
            per_step_bytes(&slope)
        ),
        (None, Some((who, slope))) => {
            let who = analysis.with_role(who);
            format!("; {who} grows by {}", per_step_bytes(&slope))
        }
        (None, None) => String::new(),
    }
}

/// The role, and the process of it that can be reported.
fn members(analysis: &Analysis, part: &PhasePart, stage: &Repeated) -> String {
    let role = analysis.roles.iter().find(|role| role.name == part.name);
    let members = role
        .into_iter()
        .flat_map(|role| role.members.iter().copied());
    let lived: Vec<usize> = members
        .filter(|&place| {
            let process = &analysis.processes[place];
            process.start.boot_ns <= stage.end.boot_ns
                && process
                    .exit_boot_ns()
                    .is_none_or(|exit| exit > stage.begin.boot_ns)
        })
        .collect();
    let grown = lived.iter().filter_map(|&place| {
        let growth = analysis.processes[place].growth.as_ref()?;
        (growth.verdict == Verdict::Growing).then_some((growth.rise_bytes, place))
    });
    let process = match lived.as_slice() {
        [only] => Some(*only),
        _ => grown.max().map(|(_, place)| place),
    };
    let process = process.map(|place| Who::from(&analysis.processes[place]));
    match (process, lived.len()) {
        (Some(who), 1) => analysis.with_role(&who),
        (Some(who), count) => format!(
            "{} × {}, chiefly {}",
            words::count(count),
            part.name,
            who.in_words()
        ),
        (None, count @ 2..) => format!("{} × {}", words::count(count), part.name),
        (None, _) => part.name.to_string(),
    }
}

fn per_step_bytes(slope: &Slope) -> String {
    words::bytes(Bytes(slope.bytes_per_step as i64))
}

/// The part that surely grows most, where there are several.
fn grower(parts: &[PhasePart]) -> Option<(&str, Slope)> {
    let slopes = parts
        .iter()
        .filter_map(|part| Some((&*part.name, part.slope.filter(Slope::is_growing)?)));
    let most = slopes.max_by(|(_, a), (_, b)| a.bytes_per_step.total_cmp(&b.bytes_per_step));
    most.filter(|_| parts.len() > 1)
}

fn grows(of: &str, stage: &Repeated, slope: &Slope, parts: &str) -> String {
    format!(
        "{of} at the end of {} grows by {} ±{} (95 %) per step, {} from step {} to \
         {}{parts}.",
        stage.name,
        per_step_bytes(slope),
        words::margin(slope.margin_bytes()),
        words::bytes(Bytes(slope.rise_bytes() as i64)),
        slope.first_step,
        slope.last_step,
    )
}
