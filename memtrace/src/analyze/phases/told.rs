//! What marks say of themselves: their attributes, and among these what the program measured.
//!
//! A row of `mem` can be older than a mark by as much as an interval. So what a process measured
//! of itself at a mark counts as a row of that time, wherever memory is told.

use super::PhaseForm;
use super::pair::Span;
use crate::analyze::peak::Bound;
use crate::analyze::process::Process;
use crate::model::{BootNs, Bytes};
use crate::sweep::{Observe, Sweep};
use serde_json::{Map, Value};
use std::sync::Arc;

/// RSS at a mark of the Python package, and what of it is anonymous.
const RSS: &str = "rss_bytes";
const ANON: &str = "rss_anon_bytes";

/// What a process held at an instant, as it measured itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::analyze) struct Telling {
    pub(in crate::analyze) boot_ns: BootNs,
    pub(in crate::analyze) process: usize,
    pub(in crate::analyze) rss: Bytes,
    /// Anonymous memory, where it told.
    pub(in crate::analyze) anon: Option<Bytes>,
}

/// Tellings that wait for their time.
#[derive(Debug)]
pub(in crate::analyze) struct Tellings {
    waiting: std::iter::Peekable<std::vec::IntoIter<Telling>>,
}

impl Tellings {
    /// Of tellings in the order of time.
    pub(in crate::analyze) fn new(tellings: Vec<Telling>) -> Self {
        Self {
            waiting: tellings.into_iter().peekable(),
        }
    }

    /// Tells those before a row: one of the same time is no newer.
    pub(in crate::analyze) fn tell<O: Observe>(&mut self, sweep: &mut Sweep<O>, row: BootNs) {
        let until = sweep.time_of(row);
        while let Some(told) = self.waiting.next_if(|telling| telling.boot_ns < until) {
            sweep.measured(told.boot_ns, told.process, told.rss, told.anon);
        }
    }
}

/// All that processes measured of themselves at their marks, in the order of time.
pub(super) fn tellings(spans: &[Span], processes: &[Process]) -> Vec<Telling> {
    let told = spans.iter().flat_map(|span| {
        let of_process = span
            .process
            .and_then(|place| Some((place, processes.get(place)?)));
        of_process.into_iter().flat_map(|(place, process)| {
            let told = measured(span).into_iter().flatten();
            told.filter_map(move |(boot_ns, rss, anon)| {
                let rss = held(process, rss)?;
                Some(Telling {
                    boot_ns,
                    process: place,
                    rss,
                    anon: anon.map(|anon| anon.min(rss)),
                })
            })
        })
    });
    let mut told: Vec<Telling> = told.collect();
    told.sort_by_key(|telling| telling.boot_ns);
    told
}

/// What it told, as far as the kernel's own mark of its peak lets that be. An attribute of a
/// program can have the name and mean something else.
pub(super) fn held(process: &Process, rss: Bytes) -> Option<Bytes> {
    let peak = process.peak;
    match (peak.rss_bytes, peak.bound) {
        (None, _) | (_, Bound::AtLeast) => Some(rss),
        // The kernel's cheap counters are off by some pages for each CPU.
        (Some(Bytes(peak)), _) => {
            (rss.0 <= peak.saturating_add(peak / 8)).then(|| Bytes(rss.0.min(peak)))
        }
    }
}

/// The attributes of both marks; those of the end win.
pub(super) fn attributes(span: &Span) -> Map<String, Value> {
    let texts = [&span.begin_attributes, &span.end_attributes];
    let mut merged = Map::new();
    for text in texts.into_iter().flatten() {
        if let Ok(Value::Object(attributes)) = serde_json::from_str(text) {
            merged.extend(attributes);
        }
    }
    merged
}

/// What its process held at its begin and at its end, when it was that: the time, RSS, and
/// anonymous memory.
fn measured(span: &Span) -> [Option<(BootNs, Bytes, Option<Bytes>)>; 2] {
    let [begin, end] = [&span.begin_attributes, &span.end_attributes].map(read);
    let at = |time: Option<BootNs>, attributes: &Value| {
        let rss = bytes(attributes, RSS)?;
        let anon = bytes(attributes, ANON).filter(|anon| *anon <= rss);
        Some((time?, rss, anon))
    };
    // A moment has one mark, and so has an end without a begin.
    let begin_mark = match span.form {
        PhaseForm::Moment => None,
        PhaseForm::Marked | PhaseForm::Title => span.begin,
    };
    let section = |time: Option<BootNs>, name: &str| Some((time?, bytes(&end, name)?, None));
    let Some(begin_mark) = begin_mark else {
        return [None, at(Some(span.end), &begin)];
    };
    [
        at(Some(begin_mark), &begin).or_else(|| section(Some(begin_mark), "begin_bytes")),
        at(Some(span.end), &end).or_else(|| section(Some(span.end), "end_bytes")),
    ]
}

/// The kernel's own high-water mark of the section (`memtrace.peak`).
pub(super) fn exact_peak(span: &Span) -> Option<Bytes> {
    let end = read(&span.end_attributes);
    end.get("peak_source")?.as_str()?;
    bytes(&end, "peak_bytes")
}

fn read(text: &Option<Arc<str>>) -> Value {
    // Most marks measure nothing, and there can be hundreds of thousands.
    let text = text.as_deref().filter(|text| text.contains("_bytes"));
    serde_json::from_str(text.unwrap_or_default()).unwrap_or_default()
}

fn bytes(attributes: &Value, name: &str) -> Option<Bytes> {
    let bytes = attributes.get(name)?.as_i64()?;
    (bytes > 0).then_some(Bytes(bytes))
}
