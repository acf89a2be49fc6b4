//! A trace summed up, also one that can't be read to its end.

use super::input::unpacked;
use super::json::To;
use super::memory::DeviceMemory;
use super::names::NameTotals;
use super::rank::{RankSource, of_name};
use super::reading::Reading;
use crate::model::{Bytes, DurationNs, WallNs};
use serde::Serialize;
use serde::de::DeserializeSeed;
use serde_json::Deserializer;
use serde_json::error::Category;
use std::fs::File;
use std::io;
use std::path::Path;

/// A trace without a base whose times are above this counts from 1970 (2001, in ns): torch before 2.3.
const SINCE_1970: i64 = 1_000_000_000_000_000_000;

/// What a trace comes to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TraceSummary {
    /// Its file.
    pub file: String,
    /// Whether it has a list of events.
    pub is_trace: bool,
    /// Why it could not be read to its end; what was read until then is told.
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
    /// The devices that something ran on; all that the trace names where nothing did.
    pub devices: Vec<TraceGpu>,
    /// Operators on the CPU.
    pub operators: NameTotals,
    /// Kernels and copies on devices. Those of several streams can run at once.
    pub kernels: NameTotals,
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
    /// Its memory.
    pub total_bytes: Option<Bytes>,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TraceStep {
    /// Its number.
    pub number: i64,
    /// When it began.
    pub begin_wall_ns: Option<WallNs>,
    /// How long it took.
    pub duration_ns: DurationNs,
}

/// Reads a trace, and tells the `top` names of each kind.
///
/// # Errors
/// When the file can't be opened. One that can't be read to its end is told in the summary.
pub fn read(path: &Path, top: usize) -> io::Result<TraceSummary> {
    let input = unpacked(File::open(path)?)?;
    let mut reading = Reading::default();
    let mut parser = Deserializer::from_reader(input);
    let read = To(&mut reading).deserialize(&mut parser);
    let read = read.and_then(|()| parser.end());
    let name = path.file_name().map(|name| name.to_string_lossy());
    let mut summary = summed_up(reading, top);
    summary.file = path.display().to_string();
    summary.problem = read.err().map(|error| in_words(&error));
    if summary.rank.is_none() {
        summary.rank = name.and_then(|name| of_name(&name));
        summary.rank_from = summary.rank.map(|_| RankSource::FileName);
    }
    Ok(summary)
}

fn in_words(error: &serde_json::Error) -> String {
    let is_cut = error.io_error_kind() == Some(io::ErrorKind::UnexpectedEof);
    match error.classify() {
        Category::Eof => "it is cut off".to_owned(),
        Category::Io if is_cut => "it is cut off".to_owned(),
        Category::Io => error.to_string(),
        Category::Syntax | Category::Data => format!("it is no JSON from there on: {error}"),
    }
}

fn summed_up(reading: Reading, top: usize) -> TraceSummary {
    let window = reading.window;
    let base_ns = reading.base_ns.or_else(|| {
        let is_absolute = window.is_some_and(|(begin, _)| begin > SINCE_1970);
        is_absolute.then_some(0)
    });
    let wall = |ns: i64| Some(WallNs(base_ns?.saturating_add(ns)));
    let rank = reading.distributed.rank;
    let rank = rank.and_then(|rank| u32::try_from(rank).ok());
    let backend = reading.distributed.backend.0;
    let used = &reading.used_gpus;
    let named = reading.gpus.iter();
    let mut devices: Vec<TraceGpu> = named
        .filter(|(number, _)| used.is_empty() || used.contains(number))
        .map(|(&number, gpu)| TraceGpu {
            number,
            name: Some(gpu.name.0.clone()).filter(|name| !name.is_empty()),
            total_bytes: gpu.total_bytes.map(Bytes),
        })
        .collect();
    let nameless = used
        .iter()
        .filter(|number| !reading.gpus.contains_key(number));
    devices.extend(nameless.map(|&number| TraceGpu {
        number,
        name: None,
        total_bytes: None,
    }));
    let own = reading.spans.own(reading.operators.len());
    let steps = reading.steps.iter().map(|step| TraceStep {
        number: step.number,
        begin_wall_ns: wall(step.begin),
        duration_ns: DurationNs(step.ns),
    });
    TraceSummary {
        file: String::new(),
        is_trace: reading.has_events,
        problem: None,
        rank,
        rank_from: rank.map(|_| RankSource::Trace),
        world_size: reading.distributed.world_size,
        backend: Some(backend).filter(|backend| !backend.is_empty()),
        begin_wall_ns: window.and_then(|(begin, _)| wall(begin)),
        end_wall_ns: window.and_then(|(_, end)| wall(end)),
        duration_ns: window.map(|(begin, end)| DurationNs(end.saturating_sub(begin))),
        event_count: reading.event_count,
        devices,
        operators: reading.operators.told(top, own.as_deref()),
        kernels: reading.on_device.told(top, None),
        memory: reading.memory.told(wall),
        steps: steps.collect(),
        has_more_steps: reading.has_more_steps,
    }
}
