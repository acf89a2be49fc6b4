//! The shape of a comparison in JSON.

use crate::analyze::{Analysis, Diff, Ending, Excess};
use crate::model::DurationNs;
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
    allowed_ratio: Option<f64>,
    excesses: Option<&'a [Excess]>,
    #[serde(flatten)]
    diff: &'a Diff,
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

impl<'a> Report<'a> {
    /// At most `top` roles, or all of them.
    pub(super) fn of(told: &'a mut DiffReport, top: Option<usize>) -> Self {
        told.diff.roles.truncate(top.unwrap_or(usize::MAX));
        let limit = told.limit.as_ref();
        Self {
            format: FORMAT,
            version: VERSION,
            memtrace_version: env!("CARGO_PKG_VERSION"),
            before: Recording::of(&told.before),
            after: Recording::of(&told.after),
            allowed_ratio: limit.map(|(allowed, _)| *allowed),
            excesses: limit.map(|(_, excesses)| excesses.as_slice()),
            diff: &told.diff,
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
            is_lower_bound: analysis.info.is_polled(),
            has_command_failed: analysis.has_command_failed(),
            exit_code: ending.and_then(Ending::exit_code),
            exit_signal: ending.and_then(Ending::exit_signal),
            oom_killed: ending.and_then(Ending::by_oom_killer),
            gpus: models.map(|(name, count)| Model { name, count }).collect(),
        }
    }
}
