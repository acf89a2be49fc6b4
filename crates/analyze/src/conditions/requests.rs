//! The rows of `request`, each with the condition that it is of.

use super::figures::Sending;
use crate::phases::ConditionSpan;
use memtrace_model::tables::{RequestOutcome, RequestRow};
use memtrace_model::{BootNs, RowSource};
use std::collections::HashMap;

/// More requests are not looked at.
const REQUESTS_MAX: usize = 1_000_000;

/// So many failed ones are reported, the first.
pub(super) const FAILED_MAX: usize = 1_000;

/// A request that has ended, one time that it was sent.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// The position of its condition.
    pub(super) condition: usize,
    pub(super) attempt: i64,
    pub(super) sending: Sending,
    /// Tokens of the prompt: as planned where the server did not count, none where neither is known.
    pub(super) prompt_tokens: i64,
    /// Of those that are reported.
    pub(super) error: Option<String>,
}

/// The second up to a failure: a server that dies holds nothing any more when its connections break.
pub(super) fn before(request: &Request) -> [BootNs; 2] {
    let Sending { start, end, .. } = request.sending;
    let from = end.0.saturating_sub(1_000_000_000);
    [BootNs(from).max(start), end]
}

impl Request {
    pub(super) fn is_ok(&self) -> bool {
        self.sending.is_ok()
    }
}

/// The requests of a recording, in the order of their ends.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(super) list: Vec<Request>,
    /// Requests whose condition nobody marked.
    pub(super) unplaced_count: usize,
    /// Requests that are not looked at.
    pub(super) left_out_count: usize,
    reported_count: usize,
}

impl Requests {
    /// Reads them; nothing where there is no condition.
    pub(crate) fn read<S: RowSource>(
        source: &S,
        conditions: &[ConditionSpan],
    ) -> Result<Self, S::Error> {
        let mut requests = Self::default();
        if conditions.is_empty() {
            return Ok(requests);
        }
        // In the order of their begins. The same condition can be sent again after it has ended.
        let mut by_name: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
        for (place, one) in conditions.iter().enumerate() {
            let key = (one.condition.load_run.as_str(), one.name.as_str());
            by_name.entry(key).or_default().push(place);
        }
        source.scan(&[], |row: RequestRow| {
            let key = (row.load_run.as_str(), row.condition.as_str());
            let places = by_name.get(&key).map_or(&[][..], Vec::as_slice);
            let begun =
                places.partition_point(|&place| conditions[place].begin <= row.start_boot_ns);
            match places[..begun].last().or(places.first()) {
                Some(&condition) => requests.take(condition, row),
                None => requests.unplaced_count += 1,
            }
        })?;
        Ok(requests)
    }

    fn take(&mut self, condition: usize, row: RequestRow) {
        if self.list.len() == REQUESTS_MAX {
            self.left_out_count += 1;
            return;
        }
        let is_reported =
            row.outcome != Some(RequestOutcome::Ok) && self.reported_count < FAILED_MAX;
        self.reported_count += usize::from(is_reported);
        self.list.push(Request {
            condition,
            attempt: row.attempt,
            sending: Sending::from(&row),
            prompt_tokens: row.prompt_tokens.or(row.planned_prompt_tokens).unwrap_or(0),
            error: row.error.filter(|_| is_reported),
        });
    }

    /// Those that failed and are reported.
    pub(super) fn failed(&self) -> impl Iterator<Item = &Request> {
        let failed = self.list.iter().filter(|request| !request.is_ok());
        failed.take(FAILED_MAX)
    }

    /// The time up to the failure of each.
    pub(crate) fn before_failures(&self) -> Vec<[BootNs; 2]> {
        self.failed().map(before).collect()
    }
}
