//! What the named phases of a recording cost: marks, and titles that stand for calls, become
//! stretches of time with the memory at their begin, at their end, and at their highest.
//!
//! [`timeline`](timeline::Timeline) reads and pairs them before the one pass over `mem`;
//! a [`Gauge`](memtrace_timeline::Gauge) notes the memory at their boundaries during it, and nothing else: no list of
//! processes for each mark. Afterwards they become lines: one each, or one for many of one
//! name, with a slope where they are numbered.

mod attributes;
mod by_role;
mod conditions;
mod device_history;
mod doubts;
mod events;
mod focus;
mod lines;
mod memory;
mod noted;
mod number;
mod pair;
mod row;
mod slice;
mod slope;
#[cfg(test)]
mod tests;
mod timeline;

pub(super) use conditions::{ConditionSpan, UnderLoad};
pub(super) use doubts::Doubts;
pub use doubts::Uncertain;
pub(super) use events::{Calls, Marks};
pub use focus::{GpuChange, HolderChange, PhaseError, PhaseFocus, RoleChange};
pub(super) use noted::{Boundaries, Gauges};
pub(super) use number::{numbered, stage};
pub(super) use slice::Slice;
pub use slope::Slope;
pub(super) use timeline::{Named, Noted, Timeline};

use super::growth::whole;
use super::keys::{self, PeakAt};
use super::who::{ProcessKeys, Who};
pub use memtrace_model::tables::{PhaseEnd, PhaseForm};
use memtrace_model::{Bytes, DurationNs, Instant};
use memtrace_timeline::Amounts;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The phases of a recording.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Phases {
    /// The start of the first phase, from which totals count; where memory was unknown then, the
    /// first start or end at which it was known.
    pub baseline_at: Instant,
    /// What all recorded processes held then, every page once.
    pub baseline_held_bytes: Option<Bytes>,
    /// The sum of what each of them held then: shared pages count in each.
    pub baseline: Amounts,
    /// Whether some process's memory was unknown at a boundary, and is not in the sums.
    pub is_lower_bound: bool,
    /// Whether peaks between two observations can be missing.
    pub peak_is_lower_bound: bool,
    /// Whether there were too many marks to tell phases by role; `--phase` does for one name,
    /// unless it has as many itself.
    pub has_too_many_for_roles: bool,
    /// How many phases and moments there are, also those that share a line.
    pub count: usize,
    /// How many processes they belong to.
    pub process_count: usize,
    /// How many lines they make; `lines` may hold fewer.
    pub line_count: usize,
    /// Each phase, or many of one name, in order of their first start.
    pub lines: Vec<PhaseLine>,
    /// What was asked to be instrumented and is not there in the installed version.
    pub missing: Vec<Arc<str>>,
}

impl Phases {
    /// Whether any GPU reported what is in use.
    pub fn has_gpu(&self) -> bool {
        self.lines.iter().any(|line| match line {
            PhaseLine::One(phase) => phase.gpu.is_some(),
            PhaseLine::Many(many) => many.gpu.is_some(),
        })
    }
}

/// One line of the table of phases; that of one phase has `depth`, that of many has not.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum PhaseLine {
    /// One phase by itself.
    One(Box<Phase>),
    /// Many of one name, or of names that differ by a number.
    Many(Box<Repeated>),
}

/// A phase, or the stretch that leads up to a moment.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Phase {
    /// The name of the phase.
    pub name: Arc<str>,
    /// Whose it is; nobody for that of a person, which belongs to the whole recording.
    #[serde(flatten, with = "ProcessKeys")]
    pub who: Who,
    /// What it is.
    #[serde(rename = "kind")]
    pub form: PhaseForm,
    /// How many phases of its process were open when it began.
    pub depth: usize,
    /// Its number, from its name or its attribute `step`.
    pub step: Option<i64>,
    /// When it began; for a moment, the previous mark of its process. `None` when there was none.
    pub begin: Option<Instant>,
    /// When it ended.
    pub end: Instant,
    /// What ended it.
    pub ended_by: PhaseEnd,
    /// Whether it was marked after the end of its process.
    pub is_after_exit: bool,
    /// How long it took; `None` when its start is unknown.
    pub duration_ns: Option<DurationNs>,
    /// All recorded processes together, every page once.
    pub held: Level,
    /// The sum of what each of them held: shared pages count in each.
    pub tree: Stretch,
    /// Its own process; `None` for that of a person.
    pub own: Option<Stretch>,
    /// Whether what is reported of the tree may be off.
    pub tree_uncertain: Uncertain,
    /// The same of what its own process held.
    pub own_uncertain: Uncertain,
    /// What all held at its end above the baseline, every page once.
    pub since_baseline_bytes: Option<Bytes>,
    /// All recorded processes by their roles, what changed most first: who had the role at the
    /// begin, and who at the end. Of more than 1,000 lines the heaviest have it, else it is empty.
    pub roles: Vec<RoleStretch>,
    /// All GPUs together; `None` where none reported what is in use.
    pub gpu: Option<Level>,
    /// Each GPU, where there are any.
    pub devices: Vec<DeviceLevel>,
    /// The machine's page cache; `None` where it is not known.
    pub page_cache: Option<Level>,
    /// The highest RSS of its process within, as the kernel kept it, where the program asked
    /// (`memtrace.peak`).
    pub exact_peak_bytes: Option<Bytes>,
    /// The attributes of its marks; those of the end win.
    pub attributes: Map<String, Value>,
}

