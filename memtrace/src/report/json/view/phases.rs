//! Phases in the JSON report.

mod steps;

use crate::analyze::{self, Amounts, Analysis, PhaseEnd, PhaseForm, PhaseLine, Slope, Spread};
use crate::model::{BootNs, Bytes, DurationNs, Instant, Tgid, Upid};
use serde::Serialize;
use serde_json::{Map, Value};
use steps::Steps;

/// All phases.
#[derive(Serialize)]
pub(super) struct Phases<'a> {
    baseline_at: Instant,
    baseline: Amounts,
    is_lower_bound: bool,
    peak_is_lower_bound: bool,
    has_too_many_for_roles: bool,
    count: usize,
    process_count: usize,
    line_count: usize,
    lines: Vec<Line<'a>>,
    missing: Vec<&'a str>,
}

/// The phases of the name that was asked for.
#[derive(Serialize)]
pub(super) struct Focus<'a> {
    name: &'a str,
    line: Option<Repeated<'a>>,
    count: usize,
    phases: Vec<Phase<'a>>,
    begin: Instant,
    end: Instant,
    tree: Stretch,
    roles: Vec<RoleChange<'a>>,
    gpu: Option<Level>,
    devices: Vec<Device<'a>>,
    page_cache: Option<Level>,
    holder_count: usize,
    holders: Vec<HolderChange<'a>>,
}

/// Where a figure may be off.
#[derive(Serialize)]
struct Uncertain {
    begin: bool,
    end: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Line<'a> {
    One(Box<Phase<'a>>),
    Many(Box<Repeated<'a>>),
}

#[derive(Serialize)]
struct Phase<'a> {
    name: &'a str,
    kind: PhaseForm,
    pid: Option<Tgid>,
    upid: Option<Upid>,
    depth: usize,
    step: Option<i64>,
    begin: Option<Instant>,
    end: Instant,
    ended_by: PhaseEnd,
    is_after_exit: bool,
    duration_ns: Option<DurationNs>,
    tree: Stretch,
    own: Option<Stretch>,
    tree_uncertain: Uncertain,
    own_uncertain: Uncertain,
    since_baseline_bytes: Option<Bytes>,
    roles: Vec<Role<'a>>,
    gpu: Option<Level>,
    devices: Vec<Device<'a>>,
    page_cache: Option<Level>,
    exact_peak_bytes: Option<Bytes>,
    attributes: &'a Map<String, Value>,
}

#[derive(Serialize)]
struct Stretch {
    begin: Amounts,
    end: Amounts,
    delta: Amounts,
    peak_rss_bytes: Option<Bytes>,
    peak_at: Option<Instant>,
}

/// A role in a phase.
#[derive(Serialize)]
struct Role<'a> {
    name: &'a str,
    #[serde(flatten)]
    stretch: Stretch,
}

/// A role from the begin of the first phase to the end of the last.
#[derive(Serialize)]
struct RoleChange<'a> {
    #[serde(flatten)]
    role: Role<'a>,
    #[serde(flatten)]
    gpu: OnGpus,
}

/// What some processes held on GPUs.
#[derive(Serialize)]
struct OnGpus {
    gpu_begin_bytes: Option<Bytes>,
    gpu_end_bytes: Option<Bytes>,
}

/// An amount that is read from time to time.
#[derive(Serialize)]
struct Level {
    begin_bytes: Option<Bytes>,
    end_bytes: Option<Bytes>,
    delta_bytes: Option<Bytes>,
    peak_bytes: Option<Bytes>,
    peak_at: Option<Instant>,
}

#[derive(Serialize)]
struct Device<'a> {
    device: &'a str,
    #[serde(flatten)]
    level: Level,
}

#[derive(Serialize)]
struct Repeated<'a> {
    name: &'a str,
    kind: PhaseForm,
    pid: Option<Tgid>,
    upid: Option<Upid>,
    process_count: usize,
    count: usize,
    open_count: usize,
    begin: Instant,
    end: Instant,
    total_ns: DurationNs,
    tree: Measures,
    own: Option<Measures>,
    tree_delta_bytes: Option<Bytes>,
    gpu_delta_bytes: Option<Bytes>,
    since_baseline_bytes: Option<Bytes>,
    roles: Vec<Part<'a>>,
    gpu: Option<Figures>,
    devices: Vec<Part<'a>>,
    steps: Option<Steps>,
}

/// A role or a GPU in many phases.
#[derive(Serialize)]
struct Part<'a> {
    name: &'a str,
    #[serde(flatten)]
    figures: Figures,
    slope: Option<Slope>,
}

#[derive(Serialize)]
struct Figures {
    delta: Option<Spread>,
    end: Option<Spread>,
    peak_bytes: Option<Bytes>,
    peak_at: Option<Instant>,
}

