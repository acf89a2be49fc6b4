//! The recordings that run meanwhile, which hear of what is done to an engine: phases, and
//! requests of a load.

use anyhow::Context;
use memtrace::cli::running::{Running, any_meant};
use memtrace::cli::say;
use memtrace_host::clock;
use memtrace_model::{MarkKind, MarkMessage, RequestMessage, RequestRow};
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// Which recordings are reported.
#[derive(Debug, clap::Args)]
pub(crate) struct Reported {
    /// The recording; may be repeated [default: the running one, if any]
    #[arg(short, long = "recording", value_name = "DIR")]
    recordings: Vec<PathBuf>,

    /// Write to no recording, even if one is running
    #[arg(long, conflicts_with = "recordings")]
    no_recording: bool,
}

impl Reported {
    /// They.
    ///
    /// # Errors
    /// When one that is named does not run, or it is open which is meant.
    pub(crate) fn recordings(&self) -> anyhow::Result<Recordings> {
        match self.recordings.as_slice() {
            [] if !self.no_recording => Recordings::find(),
            named => Recordings::named(named),
        }
    }

    /// The same, and none where they can't be found: what is done to an engine does not depend on who
    /// hears of it. Says why.
    pub(crate) fn if_clear(&self) -> Recordings {
        self.recordings().unwrap_or_else(|error| {
            say(&format!("no recording gets the phase: {error:#}"));
            Recordings(Vec::new())
        })
    }

    /// The same choice in words.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let none = self.no_recording.then(|| OsString::from("--no-recording"));
        let named = self.recordings.iter();
        let named = named.map(|recording| {
            let mut word = OsString::from("--recording=");
            word.push(recording);
            word
        });
        named.chain(none).collect()
    }
}

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
    fn find() -> anyhow::Result<Self> {
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

    /// Where they are, as far as that is known.
    pub(crate) fn dirs(&self) -> Vec<PathBuf> {
        let sinks = self.0.iter();
        sinks
            .filter_map(|sink| sink.running.dir().map(Path::to_owned))
            .collect()
    }

    /// The begin or the end of a phase is now.
    pub(crate) fn mark(&mut self, kind: MarkKind, name: &str, attributes: Map<String, Value>) {
        let mut message = MarkMessage::new(kind, name, clock::boot());
        message.is_of_recording = true;
        message.attrs = attributes;
        let Ok(bytes) = serde_json::to_vec(&message) else {
            return;
        };
        for sink in self.0.iter_mut().filter(|sink| !sink.is_gone) {
            // A phase lacks its begin or end without it: this waits for a recorder.
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
            say(&format!("{shown} is not being recorded any more"));
        } else {
            say(&format!("failed to write it to {shown}: {error}"));
        }
    }
}
