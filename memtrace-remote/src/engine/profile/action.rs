//! What is asked of a profiler.

use std::time::Duration;

/// One of two things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Start,
    /// Which answers when the traces are written, so it may wait so long.
    Stop(Duration),
}

/// A start goes through all workers, and writes nothing.
const START_PATIENCE: Duration = Duration::from_secs(120);

impl Action {
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Start => "/start_profile",
            Self::Stop(_) => "/stop_profile",
        }
    }

    pub(super) fn patience(self) -> Duration {
        match self {
            Self::Start => START_PATIENCE,
            Self::Stop(patience) => patience,
        }
    }

    /// What a server has done that answered.
    pub(super) fn done(self) -> &'static str {
        match self {
            Self::Start => "its profiler is started",
            Self::Stop(_) => "its profiler is stopped",
        }
    }
}