#[derive(Serialize)]
struct Measures {
    delta: Option<Spread>,
    end: Option<Spread>,
    peak_rss_bytes: Option<Bytes>,
    peak_at: Option<Instant>,
}

#[derive(Serialize)]
struct HolderChange<'a> {
    pid: Option<Tgid>,
    upid: Upid,
    name: &'a str,
    begin: Amounts,
    end: Amounts,
    rss_delta_bytes: Option<Bytes>,
    #[serde(flatten)]
    gpu: OnGpus,
}

impl<'a> Phases<'a> {
    /// At most `top` lines, or all of them.
    pub(super) fn of(analysis: &'a Analysis, top: Option<usize>) -> Option<Self> {
        let phases = analysis.phases.as_ref()?;
        let lines = phases.lines.iter().take(top.unwrap_or(usize::MAX));
        Some(Self {
            baseline_at: analysis.clock.at(phases.baseline_boot_ns),
            baseline: phases.baseline,
            is_lower_bound: phases.is_lower_bound,
            peak_is_lower_bound: analysis.is_polled(),
            has_too_many_for_roles: phases.has_too_many_for_roles,
            count: phases.count,
            process_count: phases.process_count,
            line_count: phases.lines.len(),
            lines: lines.map(|line| Line::of(analysis, line)).collect(),
            missing: phases.missing.iter().map(|name| &**name).collect(),
        })
    }
}

impl<'a> Focus<'a> {
    /// At most `top` phases and holders, or all of them.
    pub(super) fn of(analysis: &'a Analysis, top: Option<usize>) -> Option<Self> {
        let focus = analysis.phase.as_ref()?;
        let top = top.unwrap_or(usize::MAX);
        let phases = focus.phases.iter().take(top);
        let holders = focus.holders.iter().take(top);
        let roles = focus
            .roles
            .iter()
            .map(|role| RoleChange::of(analysis, role));
        Some(Self {
            name: &focus.name,
            line: focus.line.as_ref().map(|line| Repeated::of(analysis, line)),
            count: focus.phases.len(),
            phases: phases.map(|phase| Phase::of(analysis, phase)).collect(),
            begin: analysis.clock.at(focus.begin_boot_ns),
            end: analysis.clock.at(focus.end_boot_ns),
            tree: Stretch::of(analysis, &focus.tree),
            roles: roles.collect(),
            gpu: focus.gpu.as_ref().map(|gpu| Level::of(analysis, gpu)),
            devices: Device::all(analysis, &focus.devices),
            page_cache: focus
                .page_cache
                .as_ref()
                .map(|cache| Level::of(analysis, cache)),
            holder_count: focus.holders.len(),
            holders: holders
                .map(|holder| HolderChange::of(analysis, holder))
                .collect(),
        })
    }
}

impl<'a> Line<'a> {
    fn of(analysis: &Analysis, line: &'a PhaseLine) -> Self {
        match line {
            PhaseLine::One(phase) => Self::One(Box::new(Phase::of(analysis, phase))),
            PhaseLine::Many(many) => Self::Many(Box::new(Repeated::of(analysis, many))),
        }
    }
}

fn identity(analysis: &Analysis, process: Option<usize>) -> (Option<Tgid>, Option<Upid>) {
    let process = process.map(|place| &analysis.processes[place]);
    (
        process.and_then(|process| process.tgid),
        process.map(|process| process.upid),
    )
}

impl<'a> Phase<'a> {
    fn of(analysis: &Analysis, phase: &'a analyze::Phase) -> Self {
        let instant = |boot: BootNs| analysis.clock.at(boot);
        let (pid, upid) = identity(analysis, phase.process);
        let roles = phase.roles.iter().map(|role| Role {
            name: &role.name,
            stretch: Stretch::of(analysis, &role.stretch),
        });
        Self {
            name: &phase.name,
            kind: phase.form,
            pid,
            upid,
            depth: phase.depth,
            step: phase.step,
            begin: phase.begin_boot_ns.map(instant),
            end: instant(phase.end_boot_ns),
            ended_by: phase.ended_by,
            is_after_exit: phase.is_after_exit,
            duration_ns: phase.duration(),
            tree: Stretch::of(analysis, &phase.tree),
            own: phase.own.as_ref().map(|own| Stretch::of(analysis, own)),
            tree_uncertain: Uncertain::of(phase.tree_uncertain),
            own_uncertain: Uncertain::of(phase.own_uncertain),
            since_baseline_bytes: phase.since_baseline,
            roles: roles.collect(),
            gpu: phase.gpu.as_ref().map(|gpu| Level::of(analysis, gpu)),
            devices: Device::all(analysis, &phase.devices),
            page_cache: phase
                .page_cache
                .as_ref()
                .map(|cache| Level::of(analysis, cache)),
            exact_peak_bytes: phase.exact_peak,
            attributes: &phase.attributes,
        }
    }
}