/// The memory over a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Stretch {
    /// At its start.
    pub begin: Amounts,
    /// At its end.
    pub end: Amounts,
    /// What each kind grew by.
    pub delta: Amounts,
    /// The highest RSS from begin to end, and when.
    #[serde(flatten, with = "keys::PeakRssKeys")]
    pub peak: Option<PeakAt>,
}

impl Stretch {
    fn of(begin: Amounts, end: Amounts, peak: Option<PeakAt>) -> Self {
        Self {
            begin,
            end,
            delta: end.since(&begin),
            peak,
        }
    }
}

/// What the processes of one role held over a phase: those that had it at its start, and those
/// that had it at its end.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RoleStretch {
    /// What they are called, as in `roles` of the report; `others` for all beyond the sixteen
    /// largest, whose peak is `None`.
    pub name: Arc<str>,
    /// What they held, shared pages in each of them.
    #[serde(flatten)]
    pub stretch: Stretch,
}

/// An amount over a stretch of time, by the last readings before each instant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Level {
    /// At its start.
    pub begin_bytes: Option<Bytes>,
    /// At its end.
    pub end_bytes: Option<Bytes>,
    /// What it grew by.
    pub delta_bytes: Option<Bytes>,
    /// The highest from begin to end, and when.
    #[serde(flatten, with = "keys::PeakAtKeys")]
    pub peak: Option<PeakAt>,
}

/// What was in use on a GPU over a phase.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DeviceLevel {
    /// The device, as `gpu_device` calls it.
    pub device: Arc<str>,
    /// The driver's number for it, as in `gpu_device`; null where it gave none.
    pub device_index: Option<i32>,
    /// What was in use.
    #[serde(flatten)]
    pub level: Level,
}

impl Level {
    fn of([begin_bytes, end_bytes]: [Option<Bytes>; 2], peak: Option<PeakAt>) -> Self {
        Self {
            begin_bytes,
            end_bytes,
            delta_bytes: end_bytes.zip(begin_bytes).map(|(end, begin)| end - begin),
            peak,
        }
    }
}

impl Stretch {
    /// The level of RSS alone.
    fn level(&self) -> Level {
        Level::of([self.begin.rss(), self.end.rss()], self.peak)
    }
}

impl Phase {
    /// The largest change of any memory.
    fn weight(&self) -> i64 {
        let deltas = [
            self.held.delta_bytes,
            self.own.and_then(|own| own.delta.rss()),
            self.gpu.and_then(|gpu| gpu.delta_bytes),
        ];
        let sizes = deltas.into_iter().flatten();
        sizes
            .map(|bytes| bytes.0.saturating_abs())
            .max()
            .unwrap_or(0)
    }
}

/// Many phases of one name, or of names that differ by a number.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Repeated {
    /// The name; `<N>` stands for the number.
    pub name: Arc<str>,
    /// What they are, as the first is.
    #[serde(rename = "kind")]
    pub form: PhaseForm,
    /// The process they all belong to, where it is one.
    #[serde(flatten, with = "ProcessKeys")]
    pub who: Who,
    /// How many processes they belong to.
    pub process_count: usize,
    /// How many there are.
    pub count: usize,
    /// How many of them nobody ended.
    pub open_count: usize,
    /// The first start.
    pub begin: Instant,
    /// The last end.
    pub end: Instant,
    /// How many of them took a known time.
    pub timed_count: usize,
    /// The durations of those together.
    pub total_ns: DurationNs,
    /// All recorded processes together, every page once.
    pub held: Measures,
    /// The sums of what each of them held: shared pages count in each.
    #[serde(serialize_with = "of_rss")]
    #[schemars(with = "OfRss")]
    pub tree: Measures,
    /// The process of each; `None` for those of a person.
    #[serde(serialize_with = "of_rss")]
    #[schemars(with = "Option<OfRss>")]
    pub own: Option<Measures>,
    /// What all gained while any of them was open, every page once: where they overlap, each by itself
    /// gained the same.
    pub tree_delta_bytes: Option<Bytes>,
    /// What came into use on all GPUs while any of them was open.
    pub gpu_delta_bytes: Option<Bytes>,
    /// What all held at the last end above the baseline, every page once.
    pub since_baseline_bytes: Option<Bytes>,
    /// All recorded processes by their roles, what changed most first.
    pub roles: Vec<PhasePart>,
    /// All GPUs together; `None` where none reported what is in use.
    pub gpu: Option<Measures>,
    /// Each GPU, where there are any.
    pub devices: Vec<PhasePart>,
    /// What changes from number to number; `None` where they are not numbered, and with fewer than
    /// eight steps after the warm-up.
    pub steps: Option<Steps>,
}

