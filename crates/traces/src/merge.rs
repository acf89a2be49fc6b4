//! Traces of torch's profiler beside a recording, in one trace for Perfetto: operators, named ranges and
//! kernels on the clock of the recording, those of a process under its track.

use super::document::{self, Events, Head};
use super::event::{Category, Event};
use memtrace_model::clocks::{Found, TIME_ERROR_MAX};
use memtrace_model::{BootNs, DurationNs, Tgid, WallNs};
use memtrace_perfetto::{Nested, Slice, Trace, Track};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::path::Path;

/// Of a trace so many slices are merged, and the others left out: events come in no order, so they
/// are kept until the end, at 32 bytes each.
const SLICES_MAX: usize = 4 << 20;
/// So many names are kept; of slices with other names the name is left out.
const NAMES_MAX: usize = 50_000;
/// So many threads and streams are distinguished, and what others did is left out.
const LANES_MAX: usize = 65_536;

/// What the recording says, which the traces are put beside.
pub struct Place<'a> {
    /// Its begin and its end.
    pub span: (BootNs, BootNs),
    /// When a wall time was.
    pub find: &'a dyn Fn(WallNs) -> Option<Found>,
    /// The process that had an id at a time, or why that is not known.
    pub process: &'a dyn Fn(i64, BootNs) -> Result<(Tgid, Track), &'static str>,
}

/// What became of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Why nothing of it is there; `None` where something is.
    pub refused: Option<&'static str>,
    /// How many slices were written.
    pub slice_count: usize,
    /// How many were left out.
    pub left_out_count: u64,
    /// Why it is not under its process; `None` where it is.
    pub apart: Option<&'static str>,
    /// Why it could not be read to its end.
    pub problem: Option<String>,
}

/// Puts traces beside a recording.
pub struct Merger<'p> {
    place: Place<'p>,
    /// A thread is declared once, also where several traces are of it.
    threads: HashMap<(Tgid, i64), Track>,
}

impl<'p> Merger<'p> {
    /// Merges what is added at `place`.
    pub fn new(place: Place<'p>) -> Self {
        Self {
            place,
            threads: HashMap::new(),
        }
    }

    /// Reads a trace and writes what it has.
    ///
    /// # Errors
    /// When the file can't be opened.
    pub fn merge(&mut self, trace: &mut Trace<'_>, path: &Path) -> io::Result<Merged> {
        let mut slices = Slices::default();
        let (head, problem) = document::read(path, &mut slices)?;
        let mut merged = Merged {
            problem,
            left_out_count: slices.left_out_count,
            ..Merged::default()
        };
        match self.zero_and_begin(&head, slices.window) {
            Err(why) => merged.refused = Some(why),
            Ok((zero, begin)) => {
                let owner = slices.owner().ok_or("it names no process");
                let owner = owner.and_then(|pid| (self.place.process)(pid, begin));
                merged.apart = owner.err();
                merged.slice_count = slices.list.len();
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                self.write(trace, slices, zero, (owner.ok(), &name));
            }
        }
        Ok(merged)
    }

