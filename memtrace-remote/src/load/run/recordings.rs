//! The recordings that run meanwhile: each condition becomes a phase there, each request a row.

use crate::load::plan::Condition;
use anyhow::Context;
use memtrace::cli::running::{Running, any_meant};
use memtrace::cli::say;
use memtrace::host::clock;
use memtrace::model::{LoadCondition, MarkKind, MarkMessage, RequestMessage, RequestRow};
use serde_json::{Map, Value};
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

/// The recordings.
pub(crate) struct Recordings(Vec<Sink>);

struct Sink {
    running: Running,
    socket: UnixDatagram,
    /// Messages that found no room since the last one that did.
    dropped: u64,
    is_gone: bool,
}

impl Recordings {
    /// Those that `memtrace mark` would find, if any runs.
    ///
    /// # Errors
    /// When it is open which is meant.
    pub(crate) fn find() -> anyhow::Result<Self> {
        Self::of(any_meant()?)
    }

    /// Those in these directories.
    ///
    /// # Errors
    /// When one of them does not run.
    pub(crate) fn named(dirs: &[PathBuf]) -> anyhow::Result<Self> {
        let running = dirs.iter().map(|dir| Running::named(dir));
        Self::of(running.collect::<Result<_, _>>()?)
    }

    fn of(running: Vec<Running>) -> anyhow::Result<Self> {
        let sinks = running.into_iter().map(|running| {
            let doing = || format!("{} is not being recorded", running.shown());
            let socket = running.connect().with_context(doing)?;
            // A load does not wait for who records it.
            socket.set_nonblocking(true)?;
            Ok(Sink {
                running,
                socket,
                dropped: 0,
                is_gone: false,
            })
        });
        sinks.collect::<anyhow::Result<_>>().map(Self)
    }

    /// What a person knows them by.
    pub(crate) fn names(&self) -> Vec<String> {
        let sinks = self.0.iter();
        sinks.map(|sink| sink.running.shown().to_string()).collect()
    }

    /// A condition begins.
    pub(crate) fn begin(&mut self, run_id: &str, condition: &Condition) {
        let attributes = serde_json::to_value(LoadCondition {
            load_run: run_id.to_owned(),
            condition: condition.condition as i64,
            input_tokens: condition.input_tokens as i64,
            output_tokens: condition.output_tokens as i64,
            concurrency: condition.concurrency as i64,
            prefix_reuse: condition.prefix_reuse,
        });
        let attributes = match attributes {
            Ok(Value::Object(attributes)) => attributes,
            _ => Map::new(),
        };
        self.mark(MarkKind::Begin, &condition.name, attributes);
    }

    /// It ends, with so many requests that were answered and that failed.
    pub(crate) fn end(&mut self, condition: &Condition, answered: usize, failed: usize) {
        let counts = [("answered_requests", answered), ("failed_requests", failed)];
        let counts = counts.map(|(name, count)| (name.to_owned(), Value::from(count)));
        self.mark(MarkKind::End, &condition.name, Map::from_iter(counts));
    }

    fn mark(&mut self, kind: MarkKind, name: &str, attributes: Map<String, Value>) {
        let mut message = MarkMessage::new(kind, name, clock::boot());
        message.is_of_recording = true;
        message.attrs = attributes;
        let Ok(bytes) = serde_json::to_vec(&message) else {
            return;
        };
        for sink in self.0.iter_mut().filter(|sink| !sink.is_gone) {
            // Without it no request of the condition finds its place: this waits for a recorder.
            if let Err(error) = sink.running.send(&bytes) {
                sink.lose(&error);
            }
        }
    }

    /// A request has ended.
    pub(crate) fn request(&mut self, row: &RequestRow) {
        let mut message = RequestMessage::of(row);
        for sink in self.0.iter_mut().filter(|sink| !sink.is_gone) {
            message.dropped = sink.dropped;
            let Ok(bytes) = serde_json::to_vec(&message) else {
                return;
            };
            match sink.socket.send(&bytes) {
                Ok(_) => sink.dropped = 0,
                Err(error) if error.kind() == ErrorKind::WouldBlock => sink.dropped += 1,
                Err(error) => sink.lose(&error),
            }
        }
    }

    /// Requests that no recording has, and that none will tell of.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.iter().map(|sink| sink.dropped).sum()
    }
}

impl Sink {
    fn lose(&mut self, error: &std::io::Error) {
        let shown = self.running.shown();
        if matches!(
            error.kind(),
            ErrorKind::ConnectionRefused | ErrorKind::NotFound
        ) {
            self.is_gone = true;
            say(&format!(
                "{shown} is not being recorded any more; the load goes on"
            ));
        } else {
            say(&format!("failed to tell {shown} of the load: {error}"));
        }
    }
}
