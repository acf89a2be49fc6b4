//! A trace while it is read: what its head says, and sums over its events.

use super::event::{Category, Event, Nothing};
use super::json::{Take, Text, To};
use super::memory::Devices;
use super::names::Names;
use super::self_time::Spans;
use serde::de::{MapAccess, SeqAccess};
use std::collections::{BTreeMap, BTreeSet};

/// So many steps of a trace are kept.
const STEPS_MAX: usize = 1_000;
/// So many devices of a trace are kept.
const GPUS_MAX: usize = 256;

/// What the profiler calls the spans between two calls of its `step()`.
const STEP: &str = "ProfilerStep#";
/// What it calls a change of memory.
const MEMORY: &str = "[memory]";

/// What is known so far. Times are in ns after the base.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Whether there is a list of events at all.
    pub(super) has_events: bool,
    /// `baseTimeNanoseconds`: what times are counted from, on the wall clock.
    pub(super) base_ns: Option<i64>,
    pub(super) distributed: Distributed,
    /// By number.
    pub(super) gpus: BTreeMap<i64, Gpu>,
    /// Those that something ran on.
    pub(super) used_gpus: BTreeSet<i64>,
    pub(super) event_count: u64,
    /// From the first begin to the last end.
    pub(super) window: Option<(i64, i64)>,
    pub(super) operators: Names,
    pub(super) on_device: Names,
    pub(super) spans: Spans,
    pub(super) memory: Devices,
    pub(super) steps: Vec<Step>,
    pub(super) has_more_steps: bool,
    event: Event,
    key: Text,
}

/// A step of the program's own count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) number: i64,
    pub(super) begin: i64,
    pub(super) ns: i64,
}

/// What the trace says of the job that it is a part of.
#[derive(Debug, Default)]
pub(super) struct Distributed {
    pub(super) rank: Option<i64>,
    pub(super) world_size: Option<i64>,
    pub(super) backend: Text,
    key: Text,
}

/// What the trace says of a device.
#[derive(Debug, Default)]
pub(super) struct Gpu {
    pub(super) name: Text,
    pub(super) total_bytes: Option<i64>,
}

impl Take for Reading {
    /// A trace may be its list of events alone.
    fn list<'de, A: SeqAccess<'de>>(&mut self, mut events: A) -> Result<(), A::Error> {
        self.has_events = true;
        let mut event = std::mem::take(&mut self.event);
        loop {
            event.clear();
            if events.next_element_seed(To(&mut event))?.is_none() {
                return Ok(());
            }
            self.take(&event);
        }
    }

    fn object<'de, A: MapAccess<'de>>(&mut self, mut head: A) -> Result<(), A::Error> {
        loop {
            self.key.0.clear();
            if head.next_key_seed(To(&mut self.key))?.is_none() {
                return Ok(());
            }
            match &*self.key.0 {
                "baseTimeNanoseconds" => head.next_value_seed(To(&mut self.base_ns))?,
                "distributedInfo" => head.next_value_seed(To(&mut self.distributed))?,
                "deviceProperties" => head.next_value_seed(To(&mut Gpus(&mut self.gpus)))?,
                "traceEvents" => head.next_value_seed(To(&mut Events(self)))?,
                _ => head.next_value_seed(To(&mut Nothing))?,
            }
        }
    }
}

impl Reading {
    fn take(&mut self, event: &Event) {
        let Some(begin) = event.ts.map(to_ns) else {
            return;
        };
        if event.is_span() {
            let ns = event.dur.map_or(0, to_ns).max(0);
            self.note(begin, begin.saturating_add(ns));
            match event.category {
                Category::Operator => {
                    let name = self.operators.take(&event.name.0, ns);
                    let number = |number: Option<f64>| number.unwrap_or(-1.0) as i64;
                    let thread = (number(event.pid), number(event.tid));
                    self.spans.take(thread, name, begin, ns);
                }
                Category::OnDevice => {
                    self.on_device.take(&event.name.0, ns);
                    let number = event.args.device_id.map(|number| number as i64);
                    let has_room = self.used_gpus.len() < GPUS_MAX;
                    self.used_gpus.extend(number.filter(|_| has_room));
                }
                Category::Annotation => self.take_step(&event.name.0, begin, ns),
                Category::Other => {}
            }
        } else if event.is_moment() {
            self.note(begin, begin);
            if event.name.0 == MEMORY {
                self.memory.take(begin, &event.args);
            }
        }
    }

    fn note(&mut self, begin: i64, end: i64) {
        self.event_count += 1;
        let (first, last) = self.window.unwrap_or((begin, end));
        self.window = Some((first.min(begin), last.max(end)));
    }

    fn take_step(&mut self, name: &str, begin: i64, ns: i64) {
        let number = name.strip_prefix(STEP).and_then(|text| text.parse().ok());
        let Some(number) = number else { return };
        self.has_more_steps |= self.steps.len() == STEPS_MAX;
        if !self.has_more_steps {
            self.steps.push(Step { number, begin, ns });
        }
    }
}

/// Of µs.
fn to_ns(us: f64) -> i64 {
    (us * 1_000.0).round() as i64
}

/// The list of events.
struct Events<'a>(&'a mut Reading);

impl Take for Events<'_> {
    fn list<'de, A: SeqAccess<'de>>(&mut self, events: A) -> Result<(), A::Error> {
        self.0.list(events)
    }
}

impl Take for Distributed {
    fn object<'de, A: MapAccess<'de>>(&mut self, mut object: A) -> Result<(), A::Error> {
        loop {
            self.key.0.clear();
            if object.next_key_seed(To(&mut self.key))?.is_none() {
                return Ok(());
            }
            match &*self.key.0 {
                "rank" => object.next_value_seed(To(&mut self.rank))?,
                "world_size" => object.next_value_seed(To(&mut self.world_size))?,
                "backend" => object.next_value_seed(To(&mut self.backend))?,
                _ => object.next_value_seed(To(&mut Nothing))?,
            }
        }
    }
}

/// The list of devices.
struct Gpus<'a>(&'a mut BTreeMap<i64, Gpu>);

impl Take for Gpus<'_> {
    fn list<'de, A: SeqAccess<'de>>(&mut self, mut list: A) -> Result<(), A::Error> {
        loop {
            let mut gpu = NumberedGpu::default();
            if list.next_element_seed(To(&mut gpu))?.is_none() {
                return Ok(());
            }
            if let Some(number) = gpu.number.filter(|_| self.0.len() < GPUS_MAX) {
                self.0.insert(number, gpu.gpu);
            }
        }
    }
}

#[derive(Debug, Default)]
struct NumberedGpu {
    number: Option<i64>,
    gpu: Gpu,
    key: Text,
}

impl Take for NumberedGpu {
    fn object<'de, A: MapAccess<'de>>(&mut self, mut object: A) -> Result<(), A::Error> {
        loop {
            self.key.0.clear();
            if object.next_key_seed(To(&mut self.key))?.is_none() {
                return Ok(());
            }
            match &*self.key.0 {
                "id" => object.next_value_seed(To(&mut self.number))?,
                "name" => object.next_value_seed(To(&mut self.gpu.name))?,
                "totalGlobalMem" => object.next_value_seed(To(&mut self.gpu.total_bytes))?,
                _ => object.next_value_seed(To(&mut Nothing))?,
            }
        }
    }
}
