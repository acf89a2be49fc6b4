//! What load experiments took: for each condition the memory at its peak against the tokens in
//! flight, and what it took more than the condition before it on each axis; for each request that
//! failed, what was held at that moment.

mod figures;
mod in_flight;
mod requests;

pub use figures::{RequestFigures, Seconds, Sending};
pub(super) use requests::Requests;

use super::RunClock;
use super::phases::{ConditionSpan, Phase, RoleStretch, UnderLoad};
use memtrace_model::labels;
use memtrace_model::tables::RequestOutcome;
use memtrace_model::{BootNs, Bytes, Instant, Label, LoadCondition, Order};
use memtrace_timeline::Readings;
use requests::{Request, before};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// Conditions and failed requests.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Conditions {
    /// Each condition, in the order of their starts.
    pub list: Vec<Condition>,
    /// Each time that a request failed, in the order of time; the first 1,000.
    pub failed_requests: Vec<FailedRequest>,
    /// Requests whose condition nobody marked.
    pub unplaced_request_count: usize,
    /// Requests beyond the first million, which are not looked at.
    pub left_out_request_count: usize,
}

/// One condition of a load experiment.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Condition {
    /// The name of the condition.
    pub name: String,
    /// The run of the plan; of an imported condition `generator/file`.
    pub load_run: String,
    /// Its number in the plan.
    pub number: i64,
    /// Tokens of each prompt, as planned; of an imported condition whose file tells no plan the
    /// median of its requests.
    pub input_tokens: Option<i64>,
    /// Tokens of each output, likewise.
    pub output_tokens: Option<i64>,
    /// Requests under way at a time, at most; `None` where there is no such limit.
    pub concurrency: Option<i64>,
    /// Requests a second; `None` where they are sent as fast as can be.
    pub request_rate: Option<f64>,
    /// The part of each prompt that all share; `None` where its sender reported none.
    pub prefix_reuse: Option<f64>,
    /// When it began.
    pub begin: Instant,
    /// When it ended.
    pub end: Instant,
    /// Requests that ended, each counted once however often it was sent.
    pub request_count: usize,
    /// Those that were never answered.
    pub failed_count: usize,
    /// The most tokens in flight; `None` without a request.
    pub tokens_in_flight_peak: Option<i64>,
    /// When that was.
    pub tokens_in_flight_peak_at: Option<Instant>,
    /// Memory held on the host when it began, every page once.
    pub held_begin_bytes: Option<Bytes>,
    /// The most that was held on the host within it, every page once.
    pub held_peak_bytes: Option<Bytes>,
    /// When that was.
    pub held_peak_at: Option<Instant>,
    /// The role whose RSS rose most from the start to its highest; `None` where none did.
    pub grew_most: Option<RoleGrowth>,
    /// Memory in use on all GPUs when it began; `None` without GPUs.
    pub gpu_begin_bytes: Option<Bytes>,
    /// The most that was in use on all GPUs.
    pub gpu_peak_bytes: Option<Bytes>,
    /// When that was.
    pub gpu_peak_at: Option<Instant>,
    /// What it took more than others of its run that differ in one value only; of an imported one
    /// than others of its generator.
    pub increments: Vec<Increment>,
    /// What was planned.
    #[serde(skip)]
    pub planned: LoadCondition,
    /// Figures of its requests.
    #[serde(skip)]
    pub figures: RequestFigures,
}

/// A role that grew.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RoleGrowth {
    /// Its name, as in `roles` of the report.
    pub role: Arc<str>,
    /// By how much its RSS rose from the start to its highest.
    pub rise_bytes: Bytes,
}

/// What a condition took more at its peak than the one before it on an axis: the one that is equal
/// but for that value, which is the next lower.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Increment {
    /// The value that differs.
    pub axis: Axis,
    /// The value there.
    pub from: f64,
    /// The value here.
    pub to: f64,
    /// The name of that condition.
    pub against: String,
    /// Memory on the host.
    pub held_more_bytes: Option<Bytes>,
    /// Memory of GPUs.
    pub gpu_more_bytes: Option<Bytes>,
}

