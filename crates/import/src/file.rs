//! What a load generator's file says, whichever it is of.

use super::clocks::Clock;
use super::outcome::Failure;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, Seek};
use std::rc::Rc;

/// More requests are not looked at by a report.
pub const REQUESTS_MAX: usize = 1_000_000;

/// A run, or a phase of one, is a condition that a person wrote down.
pub(super) const RUNS_MAX: usize = 1_000;

/// The latest time that a file can tell, in seconds: some thousand years.
const SECONDS_MAX: f64 = 1e11;

/// What a file is read from.
pub trait Source: BufRead + Seek {}

impl<S: BufRead + Seek> Source for S {}

/// Reads another file of the same folder as JSON, where it is there and can be read: some
/// generators keep what was asked for beside the requests.
pub type Beside<'a> = &'a dyn Fn(&str) -> Option<Value>;

/// A file, understood.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadFile {
    /// What its times are reported on.
    pub clock: Clock,
    /// One for each condition that was sent, with at least one request.
    pub runs: Vec<Run>,
    /// Fields that this memtrace does not know; nothing of them is used.
    pub unknown_fields: BTreeSet<String>,
}

/// What was sent under one condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// The condition under which it was sent.
    pub asked: Asked,
    /// Its requests, in the order of the file.
    pub requests: Vec<Sent>,
}

/// A condition, as far as the file tells it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// Tokens of each prompt.
    pub input_tokens: Option<i64>,
    /// Tokens of each output.
    pub output_tokens: Option<i64>,
    /// Requests under way at a time, at most.
    pub concurrency: Option<i64>,
    /// Requests a second.
    pub request_rate: Option<f64>,
    /// The model that was asked; `None` where the file does not name it.
    pub model: Option<String>,
}

/// A request. There are a million of them, so it is small. Times are ns on the clock of the file, and
/// once it has its place on that of the recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sent {
    /// When it was sent.
    pub start_ns: i64,
    /// When the first text came.
    pub first_token_ns: Option<i64>,
    /// Its end: the last that the file knows of it.
    pub end_ns: i64,
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u32>,
    /// Tokens that came.
    pub output_tokens: Option<u32>,
    /// Why it failed, and how; `None` where it was answered.
    pub failure: Option<Rc<Failure>>,
    /// Its place in its run, once it has one in the recording.
    pub(super) request: u32,
    /// By how many ns its times may be wrong then.
    pub(super) error_ns: u32,
}

const _: () = assert!(size_of::<Sent>() == 64);

/// Why a file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// It is no JSON, or a value has another type than it should have.
    #[error("understand it: {0}")]
    Json(#[from] serde_json::Error),
    /// It could not be read.
    #[error("read it: {0}")]
    Io(#[from] std::io::Error),
    /// It is something else that is known.
    #[error("use it: it is {what}; {instead}")]
    Other {
        /// What it is.
        what: &'static str,
        /// What would do.
        instead: String,
    },
    /// It is of no generator that is known.
    #[error("recognize which load generator wrote it; known are {known}")]
    Unknown {
        /// Which are known.
        known: String,
    },
    /// A field that is needed is not there.
    #[error("use it: {tool} has no field {field}{advice}")]
    Missing {
        /// The generator that wrote the file.
        tool: &'static str,
        /// The field that is missing.
        field: &'static str,
        /// How to get it.
        advice: &'static str,
    },
    /// Lists that tell of the same requests are not of one length.
    #[error("use it: {field} has {found} requests, and start_times has {expected}")]
    Uneven {
        /// The field with that list.
        field: &'static str,
        /// Requests that it should tell of.
        expected: usize,
        /// Requests that it tells of.
        found: usize,
    },
    /// A request can't have been so.
    #[error("use it: {what} of request {request} is impossible")]
    Absurd {
        /// What it is.
        what: &'static str,
        /// Its place in the file.
        request: usize,
    },
    /// It tells of no request.
    #[error("use it: it has no requests")]
    Empty,
    /// It tells of more requests than that.
    #[error(
        "use it: it has more than {0} requests (have the load generator write a shorter run, or a \
         file for each run, and import one file at a time)"
    )]
    TooMany(usize),
    /// With the files before it there are more than a report looks at.
    #[error(
        "use it: the files of this import have more than {REQUESTS_MAX} requests together (import \
         one file at a time)"
    )]
    TooManyTogether,
    /// It tells of more runs than that.
    #[error("use it: it has more than {0} runs (have the load generator write a file for each)")]
    TooManyRuns(usize),
}

/// Nanoseconds of seconds.
pub(super) fn ns(seconds: f64, what: &'static str, request: usize) -> Result<i64, FormatError> {
    match (0.0..=SECONDS_MAX).contains(&seconds) {
        // Below 2^63 by the bound.
        true => Ok((seconds * 1e9).round() as i64),
        false => Err(FormatError::Absurd { what, request }),
    }
}

impl LoadFile {
    pub(super) fn on(clock: Clock) -> Self {
        Self {
            clock,
            runs: Vec::new(),
            unknown_fields: BTreeSet::new(),
        }
    }

    /// Takes a run.
    pub(super) fn push(&mut self, run: Run) -> Result<(), FormatError> {
        if self.runs.len() == RUNS_MAX {
            return Err(FormatError::TooManyRuns(RUNS_MAX));
        }
        self.runs.push(run);
        Ok(())
    }

    /// The requests of all runs.
    pub fn request_count(&self) -> usize {
        self.runs.iter().map(|run| run.requests.len()).sum()
    }

    /// That it says something, that can be.
    pub(super) fn checked(mut self) -> Result<Self, FormatError> {
        self.runs.retain(|run| !run.requests.is_empty());
        if self.runs.is_empty() {
            return Err(FormatError::Empty);
        }
        for (request, sent) in self.runs.iter().flat_map(|run| &run.requests).enumerate() {
            let first = sent.first_token_ns.unwrap_or(sent.start_ns);
            if first < sent.start_ns || sent.end_ns < first {
                let what = "the order of the times";
                return Err(FormatError::Absurd { what, request });
            }
        }
        Ok(self)
    }
}
