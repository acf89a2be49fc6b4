//! inference-perf: a list of all requests (`per_request_lifecycle_metrics.json`), and beside it what
//! was asked for at each stage (`stage_N_lifecycle_metrics.json`). Its times are of CLOCK_MONOTONIC.

use super::clocks::Clock;
use super::file::{Asked, Beside, FormatError, LoadFile, Run, Sent, Source, ns};
use super::object::{First, PerRequest, Words, object};
use super::outcome::failure;
use super::python_json::deserializer;
use crate::model::Order;
use serde::Deserialize;
use std::collections::BTreeSet;

/// The generator in messages.
const TOOL: &str = "inference-perf";

/// More stages are in no run.
const STAGES_MAX: usize = 1_000;

object! {
    /// A request.
    Request { start_time: f64, end_time: f64, info: Info, error: Failure, }
    unused ["request", "response", "session_id", "computed_metrics"]
}

object! {
    /// What was counted of it. The first two stood here before version 0.5.
    Info {
        input_tokens: i64,
        output_tokens: i64,
        output_token_times: First,
        request_metrics: RequestMetrics,
        response_metrics: ResponseMetrics,
    }
    unused ["extra_info", "lora_adapter", "graph_event_id", "labels", "retries_…"]
}

object! {
    /// What was sent.
    RequestMetrics { text: Text, }
    unused ["image", "video", "audio"]
}

object! {
    /// Of that the text.
    Text { input_tokens: i64, }
    unused []
}

object! {
    /// What came.
    ResponseMetrics {
        output_tokens: i64,
        output_token_times: First,
        chunk_times: First,
        server_usage: Usage,
    }
    unused ["response_chunks"]
}

object! {
    /// What the server counted.
    Usage { prompt_tokens: i64, completion_tokens: i64, }
    unused ["…"]
}

object! {
    /// Why it failed.
    Failure { error_type: Words, error_msg: Words, }
    unused []
}

/// Reads it.
pub(super) fn read(file: &mut dyn Source, beside: Beside<'_>) -> Result<LoadFile, FormatError> {
    let PerRequest(requests) = PerRequest::<Request>::deserialize(&mut deserializer(file))?;
    let mut unknown_fields = BTreeSet::new();
    let sent = requests.into_iter().enumerate();
    let sent = sent.map(|(place, request)| of_request(request, place, &mut unknown_fields));
    let mut sent: Vec<Sent> = sent.collect::<Result<_, _>>()?;
    // They stand in the order of their ends, and stages are sent one after the other.
    sent.order_by_key(|one| one.start_ns);
    Ok(LoadFile {
        clock: Clock::Monotonic,
        runs: by_stage(sent, beside),
        unknown_fields,
    })
}

/// The requests of each stage: as many as its own file counts. Without these files, or where they
/// are of another run, all are of one.
fn by_stage(mut sent: Vec<Sent>, beside: Beside<'_>) -> Vec<Run> {
    let stages = (0..STAGES_MAX).map_while(|stage| {
        let figures = beside(&format!("stage_{stage}_lifecycle_metrics.json"))?;
        let load = &figures["load_summary"];
        let count = usize::try_from(load["count"].as_u64()?).ok()?;
        let concurrency = load["concurrency"].as_i64();
        // Of a stage with a concurrency the rate is one that is never reached.
        let rate = load["requested_rate"]
            .as_f64()
            .filter(|_| concurrency.is_none());
        Some((count, concurrency, rate))
    });
    let stages: Vec<_> = stages.collect();
    let counted = stages
        .iter()
        .try_fold(0_usize, |all, (count, ..)| all.checked_add(*count));
    if counted != Some(sent.len()) {
        let asked = Asked::default();
        return vec![Run {
            asked,
            requests: sent,
        }];
    }
    let runs = stages
        .into_iter()
        .map(|(count, concurrency, request_rate)| Run {
            asked: Asked {
                concurrency,
                request_rate,
                ..Asked::default()
            },
            requests: sent.drain(..count).collect(),
        });
    runs.collect()
}

fn of_request(
    mut request: Request,
    place: usize,
    unknown: &mut BTreeSet<String>,
) -> Result<Sent, FormatError> {
    let missing = |field| FormatError::Missing {
        tool: TOOL,
        field,
        advice: "",
    };
    let mut info = request.info.take().unwrap_or_default();
    let mut came = info.response_metrics.take().unwrap_or_default();
    unknown.append(&mut request.unknown);
    unknown.append(&mut info.unknown);
    unknown.append(&mut came.unknown);
    let start = request.start_time.ok_or_else(|| missing("start_time"))?;
    let end = request.end_time.ok_or_else(|| missing("end_time"))?;
    let first = |times: Option<First>| times.and_then(|times| times.first);
    let first = first(came.output_token_times)
        .or(first(came.chunk_times))
        .or(first(info.output_token_times));
    let usage = came.server_usage.unwrap_or_default();
    let text = info.request_metrics.and_then(|sent| sent.text);
    let prompt = text
        .and_then(|text| text.input_tokens)
        .or(info.input_tokens);
    Ok(Sent {
        start_ns: ns(start, "the start", place)?,
        first_token_ns: first
            .map(|first| ns(first, "the time of the first token", place))
            .transpose()?,
        end_ns: ns(end, "the end", place)?,
        prompt_tokens: usage.prompt_tokens.or(prompt),
        output_tokens: usage
            .completion_tokens
            .or(came.output_tokens)
            .or(info.output_tokens),
        http_status: None,
        failure: request.error.map(|error| {
            let (kind, text) = (error.error_type, error.error_msg);
            let (Words(kind), Words(text)) = (kind.unwrap_or_default(), text.unwrap_or_default());
            failure(&format!("{kind}: {text}"))
        }),
    })
}
