//! GPUs in the JSON report.

use crate::analyze::{self, Analysis, GpuHolder};
use crate::model::{Bytes, DurationNs, Instant, Label, Tgid, Upid};
use serde::Serialize;

/// The GPUs of a recording.
#[derive(Serialize)]
pub(super) struct Gpus<'a> {
    devices: Vec<Device<'a>>,
    processes: Vec<GpuProcess<'a>>,
    known_from: Option<Instant>,
    recorded_peak: Peak,
    contexts: Option<Contexts>,
    falls: Vec<Fall<'a>>,
    sleeps: Vec<Sleep<'a>>,
    call_time_ns: Option<DurationNs>,
    call_count: Option<i64>,
}

#[derive(Serialize)]
struct Device<'a> {
    device: &'a str,
    parent_device: Option<&'a str>,
    index: Option<i32>,
    name: Option<&'a str>,
    total_bytes: Option<Bytes>,
    is_unified: bool,
    numa_node: Option<i32>,
    error: Option<&'a str>,
    longest_memory_call_ns: Option<DurationNs>,
    longest_process_call_ns: Option<DurationNs>,
    peak: Option<Gpu<'a>>,
    at_end: Option<Gpu<'a>>,
}

/// The books of a device: processes + reserved + unattributed = used.
#[derive(Serialize)]
pub(super) struct Gpu<'a> {
    device: &'a str,
    at: Instant,
    age_ns: DurationNs,
    total_bytes: Option<Bytes>,
    used_bytes: Option<Bytes>,
    processes_bytes: Bytes,
    reserved_bytes: Option<Bytes>,
    unattributed_bytes: Option<Bytes>,
    unknown_process_count: usize,
    lines: Vec<Line<'a>>,
    open_in: Vec<Who<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    who: Who<'a>,
    bytes: Option<Bytes>,
    host_bytes: Option<Bytes>,
    kind: Option<&'static str>,
    is_counted_elsewhere: bool,
}

/// A process of the recording, or another one, which has no `upid`.
#[derive(Serialize)]
struct Who<'a> {
    pid: Option<Tgid>,
    upid: Option<Upid>,
    name: Option<&'a str>,
}

#[derive(Serialize)]
struct GpuProcess<'a> {
    #[serde(flatten)]
    who: Who<'a>,
    devices: Vec<&'a str>,
    peak_bytes: Option<Bytes>,
    peak_is_lower_bound: bool,
    peak_at: Option<Instant>,
    at_end_bytes: Option<Bytes>,
    host_peak_bytes: Option<Bytes>,
}

/// The highest that all recorded processes held on all GPUs together.
#[derive(Serialize)]
struct Peak {
    bytes: Option<Bytes>,
    is_lower_bound: bool,
    at: Option<Instant>,
}

/// What the marks of one name did: the one of them that did least.
#[derive(Serialize)]
struct Sleep<'a> {
    name: &'a str,
    is_return: bool,
    count: usize,
    from: Instant,
    to: Instant,
    devices: Vec<&'a str>,
    before_bytes: Option<Bytes>,
    after_bytes: Option<Bytes>,
    moved_bytes: Option<Bytes>,
    most_moved_bytes: Bytes,
    used_before_bytes: Bytes,
    used_after_bytes: Bytes,
    holders: Vec<Held<'a>>,
    host_anon_change_bytes: Option<Bytes>,
    host_shmem_change_bytes: Option<Bytes>,
    host_file_change_bytes: Option<Bytes>,
}

#[derive(Serialize)]
struct Held<'a> {
    #[serde(flatten)]
    who: Who<'a>,
    bytes: Option<Bytes>,
}

#[derive(Serialize)]
struct Contexts {
    count: usize,
    smallest_bytes: Bytes,
    at_most_bytes: Bytes,
}

