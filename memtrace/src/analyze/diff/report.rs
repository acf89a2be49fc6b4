//! A comparison as it is written: what is told of both recordings, and the object of its JSON.

use super::{Diff, Excess, told};
use crate::analyze::{Analysis, Ending};
use crate::model::DurationNs;
use crate::report::{Style, Table, Told, Written, write_object};
use serde::Serialize;
use std::io;
use std::iter::once;

const FORMAT: &str = "memtrace-diff";
const VERSION: u32 = 1;

/// What there is to tell of two recordings.
#[derive(Debug)]
pub struct DiffReport {
    /// The first.
    pub before: Analysis,
    /// The second.
    pub after: Analysis,
    /// What changed from one to the other.
    pub diff: Diff,
    /// By which part of itself a figure may rise, and those that rose by more; `None` where
    /// that was not asked.
    pub limit: Option<(f64, Vec<Excess>)>,
}

impl DiffReport {
    /// Whether either of them has GPUs.
    pub fn has_gpu(&self) -> bool {
        self.before.gpus.is_some() || self.after.gpus.is_some()
    }
}

impl Written for DiffReport {
    fn told(&self, style: &Style) -> Vec<Told> {
        told::build(self, style)
    }

    fn tables<'a>(&'a self, style: &Style) -> Box<dyn Iterator<Item = Table> + 'a> {
        let top = style.top.unwrap_or(usize::MAX);
        Box::new(once(told::figures(self, top)))
    }

    fn json(&mut self, style: &Style, out: &mut dyn io::Write) -> io::Result<()> {
        write_object(&Object::of(self, style.top), out)
    }
}

#[derive(Serialize)]
struct Object<'a> {
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

impl<'a> Object<'a> {
    /// At most `top` roles, or all of them.
    fn of(told: &'a mut DiffReport, top: Option<usize>) -> Self {
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
