//! Memory over time, for whoever draws it: who held what, at instants that are common to all that
//! is drawn on top of each other.
//!
//! It is gathered by the pass of the report and only where it is asked for. Of millions of instants
//! a few thousand are kept, and no extreme of anything that is drawn is lost
//! ([`Thinned`](memtrace_timeline::Thinned)).

mod calls;
mod choice;
mod coded;
mod drawing;
mod gpus;
mod known;
mod levels;
mod limits;
mod readings;
mod reported;
#[cfg(test)]
mod tests;

pub(super) use choice::Choice;
pub use coded::{CurveSeries, Gaps};
pub(super) use drawing::{Drawing, Drawn};
pub(super) use known::Known;
pub use levels::Levels;
pub(super) use reported::reported;

use super::allocations::Flame;
use memtrace_model::{BootNs, Bytes, DurationNs, Tgid, WallNs};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// So many values all curves of a page have together: of the host's memory, of limits, of GPUs. A
/// value takes some eight bytes of a page.
const HOST_VALUES: usize = 150_000;
const LIMIT_VALUES: usize = 60_000;
const GPU_VALUES: usize = 120_000;

/// What a recording is drawn from.
#[derive(Clone, Debug)]
pub struct Drawings {
    /// Memory over time.
    pub curves: Curves,
    /// The phases, in the order of their starts; of more than 4,000 the longest.
    pub bands: Vec<Band>,
    /// What was marked as happening at an instant, since the start of the recording.
    pub moments: Vec<(DurationNs, Arc<str>)>,
    /// The RSS over its life of every process that has a lane, by position in the process table; of
    /// more than 20,000 those with the highest peaks.
    pub levels: BTreeMap<usize, Levels>,
    /// Resident memory by stack, of the processes of which most was resident.
    pub flames: Vec<Flame>,
    /// The same at the peak.
    pub flames_at_peak: Vec<Flame>,
}

/// A phase as a band over time.
#[derive(Clone, Debug, Serialize)]
pub struct Band {
    /// The name of the phase.
    pub name: Arc<str>,
    /// The role of its process, as in the stack by role; null for that of a person.
    pub role: Option<Arc<str>>,
    /// Whose it is; null for that of a person.
    pub pid: Option<Tgid>,
    /// The line of the report that it is a step of; null where it is none.
    pub stage: Option<Arc<str>>,
    /// Its number there.
    pub step: Option<i64>,
    /// When it began, since the start of the recording.
    pub begin_ns: DurationNs,
    /// When it ended; the end of the recording where nobody ended it.
    pub end_ns: DurationNs,
    /// How many phases of its process were open when it began.
    pub depth: usize,
}

/// Memory over time. Times are in nanoseconds since the start of the recording, amounts in bytes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Curves {
    /// The start of the recording on CLOCK_BOOTTIME.
    pub start_boot_ns: BootNs,
    /// The same on the wall clock; null when the recording holds no clock reading.
    pub start_unix_ns: Option<WallNs>,
    /// How long the recording is.
    pub end_ns: DurationNs,
    /// The instants of `stacks` and `lines`: the first, and of each other how much later it is than
    /// the one before.
    pub time_ns: Gaps,
    /// What is drawn on top of each other: of each stack the series add up to the line that `total`
    /// names, at every instant.
    pub stacks: Vec<CurveStack>,
    /// What is drawn beside them: `held` (every page once), `rss` (the sum of RSS) and `swap`.
    pub lines: Vec<CurveSeries>,
    /// How far what is held can be below the line `held`, and how far above it.
    pub bounds: [CurveSeries; 2],
    /// The cgroups and the node around the processes.
    pub limits: Vec<CurveLimit>,
    /// Every device, in the order of first sight. After one of which calls of the CUDA driver are known
    /// comes what recorded processes hold by them, by kind.
    pub gpus: Vec<GpuCurves>,
}

/// Series that add up.
#[derive(Clone, Debug, Serialize)]
pub struct CurveStack {
    /// What a series is: `role`, `kind`, `process`, `cgroup`.
    pub by: &'static str,
    /// What stands above it.
    pub label: &'static str,
    /// The line that they add up to.
    pub total: &'static str,
    /// The one with the highest peak first, what is left over last.
    pub series: Vec<CurveSeries>,
}

/// What is in use of a limit, over time.
#[derive(Clone, Debug, Serialize)]
pub struct CurveLimit {
    /// `cgroup` or `node`.
    pub by: &'static str,
    /// Whose it is: the path of the cgroup, or the host.
    pub name: String,
    /// What stands beside it.
    pub label: String,
    /// The instants of `used` and `limit`, as in `time_ns` of the whole; before the first both are
    /// unknown.
    pub time_ns: Gaps,
    /// What is in use.
    pub used: CurveSeries,
    /// How much it may be; null where there is no limit, or it is unknown.
    pub limit: CurveSeries,
}

/// Memory of one GPU over time.
#[derive(Clone, Debug, Serialize)]
pub struct GpuCurves {
    /// What `gpu_device` calls it.
    pub id: Arc<str>,
    /// The driver's number for it.
    pub index: Option<i32>,
    /// What stands above it.
    pub label: String,
    /// Memory in all.
    pub total_bytes: Option<Bytes>,
    /// The instants of its series, as in `time_ns` of the whole; before the first all are unknown.
    pub time_ns: Gaps,
    /// Memory that is not free, or what calls explain: what the series add up to.
    pub used: CurveSeries,
    /// Processes, what is reserved, what nothing explains, which can be below zero; or kinds.
    pub series: Vec<CurveSeries>,
}
