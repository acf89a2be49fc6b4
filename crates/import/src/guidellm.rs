//! guidellm: one object with a list of benchmarks, one for each strategy, and in each the requests
//! by what became of them. Its times are those of the wall clock.

use super::clocks::Clock;
use super::file::{Asked, FormatError, LoadFile, RUNS_MAX, Run, Sent, Source, ns};
use super::object::{PerRequest, Refused, Words, count_request, object};
use super::outcome::Failure;
use super::python_json::deserializer;
use memtrace_model::{Order, RequestOutcome};
use serde::Deserialize;

/// The generator in messages.
const TOOL: &str = "guidellm";

object! {
    /// The file as a whole.
    Report { benchmarks: PerRequest<ReportedRun, RUNS_MAX>, }
    unused ["metadata", "args", "config", "conclusions", "type_"]
}

object! {
    /// What was sent by one strategy.
    Benchmark { config: Config, requests: Requests, }
    unused [
        "type_", "id_", "run_id", "run_index", "scheduler", "scheduler_state", "scheduler_metrics",
        "benchmarker", "env_args", "extras", "run_stats", "metrics", "start_time", "end_time",
        "duration", "request_totals", "warmup_duration", "cooldown_duration", "server_metrics",
        "warnings", "goodput",
    ]
}

object! {
    /// How it was sent.
    Config { strategy: Strategy, backend: Backend, }
    unused [
        "id_", "run_id", "run_index", "constraints", "sample_requests", "sample_size", "warmup",
        "cooldown", "prefer_response_metrics", "profile", "requests", "environment", "type_", "slo",
        "confidence", "warnings",
    ]
}

object! {
    /// When the next request is due.
    Strategy { streams: i64, max_concurrency: i64, rate: f64, type_: Words, }
    unused ["burst", "random_seed", "initial_burst", "startup_duration", "worker_count", "rampup…"]
}

object! {
    /// Who was asked.
    Backend { model: Words, }
    unused [
        "target", "type_", "http2", "timeout", "verify", "follow_redirects", "…_path", "…_routes",
        "validate_backend", "request_format", "api_key", "api_routes", "request_handlers", "stream",
        "extras", "max_tokens", "…",
    ]
}

object! {
    /// By what became of them.
    Requests { successful: PerRequest<Reported>, errored: PerRequest<Reported>, incomplete: PerRequest<Reported>, }
    unused ["total"]
}

object! {
    /// One request that was sent.
    Request {
        info: Info,
        request_start_time: f64,
        request_end_time: f64,
        prompt_tokens: u32,
        output_tokens: u32,
    }
    unused [
        "type_", "request_id", "response_id", "request_args", "output", "reasoning_output",
        "tool_calls", "input_metrics", "output_metrics", "response_metrics", "request_latency", "request_type",
        "request_dispatch_delay", "request_scheduled_latency", "turn_…", "cached_tokens", "total_tokens",
        "time_to_…", "…_ms", "…_per_second", "…_per_iteration", "token_iterations",
    ]
}

object! {
    /// What its scheduler noted of it.
    Info { timings: Timings, error: Words, status: Words, }
    unused [
        "request_id", "conversation_id", "history_len", "turn_index", "preceding_nodes", "node_id",
        "agent_id", "parent_node_ids", "scheduler_…", "settings", "traceback", "started_at",
        "completed_at",
    ]
}

object! {
    /// When each part of a request was.
    Timings { request_start: f64, resolve_start: f64, first_token_iteration: f64,
              first_iteration: f64, request_end: f64, resolve_end: f64, }
    unused [
        "targeted_start", "predecessor_completed", "queued", "dequeued", "scheduled_at", "first_request_iteration",
        "first_output_token_iteration", "last_…", "request_iterations", "token_…", "iterations",
        "request_sent_…", "finalized",
    ]
}

/// A benchmark, as it is kept.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Benchmark")]
struct ReportedRun(Run);

