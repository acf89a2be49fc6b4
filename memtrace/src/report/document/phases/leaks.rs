//! The sentences about what grows from step to step, and who grows most.

use super::super::{Section, Tone, pid};
use super::device_name;
use crate::analyze::{Analysis, PhaseForm, PhasePart, Repeated, Slope};
use crate::model::Bytes;
use crate::report::words;

/// A rise by less than this over all steps is not worth an alarm.
const WORTH_TELLING: f64 = 16.0 * 1024.0 * 1024.0;

/// By how much a line rises over its steps.
fn rise(slope: &Slope) -> f64 {
    slope.bytes_per_step * slope.last_step.abs_diff(slope.first_step) as f64
}

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
        .filter(|(_, slope)| slope.is_growing() && rise(slope) >= WORTH_TELLING)
        .max_by(|(a_stage, a), (b_stage, b)| {
            let is_phase = |stage: &Repeated| stage.form != PhaseForm::Moment;
            let by_form = is_phase(a_stage).cmp(&is_phase(b_stage));
            by_form.then(rise(a).total_cmp(&rise(b)))
        })
}

/// What grows from step to step: memory of the tree, and what is in use on GPUs.
pub(super) fn leaks(section: &mut Section, analysis: &Analysis, stages: &[&Repeated]) {
    let slope = |stage: &Repeated| stage.steps?.tree;
    if let Some((stage, slope)) = steepest(stages, slope) {
        let who = who_leaks(analysis, stage);
        section.say(Tone::Alert, grows("the tree", stage, &slope, &who));
    }
    let slope = |stage: &Repeated| stage.steps?.gpu;
    if let Some((stage, slope)) = steepest(stages, slope) {
        let who = grower(&stage.devices).map_or_else(String::new, |(name, slope)| {
            let device = device_name(analysis, name);
            format!("; most of it on GPU {device} ({})", per_step_bytes(&slope))
        });
        section.say(Tone::Alert, grows("all GPUs", stage, &slope, &who));
    }
}

/// Who grows most: the process that passes the steps, or a role that grows more.
fn who_leaks(analysis: &Analysis, stage: &Repeated) -> String {
    /// By a tenth more: the same memory, seen at a slightly other time, is no other grower.
    const MORE: f64 = 1.1;
    let own = stage.steps.and_then(|steps| {
        let many = steps.grower.map(|(process, slope)| {
            let process = &analysis.processes[process];
            (
                format!("process {} ({})", pid(process), process.name),
                slope,
            )
        });
        let one = || Some(("its own process".to_owned(), steps.own?));
        let one = || one().filter(|_| stage.process_count < 2);
        many.or_else(one).filter(|(_, slope)| slope.is_growing())
    });
    let own_rise = own.as_ref().map_or(0.0, |(_, slope)| slope.bytes_per_step);
    let role = grower(&stage.roles).filter(|(_, role)| role.bytes_per_step > own_rise * MORE);
    let role =
        role.map(|(name, slope)| format!("; most of it in {name} ({})", per_step_bytes(&slope)));
    let own = own.map(|(name, slope)| format!("; {name} by {}", per_step_bytes(&slope)));
    role.unwrap_or_default() + &own.unwrap_or_default()
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
        "Memory of {of} at the end of {} grows by {} ±{} (95 %) per step, {} from step {} to \
         {}{parts}.",
        stage.name,
        per_step_bytes(slope),
        words::bytes(Bytes(slope.margin_bytes as i64)),
        words::bytes(Bytes(rise(slope) as i64)),
        slope.first_step,
        slope.last_step,
    )
}
