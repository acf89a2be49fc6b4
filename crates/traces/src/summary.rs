//! A trace summed up, also one that can't be read to its end.

use super::activity::DeviceActivity;
use super::document::{self, Head};
use super::hints::{Hint, hints};
use super::kernels::KindTotal;
use super::memory::DeviceMemory;
use super::names::NameTotals;
use super::rank::{RankSource, of_name};
use super::sums::{NamesByPlace, Sums};
use memtrace_model::{Bytes, DurationNs, WallNs};
use serde::Serialize;
use std::path::Path;

/// What a trace comes to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TraceSummary {
    /// The file that it was read from.
    pub file: String,
    /// Whether it has a list of events.
    pub is_trace: bool,
    /// Why it could not be read, or not to its end; what was read until then is reported.
    pub problem: Option<String>,
    /// Which process of the job wrote it.
    pub rank: Option<u32>,
    /// Where that is known from.
    pub rank_from: Option<RankSource>,
    /// How many processes the job has.
    pub world_size: Option<i64>,
    /// How they talk: `nccl`.
    pub backend: Option<String>,
    /// The begin of its first event; `None` where the trace does not tell what its times count from.
    pub begin_wall_ns: Option<WallNs>,
    /// The end of its last event.
    pub end_wall_ns: Option<WallNs>,
    /// From the one to the other.
    pub duration_ns: Option<DurationNs>,
    /// How many events have a time.
    pub event_count: u64,
    /// The devices that something ran on; all that the trace lists where it names none of these.
    pub devices: Vec<TraceGpu>,
    /// Whether something ran on them.
    #[serde(skip)]
    pub has_used_devices: bool,
    /// Operators on the CPU.
    pub operators: NameTotals,
    /// Kernels and copies on devices. Those of several streams can run at once.
    pub kernels: NameTotals,
    /// The same by what they do.
    pub kernel_kinds: Vec<KindTotal>,
    /// When something ran on each device; empty where nothing did, or too much to keep.
    pub activity: Vec<DeviceActivity>,
    /// What probably keeps devices waiting.
    pub hints: Vec<Hint>,
    /// How often a CUDA graph was launched.
    pub graph_launch_count: u64,
    /// Memory of each device.
    pub memory: Vec<DeviceMemory>,
    /// The program's own steps (`ProfilerStep#N`), in the order of the file.
    pub steps: Vec<TraceStep>,
    /// Whether there are more steps than these.
    pub has_more_steps: bool,
}

/// A device that the trace names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceGpu {
    /// Its number in the process.
    pub number: i64,
    /// The product's name.
    pub name: Option<String>,
    pub total_bytes: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TraceStep {
    pub number: i64,
    /// When it began.
    pub begin_wall_ns: Option<WallNs>,
    /// How long it took.
    pub duration_ns: DurationNs,
}

/// Reads a trace, and tells the `top` names of each kind. Why it can't be read, or not to its end, is reported
/// in the summary.
pub fn read(path: &Path, top: usize) -> TraceSummary {
    let mut sums = Sums::default();
    let mut summary = match document::read(path, &mut sums) {
        Ok((head, problem)) => TraceSummary {
            problem,
            ..summed_up(head, sums, top)
        },
        Err(error) => TraceSummary {
            problem: Some(error.to_string()),
            ..TraceSummary::default()
        },
    };
    let name = path.file_name().map(|name| name.to_string_lossy());
    summary.file = path.display().to_string();
    if summary.rank.is_none() {
        summary.rank = name.and_then(|name| of_name(&name));
        summary.rank_from = summary.rank.map(|_| RankSource::FileName);
    }
    summary
}

fn summed_up(head: Head, mut sums: Sums, top: usize) -> TraceSummary {
    let window = sums.window;
    let base_ns = head.base_ns(window);
    let wall = |ns: i64| Some(WallNs(base_ns?.saturating_add(ns)));
    let rank = head.distributed.rank;
    let rank = rank.and_then(|rank| u32::try_from(rank).ok());
    let backend = head.distributed.backend.0;
    let used = std::mem::take(&mut sums.used_gpus);
    let used = &used;
    let named = head.gpus.iter();
    let mut devices: Vec<TraceGpu> = named
        .filter(|(number, _)| used.is_empty() || used.contains(number))
        .map(|(&number, gpu)| TraceGpu {
            number,
            name: Some(gpu.name.0.clone()).filter(|name| !name.is_empty()),
            total_bytes: gpu.total_bytes.map(Bytes),
        })
        .collect();
    let nameless = used.iter().filter(|number| !head.gpus.contains_key(number));
    devices.extend(nameless.map(|&number| TraceGpu {
        number,
        name: None,
        total_bytes: None,
    }));
    let begin = window.map_or(0, |(begin, _)| begin);
    let names = NamesByPlace {
        operators: sums.operators.by_place(),
        calls: sums.calls.by_place(),
        ranges: sums.ranges.by_place(),
    };
    let spans = sums.spans.sorted();
    let spans = spans.as_ref();
    let cpu = |within| names.most_in(spans, within);
    let activity = sums.activity.reported(begin, cpu, wall);
    let name = |named| names.name(named);
    let memory = sums.memory.reported(spans, top, name, wall);
    let own = spans.and_then(|spans| spans.own(names.operators.len()));
    let kernel_kinds = sums.kinds.reported();
    let hints = hints(&activity, &kernel_kinds, sums.graph_launch_count);
    let steps = sums.steps.iter().map(|step| TraceStep {
        number: step.number,
        begin_wall_ns: wall(step.begin),
        duration_ns: DurationNs(step.ns),
    });
    TraceSummary {
        file: String::new(),
        is_trace: head.has_events,
        problem: None,
        rank,
        rank_from: rank.map(|_| RankSource::Trace),
        world_size: head.distributed.world_size,
        backend: Some(backend).filter(|backend| !backend.is_empty()),
        begin_wall_ns: window.and_then(|(begin, _)| wall(begin)),
        end_wall_ns: window.and_then(|(_, end)| wall(end)),
        duration_ns: window.map(|(begin, end)| DurationNs(end.saturating_sub(begin))),
        event_count: sums.event_count,
        devices,
        has_used_devices: !used.is_empty(),
        operators: sums.operators.reported(top, own.as_deref()),
        kernels: sums.on_device.reported(top, None),
        kernel_kinds,
        activity,
        hints,
        graph_launch_count: sums.graph_launch_count,
        memory,
        steps: steps.collect(),
        has_more_steps: sums.has_more_steps,
    }
}
