//! Figures of each condition: how many requests failed and how, how long they took, how many tokens
//! came.

use crate::load::plan::Condition;
use memtrace::model::{BootNs, Label, RequestOutcome, RequestRow};
use serde::Serialize;
use std::collections::BTreeMap;

/// Figures of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Summary {
    pub(crate) run_id: String,
    /// In the order in which they were sent; what was not sent is not there.
    pub(crate) conditions: Vec<Figures>,
}

/// Figures of a condition. Times are of requests that were answered.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    #[serde(flatten)]
    condition: Condition,
    /// Requests that ended, each counted once however often it was sent.
    ended_count: usize,
    /// Those of them that were not answered.
    failed_count: usize,
    /// How often a request ended so, each time that it was sent.
    attempts: BTreeMap<&'static str, usize>,
    begin_boot_ns: Option<i64>,
    end_boot_ns: Option<i64>,
    /// The most that were under way at a time.
    concurrency_reached: usize,
    prompt_tokens_least: Option<i64>,
    prompt_tokens_most: Option<i64>,
    /// Of all answers together.
    output_tokens: Option<i64>,
    output_tokens_per_s: Option<f64>,
    first_token_s: Option<Spread>,
    duration_s: Option<Spread>,
}

/// How long things took, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Spread {
    mean: f64,
    p50: f64,
    p95: f64,
    max: f64,
}

impl Spread {
    /// Percentiles by nearest rank; `None` of nothing.
    fn of(mut seconds: Vec<f64>) -> Option<Self> {
        seconds.sort_by(f64::total_cmp);
        let rank = |part: f64| {
            let rank = (part * seconds.len() as f64).ceil() as usize;
            seconds.get(rank.saturating_sub(1)).copied()
        };
        Some(Self {
            mean: seconds.iter().sum::<f64>() / seconds.len() as f64,
            p50: rank(0.5)?,
            p95: rank(0.95)?,
            max: *seconds.last()?,
        })
    }
}

/// The figures of a condition in the making.
#[derive(Debug, Default)]
pub(super) struct Tally {
    rows: Vec<Row>,
}

/// What the figures need of a request.
#[derive(Debug)]
struct Row {
    start: BootNs,
    first: Option<BootNs>,
    end: BootNs,
    prompt_tokens: Option<i64>,
    output_tokens: Option<i64>,
    outcome: Option<RequestOutcome>,
    is_last: bool,
}

impl Tally {
    pub(super) fn take(&mut self, row: &RequestRow, is_last: bool) {
        self.rows.push(Row {
            start: row.start_boot_ns,
            first: row.first_token_boot_ns,
            end: row.boot_ns,
            prompt_tokens: row.prompt_tokens,
            output_tokens: row.output_tokens,
            outcome: row.outcome,
            is_last,
        });
    }

    /// Whether every request found nobody who took its connection.
    pub(super) fn is_nobody_there(&self) -> bool {
        let is_unconnected = |row: &Row| row.outcome == Some(RequestOutcome::NotConnected);
        !self.rows.is_empty() && self.rows.iter().all(is_unconnected)
    }

    pub(super) fn answered(&self) -> usize {
        self.ok().count()
    }

    pub(super) fn failed(&self) -> usize {
        let failed = self.rows.iter().filter(|row| row.is_last);
        failed
            .filter(|row| row.outcome != Some(RequestOutcome::Ok))
            .count()
    }

    fn ok(&self) -> impl Iterator<Item = &Row> {
        let rows = self.rows.iter();
        rows.filter(|row| row.outcome == Some(RequestOutcome::Ok))
    }

    pub(super) fn figures(&self, condition: &Condition) -> Figures {
        let mut attempts = BTreeMap::new();
        for outcome in self.rows.iter().filter_map(|row| row.outcome) {
            *attempts.entry(outcome.as_str()).or_insert(0) += 1;
        }
        let begin = self.rows.iter().map(|row| row.start).min();
        let end = self.rows.iter().map(|row| row.end).max();
        let outputs: Vec<i64> = self.ok().filter_map(|row| row.output_tokens).collect();
        let output_tokens = (!outputs.is_empty()).then(|| outputs.iter().sum::<i64>());
        let took = begin
            .zip(end)
            .map(|(begin, end)| (end - begin).as_secs_f64());
        let took = took.filter(|took| *took > 0.0);
        let prompts = || self.rows.iter().filter_map(|row| row.prompt_tokens);
        let since_start = |row: &Row, at: BootNs| (at - row.start).as_secs_f64();
        Figures {
            condition: condition.clone(),
            ended_count: self.rows.iter().filter(|row| row.is_last).count(),
            failed_count: self.failed(),
            attempts,
            begin_boot_ns: begin.map(|at| at.0),
            end_boot_ns: end.map(|at| at.0),
            concurrency_reached: self.most_at_a_time(),
            prompt_tokens_least: prompts().min(),
            prompt_tokens_most: prompts().max(),
            output_tokens,
            output_tokens_per_s: output_tokens.zip(took).map(|(all, took)| all as f64 / took),
            first_token_s: Spread::of(
                self.ok()
                    .filter_map(|row| Some(since_start(row, row.first?)))
                    .collect(),
            ),
            duration_s: Spread::of(self.ok().map(|row| since_start(row, row.end)).collect()),
        }
    }

    pub(super) fn most_at_a_time(&self) -> usize {
        // One that ends when the next begins has ended before it.
        let starts = self.rows.iter().map(|row| (row.start, 1));
        let ends = self.rows.iter().map(|row| (row.end, -1));
        let mut changes: Vec<(BootNs, i64)> = starts.chain(ends).collect();
        changes.sort_unstable();
        let mut now = 0;
        let counts = changes.into_iter().map(|(_, change)| {
            now += change;
            now
        });
        usize::try_from(counts.max().unwrap_or(0)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_values_themselves() {
        let spread = Spread::of((1..=20).map(f64::from).collect()).unwrap();
        assert_eq!((spread.p50, spread.p95, spread.max), (10.0, 19.0, 20.0));
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn a_request_that_is_sent_again_is_one_request_and_two_attempts() {
        let mut tally = Tally::default();
        let mut row = RequestRow {
            start_boot_ns: BootNs(0),
            boot_ns: BootNs(10),
            outcome: Some(RequestOutcome::Broken),
            ..RequestRow::default()
        };
        tally.take(&row, false);
        row.start_boot_ns = BootNs(10);
        row.boot_ns = BootNs(20);
        row.outcome = Some(RequestOutcome::Ok);
        tally.take(&row, true);
        assert_eq!((tally.answered(), tally.failed()), (1, 0));
        assert_eq!(tally.most_at_a_time(), 1, "one ends where the next begins");
        assert!(!tally.is_nobody_there());
    }
}
