//! The object of the JSON report. A key is never renamed and never changes its meaning within a
//! version; new ones may come. docs/report-json.md describes each.

use super::{Analysis, Loss, Process, sections};
use crate::model::tables::Severity;
use crate::model::{Bytes, DurationNs, Instant, RunState, SchemaVersion, Target};
use crate::report::{Style, Table, Told, Written, write_object};
use serde::Serialize;
use std::io;

const FORMAT: &str = "memtrace-report";
const VERSION: u32 = 2;

impl Written for Analysis {
    fn told(&self, style: &Style) -> Vec<Told> {
        sections::build(self, style)
    }

    fn tables<'a>(&'a self, style: &Style) -> Box<dyn Iterator<Item = Table> + 'a> {
        Box::new(sections::processes::tables(self, style.top))
    }

    fn json(&mut self, style: &Style, out: &mut dyn io::Write) -> io::Result<()> {
        write_object(&Report::of(self, style.top), out)
    }
}

/// The whole report.
#[derive(Serialize)]
struct Report<'a> {
    format: &'static str,
    version: u32,
    memtrace_version: &'static str,
    recording: Recording<'a>,
    losses: Vec<&'a Loss>,
    notes: Vec<&'a Loss>,
    #[serde(flatten)]
    findings: &'a Analysis,
    role_count: usize,
    process_count: usize,
    processes: Vec<&'a Process>,
}

#[derive(Serialize)]
struct Recording<'a> {
    path: Option<&'a str>,
    is_live: bool,
    schema_version: SchemaVersion,
    memtrace_version: &'a str,
    state: RunState,
    problems: &'a [String],
    hostname: &'a str,
    kernel: &'a str,
    arch: &'a str,
    cpu_count: u32,
    mem_total_bytes: Option<Bytes>,
    target: &'a Target,
    command_exit_code: Option<i32>,
    backend: &'a str,
    backend_reason: &'a str,
    interval_ns: DurationNs,
    start: Instant,
    end: Instant,
    duration_ns: DurationNs,
}

impl<'a> Report<'a> {
    /// The report with at most `top` processes, roles and leftovers, or all of them.
    fn of(analysis: &'a mut Analysis, top: Option<usize>) -> Self {
        let most = top.unwrap_or(usize::MAX);
        let role_count = analysis.roles.len();
        analysis.cut(most);
        let analysis = &*analysis;
        let order = analysis.by_peak();
        let listed = order.iter().take(most);
        let told = |is_wanted: fn(Severity) -> bool| {
            let losses = analysis.losses.iter();
            losses.filter(|loss| is_wanted(loss.severity)).collect()
        };
        Self {
            format: FORMAT,
            version: VERSION,
            memtrace_version: env!("CARGO_PKG_VERSION"),
            recording: Recording::of(analysis),
            losses: told(|severity| severity != Severity::Info),
            notes: told(|severity| severity == Severity::Info),
            findings: analysis,
            role_count,
            process_count: analysis.processes.len(),
            processes: listed.map(|&place| &analysis.processes[place]).collect(),
        }
    }
}

impl<'a> Recording<'a> {
    fn of(analysis: &'a Analysis) -> Self {
        let (info, clock) = (&analysis.info, &analysis.clock);
        Self {
            path: analysis.path.as_deref(),
            is_live: analysis.is_live,
            schema_version: info.schema_version,
            memtrace_version: &info.memtrace_version,
            state: info.state,
            problems: &analysis.problems,
            hostname: &info.hostname,
            kernel: &info.kernel,
            arch: &info.arch,
            cpu_count: info.cpu_count,
            mem_total_bytes: info.mem_total_bytes,
            target: &info.target,
            command_exit_code: info.command_exit_code,
            backend: &info.backend,
            backend_reason: &info.backend_reason,
            interval_ns: info.interval_ns,
            start: clock.at(clock.start()),
            end: clock.at(clock.end()),
            duration_ns: clock.duration(),
        }
    }
}
