//! What a load generator's file says, whichever it is of.

use super::clocks::Clock;
use crate::model::RequestOutcome;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, Seek};

/// More requests are not looked at by a report.
pub(super) const REQUESTS_MAX: usize = 1_000_000;

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
    /// What its times are told on.
    pub clock: Clock,
    /// One for each condition that was sent, with at least one request.
    pub runs: Vec<Run>,
    /// Fields that this memtrace does not know; nothing of them is used.
    pub unknown_fields: BTreeSet<String>,
}

/// What was sent under one condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// The condition.
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
    /// The model.
    pub model: Option<String>,
}

/// A request. Times are ns on the clock of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sent {
    /// When it was sent.
    pub start_ns: i64,
    /// When the first text came.
    pub first_token_ns: Option<i64>,
    /// Its end: the last that the file knows of it.
    pub end_ns: i64,
    /// Tokens of the prompt.
    pub prompt_tokens: Option<i64>,
    /// Tokens that came.
    pub output_tokens: Option<i64>,
    /// The HTTP status.
    pub http_status: Option<i32>,
    /// Why it failed, and how; `None` where it was answered.
    pub failure: Option<(RequestOutcome, String)>,
}

/// Why a file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// It is no JSON, or a value has another type than it should have.
    #[error("understand it: {0}")]
    Json(#[from] serde_json::Error),
    /// It could not be read.
    #[error("read it: {0}")]
    Io(#[from] std::io::Error),
    /// It is of no generator that is known.
    #[error("tell which load generator wrote it: the known ones are {known}")]
    Unknown {
        /// Which are known.
        known: String,
    },
    /// A field that is needed is not there.
    #[error("use it: {tool} has no field {field}{advice}")]
    Missing {
        /// The generator.
        tool: &'static str,
        /// The field.
        field: &'static str,
        /// How to get it.
        advice: &'static str,
    },
    /// Lists that tell of the same requests are not of one length.
    #[error("use it: {field} tells of {found} requests, and start_times of {expected}")]
    Uneven {
        /// The field.
        field: &'static str,
        /// Requests that it should tell of.
        expected: usize,
        /// Requests that it tells of.
        found: usize,
    },
    /// A request can't have been so.
    #[error("use it: {what} of request {request} can't be")]
    Absurd {
        /// What it is.
        what: &'static str,
        /// Its place in the file.
        request: usize,
    },
    /// It tells of no request.
    #[error("use it: it tells of no request")]
    Empty,
    /// It tells of too many.
    #[error("use it: it tells of more than {REQUESTS_MAX} requests")]
    TooMany,
}

/// Nanoseconds of seconds.
pub(super) fn ns(seconds: f64, what: &'static str, request: usize) -> Result<i64, FormatError> {
    match (0.0..=SECONDS_MAX).contains(&seconds) {
        // Below 2^63 by the bound.
        true => Ok((seconds * 1e9).round() as i64),
        false => Err(FormatError::Absurd { what, request }),
    }
}

/// That a file has no more requests than a report looks at, while it is read.
pub(super) fn check_count(count: usize) -> Result<(), FormatError> {
    match count <= REQUESTS_MAX {
        true => Ok(()),
        false => Err(FormatError::TooMany),
    }
}

impl LoadFile {
    /// That it says something, that can be.
    pub(super) fn checked(mut self) -> Result<Self, FormatError> {
        self.runs.retain(|run| !run.requests.is_empty());
        let count: usize = self.runs.iter().map(|run| run.requests.len()).sum();
        if count == 0 {
            return Err(FormatError::Empty);
        }
        check_count(count)?;
        for (request, sent) in self.runs.iter().flat_map(|run| &run.requests).enumerate() {
            let first = sent.first_token_ns.unwrap_or(sent.start_ns);
            if first < sent.start_ns || sent.end_ns < first {
                let what = "the order of the times";
                return Err(FormatError::Absurd { what, request });
            }
            let tokens = [sent.prompt_tokens, sent.output_tokens];
            if tokens
                .into_iter()
                .flatten()
                .any(|count| !(0..=1 << 40).contains(&count))
            {
                let what = "a count of tokens";
                return Err(FormatError::Absurd { what, request });
            }
        }
        Ok(self)
    }
}
