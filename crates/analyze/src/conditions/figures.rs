//! Figures of the requests of a condition: how many failed and how, how long they took, how many
//! tokens came.

use memtrace_model::tables::{RequestOutcome, RequestRow};
use memtrace_model::{BootNs, Label, Order};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Figures of a condition. Times are of requests that were answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RequestFigures {
    /// Requests that ended, each counted once however often it was sent.
    pub ended_count: usize,
    /// Those of them that were not answered.
    pub failed_count: usize,
    /// How often a request ended so, each time that it was sent.
    pub attempts: BTreeMap<&'static str, usize>,
    /// When the first was sent.
    pub begin_boot_ns: Option<i64>,
    /// When the last ended.
    pub end_boot_ns: Option<i64>,
    /// The most that were under way at a time.
    pub concurrency_reached: usize,
    /// Of the shortest prompt.
    pub prompt_tokens_least: Option<i64>,
    /// Of the longest prompt.
    pub prompt_tokens_most: Option<i64>,
    /// Of all answers together.
    pub output_tokens_total: Option<i64>,
    /// Of all answers together, from the first start to the last end.
    pub output_tokens_per_s: Option<f64>,
    /// Until the first text came.
    pub first_token_s: Option<Seconds>,
    /// Until the end.
    pub duration_s: Option<Seconds>,
}

/// How long things took, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Seconds {
    /// Their mean, in seconds.
    pub mean: f64,
    /// Half of them took no longer.
    pub p50: f64,
    /// 19 of 20 took no longer.
    pub p95: f64,
    /// None took longer.
    pub max: f64,
}

/// One time that a request was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    /// Its number within the condition.
    pub request: i64,
    /// When it was sent.
    pub start: BootNs,
    /// When the first text came.
    pub first: Option<BootNs>,
    /// When the request ended.
    pub end: BootNs,
    /// Tokens of the prompt.
    pub prompt_tokens: Option<i64>,
    /// Tokens that came.
    pub output_tokens: Option<i64>,
    /// What became of it.
    pub outcome: Option<RequestOutcome>,
}

impl Sending {
    /// Whether it was answered.
    pub fn is_ok(&self) -> bool {
        self.outcome == Some(RequestOutcome::Ok)
    }
}

impl From<&RequestRow> for Sending {
    fn from(row: &RequestRow) -> Self {
        Self {
            request: row.request,
            start: row.start_boot_ns,
            first: row.first_token_boot_ns,
            end: row.boot_ns,
            prompt_tokens: row.prompt_tokens,
            output_tokens: row.output_tokens,
            outcome: row.outcome,
        }
    }
}

impl Seconds {
    /// Percentiles by nearest rank; `None` of nothing.
    fn of(mut seconds: Vec<f64>) -> Option<Self> {
        seconds.order_by(f64::total_cmp);
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

impl RequestFigures {
    /// Of all that was sent under a condition.
    pub fn of(sendings: &[Sending]) -> Self {
        let mut attempts = BTreeMap::new();
        for outcome in sendings.iter().filter_map(|one| one.outcome) {
            *attempts.entry(outcome.as_str()).or_insert(0) += 1;
        }
        let mut answered: HashMap<i64, bool> = HashMap::new();
        for one in sendings {
            *answered.entry(one.request).or_default() |= one.is_ok();
        }
        let ok = || sendings.iter().filter(|one| one.is_ok());
        let begin = sendings.iter().map(|one| one.start).min();
        let end = sendings.iter().map(|one| one.end).max();
        let outputs: Vec<i64> = ok().filter_map(|one| one.output_tokens).collect();
        let output_tokens = (!outputs.is_empty()).then(|| outputs.iter().sum::<i64>());
        let took = begin
            .zip(end)
            .map(|(begin, end)| (end - begin).as_secs_f64());
        let took = took.filter(|took| *took > 0.0);
        let prompts = || sendings.iter().filter_map(|one| one.prompt_tokens);
        let since_start = |one: &Sending, at: BootNs| (at - one.start).as_secs_f64();
        Self {
            ended_count: answered.len(),
            failed_count: answered.values().filter(|is_ok| !**is_ok).count(),
            attempts,
            begin_boot_ns: begin.map(|at| at.0),
            end_boot_ns: end.map(|at| at.0),
            concurrency_reached: most_at_a_time(sendings),
            prompt_tokens_least: prompts().min(),
            prompt_tokens_most: prompts().max(),
            output_tokens_total: output_tokens,
            output_tokens_per_s: output_tokens.zip(took).map(|(all, took)| all as f64 / took),
            first_token_s: Seconds::of(
                ok().filter_map(|one| Some(since_start(one, one.first?)))
                    .collect(),
            ),
            duration_s: Seconds::of(ok().map(|one| since_start(one, one.end)).collect()),
        }
    }
}

fn most_at_a_time(sendings: &[Sending]) -> usize {
    // One that ends when the next begins has ended before it.
    let starts = sendings.iter().map(|one| (one.start, 1));
    let ends = sendings.iter().map(|one| (one.end, -1));
    let mut changes: Vec<(BootNs, i64)> = starts.chain(ends).collect();
    changes.sort_unstable();
    let mut now = 0;
    let counts = changes.into_iter().map(|(_, change)| {
        now += change;
        now
    });
    usize::try_from(counts.max().unwrap_or(0)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_values_themselves() {
        let spread = Seconds::of((1..=20).map(f64::from).collect()).unwrap();
        assert_eq!((spread.p50, spread.p95, spread.max), (10.0, 19.0, 20.0));
        assert_eq!(Seconds::of(Vec::new()), None);
    }

    #[test]
    fn a_request_that_is_sent_again_is_one_request_and_two_attempts() {
        let broken = Sending {
            request: 0,
            start: BootNs(0),
            first: None,
            end: BootNs(10),
            prompt_tokens: None,
            output_tokens: None,
            outcome: Some(RequestOutcome::Broken),
        };
        let answered = Sending {
            start: BootNs(10),
            end: BootNs(20),
            outcome: Some(RequestOutcome::Ok),
            ..broken
        };
        let figures = RequestFigures::of(&[broken, answered]);
        assert_eq!((figures.ended_count, figures.failed_count), (1, 0));
        assert_eq!(
            figures.concurrency_reached, 1,
            "one ends where the next begins"
        );
        assert_eq!(figures.attempts.values().sum::<usize>(), 2);
    }
}