impl Uncertain {
    fn of(uncertain: analyze::Uncertain) -> Self {
        Self {
            begin: uncertain.begin,
            end: uncertain.end,
        }
    }
}

impl Stretch {
    fn of(analysis: &Analysis, stretch: &analyze::Stretch) -> Self {
        let (peak_rss_bytes, peak_at) = peak(analysis, stretch.peak);
        Self {
            begin: stretch.begin,
            end: stretch.end,
            delta: stretch.delta(),
            peak_rss_bytes,
            peak_at,
        }
    }
}

impl<'a> Repeated<'a> {
    fn of(analysis: &Analysis, many: &'a analyze::Repeated) -> Self {
        let (pid, upid) = identity(analysis, many.process);
        Self {
            name: &many.name,
            kind: many.form,
            pid,
            upid,
            process_count: many.process_count,
            count: many.count,
            open_count: many.open_count,
            begin: analysis.clock.at(many.begin_boot_ns),
            end: analysis.clock.at(many.end_boot_ns),
            total_ns: many.total_ns,
            tree: Measures::of(analysis, &many.tree),
            own: many.own.as_ref().map(|own| Measures::of(analysis, own)),
            tree_delta_bytes: many.tree_delta,
            gpu_delta_bytes: many.gpu_delta,
            since_baseline_bytes: many.since_baseline,
            roles: Part::all(analysis, &many.roles),
            gpu: many.gpu.as_ref().map(|gpu| Figures::of(analysis, gpu)),
            devices: Part::all(analysis, &many.devices),
            steps: many.steps.as_ref().map(|steps| Steps::of(analysis, steps)),
        }
    }
}

impl Measures {
    fn of(analysis: &Analysis, measures: &analyze::Measures) -> Self {
        let (peak_rss_bytes, peak_at) = peak(analysis, measures.peak);
        Self {
            delta: measures.delta,
            end: measures.end,
            peak_rss_bytes,
            peak_at,
        }
    }
}

impl<'a> HolderChange<'a> {
    fn of(analysis: &'a Analysis, change: &analyze::HolderChange) -> Self {
        let process = &analysis.processes[change.process];
        Self {
            pid: process.tgid,
            upid: process.upid,
            name: &process.name,
            begin: change.before,
            end: change.after,
            rss_delta_bytes: change.rss_delta(),
            gpu: OnGpus::of(change.gpu),
        }
    }
}

impl OnGpus {
    fn of(change: Option<analyze::GpuChange>) -> Self {
        let [gpu_begin_bytes, gpu_end_bytes] = change.unwrap_or_default();
        Self {
            gpu_begin_bytes,
            gpu_end_bytes,
        }
    }
}

impl<'a> RoleChange<'a> {
    fn of(analysis: &Analysis, role: &'a analyze::RoleChange) -> Self {
        Self {
            role: Role {
                name: &role.name,
                stretch: Stretch::of(analysis, &role.stretch),
            },
            gpu: OnGpus::of(role.gpu),
        }
    }
}

impl Level {
    fn of(analysis: &Analysis, level: &analyze::Level) -> Self {
        let (peak_bytes, peak_at) = peak(analysis, level.peak);
        Self {
            begin_bytes: level.begin,
            end_bytes: level.end,
            delta_bytes: level.delta(),
            peak_bytes,
            peak_at,
        }
    }
}

impl<'a> Device<'a> {
    fn all(analysis: &Analysis, devices: &'a [analyze::DeviceLevel]) -> Vec<Self> {
        let devices = devices.iter().map(|device| Self {
            device: &device.device,
            level: Level::of(analysis, &device.level),
        });
        devices.collect()
    }
}

impl<'a> Part<'a> {
    fn all(analysis: &Analysis, parts: &'a [analyze::PhasePart]) -> Vec<Self> {
        let parts = parts.iter().map(|part| Self {
            name: &part.name,
            figures: Figures::of(analysis, &part.measures),
            slope: part.slope,
        });
        parts.collect()
    }
}

impl Figures {
    fn of(analysis: &Analysis, measures: &analyze::Measures) -> Self {
        let (peak_bytes, peak_at) = peak(analysis, measures.peak);
        Self {
            delta: measures.delta,
            end: measures.end,
            peak_bytes,
            peak_at,
        }
    }
}

fn peak(analysis: &Analysis, peak: Option<(Bytes, BootNs)>) -> (Option<Bytes>, Option<Instant>) {
    let (bytes, at) = peak.unzip();
    (bytes, at.map(|at| analysis.clock.at(at)))
}
