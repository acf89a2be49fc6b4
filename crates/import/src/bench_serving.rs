//! `vllm bench serve`, and `sglang.bench_serving`, which began as a copy of it: one object for each
//! run, with a list for each figure, the same request at the same place of each.

use super::clocks::Clock;
use super::file::{Asked, FormatError, LoadFile, Run, Sent, Source, ns};
use super::object::{PerRequest, Sum, Words, count_request, object};
use super::outcome::Failure;
use super::python_json::deserializer;
use memtrace_model::RequestOutcome;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::rc::Rc;

/// One of a list of errors: null, or empty, where the request was answered.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Option<Words>")]
struct MaybeFailed(Option<Rc<Failure>>);

impl From<Option<Words>> for MaybeFailed {
    fn from(words: Option<Words>) -> Self {
        let words = words.filter(|Words(words)| !words.is_empty());
        Self(words.map(|Words(words)| Failure::of(&words, None, RequestOutcome::Failed)))
    }
}

object! {
    /// A run, as both write it.
    Bench {
        model_id: Words,
        request_rate: Rate,
        max_concurrency: i64,
        random_input_len: i64,
        random_output_len: i64,
        dataset_name: Words,
        start_times: PerRequest<f64>,
        ttfts: PerRequest<f64>,
        itls: PerRequest<Sum>,
        input_lens: PerRequest<u32>,
        output_lens: PerRequest<u32>,
        errors: PerRequest<MaybeFailed>,
    }
    unused [
        "date", "endpoint_type", "backend", "label", "tokenizer_id", "num_prompts", "burstiness",
        "duration", "completed", "failed", "request_throughput", "request_goodput", "goodput",
        "output_throughput", "total_token_throughput", "total_throughput", "input_throughput",
        "total_input…", "total_output…", "generated_texts", "latencies", "queue_times", "rtfx",
        "max_output_tokens_per_s", "max_concurrent_requests", "ramp_up_…", "rps_change_events",
        "spec_decode_…", "diffusion_…", "probe_…", "mean_…", "median_…", "std_…", "…_ms",
        "request_id_prefix", "tag", "server_info", "sharegpt_output_len", "random_range_ratio",
        "accept_length", "concurrency", "cache_report", "cached_tokens…",
    ]
}

/// Requests a second, or a word for as many as can be.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Rate {
    Number(f64),
    Word(IgnoredAny),
}

/// Which of the two.
struct Tool {
    name: &'static str,
    detailed: &'static str,
    start_times: &'static str,
}

const VLLM: Tool = Tool {
    name: "vllm bench serve",
    detailed: ", which --save-detailed writes",
    start_times: ", as its older versions do",
};

const SGLANG: Tool = Tool {
    name: "sglang.bench_serving",
    detailed: ", which --output-details writes",
    start_times: ", without which it is unknown when requests were sent",
};

/// Reads the file of `vllm bench serve`; with `--append-result` it has several runs.
pub(super) fn read_vllm(file: &mut dyn Source) -> Result<LoadFile, FormatError> {
    read(file, &VLLM)
}

/// Reads the file of `sglang.bench_serving`, to which each run adds a line.
pub(super) fn read_sglang(file: &mut dyn Source) -> Result<LoadFile, FormatError> {
    read(file, &SGLANG)
}

fn read(file: &mut dyn Source, tool: &Tool) -> Result<LoadFile, FormatError> {
    let mut reported = LoadFile::on(Clock::Monotonic);
    for bench in deserializer(file).into_iter::<Bench>() {
        reported.push(run(bench?, tool)?)?;
    }
    Ok(reported)
}

fn run(bench: Bench, tool: &Tool) -> Result<Run, FormatError> {
    let missing = |field, advice| FormatError::Missing {
        tool: tool.name,
        field,
        advice,
    };
    let starts = match bench.start_times {
        Some(starts) => starts,
        // Where the other lists are there, it was asked for them.
        None if bench.ttfts.is_some() => return Err(missing("start_times", tool.start_times)),
        None => return Err(missing("start_times", tool.detailed)),
    };
    let ttfts = bench.ttfts.ok_or_else(|| missing("ttfts", tool.detailed))?;
    let itls = bench.itls.ok_or_else(|| missing("itls", tool.detailed))?;
    let inputs = bench
        .input_lens
        .ok_or_else(|| missing("input_lens", tool.detailed))?;
    let outputs = bench
        .output_lens
        .ok_or_else(|| missing("output_lens", tool.detailed))?;
    let errors = bench
        .errors
        .ok_or_else(|| missing("errors", tool.detailed))?;
    for (field, found) in [
        ("ttfts", ttfts.len()),
        ("itls", itls.len()),
        ("input_lens", inputs.len()),
        ("output_lens", outputs.len()),
        ("errors", errors.len()),
    ] {
        if found != starts.len() {
            let expected = starts.len();
            return Err(FormatError::Uneven {
                field,
                expected,
                found,
            });
        }
    }
    // Their data set of random words is the only one whose lengths are asked for so.
    let is_random = bench
        .dataset_name
        .is_some_and(|Words(name)| name.starts_with("random"));
    let asked = Asked {
        input_tokens: bench.random_input_len.filter(|_| is_random),
        output_tokens: bench.random_output_len.filter(|_| is_random),
        concurrency: bench.max_concurrency,
        request_rate: match bench.request_rate {
            Some(Rate::Number(rate)) if rate.is_finite() => Some(rate),
            _ => None,
        },
        model: bench.model_id.map(|Words(model)| model),
    };
    let mut requests = Vec::with_capacity(starts.len());
    let figures = starts
        .into_iter()
        .zip(ttfts)
        .zip(itls)
        .zip(inputs.into_iter().zip(outputs));
    for (figures, MaybeFailed(error)) in figures.zip(errors) {
        let place = count_request()?;
        let (((start, ttft), Sum(rest)), (input, output)) = figures;
        let start_ns = ns(start, "the start", place)?;
        let first_ns = ns(start + ttft, "the time of the first token", place)?;
        // Without a first token it was not answered, also where no words are left for it.
        let unanswered = || Failure::of("", None, RequestOutcome::Failed);
        let failure = error.or_else(|| (ttft <= 0.0).then(unanswered));
        requests.push(Sent {
            start_ns,
            first_token_ns: (ttft > 0.0).then_some(first_ns),
            // Of one that failed no more is reported than when its last token came.
            end_ns: ns(start + ttft + rest, "the end", place)?,
            prompt_tokens: Some(input),
            output_tokens: (failure.is_none() || output > 0).then_some(output),
            failure,
            ..Sent::default()
        });
    }
    Ok(Run { asked, requests })
}