labels! {
    /// What is varied from condition to condition.
    pub enum Axis {
        /// Tokens of the prompts.
        InputTokens = "input_tokens" | "PROMPT",
        /// Tokens of the outputs.
        OutputTokens = "output_tokens" | "OUTPUT",
        /// Requests under way at a time.
        Concurrency = "concurrency" | "CONCURRENCY",
        /// Requests a second.
        RequestRate = "request_rate" | "RATE",
        /// The part of the prompts that all share.
        PrefixReuse = "prefix_reuse" | "PREFIX",
    }
}

/// A request that failed, one time that it was sent.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FailedRequest {
    /// The name of its condition.
    pub condition: String,
    /// The run of the plan; of an imported condition `generator/file`.
    pub load_run: String,
    /// Its number within the condition.
    pub request: i64,
    /// How often it was sent before.
    pub attempt: i64,
    /// When it failed.
    pub at: Instant,
    /// What became of it.
    pub outcome: Option<RequestOutcome>,
    /// In words of its sender.
    pub error: Option<String>,
    /// The most memory that was held on the host in the second before, every page once.
    pub held_then_bytes: Option<Bytes>,
    /// The most that was in use on all GPUs in the second before.
    pub gpu_then_bytes: Option<Bytes>,
    /// The more of the tokens in flight a second before and then, of its condition.
    pub tokens_in_flight: i64,
}

impl Axis {
    fn of(self, condition: &Condition) -> Option<f64> {
        let count = |count: Option<i64>| count.map(|count| count as f64);
        match self {
            Self::InputTokens => count(condition.input_tokens),
            Self::OutputTokens => count(condition.output_tokens),
            Self::Concurrency => count(condition.concurrency),
            Self::RequestRate => condition.request_rate,
            Self::PrefixReuse => condition.prefix_reuse,
        }
    }
}

/// What memory was held is asked for at these instants, by whoever passes over it.
pub(super) fn instants(
    spans: &[ConditionSpan],
    requests: &Requests,
    end: BootNs,
) -> impl Iterator<Item = BootNs> {
    let bounds = spans.iter().flat_map(move |span| bounds(span, end));
    let failures = requests.before_failures().into_iter().flatten();
    bounds.chain(failures)
}

/// From its start to its end. One that nobody ended goes on to just before the end of the recording,
/// from which on nothing is held.
fn bounds(span: &ConditionSpan, end: BootNs) -> [BootNs; 2] {
    let last = BootNs(end.0.saturating_sub(1)).max(span.begin);
    [span.begin, span.end.min(last)]
}

/// The findings; `None` without a load experiment.
pub(super) fn reported(
    spans: Vec<ConditionSpan>,
    requests: &Requests,
    under_load: UnderLoad,
    held: &Readings<Option<Bytes>>,
    clock: &RunClock,
    end: BootNs,
) -> Option<Conditions> {
    if spans.is_empty() {
        return None;
    }
    let mut of_condition: Vec<Vec<&Request>> = vec![Vec::new(); spans.len()];
    for request in &requests.list {
        of_condition[request.condition].push(request);
    }
    let failed_requests = requests.failed().map(|request| {
        let span = &spans[request.condition];
        let all = || of_condition[request.condition].iter().copied();
        let tokens = |at| in_flight::at(all(), at);
        let [from, to] = before(request);
        FailedRequest {
            condition: span.name.clone(),
            load_run: span.condition.load_run.clone(),
            request: request.sending.request,
            attempt: request.attempt,
            at: clock.at(request.sending.end),
            outcome: request.sending.outcome,
            error: request.error.clone(),
            held_then_bytes: held.peak(from, to).map(|(bytes, _)| bytes),
            gpu_then_bytes: under_load.gpu_within.get(&[from, to]).copied(),
            tokens_in_flight: tokens(from).max(tokens(to)),
        }
    });
    let failed_requests = failed_requests.collect();
    let parts = spans.iter().zip(&under_load.phases).zip(&of_condition);
    let list = parts.map(|((span, phase), requests)| {
        let [begin, last] = bounds(span, end);
        let peak = held.peak(begin, last);
        condition(span, phase, requests, (held.at(begin), peak), clock)
    });
    let mut list: Vec<Condition> = list.collect();
    let increments = increments(&list);
    for (condition, increments) in list.iter_mut().zip(increments) {
        condition.increments = increments;
    }
    Some(Conditions {
        list,
        failed_requests,
        unplaced_request_count: requests.unplaced_count,
        left_out_request_count: requests.left_out_count,
    })
}