/// The part of one role or of one GPU in many phases.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PhasePart {
    /// The role, or the device as `gpu_device` calls it.
    pub name: Arc<str>,
    /// Of a device, the driver's number for it, as in `gpu_device`; null for a role, and where it
    /// gave none.
    pub device_index: Option<i32>,
    /// The figures of that part.
    #[serde(flatten)]
    pub measures: Measures,
    /// Where they are numbered: what it held at their ends, over their number.
    pub slope: Option<Slope>,
}

/// Figures of many phases. Phases that overlap count the growth of what all share several times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Measures {
    /// What it grew by in each: RSS, or what was in use on a GPU.
    pub delta: Option<Spread>,
    /// What it was at the end of each.
    pub end: Option<Spread>,
    /// The highest within any, and when.
    #[serde(flatten, with = "keys::PeakAtKeys")]
    pub peak: Option<PeakAt>,
}

/// Figures of RSS over many phases. Phases that overlap count the growth of the tree several times.
#[derive(Serialize, JsonSchema)]
struct OfRss {
    /// What it grew by in each.
    delta: Option<Spread>,
    /// What it was at the end of each.
    end: Option<Spread>,
    #[serde(flatten, with = "keys::PeakRssKeys")]
    peak: Option<PeakAt>,
}

/// Figures of RSS: the key of the peak says so.
fn of_rss<S: Serializer>(
    measures: &(impl Copy + Into<Option<Measures>>),
    to: S,
) -> Result<S::Ok, S::Error> {
    let measures: Option<Measures> = (*measures).into();
    let of_rss = measures.map(|Measures { delta, end, peak }| OfRss { delta, end, peak });
    of_rss.serialize(to)
}

/// Amounts of which each is one of many.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Spread {
    /// How many are known.
    pub known_count: usize,
    /// Their sum in bytes.
    #[serde(rename = "sum_bytes")]
    pub sum: Bytes,
    /// Their mean in bytes.
    #[serde(serialize_with = "whole")]
    #[schemars(with = "Option<i64>")]
    pub mean_bytes: f64,
    /// The smallest that 95 % of them do not exceed (nearest rank).
    #[serde(rename = "p95_bytes")]
    pub p95: Bytes,
}

/// Phases that carry numbers, as steps do.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Steps {
    /// The lowest number.
    pub first: i64,
    /// The highest number.
    pub last: i64,
    /// How many different numbers.
    pub count: usize,
    /// What all held at their ends, every page once, over their number.
    pub tree: Option<Slope>,
    /// RSS of their own process at their ends, over their number.
    pub own: Option<Slope>,
    /// Of several processes that pass them, the one that surely grows most.
    pub grower: Option<StepGrower>,
    /// What was in use on all GPUs at their ends, over their number.
    pub gpu: Option<Slope>,
}

/// A process that grows from step to step.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepGrower {
    /// The process that grows.
    #[serde(flatten)]
    pub who: Who,
    /// Its RSS at the ends of steps, over their number.
    pub slope: Slope,
}

impl PhaseLine {
    /// How much it matters: what its process, the tree or GPUs grew or shrank by, the largest.
    pub fn weight(&self) -> i64 {
        let size = |bytes: Option<Bytes>| bytes.map_or(0, |bytes| bytes.0.saturating_abs());
        match self {
            Self::One(phase) => phase.weight(),
            Self::Many(many) => {
                let sum = |measures: Measures| measures.delta.map(|delta| delta.sum);
                let host = many.own.map_or(many.tree_delta_bytes, sum);
                size(host).max(size(many.gpu_delta_bytes))
            }
        }
    }
}
