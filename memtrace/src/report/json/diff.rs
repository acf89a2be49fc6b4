//! The shape of a comparison in JSON.

use super::view::Slope;
use crate::analyze::{Analysis, Change, Comparison, Ending, StageChange};
use crate::model::{Bytes, DurationNs, PerKind};
use crate::report::DiffReport;
use serde::Serialize;

const FORMAT: &str = "memtrace-diff";
const VERSION: u32 = 1;

#[derive(Serialize)]
pub(super) struct Report<'a> {
    format: &'static str,
    version: u32,
    memtrace_version: &'static str,
    before: Recording<'a>,
    after: Recording<'a>,
    is_newly_failed: bool,
    has_other_basis: bool,
    allowed_ratio: Option<f64>,
    excesses: Option<Vec<Excess<'a>>>,
    whole: Compared<'a>,
    roles: Vec<Compared<'a>>,
    stages: Vec<Stage<'a>>,
}

/// A numbered phase that both have.
#[derive(Serialize)]
struct Stage<'a> {
    name: &'a str,
    has_risen: bool,
    before: Option<Slope>,
    after: Option<Slope>,
    role: Option<&'a str>,
    role_after: Option<Slope>,
}

#[derive(Serialize)]
struct Recording<'a> {
    path: Option<&'a str>,
    hostname: &'a str,
    backend: &'a str,
    duration_ns: DurationNs,
    process_count: usize,
    is_lower_bound: bool,
    has_command_failed: Option<bool>,
    exit_code: Option<i32>,
    exit_signal: Option<i32>,
    oom_killed: Option<bool>,
    gpus: Vec<Model<'a>>,
}

/// Devices of one name.
#[derive(Serialize)]
struct Model<'a> {
    name: &'a str,
    count: usize,
}

#[derive(Serialize)]
struct Excess<'a> {
    name: &'a str,
    figure: &'static str,
    #[serde(flatten)]
    change: Figure,
}

#[derive(Serialize)]
struct Compared<'a> {
    name: &'a str,
    process_count_before: Option<usize>,
    process_count_after: Option<usize>,
    kinds: PerKind<Figures>,
    gpu_peak: Figure,
}

#[derive(Serialize)]
struct Figures {
    peak: Figure,
    mean: Figure,
    bytes_per_hour: Figure,
}

#[derive(Serialize)]
struct Figure {
    before_bytes: Option<Bytes>,
    after_bytes: Option<Bytes>,
    change_bytes: Option<Bytes>,
    change_ratio: Option<f64>,
}

impl<'a> Report<'a> {
    /// At most `top` roles, or all of them.
    pub(super) fn of(told: &'a DiffReport<'_>, top: Option<usize>) -> Self {
        let roles = told.diff.roles.iter().take(top.unwrap_or(usize::MAX));
        let limit = told.limit.as_ref();
        let excess = |excess: &'a crate::analyze::Excess| Excess {
            name: &excess.name,
            figure: excess.figure,
            change: Figure::of(&excess.change),
        };
        Self {
            format: FORMAT,
            version: VERSION,
            memtrace_version: env!("CARGO_PKG_VERSION"),
            before: Recording::of(told.before),
            after: Recording::of(told.after),
            is_newly_failed: told.diff.is_newly_failed,
            has_other_basis: told.diff.has_other_basis,
            allowed_ratio: limit.map(|(allowed, _)| *allowed),
            excesses: limit.map(|(_, excesses)| excesses.iter().map(excess).collect()),
            whole: Compared::of(&told.diff.whole),
            roles: roles.map(Compared::of).collect(),
            stages: told.diff.stages.iter().map(Stage::of).collect(),
        }
    }
}

impl<'a> Stage<'a> {
    fn of(stage: &'a StageChange) -> Self {
        let role = stage.role.as_ref();
        Self {
            name: &stage.name,
            has_risen: stage.has_risen_by(0.0),
            before: stage.before.as_ref().map(Slope::of),
            after: stage.after.as_ref().map(Slope::of),
            role: role.map(|(name, _)| &**name),
            role_after: role.map(|(_, slope)| Slope::of(slope)),
        }
    }
}

impl<'a> Recording<'a> {
    fn of(analysis: &'a Analysis) -> Self {
        let ending = analysis.command_ending();
        let models = analysis.gpu_models().into_iter();
        Self {
            path: analysis.path.as_deref(),
            hostname: &analysis.info.hostname,
            backend: &analysis.info.backend,
            duration_ns: analysis.clock.duration(),
            process_count: analysis.processes.len(),
            is_lower_bound: analysis.is_polled(),
            has_command_failed: analysis.has_command_failed(),
            exit_code: ending.and_then(Ending::exit_code),
            exit_signal: ending.and_then(Ending::exit_signal),
            oom_killed: ending.and_then(Ending::by_oom_killer),
            gpus: models.map(|(name, count)| Model { name, count }).collect(),
        }
    }
}

impl<'a> Compared<'a> {
    fn of(role: &'a Comparison) -> Self {
        let figures = |kind| {
            let change = role.kind(kind);
            Figures {
                peak: Figure::of(&change.peak),
                mean: Figure::of(&change.mean),
                bytes_per_hour: Figure::of(&change.slope),
            }
        };
        Self {
            name: &role.name,
            process_count_before: role.process_counts.0,
            process_count_after: role.process_counts.1,
            kinds: PerKind::of(figures),
            gpu_peak: Figure::of(&role.gpu_peak),
        }
    }
}

impl Figure {
    fn of(change: &Change) -> Self {
        Self {
            before_bytes: change.before,
            after_bytes: change.after,
            change_bytes: change.difference(),
            // Digits beyond these differ between machines and say nothing.
            change_ratio: change.ratio().map(|ratio| (ratio * 1e4).round() / 1e4),
        }
    }
}