/// A request, as it is kept; `None` of one that was never sent.
#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "Request")]
struct Reported(Option<Sent>);

pub(super) fn read(file: &mut dyn Source) -> Result<LoadFile, FormatError> {
    let report = Report::deserialize(&mut deserializer(file))?;
    let mut reported = LoadFile::on(Clock::Wall);
    let runs = report.benchmarks.ok_or_else(|| missing("benchmarks"))?;
    for ReportedRun(run) in runs {
        reported.push(run)?;
    }
    Ok(reported)
}

fn missing(field: &'static str) -> FormatError {
    FormatError::Missing {
        tool: TOOL,
        field,
        advice: ", which its JSON has",
    }
}

impl TryFrom<Benchmark> for ReportedRun {
    type Error = Refused;

    fn try_from(benchmark: Benchmark) -> Result<Self, Refused> {
        let config = benchmark.config.unwrap_or_default();
        let strategy = config.strategy.unwrap_or_default();
        let model = config.backend.unwrap_or_default().model;
        let requests = benchmark.requests.ok_or_else(|| missing("requests"))?;
        let is_synchronous = strategy.type_ == Some(Words("synchronous".to_owned()));
        let asked = Asked {
            concurrency: strategy
                .streams
                .or(strategy.max_concurrency)
                .or(is_synchronous.then_some(1)),
            request_rate: strategy.rate,
            model: model
                .map(|Words(model)| model)
                .filter(|model| !model.is_empty()),
            ..Asked::default()
        };
        let groups = [
            (requests.successful, None),
            (requests.errored, Some(RequestOutcome::Failed)),
            (requests.incomplete, Some(RequestOutcome::Interrupted)),
        ];
        let mut all: Vec<Sent> = Vec::new();
        for (group, otherwise) in groups {
            let group = group.unwrap_or_default();
            let count = group.len();
            let mut group: Vec<Sent> = group
                .into_iter()
                .filter_map(|Reported(sent)| sent)
                .collect();
            if otherwise.is_none() && group.len() < count {
                return Err(missing("request_start or request_end").into());
            }
            for sent in &mut group {
                sent.failure = match (otherwise, sent.failure.take()) {
                    (Some(outcome), Some(failure)) if failure.outcome == RequestOutcome::Failed => {
                        let words = failure.words.clone();
                        Some(
                            Failure {
                                outcome,
                                words,
                                http_status: None,
                            }
                            .shared(),
                        )
                    }
                    (otherwise, failure) => otherwise.and(failure),
                };
            }
            // Only the smaller is copied: there may be a million in the other.
            if group.len() > all.len() {
                std::mem::swap(&mut group, &mut all);
            }
            all.append(&mut group);
        }
        all.order_by_key(|one| one.start_ns);
        Ok(Self(Run {
            asked,
            requests: all,
        }))
    }
}

impl TryFrom<Request> for Reported {
    type Error = Refused;

    fn try_from(request: Request) -> Result<Self, Refused> {
        let place = count_request()?;
        let info = request.info.unwrap_or_default();
        let timings = info.timings.unwrap_or_default();
        let start = timings.request_start.or(request.request_start_time);
        let start = start.or(timings.resolve_start);
        let end = timings.request_end.or(request.request_end_time);
        let end = end.or(timings.resolve_end);
        let (Some(start), Some(end)) = (start, end) else {
            return Ok(Self(None));
        };
        let first = timings.first_token_iteration.or(timings.first_iteration);
        let Words(reported) = info.error.unwrap_or_default();
        Ok(Self(Some(Sent {
            start_ns: ns(start, "the start", place)?,
            first_token_ns: first
                .map(|first| ns(first, "the time of the first token", place))
                .transpose()?,
            end_ns: ns(end, "the end", place)?,
            prompt_tokens: request.prompt_tokens,
            output_tokens: request.output_tokens,
            failure: Some(Failure::of(&reported, None, RequestOutcome::Failed)),
            ..Sent::default()
        })))
    }
}