    /// When the times of a trace are zero, and when it begins; why it has no place where it has none.
    fn zero_and_begin(
        &self,
        head: &Head,
        window: Option<(i64, i64)>,
    ) -> Result<(BootNs, BootNs), &'static str> {
        if !head.has_events {
            return Err("it is not a trace of a profiler");
        }
        let (first, last) = window.ok_or("it has no operator, range or kernel")?;
        let unknown = "it does not say what its times count from";
        let base = head.base_ns(window).ok_or(unknown)?;
        let find = |ns: i64| (self.place.find)(WallNs(base.saturating_add(ns)));
        let (begin, end) = find(first)
            .zip(find(last))
            .ok_or("the recording has no clock")?;
        // The profiler reads the wall clock once: where that was set, the times between are not known.
        let reported = last.saturating_sub(first);
        let moved = end.at.0.saturating_sub(begin.at.0).saturating_sub(reported);
        let moved = DurationNs(moved.saturating_abs());
        if begin.error.max(end.error).max(moved) > TIME_ERROR_MAX {
            return Err("the wall clock was set, so that it is uncertain when that was");
        }
        let (start, stop) = self.place.span;
        match end.at < start || begin.at > stop {
            true => Err("it is from another time"),
            false => Ok((BootNs(begin.at.0.saturating_sub(first)), begin.at)),
        }
    }

    fn write(
        &mut self,
        trace: &mut Trace<'_>,
        mut slices: Slices,
        zero: BootNs,
        (owner, file): (Option<(Tgid, Track)>, &str),
    ) {
        let parent = match owner {
            Some((_, track)) => track,
            None => trace.track(None, file),
        };
        let key = |one: &Kept| (one.lane, one.begin, Reverse(one.ns));
        slices.list.sort_unstable_by_key(key);
        for of_lane in slices.list.chunk_by(|a, b| a.lane == b.lane) {
            let Some(lane) = of_lane
                .first()
                .and_then(|one| slices.lanes.get(one.lane as usize))
            else {
                continue;
            };
            let name = lane.name();
            let mut nested = match (owner, lane.device) {
                (Some((tgid, _)), None) => {
                    let thread = self.threads.entry((tgid, lane.number));
                    let thread = *thread.or_insert_with(|| trace.thread(tgid, lane.number, &name));
                    Nested::on(thread, Some(parent), name)
                }
                _ => Nested::new(Some(parent), name),
            };
            for one in of_lane {
                let begin = BootNs(zero.0.saturating_add(one.begin));
                let name = slices.names.get(one.name as usize);
                let slice = Slice {
                    category: one.category.word(),
                    name: name.map_or("[name left out]", |name| name),
                    begin,
                    end: Some(BootNs(begin.0.saturating_add(one.ns))),
                };
                nested.put(trace, slice, []);
            }
            nested.finish(trace);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    begin: i64,
    ns: i64,
    lane: u32,
    name: u32,
    category: Category,
}

/// A thread, or a stream of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lane {
    /// `None` for a thread.
    device: Option<i64>,
    pid: i64,
    number: i64,
}

impl Lane {
    fn name(&self) -> String {
        match self.device {
            Some(device) => format!("device {device} stream {}", self.number),
            None => format!("thread {}", self.number),
        }
    }
}

/// The slices of a trace, in no order. Times are in ns after its base.
#[derive(Debug, Default)]
struct Slices {
    list: Vec<Kept>,
    lanes: Vec<Lane>,
    lane_places: HashMap<Lane, u32>,
    names: Vec<Box<str>>,
    name_places: HashMap<Box<str>, u32>,
    window: Option<(i64, i64)>,
    left_out_count: u64,
}

impl Events for Slices {
    fn take(&mut self, event: &Event) {
        let Some(begin) = event.begin_ns().filter(|_| event.is_span()) else {
            return;
        };
        if matches!(event.category, Category::Other | Category::Call) {
            return;
        }
        let (pid, number) = event.thread();
        let is_on_device = event.category == Category::OnDevice;
        let lane = Lane {
            device: is_on_device.then(|| event.device()),
            pid: if is_on_device { -1 } else { pid },
            number,
        };
        let next = self.lanes.len() as u32;
        let is_full = self.list.len() == SLICES_MAX
            || self.lanes.len() == LANES_MAX && !self.lane_places.contains_key(&lane);
        if is_full {
            self.left_out_count += 1;
            return;
        }
        let place = *self.lane_places.entry(lane).or_insert(next);
        if place == next {
            self.lanes.push(lane);
        }
        let ns = event.length_ns();
        let (first, last) = self.window.unwrap_or((begin, begin));
        self.window = Some((first.min(begin), last.max(begin.saturating_add(ns))));
        let name = self.name(&event.name.0);
        self.list.push(Kept {
            begin,
            ns,
            lane: place,
            name,
            category: event.category,
        });
    }
}

impl Slices {
    fn name(&mut self, name: &str) -> u32 {
        if let Some(&place) = self.name_places.get(name) {
            return place;
        }
        let place = self.names.len() as u32;
        if self.names.len() == NAMES_MAX {
            return u32::MAX;
        }
        self.names.push(name.into());
        self.name_places.insert(name.into(), place);
        place
    }

    /// The process whose threads did most: a trace is of one.
    fn owner(&self) -> Option<i64> {
        let mut counts: HashMap<i64, usize> = HashMap::new();
        for one in &self.list {
            let lane = &self.lanes[one.lane as usize];
            if lane.device.is_none() {
                *counts.entry(lane.pid).or_default() += 1;
            }
        }
        let most = counts.into_iter().max_by_key(|&(pid, count)| (count, pid));
        most.map(|(pid, _)| pid)
    }
}

#[cfg(test)]
mod tests;
