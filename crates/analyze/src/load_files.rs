//! Runs of load experiments as the files that `memtrace load run` writes, from a recording: what
//! only the recording knows stands in them too.

mod trace;

pub use trace::{trace_head, trace_line};

use super::{Analysis, Condition, RequestFigures, RoleHolding};
use memtrace_model::{BootNs, Bytes, GpuInfo, RunInfo, Target, WallNs, masked_arguments};
use memtrace_report::{write_line, write_object};
use serde::Serialize;
use std::io::{self, Write};

/// The version of the lines of a plan.
const PLAN_VERSION: u32 = 1;

/// One run: its conditions, in the order of their starts.
#[derive(Debug)]
pub struct LoadRun<'a> {
    /// What it is called.
    pub id: &'a str,
    conditions: Vec<&'a Condition>,
}

/// A condition as a line of a plan.
#[derive(Debug, Serialize)]
struct LoadLine<'a> {
    v: u32,
    condition: i64,
    name: &'a str,
    input_tokens: Option<i64>,
    output_tokens: Option<i64>,
    concurrency: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_rate: Option<f64>,
    prefix_reuse: Option<f64>,
    requests: i64,
    seed: Option<u32>,
}

/// A condition in the summary.
#[derive(Debug, Serialize)]
struct Summed<'a> {
    #[serde(flatten)]
    line: LoadLine<'a>,
    #[serde(flatten)]
    figures: &'a RequestFigures,
    #[serde(flatten)]
    wall: WallSpan,
    memory: Memory<'a>,
}

/// When the first request of a condition was sent and the last ended, on the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WallSpan {
    begin_wall_ns: Option<WallNs>,
    end_wall_ns: Option<WallNs>,
}

impl WallSpan {
    /// That of `figures`, which have it on CLOCK_BOOTTIME.
    pub fn of(figures: &RequestFigures, to_wall: impl Fn(BootNs) -> Option<WallNs>) -> Self {
        let wall = |boot: Option<i64>| to_wall(BootNs(boot?));
        Self {
            begin_wall_ns: wall(figures.begin_boot_ns),
            end_wall_ns: wall(figures.end_boot_ns),
        }
    }
}

/// What was held under a condition.
#[derive(Debug, Serialize)]
struct Memory<'a> {
    tokens_in_flight_peak: Option<i64>,
    held_begin_bytes: Option<Bytes>,
    held_peak_bytes: Option<Bytes>,
    held_peak_boot_ns: Option<BootNs>,
    roles_at_held_peak: Option<&'a [RoleHolding]>,
    gpu_begin_bytes: Option<Bytes>,
    gpu_peak_bytes: Option<Bytes>,
    gpu_peak_boot_ns: Option<BootNs>,
    roles_at_gpu_peak: Option<&'a [RoleHolding]>,
}

/// What was recorded.
#[derive(Debug, Serialize)]
struct Manifest<'a> {
    memtrace_version: &'a str,
    run_id: &'a str,
    condition_count: usize,
    recordings: [&'a str; 1],
    hostname: &'a str,
    kernel: &'a str,
    cpu_count: u32,
    mem_total_bytes: Option<Bytes>,
    /// The command that was recorded.
    command: Option<String>,
    gpus: &'a [GpuInfo],
    start_wall: Option<String>,
    start_wall_ns: Option<WallNs>,
    start_boot_ns: Option<BootNs>,
    end_wall: Option<String>,
    end_wall_ns: Option<WallNs>,
    end_boot_ns: Option<BootNs>,
}

impl<'a> LoadRun<'a> {
    /// The runs of a recording, in the order of their starts.
    pub fn all(analysis: &'a Analysis) -> Vec<Self> {
        let mut runs: Vec<Self> = Vec::new();
        let conditions = analysis.conditions.iter().flat_map(|found| &found.list);
        for condition in conditions {
            let id = condition.load_run.as_str();
            match runs.iter_mut().find(|run| run.id == id) {
                Some(run) => run.conditions.push(condition),
                None => runs.push(Self {
                    id,
                    conditions: vec![condition],
                }),
            }
        }
        runs
    }

    /// When it began and ended.
    pub fn span(&self) -> Option<[BootNs; 2]> {
        let conditions = || self.conditions.iter();
        let begin = conditions().map(|one| one.begin.boot_ns).min()?;
        let end = conditions().map(|one| one.end.boot_ns).max()?;
        Some([begin, end])
    }

