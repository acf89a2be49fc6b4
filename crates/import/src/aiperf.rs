//! aiperf: a line for each request (`profile_export.jsonl`), and what was asked for beside it
//! (`profile_export_aiperf.json`). Its times are those of the wall clock.

use super::clocks::Clock;
use super::file::{Asked, Beside, FormatError, LoadFile, Run, Sent, Source, ns};
use super::object::{Words, count_request, object};
use super::outcome::Failure;
use super::python_json::deserializer;
use memtrace_model::RequestOutcome;
use serde_json::Value;

/// The generator in messages.
const TOOL: &str = "aiperf";

/// What was asked for, and the figures of the whole run.
const SUMMARY: &str = "profile_export_aiperf.json";

object! {
    /// A line of the file.
    Record { metadata: Metadata, metrics: Metrics, error: Failed, }
    unused ["trace_data"]
}

object! {
    /// Which request, and when.
    Metadata {
        request_start_ns: i64,
        request_end_ns: i64,
        benchmark_phase: Words,
        phase_name: Words,
        was_cancelled: bool,
    }
    unused [
        "request_num", "session_num", "x_request_id", "x_correlation_id", "conversation_id",
        "turn_index", "credit_…", "request_ack_ns", "worker_id", "record_processor_id",
        "cancellation_time_ns", "clock_offset_ns", "phase_index", "profiling_index", "phase_kind",
        "context_overflow_skip", "agent_depth", "root_correlation_id", "parent_…",
    ]
}

object! {
    /// Its figures, of which few are used; new ones come with each version.
    Metrics {
        time_to_first_token: Figure,
        request_latency: Figure,
        usage_prompt_tokens: Figure,
        usage_completion_tokens: Figure,
        input_sequence_length: Figure,
        output_sequence_length: Figure,
    }
    unused ["…"]
}

object! {
    /// A figure with its unit.
    Figure { value: f64, unit: Words, }
    unused ["…"]
}

object! {
    /// Why it failed.
    Failed { code: i32, kind = "type": Words, message: Words, }
    unused ["cause", "cause_chain", "details"]
}

impl Figure {
    /// A length of time; `None` in a unit that is not known.
    fn nanoseconds(&self, place: usize) -> Result<Option<i64>, FormatError> {
        let (Some(value), Some(Words(unit))) = (self.value, &self.unit) else {
            return Ok(None);
        };
        let seconds = match unit.as_str() {
            "s" => value,
            "ms" => value / 1e3,
            "us" => value / 1e6,
            "ns" => value / 1e9,
            _ => return Ok(None),
        };
        ns(seconds, "the time to the first token", place).map(Some)
    }
}

pub(super) fn read(file: &mut dyn Source, beside: Beside<'_>) -> Result<LoadFile, FormatError> {
    let summary = beside(SUMMARY).unwrap_or_default();
    let config = &summary["input_config"];
    let mut reported = LoadFile::on(Clock::Wall);
    // A phase is what is sent at one pace.
    let mut phases: Vec<Option<String>> = Vec::new();
    for record in deserializer(file).into_iter::<Record>() {
        // Those that warm up count as well.
        let Some((phase, sent)) = request(record?, count_request()?)? else {
            continue;
        };
        match phases.iter().position(|name| *name == phase) {
            Some(place) => reported.runs[place].requests.push(sent),
            None => {
                reported.push(Run {
                    asked: asked(config, phase.as_deref()),
                    requests: vec![sent],
                })?;
                phases.push(phase);
            }
        }
    }
    Ok(reported)
}

/// What was asked for in a phase, where that file is there.
fn asked(config: &Value, phase: Option<&str>) -> Asked {
    let phases = config["phases"].as_array().map_or(&[][..], Vec::as_slice);
    let phase = phases.iter().find(|one| one["name"].as_str() == phase);
    let prompts = &config["datasets"][0]["prompts"];
    let tokens = |what: &str| {
        prompts[what]["mean"]
            .as_f64()
            .map(|mean| mean.round() as i64)
    };
    let model = config["models"]["items"][0]["name"].as_str();
    Asked {
        input_tokens: tokens("isl"),
        output_tokens: tokens("osl"),
        concurrency: phase.and_then(|phase| phase["concurrency"].as_i64()),
        request_rate: phase.and_then(|phase| phase["rate"].as_f64()),
        model: model.map(str::to_owned),
    }
}

/// A request and its phase; `None` of one that warms up.
fn request(record: Record, place: usize) -> Result<Option<(Option<String>, Sent)>, FormatError> {
    let missing = |field| FormatError::Missing {
        tool: TOOL,
        field,
        advice: ", which each line of profile_export.jsonl has",
    };
    let metadata = record.metadata.ok_or_else(|| missing("metadata"))?;
    let name = |words: Option<Words>| words.map(|Words(name)| name);
    if name(metadata.benchmark_phase).as_deref() == Some("warmup") {
        return Ok(None);
    }
    let metrics = record.metrics.unwrap_or_default();
    let start_ns = metadata
        .request_start_ns
        .ok_or_else(|| missing("request_start_ns"))?;
    let end_ns = metadata
        .request_end_ns
        .ok_or_else(|| missing("request_end_ns"))?;
    let first = metrics.time_to_first_token.as_ref();
    let first = first
        .map(|first| first.nanoseconds(place))
        .transpose()?
        .flatten();
    let count = |own: &Option<Figure>, tokenizers: &Option<Figure>| {
        // The server's own count, else that of the generator's tokenizer.
        let value = |figure: &Option<Figure>| figure.as_ref()?.value;
        match value(own).or_else(|| value(tokenizers)).map(f64::round) {
            Some(count) if !(0.0..=f64::from(u32::MAX)).contains(&count) => {
                let what = "a count of tokens";
                let request = place;
                Err(FormatError::Absurd { what, request })
            }
            count => Ok(count.map(|count| count as u32)),
        }
    };
    let status = record.error.as_ref().and_then(|error| error.code);
    let status = status.filter(|status| (100..=999).contains(status));
    let failure = match (record.error, metadata.was_cancelled) {
        (_, Some(true)) => Some(Failure::shared(Failure {
            outcome: RequestOutcome::Interrupted,
            words: String::new(),
            http_status: status,
        })),
        (None, _) => None,
        (Some(Failed { kind, message, .. }), _) => {
            let (Words(kind), Words(text)) =
                (kind.unwrap_or_default(), message.unwrap_or_default());
            let text = format!("{kind}: {text}");
            Some(Failure::of(&text, status, RequestOutcome::Failed))
        }
    };
    let sent = Sent {
        start_ns,
        first_token_ns: first.map(|first| start_ns.saturating_add(first)),
        end_ns,
        prompt_tokens: count(&metrics.usage_prompt_tokens, &metrics.input_sequence_length)?,
        output_tokens: count(
            &metrics.usage_completion_tokens,
            &metrics.output_sequence_length,
        )?,
        failure,
        ..Sent::default()
    };
    Ok(Some((name(metadata.phase_name), sent)))
}
