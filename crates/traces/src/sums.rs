//! Sums over the events of a trace.

use super::activity::Activity;
use super::document::{Events, GPUS_MAX};
use super::event::{Category, Event};
use super::kernels::{KernelKind, KindTotals};
use super::memory::Devices;
use super::names::Names;
use super::self_time::{Named, Sorted, Spans};
use std::collections::BTreeSet;

/// So many steps of a trace are kept.
const STEPS_MAX: usize = 1_000;

/// What the profiler calls the spans between two calls of its `step()`.
const STEP: &str = "ProfilerStep#";
/// What it calls a change of memory.
const MEMORY: &str = "[memory]";

/// The sums so far. Times are in ns after the base.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// Those that something ran on.
    pub(super) used_gpus: BTreeSet<i64>,
    pub(super) event_count: u64,
    /// From the first begin to the last end.
    pub(super) window: Option<(i64, i64)>,
    pub(super) operators: Names,
    pub(super) on_device: Names,
    /// Of calls of the device's runtime, and of steps.
    pub(super) calls: Names,
    /// Of ranges that the program named.
    pub(super) ranges: Names,
    pub(super) spans: Spans,
    pub(super) kinds: KindTotals,
    pub(super) activity: Activity,
    pub(super) graph_launch_count: u64,
    pub(super) memory: Devices,
    pub(super) steps: Vec<Step>,
    pub(super) has_more_steps: bool,
}

/// The names of operators, calls and ranges by their places.
pub(super) struct NamesByPlace<'n> {
    pub(super) operators: Vec<&'n str>,
    pub(super) calls: Vec<&'n str>,
    pub(super) ranges: Vec<&'n str>,
}

impl NamesByPlace<'_> {
    pub(super) fn name(&self, named: Named) -> String {
        let (names, place) = match named {
            Named::Operator(place) => (&self.operators, place),
            Named::Call(place) => (&self.calls, place),
            Named::Range(place) => (&self.ranges, place),
        };
        names[place as usize].to_owned()
    }

    /// What took most time on the CPU in a stretch of time: its name if anything was traced then, and how
    /// long; `None` where that is not known.
    pub(super) fn most_in(
        &self,
        spans: Option<&Sorted>,
        within: (i64, i64),
    ) -> Option<(Option<String>, i64)> {
        let (named, ns) = spans?.most_in(within)?;
        Some((named.map(|named| self.name(named)), ns))
    }
}

/// A step of the program's own count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) number: i64,
    pub(super) begin: i64,
    pub(super) ns: i64,
}

impl Events for Sums {
    fn take(&mut self, event: &Event) {
        let Some(begin) = event.begin_ns() else {
            return;
        };
        if event.is_span() {
            let ns = event.length_ns();
            self.note(begin, begin.saturating_add(ns));
            match event.category {
                Category::Operator => {
                    let name = Named::Operator(self.operators.take(&event.name.0, ns));
                    self.spans.take(event.thread(), name, begin, ns);
                }
                Category::OnDevice => {
                    self.on_device.take(&event.name.0, ns);
                    let kind = KernelKind::of(&event.name.0);
                    self.kinds.take(kind, ns);
                    self.activity.take(event.device(), begin, ns, kind);
                    let number = event.args.device_id.map(|number| number as i64);
                    let has_room = self.used_gpus.len() < GPUS_MAX;
                    self.used_gpus.extend(number.filter(|_| has_room));
                }
                Category::Call => {
                    let is_graph = event.name.0.ends_with("GraphLaunch");
                    self.graph_launch_count += u64::from(is_graph);
                    self.take_call(event, begin, ns);
                }
                Category::Annotation if event.name.0.starts_with(STEP) => {
                    self.take_call(event, begin, ns);
                    self.take_step(&event.name.0, begin, ns);
                }
                Category::Annotation => {
                    let name = Named::Range(self.ranges.take(&event.name.0, ns));
                    self.spans.take(event.thread(), name, begin, ns);
                }
                Category::Other => {}
            }
        } else if event.is_moment() {
            self.note(begin, begin);
            if event.name.0 == MEMORY {
                let thread = self.spans.thread(event.thread());
                self.memory.take(begin, thread, &event.args);
            }
        }
    }
}

impl Sums {
    fn note(&mut self, begin: i64, end: i64) {
        self.event_count += 1;
        let (first, last) = self.window.unwrap_or((begin, end));
        self.window = Some((first.min(begin), last.max(end)));
    }

    fn take_call(&mut self, event: &Event, begin: i64, ns: i64) {
        let name = Named::Call(self.calls.take(&event.name.0, ns));
        self.spans.take(event.thread(), name, begin, ns);
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