    /// When under each condition most was held, on the host and on GPUs.
    pub fn peaks(&self) -> impl Iterator<Item = BootNs> {
        let conditions = self.conditions.iter();
        let peaks = conditions.flat_map(|one| [one.held_peak_at, one.gpu_peak_at]);
        peaks.flatten().map(|at| at.boot_ns)
    }

    /// Writes `workload.jsonl`.
    ///
    /// # Errors
    /// When `out` can't be written to.
    pub fn workload(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut lines = self.conditions.iter().map(|one| LoadLine::of(one));
        lines.try_for_each(|line| write_line(&line, out))
    }

    /// Writes `summary.json`; `roles_at` has what each role held at each of [`LoadRun::peaks`].
    ///
    /// # Errors
    /// When `out` can't be written to.
    pub fn summary(
        &self,
        roles_at: &[(BootNs, Vec<RoleHolding>)],
        to_wall: impl Fn(BootNs) -> Option<WallNs>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        #[derive(Serialize)]
        struct Summary<'a> {
            run_id: &'a str,
            conditions: Vec<Summed<'a>>,
        }
        let roles = |at: Option<BootNs>| {
            let found = roles_at.iter().find(|(instant, _)| Some(*instant) == at)?;
            Some(found.1.as_slice())
        };
        let summed = self.conditions.iter().map(|one| {
            let held_peak_boot_ns = one.held_peak_at.map(|at| at.boot_ns);
            let gpu_peak_boot_ns = one.gpu_peak_at.map(|at| at.boot_ns);
            Summed {
                line: LoadLine::of(one),
                figures: &one.figures,
                wall: WallSpan::of(&one.figures, &to_wall),
                memory: Memory {
                    tokens_in_flight_peak: one.tokens_in_flight_peak,
                    held_begin_bytes: one.held_begin_bytes,
                    held_peak_bytes: one.held_peak_bytes,
                    held_peak_boot_ns,
                    roles_at_held_peak: roles(held_peak_boot_ns),
                    gpu_begin_bytes: one.gpu_begin_bytes,
                    gpu_peak_bytes: one.gpu_peak_bytes,
                    gpu_peak_boot_ns,
                    roles_at_gpu_peak: roles(gpu_peak_boot_ns),
                },
            }
        });
        let summary = Summary {
            run_id: self.id,
            conditions: summed.collect(),
        };
        write_object(&summary, out)
    }

    /// Writes `manifest.json`; `path` is the recording's.
    ///
    /// # Errors
    /// When `out` can't be written to.
    pub fn manifest(
        &self,
        info: &RunInfo,
        path: &str,
        to_wall: impl Fn(BootNs) -> Option<WallNs>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let span = self.span();
        let (start, end) = (span.map(|[start, _]| start), span.map(|[_, end]| end));
        let (start_wall_ns, end_wall_ns) = (start.and_then(&to_wall), end.and_then(&to_wall));
        let manifest = Manifest {
            memtrace_version: &info.memtrace_version,
            run_id: self.id,
            condition_count: self.conditions.len(),
            recordings: [path],
            hostname: &info.hostname,
            kernel: &info.kernel,
            cpu_count: info.cpu_count,
            mem_total_bytes: info.mem_total_bytes,
            command: match &info.target {
                Target::Command { argv } => Some(masked_arguments(argv).join(" ")),
                _ => None,
            },
            gpus: &info.gpus,
            start_wall: start_wall_ns.and_then(WallNs::rfc3339),
            start_wall_ns,
            start_boot_ns: start,
            end_wall: end_wall_ns.and_then(WallNs::rfc3339),
            end_wall_ns,
            end_boot_ns: end,
        };
        write_object(&manifest, out)
    }
}

impl<'a> LoadLine<'a> {
    fn of(condition: &'a Condition) -> Self {
        let planned = &condition.planned;
        Self {
            v: PLAN_VERSION,
            condition: condition.number,
            name: &condition.name,
            input_tokens: condition.input_tokens,
            output_tokens: condition.output_tokens,
            concurrency: condition.concurrency,
            request_rate: condition.request_rate,
            prefix_reuse: condition.prefix_reuse,
            requests: planned.requests.unwrap_or(condition.request_count as i64),
            seed: planned.seed,
        }
    }
}

#[cfg(test)]
mod tests;
