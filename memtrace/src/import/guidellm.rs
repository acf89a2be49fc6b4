//! guidellm: one object with a list of benchmarks, one for each strategy, and in each the requests
//! by what became of them. Its times are those of the wall clock.

use super::clocks::Clock;
use super::file::{Asked, FormatError, LoadFile, Run, Sent, Source, ns};
use super::object::{PerRequest, Words, object};
use super::outcome::failure;
use super::python_json::deserializer;
use crate::model::{Order, RequestOutcome};
use serde::Deserialize;
use std::collections::BTreeSet;

/// The generator in messages.
const TOOL: &str = "guidellm";

object! {
    /// The file.
    Report { benchmarks: PerRequest<Benchmark>, }
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
    Strategy { streams: i64, max_concurrency: i64, rate: f64, type_: String, }
    unused ["burst", "random_seed", "initial_burst", "startup_duration", "worker_count", "rampup…"]
}

object! {
    /// Who was asked.
    Backend { model: String, }
    unused [
        "target", "type_", "http2", "timeout", "verify", "follow_redirects", "…_path", "…_routes",
        "validate_backend", "request_format", "api_key", "api_routes", "request_handlers", "stream",
        "extras", "max_tokens", "…",
    ]
}

object! {
    /// By what became of them.
    Requests { successful: PerRequest<Request>, errored: PerRequest<Request>, incomplete: PerRequest<Request>, }
    unused ["total"]
}

object! {
    /// A request.
    Request {
        info: Info,
        request_start_time: f64,
        request_end_time: f64,
        prompt_tokens: i64,
        output_tokens: i64,
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
    /// When.
    Timings { request_start: f64, resolve_start: f64, first_token_iteration: f64,
              first_iteration: f64, request_end: f64, resolve_end: f64, }
    unused [
        "targeted_start", "predecessor_completed", "queued", "dequeued", "scheduled_at", "first_request_iteration",
        "first_output_token_iteration", "last_…", "request_iterations", "token_…", "iterations",
        "request_sent_…", "finalized",
    ]
}

/// Reads it.
pub(super) fn read(file: &mut dyn Source) -> Result<LoadFile, FormatError> {
    let report = Report::deserialize(&mut deserializer(file))?;
    let mut unknown_fields = report.unknown;
    let mut runs = Vec::new();
    let PerRequest(benchmarks) = report.benchmarks.ok_or_else(|| missing("benchmarks"))?;
    for mut benchmark in benchmarks {
        unknown_fields.append(&mut benchmark.unknown);
        runs.push(run(benchmark, &mut unknown_fields)?);
    }
    Ok(LoadFile {
        clock: Clock::Wall,
        runs,
        unknown_fields,
    })
}

fn missing(field: &'static str) -> FormatError {
    FormatError::Missing {
        tool: TOOL,
        field,
        advice: ", which its JSON has",
    }
}

fn run(benchmark: Benchmark, unknown: &mut BTreeSet<String>) -> Result<Run, FormatError> {
    let mut config = benchmark.config.unwrap_or_default();
    let mut strategy = config.strategy.take().unwrap_or_default();
    let mut backend = config.backend.take().unwrap_or_default();
    unknown.append(&mut config.unknown);
    unknown.append(&mut strategy.unknown);
    unknown.append(&mut backend.unknown);
    let requests = benchmark.requests.ok_or_else(|| missing("requests"))?;
    let is_synchronous = strategy.type_.as_deref() == Some("synchronous");
    let asked = Asked {
        concurrency: strategy
            .streams
            .or(strategy.max_concurrency)
            .or(is_synchronous.then_some(1)),
        request_rate: strategy.rate,
        model: backend.model.filter(|model| !model.is_empty()),
        ..Asked::default()
    };
    let groups = [
        (requests.successful, None),
        (requests.errored, Some(RequestOutcome::Failed)),
        (requests.incomplete, Some(RequestOutcome::Interrupted)),
    ];
    let mut sent = Vec::new();
    for (group, otherwise) in groups {
        for mut request in group.unwrap_or_default().0 {
            unknown.append(&mut request.unknown);
            sent.extend(of_request(request, otherwise, sent.len(), unknown)?);
        }
    }
    sent.order_by_key(|one| one.start_ns);
    Ok(Run {
        asked,
        requests: sent,
    })
}

/// A request; `None` of one that was never sent. `otherwise` is what became of one that was not
/// answered.
fn of_request(
    request: Request,
    otherwise: Option<RequestOutcome>,
    place: usize,
    unknown: &mut BTreeSet<String>,
) -> Result<Option<Sent>, FormatError> {
    let mut info = request.info.unwrap_or_default();
    let mut timings = info.timings.take().unwrap_or_default();
    unknown.append(&mut info.unknown);
    unknown.append(&mut timings.unknown);
    let start = timings.request_start.or(request.request_start_time);
    let start = start.or(timings.resolve_start);
    let end = timings.request_end.or(request.request_end_time);
    let end = end.or(timings.resolve_end);
    let (start, end) = match (start, end, otherwise) {
        (Some(start), Some(end), _) => (start, end),
        (_, _, Some(_)) => return Ok(None),
        (None, ..) => return Err(missing("request_start")),
        (_, None, _) => return Err(missing("request_end")),
    };
    let first = timings.first_token_iteration.or(timings.first_iteration);
    let Words(told) = info.error.unwrap_or_default();
    Ok(Some(Sent {
        start_ns: ns(start, "the start", place)?,
        first_token_ns: first
            .map(|first| ns(first, "the time of the first token", place))
            .transpose()?,
        end_ns: ns(end, "the end", place)?,
        prompt_tokens: request.prompt_tokens,
        output_tokens: request.output_tokens,
        http_status: None,
        failure: otherwise.map(|otherwise| match failure(&told) {
            (RequestOutcome::Failed, kept) => (otherwise, kept),
            known => known,
        }),
    }))
}