fn condition(
    span: &ConditionSpan,
    phase: &Phase,
    requests: &[&Request],
    (held_begin, held_peak): (Option<Bytes>, Option<(Bytes, BootNs)>),
    clock: &RunClock,
) -> Condition {
    let LoadCondition {
        load_run,
        condition: number,
        input_tokens,
        output_tokens,
        concurrency,
        request_rate,
        prefix_reuse,
        ..
    } = span.condition.clone();
    let sendings: Vec<Sending> = requests.iter().map(|request| request.sending).collect();
    let figures = RequestFigures::of(&sendings);
    let in_flight = in_flight::peak(requests.iter().copied());
    let gpu = phase.gpu.as_ref();
    Condition {
        name: span.name.clone(),
        load_run,
        number,
        input_tokens,
        output_tokens,
        concurrency,
        request_rate,
        prefix_reuse,
        begin: clock.at(span.begin),
        end: phase.end,
        request_count: figures.ended_count,
        failed_count: figures.failed_count,
        tokens_in_flight_peak: in_flight.map(|(tokens, _)| tokens),
        tokens_in_flight_peak_at: in_flight.map(|(_, at)| clock.at(at)),
        held_begin_bytes: held_begin,
        held_peak_bytes: held_peak.map(|(bytes, _)| bytes),
        held_peak_at: held_peak.map(|(_, at)| clock.at(at)),
        grew_most: grew_most(&phase.roles),
        gpu_begin_bytes: gpu.and_then(|gpu| gpu.begin_bytes),
        gpu_peak_bytes: gpu.and_then(|gpu| gpu.peak).map(|(bytes, _)| bytes),
        gpu_peak_at: gpu.and_then(|gpu| gpu.peak).map(|(_, at)| at),
        increments: Vec::new(),
        planned: span.condition.clone(),
        figures,
    }
}

fn grew_most(roles: &[RoleStretch]) -> Option<RoleGrowth> {
    let rises = roles.iter().filter_map(|role| {
        let (peak, _) = role.stretch.peak?;
        let rise_bytes = peak - role.stretch.begin.rss()?;
        (rise_bytes.0 > 0).then_some((rise_bytes, &role.name))
    });
    let (rise_bytes, role) = rises.max_by_key(|(rise, _)| *rise)?;
    Some(RoleGrowth {
        role: Arc::clone(role),
        rise_bytes,
    })
}

/// The run of a condition, or the generator whose runs are compared, and its values on all axes but
/// one.
type Others<'a> = (&'a str, Vec<Option<u64>>);

/// Against the condition before it on each axis, where there is one.
fn increments(all: &[Condition]) -> Vec<Vec<Increment>> {
    let more = |here: Option<Bytes>, there: Option<Bytes>| here.zip(there).map(|(a, b)| a - b);
    let mut increments: Vec<Vec<Increment>> = vec![Vec::new(); all.len()];
    for axis in Axis::ALL.iter().copied() {
        // Those that are equal but for this value.
        let mut equal: HashMap<Others<'_>, Vec<(f64, usize)>> = HashMap::new();
        for (place, one) in all.iter().enumerate() {
            let Some(here) = axis.of(one) else {
                continue;
            };
            let others = Axis::ALL.iter().filter(|other| **other != axis);
            let values = others.map(|other| other.of(one).map(f64::to_bits));
            let generator = one.planned.generator.as_deref();
            let key = (generator.unwrap_or(&one.load_run), values.collect());
            equal.entry(key).or_default().push((here, place));
        }
        for mut places in equal.into_values() {
            places.order_by(|a, b| a.0.total_cmp(&b.0));
            for pair in places.windows(2) {
                let [(from, before), (to, one)] = [pair[0], pair[1]];
                if from >= to {
                    continue;
                }
                let (before, here) = (&all[before], &all[one]);
                increments[one].push(Increment {
                    axis,
                    from,
                    to,
                    against: before.name.clone(),
                    held_more_bytes: more(here.held_peak_bytes, before.held_peak_bytes),
                    gpu_more_bytes: more(here.gpu_peak_bytes, before.gpu_peak_bytes),
                });
            }
        }
    }
    increments
}
