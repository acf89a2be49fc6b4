//! Figures of each condition of a run that goes on.

use crate::load::plan::Condition;
use memtrace_analyze::{RequestFigures, Sending, WallSpan};
use memtrace_host::clock;
use memtrace_model::{BootNs, RequestOutcome, RequestRow, WallNs};
use serde::Serialize;

/// Figures of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Summary {
    pub(crate) run_id: String,
    /// In the order in which they were sent; what was not sent is not there.
    pub(crate) conditions: Vec<Figures>,
}

/// Figures of a condition.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    #[serde(flatten)]
    condition: Condition,
    #[serde(flatten)]
    requests: RequestFigures,
    #[serde(flatten)]
    wall: WallSpan,
}

/// The wall-clock time of an instant, by how far the clocks are apart now.
pub(super) fn to_wall(at: BootNs) -> Option<WallNs> {
    let now = clock::read();
    Some(WallNs(now.wall_ns.0 + (at - now.boot_ns).0))
}

/// The figures of a condition in the making.
#[derive(Debug, Default)]
pub(super) struct Tally {
    sendings: Vec<Sending>,
    failed_count: usize,
}

impl Tally {
    pub(super) fn take(&mut self, row: &RequestRow, is_last: bool) {
        let sending = Sending::from(row);
        self.failed_count += usize::from(is_last && !sending.is_ok());
        self.sendings.push(sending);
    }

    /// Whether every request found nobody who took its connection.
    pub(super) fn is_nobody_there(&self) -> bool {
        let is_unconnected = |one: &Sending| one.outcome == Some(RequestOutcome::NotConnected);
        !self.sendings.is_empty() && self.sendings.iter().all(is_unconnected)
    }

    pub(super) fn answered(&self) -> usize {
        self.sendings.iter().filter(|one| one.is_ok()).count()
    }

    pub(super) fn failed(&self) -> usize {
        self.failed_count
    }

    pub(super) fn figures(&self, condition: &Condition) -> Figures {
        let requests = RequestFigures::of(&self.sendings);
        Figures {
            condition: condition.clone(),
            wall: WallSpan::of(&requests, to_wall),
            requests,
        }
    }
}