#[derive(Serialize)]
struct Fall<'a> {
    from: Instant,
    to: Instant,
    bytes: Bytes,
    devices: Vec<Fallen<'a>>,
    left: Vec<Left<'a>>,
    stayed_bytes: Option<Bytes>,
    ended: Vec<Upid>,
    host_anon_change_bytes: Option<Bytes>,
    host_shmem_change_bytes: Option<Bytes>,
    host_file_change_bytes: Option<Bytes>,
    marks: Vec<&'a str>,
}

#[derive(Serialize)]
struct Fallen<'a> {
    device: &'a str,
    bytes: Bytes,
}

#[derive(Serialize)]
struct Left<'a> {
    #[serde(flatten)]
    who: Who<'a>,
    bytes: Bytes,
}

impl<'a> Who<'a> {
    fn of(analysis: &'a Analysis, holder: &'a GpuHolder) -> Self {
        match holder {
            GpuHolder::Process(place) => {
                let process = &analysis.processes[*place];
                Self {
                    pid: process.tgid,
                    upid: Some(process.upid),
                    name: Some(&process.name),
                }
            }
            GpuHolder::Foreign { tgid, comm } => Self {
                pid: Some(*tgid),
                upid: None,
                name: comm.as_deref(),
            },
        }
    }
}

/// The name of a device by its position.
fn device(gpus: &analyze::Gpus, place: usize) -> &str {
    gpus.devices.get(place).map_or("", |device| &device.device)
}

impl<'a> Gpu<'a> {
    /// The books of all devices at an instant, with at most `top` lines each.
    pub(super) fn all(
        analysis: &'a Analysis,
        ledgers: &'a [analyze::GpuLedger],
        top: Option<usize>,
    ) -> Vec<Self> {
        let gpus = analysis.gpus.iter();
        gpus.flat_map(|gpus| {
            ledgers
                .iter()
                .map(move |ledger| Self::of(analysis, gpus, ledger, top))
        })
        .collect()
    }

    fn of(
        analysis: &'a Analysis,
        gpus: &'a analyze::Gpus,
        ledger: &'a analyze::GpuLedger,
        top: Option<usize>,
    ) -> Self {
        let lines = ledger.lines.iter().take(top.unwrap_or(usize::MAX));
        Self {
            device: device(gpus, ledger.device),
            at: analysis.clock.at(ledger.boot_ns),
            age_ns: ledger.age_ns,
            total_bytes: ledger.total_bytes,
            used_bytes: ledger.used_bytes,
            processes_bytes: ledger.processes_bytes(),
            reserved_bytes: ledger.reserved_bytes,
            unattributed_bytes: ledger.unattributed_bytes,
            unknown_process_count: ledger.unknown_count(),
            lines: lines
                .map(|line| Line {
                    who: Who::of(analysis, &line.holder),
                    bytes: line.bytes,
                    host_bytes: line.host_bytes,
                    kind: line.kind.map(Label::as_str),
                    is_counted_elsewhere: line.is_counted_elsewhere,
                })
                .collect(),
            open_in: ledger
                .candidates
                .iter()
                .map(|holder| Who::of(analysis, holder))
                .collect(),
        }
    }
}

