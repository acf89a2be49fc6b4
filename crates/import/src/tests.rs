//! What is understood of files that the generators themselves wrote; samples/README.md says how.

use super::clocks::Clock;
use super::*;
use memtrace_model::RequestOutcome;
use serde_json::Value;
use std::io::Cursor;
use std::path::{Path, PathBuf};

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/samples")
        .join(name)
}

/// A sample, with some of its text exchanged.
fn read_with(
    name: &str,
    exchange: &[(&str, &str)],
) -> Result<(&'static str, LoadFile), FormatError> {
    let path = sample(name);
    let mut text = std::fs::read_to_string(&path).unwrap();
    for (from, to) in exchange {
        assert!(text.contains(from), "{name} has no {from}");
        text = text.replace(from, to);
    }
    let beside = |name: &str| -> Option<Value> {
        serde_json::from_slice(&std::fs::read(path.with_file_name(name)).ok()?).ok()
    };
    let (format, file) = read(&mut Cursor::new(text.into_bytes()), &beside, REQUESTS_MAX)?;
    Ok((format.name, file))
}

fn read_sample(name: &str) -> (&'static str, LoadFile) {
    let (format, file) = read_with(name, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(
        file.unknown_fields.len(),
        0,
        "{name}: {:?}",
        file.unknown_fields
    );
    (format, file)
}

/// Concurrency, rate, and requests of each run.
fn runs(file: &LoadFile) -> Vec<(Option<i64>, Option<f64>, usize)> {
    let runs = file.runs.iter();
    runs.map(|run| {
        (
            run.asked.concurrency,
            run.asked.request_rate,
            run.requests.len(),
        )
    })
    .collect()
}

#[test]
fn a_file_of_another_kind_is_named_with_the_one_that_would_do() {
    let summary = include_bytes!("samples/aiperf-0.13.0/profile_export_aiperf.json");
    let stage = include_bytes!("samples/inference-perf-0.7.0/stage_0_lifecycle_metrics.json");
    for (bytes, words) in [
        (
            &summary[..],
            "use it: it is aiperf's summary; profile_export.jsonl beside it",
        ),
        (stage, "per_request_lifecycle_metrics.json beside it"),
        (
            b"\x1f\x8b\x08\x00",
            "compressed by gzip; unpack it first: gunzip FILE",
        ),
        (b"\x28\xb5\x2f\xfd\x00", "compressed by zstd"),
        (
            b"request,start,latency\n1,2,3\n",
            "it looks like CSV; requests are read from vllm bench serve",
        ),
        (b"hello", "it is no JSON; requests are read from"),
        (
            b"2026-11-27 09:34:55,123 INFO ready, at last, on :8000\n",
            "it is no JSON; requests are read from",
        ),
        (
            br#"{"format": "memtrace-report", "memtrace_version": "0.1.0"}"#,
            "it is a report of memtrace; import takes the files of load generators",
        ),
        (br#"{"traceEvents": []}"#, "memtrace traces FILE"),
        (
            br#"{"a": 1}"#,
            "known are vllm bench serve --save-result --save-detailed (its JSON); ",
        ),
    ] {
        let mut file = std::io::Cursor::new(bytes.to_vec());
        let refused = format_of(&mut file).err().expect(words).to_string();
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn every_generator_that_tells_times_is_understood_with_its_conditions() {
    for (name, format, clock, expected) in [
        (
            "vllm-bench-serve-0.32.0.json",
            "vllm-bench-serve",
            Clock::Monotonic,
            vec![(Some(2), None, 4)],
        ),
        (
            "guidellm-0.8.1.json",
            "guidellm",
            Clock::Wall,
            vec![(Some(2), None, 2), (Some(3), None, 2)],
        ),
        (
            "aiperf-0.13.0/profile_export.jsonl",
            "aiperf",
            Clock::Wall,
            vec![(None, Some(20.0), 3)],
        ),
        (
            "inference-perf-0.7.0/per_request_lifecycle_metrics.json",
            "inference-perf",
            Clock::Monotonic,
            vec![(Some(2), None, 2), (Some(3), None, 3)],
        ),
    ] {
        let (found, file) = read_sample(name);
        assert_eq!((found, file.clock), (format, clock), "{name}");
        assert_eq!(runs(&file), expected, "{name}");
        for sent in file.runs.iter().flat_map(|run| &run.requests) {
            assert_eq!(sent.failure, None, "{name}");
            assert_eq!(sent.output_tokens, Some(6), "{name}: {sent:?}");
            assert!(
                sent.prompt_tokens.is_some_and(|count| count > 0),
                "{name}: {sent:?}"
            );
            // The server sent 100 tokens a second.
            let first = sent.first_token_ns.unwrap() - sent.start_ns;
            let all = sent.end_ns - sent.start_ns;
            assert!((5_000_000..100_000_000).contains(&first), "{name}: {first}");
            assert!((40_000_000..400_000_000).contains(&all), "{name}: {all}");
        }
    }
}

#[test]
fn what_became_of_requests_that_failed_is_reported_in_our_words() {
    let (_, file) = read_sample("vllm-bench-serve-0.32.0-broken.json");
    let failures = file.runs[0]
        .requests
        .iter()
        .map(|sent| sent.failure.clone().unwrap());
    let (outcomes, texts): (Vec<_>, Vec<_>) = failures
        .map(|failure| (failure.outcome, failure.words.clone()))
        .unzip();
    let broken = RequestOutcome::Broken;
    assert_eq!(outcomes, [broken, broken, RequestOutcome::NotConnected]);
    assert!(
        texts[0].starts_with("aiohttp.client_exceptions.ClientPayloadError"),
        "{texts:?}"
    );
    // Two were cut after 22 of 40 tokens, and that is when they ended for all that is known.
    let cut = &file.runs[0].requests[0];
    assert!(cut.end_ns - cut.start_ns > 5_000_000_000, "{cut:?}");
    let (_, file) = read_sample("guidellm-0.8.1-refused.json");
    let failure = file.runs[0].requests[0].failure.clone().unwrap();
    assert_eq!(failure.outcome, RequestOutcome::Refused);
    assert!(failure.words.contains("400 Bad Request"), "{failure:?}");
}

#[test]
fn a_generator_that_leaves_out_when_requests_were_sent_is_reported_so_by_name() {
    let refused = read_with("sglang-bench-serving-0.5.23.jsonl", &[]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "use it: sglang.bench_serving has no field start_times, without which it is unknown when \
         requests were sent"
    );
    // With them the rest is understood.
    let times = [("\"ttfts\"", "\"start_times\": [1.0, 1.5, 2.0], \"ttfts\"")];
    let (name, file) = read_with("sglang-bench-serving-0.5.23.jsonl", &times).unwrap();
    assert_eq!(
        (name, runs(&file)),
        ("sglang-bench-serving", vec![(Some(2), None, 3)])
    );
    assert_eq!(file.runs[0].asked.input_tokens, Some(48));
    assert_eq!(file.unknown_fields.len(), 0, "{:?}", file.unknown_fields);
}

#[test]
fn fields_of_another_version_are_named_and_those_that_are_missing_refused() {
    let vllm = "vllm-bench-serve-0.32.0.json";
    let (_, file) = read_with(vllm, &[("\"ttfts\"", "\"of_tomorrow\": {}, \"ttfts\"")]).unwrap();
    assert_eq!(
        file.unknown_fields.iter().collect::<Vec<_>>(),
        ["of_tomorrow"]
    );
    for (name, field, said) in [
        (
            vllm,
            "start_times",
            "has no field start_times, as its older versions do",
        ),
        (vllm, "itls", "has no field itls"),
        (
            "aiperf-0.13.0/profile_export.jsonl",
            "request_start_ns",
            "has no field request_start_ns",
        ),
        (
            "inference-perf-0.7.0/per_request_lifecycle_metrics.json",
            "end_time",
            "which load generator",
        ),
    ] {
        let exchange = (format!("\"{field}\""), format!("\"not_{field}\""));
        let refused = read_with(name, &[(&exchange.0, &exchange.1)]).unwrap_err();
        assert!(refused.to_string().contains(said), "{name}: {refused}");
    }
    let refused = read_with(vllm, &[("15833.709426819", "\"soon\"")]).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("start_times: invalid type: string"),
        "{refused}"
    );
    let refused = read_with(vllm, &[("15833.709426819", "-1")]).unwrap_err();
    assert!(
        refused.to_string().contains("the start of request 0"),
        "{refused}"
    );
}

#[test]
fn a_request_that_serde_refuses_is_refused_for_its_own_reason() {
    let lists = "inference-perf-0.7.0/per_request_lifecycle_metrics.json";
    let read = |name, from: &str, to| {
        let text = std::fs::read_to_string(sample(name)).unwrap();
        let at = text.rfind(from).unwrap();
        let text = format!("{}{to}{}", &text[..at], &text[at + from.len()..]);
        let refused = read(&mut Cursor::new(text), &|_| None, REQUESTS_MAX);
        refused.err().unwrap()
    };
    let refused = read(lists, "\"end_time\"", "\"not_end_time\"");
    assert_eq!(
        refused.to_string(),
        "use it: inference-perf has no field end_time"
    );
    let refused = read(lists, "\"start_time\": ", "\"start_time\": -");
    assert!(
        matches!(refused, FormatError::Absurd { request: 4, .. }),
        "{refused}"
    );
    let guidellm = "guidellm-0.8.1.json";
    let refused = read(guidellm, "\"requests\"", "\"not_requests\"");
    assert!(
        matches!(
            refused,
            FormatError::Missing {
                field: "requests",
                ..
            }
        ),
        "{refused}"
    );
    // The reason of the file before is not that of the next.
    let refused = read(guidellm, "\"benchmarks\": [", "\"benchmarks\": [7, ");
    assert!(matches!(refused, FormatError::Json(_)), "{refused}");
}

#[test]
fn what_beside_says_of_another_run_is_not_believed() {
    let path = sample("inference-perf-0.7.0/per_request_lifecycle_metrics.json");
    let text = std::fs::read(path).unwrap();
    let other = |_: &str| Some(serde_json::json!({"load_summary": {"count": 7, "concurrency": 9}}));
    let (_, file) = read(&mut Cursor::new(text), &other, REQUESTS_MAX).unwrap();
    assert_eq!(runs(&file), [(None, None, 5)]);
}

#[test]
fn a_file_that_is_deep_or_has_a_text_without_end_is_refused() {
    let read = |text: String| {
        let refused = read(&mut Cursor::new(text), &|_| None, REQUESTS_MAX)
            .err()
            .unwrap();
        refused.to_string()
    };
    let deep = read(format!(r#"{{"model_id":{}"#, "[".repeat(1 << 20)));
    assert!(deep.contains("128 levels"), "{deep}");
    for begin in [r#"{"model_id":""#, r#"{""#] {
        let long = read(format!("{begin}{}", "x".repeat(17 << 20)));
        assert!(long.contains("longer than 16 MiB"), "{long}");
    }
    // By fields without number no file is distinguished from others, and they are not kept.
    let fields: String = (0..10_000).map(|at| format!("\"k{at}\":1,")).collect();
    let unknown = read(format!("{{{fields}\"z\":1}}"));
    assert!(unknown.contains("which load generator"), "{unknown}");
}
