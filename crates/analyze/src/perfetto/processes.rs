//! Processes: a track of each, under which all stands that is its own, and how long it lived.

use super::annotations::Annotations;
use crate::clock::RunClock;
use crate::process::Process;
use memtrace_model::masked;
use memtrace_perfetto::{Trace, Track};
use serde_json::{Map, Value};

/// The track of each process, by position.
#[derive(Debug)]
pub(super) struct ProcessTracks(Vec<Track>);

impl ProcessTracks {
    /// Declares them. That of a process whose id is not known is a track without a process.
    pub(super) fn declare(trace: &mut Trace<'_>, processes: &[Process]) -> Self {
        let tracks = processes.iter().map(|process| {
            let name = &process.name;
            match process.tgid {
                Some(tgid) => {
                    let cmdline = process.cmdline.as_deref().map(masked);
                    trace.process(tgid, name, cmdline.as_deref(), process.start.boot_ns)
                }
                None => trace.track(None, name),
            }
        });
        Self(tracks.collect())
    }

    /// That of a process, which can be one that only its memory tells of.
    pub(super) fn of(&mut self, trace: &mut Trace<'_>, position: usize) -> Track {
        while self.0.len() <= position {
            self.0.push(trace.track(None, "[unknown]"));
        }
        self.0[position]
    }

    /// That of a process that was declared.
    pub(super) fn get(&self, position: usize) -> Option<Track> {
        self.0.get(position).copied()
    }

    /// Writes how long each lived, as far as it was recorded. What runs on has no end.
    pub(super) fn write_lifetimes(
        &self,
        trace: &mut Trace<'_>,
        processes: &[Process],
        clock: &RunClock,
    ) {
        for (process, &own) in processes.iter().zip(&self.0) {
            let track = trace.track(Some(own), "lifetime");
            // One that ran before would make the trace as long as its life.
            let begin = process.start.boot_ns.max(clock.start());
            let parent = process.parent.and_then(|parent| processes.get(parent));
            let notes = Annotations::of(reported(process, parent));
            trace.begin(begin, track, ("process", &process.name), notes.notes());
            if let Some(exit) = process.exit_boot_ns() {
                trace.end(exit.max(begin), track);
            }
        }
    }
}

/// What the report's JSON tells of it, but for what the slice says itself, and the process id of its
/// parent: it stands nowhere near in a trace.
fn reported(process: &Process, parent: Option<&Process>) -> Map<String, Value> {
    let Ok(Value::Object(mut reported)) = serde_json::to_value(process) else {
        return Map::new();
    };
    for key in ["name", "first_seen", "end"] {
        reported.remove(key);
    }
    if let Some(tgid) = parent.and_then(|parent| parent.tgid) {
        reported.insert("parent_pid".to_owned(), tgid.0.into());
    }
    for key in ["cmdline", "last_title"] {
        if let Some(Value::String(text)) = reported.get_mut(key) {
            *text = masked(text).into_owned();
        }
    }
    reported
}