impl<'a> Gpus<'a> {
    /// `None` without a GPU.
    pub(super) fn of(analysis: &'a Analysis, top: Option<usize>) -> Option<Self> {
        let gpus = analysis.gpus.as_ref()?;
        let instant = |boot| analysis.clock.at(boot);
        let listed = gpus.processes.iter().take(top.unwrap_or(usize::MAX));
        Some(Self {
            devices: gpus
                .devices
                .iter()
                .map(|told| Device {
                    device: &told.device,
                    parent_device: told.parent.map(|parent| device(gpus, parent)),
                    index: told.index,
                    name: told.name.as_deref(),
                    total_bytes: told.total_bytes,
                    is_unified: told.is_unified,
                    numa_node: told.numa_node,
                    error: told.error.as_deref(),
                    longest_memory_call_ns: told.memory_call,
                    longest_process_call_ns: told.process_call,
                    peak: told
                        .peak
                        .as_ref()
                        .map(|peak| Gpu::of(analysis, gpus, peak, top)),
                    at_end: told
                        .at_end
                        .as_ref()
                        .map(|at_end| Gpu::of(analysis, gpus, at_end, top)),
                })
                .collect(),
            processes: listed
                .map(|process| GpuProcess {
                    who: Who::of(analysis, &process.holder),
                    devices: process
                        .devices
                        .iter()
                        .map(|place| device(gpus, *place))
                        .collect(),
                    peak_bytes: process.peak_bytes,
                    peak_is_lower_bound: process.is_lower_bound,
                    peak_at: process.peak_boot_ns.map(instant),
                    at_end_bytes: process.at_end_bytes,
                    host_peak_bytes: match process.holder {
                        GpuHolder::Process(place) => analysis.processes[place].peak.rss_bytes,
                        GpuHolder::Foreign { .. } => None,
                    },
                })
                .collect(),
            known_from: gpus.known_from.map(instant),
            recorded_peak: Peak {
                bytes: gpus.recorded.peak.map(|(bytes, _)| bytes),
                is_lower_bound: gpus.recorded.is_lower_bound,
                at: gpus.recorded.peak.map(|(_, at)| instant(at)),
            },
            sleeps: gpus
                .audits
                .iter()
                .map(|audit| Sleep::of(analysis, gpus, audit))
                .collect(),
            contexts: gpus.contexts.map(|contexts| Contexts {
                count: contexts.count,
                smallest_bytes: contexts.smallest_bytes,
                at_most_bytes: contexts.at_most_bytes(),
            }),
            falls: gpus
                .falls
                .iter()
                .map(|fall| Fall::of(analysis, gpus, fall))
                .collect(),
            call_time_ns: gpus.call_time,
            call_count: gpus.call_count,
        })
    }
}

impl<'a> Sleep<'a> {
    fn of(analysis: &'a Analysis, gpus: &'a analyze::Gpus, audit: &'a analyze::Audit) -> Self {
        let instant = |boot| analysis.clock.at(boot);
        let devices = audit.devices.iter();
        let holders = audit.holders.iter();
        Self {
            name: &audit.name,
            is_return: audit.is_return,
            count: audit.count,
            from: instant(audit.from),
            to: instant(audit.to),
            devices: devices.map(|place| device(gpus, *place)).collect(),
            before_bytes: audit.before_bytes,
            after_bytes: audit.after_bytes,
            moved_bytes: audit.moved_bytes(),
            most_moved_bytes: audit.most_bytes,
            used_before_bytes: audit.used_bytes.0,
            used_after_bytes: audit.used_bytes.1,
            holders: holders
                .map(|(holder, bytes)| Held {
                    who: Who::of(analysis, holder),
                    bytes: *bytes,
                })
                .collect(),
            host_anon_change_bytes: audit.anon_bytes,
            host_shmem_change_bytes: audit.shmem_bytes,
            host_file_change_bytes: audit.file_bytes,
        }
    }
}

impl<'a> Fall<'a> {
    fn of(analysis: &'a Analysis, gpus: &'a analyze::Gpus, fall: &'a analyze::Fall) -> Self {
        let instant = |boot| analysis.clock.at(boot);
        let devices = fall.devices.iter();
        let left = fall.left.iter();
        Self {
            from: instant(fall.from),
            to: instant(fall.to),
            bytes: fall.bytes(),
            devices: devices
                .map(|(place, bytes)| Fallen {
                    device: device(gpus, *place),
                    bytes: *bytes,
                })
                .collect(),
            left: left
                .map(|(holder, bytes)| Left {
                    who: Who::of(analysis, holder),
                    bytes: *bytes,
                })
                .collect(),
            stayed_bytes: fall.stayed_bytes,
            ended: fall
                .ended
                .iter()
                .map(|place| analysis.processes[*place].upid)
                .collect(),
            host_anon_change_bytes: fall.anon_bytes,
            host_shmem_change_bytes: fall.shmem_bytes,
            host_file_change_bytes: fall.file_bytes,
            marks: fall.marks.iter().map(AsRef::as_ref).collect(),
        }
    }
}
