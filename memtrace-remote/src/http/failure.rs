//! What can go wrong with a request, in words of its own.

use memtrace_model::RequestOutcome;
use std::time::Duration;

/// Why there is no answer, or only part of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// Nobody took the connection.
    #[error("failed to connect: {0}")]
    Connect(String),
    /// There was a connection, and it went before the answer began.
    #[error("the connection broke before an answer: {0}")]
    BrokenBefore(String),
    /// It went in the midst of the answer.
    #[error("the connection broke in the midst of the answer: {0}")]
    BrokenWithin(String),
    /// Nothing, or not all, came in time.
    #[error("{} within {} s", if *.has_begun { "the answer did not end" } else { "no answer" }, .after.as_secs_f64())]
    TimedOut {
        /// How long was waited.
        after: Duration,
        /// Whether the answer had begun.
        has_begun: bool,
    },
    /// The server refused.
    #[error("status {status}: {message}")]
    Status {
        /// The HTTP status.
        status: u16,
        /// What the server said.
        message: String,
        /// How long it asks to wait before it is asked again.
        retry_after: Option<Duration>,
    },
    /// The server reported an error where the answer should have gone on.
    #[error("the server reported an error in its answer: {0}")]
    Reported(String),
    /// The answer is something else.
    #[error("the answer is {0}, and not what was asked for")]
    Other(String),
    /// A line of the stream, or the answer, can't be read.
    #[error("the answer can't be read: {0}")]
    Malformed(String),
    /// There is more of the answer than anybody needs.
    #[error("the answer, or a line of it, is longer than {0}, and is read no further")]
    TooLong(String),
    /// The stream ended too early.
    #[error("the stream ended {0}")]
    Cut(&'static str),
    /// The run was ended.
    #[error("the run was ended meanwhile")]
    Interrupted,
}

impl Failure {
    /// The word for it in tables.
    pub(crate) fn outcome(&self) -> RequestOutcome {
        match self {
            Self::Connect(_) => RequestOutcome::NotConnected,
            Self::BrokenBefore(_) | Self::BrokenWithin(_) => RequestOutcome::Broken,
            Self::TimedOut { .. } => RequestOutcome::TimedOut,
            Self::Status { .. } | Self::Reported(_) => RequestOutcome::Refused,
            Self::Other(_) | Self::Malformed(_) | Self::TooLong(_) => RequestOutcome::Malformed,
            Self::Cut(_) => RequestOutcome::Cut,
            Self::Interrupted => RequestOutcome::Interrupted,
        }
    }
}
