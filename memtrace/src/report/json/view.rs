//! The shape of the JSON report. A field is never renamed and never changes its meaning within
//! a version; new ones may come. docs/report-json.md describes each.

use crate::analyze::{
    Analysis, Composition, Endings, Gpus, Growth, Held, Leftovers, Loss, Mappings, OomFinding,
    PhaseFocus, Phases, Process, RecorderCost, RoleFinding, SeriesPoint, TreeFinding,
};
use crate::model::tables::Severity;
use crate::model::{Bytes, DurationNs, Instant, RunState, SchemaVersion, Target};
use serde::Serialize;

const FORMAT: &str = "memtrace-report";
const VERSION: u32 = 2;

/// The whole report.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    format: &'static str,
    version: u32,
    memtrace_version: &'static str,
    recording: Recording<'a>,
    cost: Option<&'a RecorderCost>,
    losses: Vec<&'a Loss>,
    notes: Vec<&'a Loss>,
    oom_kills: &'a [OomFinding],
    #[serde(flatten)]
    leftovers: &'a Leftovers,
    peak: Option<&'a Composition>,
    held_peak: Option<Held>,
    sum_of_rss_peak_bytes: Option<Bytes>,
    sum_of_rss_peak_at: Option<Instant>,
    at: Option<&'a Composition>,
    trees: &'a [TreeFinding],
    role_count: usize,
    roles: &'a [RoleFinding],
    phases: Option<&'a Phases>,
    phase: Option<&'a PhaseFocus>,
    growth: Option<Growth>,
    address_space: Option<&'a Mappings>,
    gpu: Option<&'a Gpus>,
    curve: Vec<CurvePoint>,
    endings: &'a Endings,
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

#[derive(Serialize)]
struct CurvePoint {
    offset_ns: DurationNs,
    mean_bytes: i64,
    max_bytes: Bytes,
}

impl<'a> Report<'a> {
    /// The report with at most `top` processes, roles and leftovers, or all of them.
    pub(super) fn of(analysis: &'a mut Analysis, top: Option<usize>) -> Self {
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
            cost: analysis.cost.as_ref(),
            losses: told(|severity| severity != Severity::Info),
            notes: told(|severity| severity == Severity::Info),
            oom_kills: &analysis.ooms,
            leftovers: &analysis.leftovers,
            peak: analysis.peak.as_ref(),
            held_peak: analysis.held_peak,
            sum_of_rss_peak_bytes: analysis.rss_peak.map(|(bytes, _)| bytes),
            sum_of_rss_peak_at: analysis.rss_peak.map(|(_, at)| at),
            at: analysis.at.as_ref(),
            trees: &analysis.trees,
            role_count,
            roles: &analysis.roles,
            phases: analysis.phases.as_ref(),
            phase: analysis.phase.as_ref(),
            growth: analysis.growth,
            address_space: analysis.mappings.as_ref(),
            gpu: analysis.gpus.as_ref(),
            curve: analysis
                .curve
                .iter()
                .map(|point| CurvePoint::of(analysis, point))
                .collect(),
            endings: &analysis.endings,
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

impl CurvePoint {
    fn of(analysis: &Analysis, point: &SeriesPoint) -> Self {
        Self {
            offset_ns: analysis.clock.offset(point.boot_ns),
            mean_bytes: point.mean_bytes as i64,
            max_bytes: point.max_bytes,
        }
    }
}
