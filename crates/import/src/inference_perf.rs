//! inference-perf: a list of all requests (`per_request_lifecycle_metrics.json`), and beside it what
//! was asked for at each stage (`stage_N_lifecycle_metrics.json`). Its times are of CLOCK_MONOTONIC.

use super::clocks::Clock;
use super::file::{Asked, Beside, FormatError, LoadFile, RUNS_MAX, Run, Sent, Source, ns};
use super::object::{First, PerRequest, Refused, Words, count_request, object};
use super::outcome::Failure;
use super::python_json::deserializer;
use memtrace_model::{Order, RequestOutcome};
use serde::Deserialize;

/// The generator in messages.
const TOOL: &str = "inference-perf";

object! {
    /// One request that was sent.
    Request { start_time: f64, end_time: f64, info: Info, error: Failed, }
    unused ["request", "response", "session_id", "computed_metrics"]
}

object! {
    /// What was counted of it. The first two stood here before version 0.5.
    Info {
        input_tokens: u32,
        output_tokens: u32,
        output_token_times: First,
        request_metrics: RequestMetrics,
        response_metrics: ResponseMetrics,
    }
    unused ["extra_info", "lora_adapter", "graph_event_id", "labels", "retries_…"]
}

object! {
    /// What was sent.
    RequestMetrics { text: Text, }
    unused ["…"]
}

object! {
    /// Of that the text.
    Text { input_tokens: u32, }
    unused ["…"]
}

object! {
    /// What came of it.
    ResponseMetrics {
        output_tokens: u32,
        output_token_times: First,
        chunk_times: First,
        server_usage: Usage,
    }
    unused ["response_chunks"]
}

object! {
    /// What the server counted.
    Usage { prompt_tokens: u32, completion_tokens: u32, }
    unused ["…"]
}

object! {
    /// Why it failed.
    Failed { error_type: Words, error_msg: Words, }
    unused ["…"]
}

/// A request, as it is kept.
#[derive(Deserialize)]
#[serde(try_from = "Request")]
struct Reported(Sent);

pub(super) fn read(file: &mut dyn Source, beside: Beside<'_>) -> Result<LoadFile, FormatError> {
    let sent = PerRequest::<Reported>::deserialize(&mut deserializer(file))?;
    let mut sent: Vec<Sent> = sent.into_iter().map(|Reported(sent)| sent).collect();
    // They stand in the order of their ends, and stages are sent one after the other.
    sent.order_by_key(|one| one.start_ns);
    let mut reported = LoadFile::on(Clock::Monotonic);
    for run in by_stage(sent, beside) {
        reported.push(run)?;
    }
    Ok(reported)
}

/// The requests of each stage: as many as its own file counts. Without these files, or where they
/// are of another run, all are of one.
fn by_stage(mut sent: Vec<Sent>, beside: Beside<'_>) -> Vec<Run> {
    let stages = (0..=RUNS_MAX).map_while(|stage| {
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

impl TryFrom<Request> for Reported {
    type Error = Refused;

    fn try_from(request: Request) -> Result<Self, Refused> {
        let place = count_request()?;
        let missing = |field| FormatError::Missing {
            tool: TOOL,
            field,
            advice: "",
        };
        let info = request.info.unwrap_or_default();
        let came = info.response_metrics.unwrap_or_default();
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
        Ok(Self(Sent {
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
            failure: request.error.map(|error| {
                let (kind, text) = (error.error_type, error.error_msg);
                let (Words(kind), Words(text)) =
                    (kind.unwrap_or_default(), text.unwrap_or_default());
                Failure::of(&format!("{kind}: {text}"), None, RequestOutcome::Failed)
            }),
            ..Sent::default()
        }))
    }
}
