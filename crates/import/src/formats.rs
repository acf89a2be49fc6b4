//! The load generators whose files are understood, and which one a file is of.

use super::file::{Beside, FormatError, LoadFile, Source};
use super::object::{Shape, begin_file, take_refusal, take_unknown};
use super::python_json::deserializer;
use super::{aiperf, bench_serving, guidellm, inference_perf};
use serde::Deserialize;
use std::io::{Read, SeekFrom};

/// A load generator.
pub struct Format {
    /// What its requests are a run of.
    pub name: &'static str,
    /// How it is asked to write such a file.
    pub doc: &'static str,
    /// Whether a file whose first value is that can be one of its.
    is_of: fn(&Shape) -> bool,
    read: fn(&mut dyn Source, Beside<'_>) -> Result<LoadFile, FormatError>,
}

/// Every one of them.
pub static FORMATS: &[Format] = &[
    Format {
        name: "vllm-bench-serve",
        doc: "vllm bench serve --save-result --save-detailed (its JSON)",
        is_of: |shape| has(shape, &["model_id", "num_prompts"]),
        read: |file, _| bench_serving::read_vllm(file),
    },
    Format {
        name: "sglang-bench-serving",
        doc: "python -m sglang.bench_serving --output-details --output-file FILE",
        is_of: |shape| has(shape, &["random_range_ratio", "sharegpt_output_len"]),
        read: |file, _| bench_serving::read_sglang(file),
    },
    Format {
        name: "guidellm",
        doc: "guidellm run --output kind=json,path=FILE",
        is_of: |shape| has(shape, &["benchmarks"]),
        read: |file, _| guidellm::read(file),
    },
    Format {
        name: "aiperf",
        doc: "aiperf profile (profile_export.jsonl)",
        is_of: |shape| has(shape, &["metadata", "metrics"]),
        read: |file, beside| aiperf::read(file, beside),
    },
    Format {
        name: "inference-perf",
        doc: "inference-perf with per_request: true (per_request_lifecycle_metrics.json)",
        is_of: |shape| match shape {
            Shape::List(names) => names.contains("start_time") && names.contains("end_time"),
            _ => false,
        },
        read: |file, beside| inference_perf::read(file, beside),
    },
];

fn has(shape: &Shape, fields: &[&str]) -> bool {
    match shape {
        Shape::Object(names) => fields.iter().all(|&field| names.contains(field)),
        _ => false,
    }
}

/// Which generator wrote a file.
///
/// # Errors
/// When it is of none, or can't be read.
pub fn format_of(file: &mut dyn Source) -> Result<&'static Format, FormatError> {
    file.seek(SeekFrom::Start(0))?;
    let mut begin = Vec::new();
    Read::take(&mut *file, BEGIN_BYTES).read_to_end(&mut begin)?;
    no_json(&begin)?;
    file.seek(SeekFrom::Start(0))?;
    let shape = Shape::deserialize(&mut deserializer(file))?;
    if let Some(found) = FORMATS.iter().find(|format| (format.is_of)(&shape)) {
        return Ok(found);
    }
    let other = OTHERS.iter().find(|(fields, ..)| has(&shape, fields));
    Err(match other {
        Some((_, what, instead)) => FormatError::Other {
            what,
            instead: (*instead).to_owned(),
        },
        None => FormatError::Unknown { known: known() },
    })
}

/// So much of a file says whether it is JSON.
const BEGIN_BYTES: u64 = 512;

/// Other files that people have beside those with requests: by their fields, what they are, and what would
/// do.
const OTHERS: &[(&[&str], &str, &str)] = &[
    (
        &["aiperf_version", "input_config"],
        "aiperf's summary",
        "profile_export.jsonl beside it has the requests",
    ),
    (
        &["load_summary"],
        "a summary of inference-perf",
        "per_request_lifecycle_metrics.json beside it has the requests (per_request: true)",
    ),
    (
        &["traceEvents"],
        "a trace of a profiler",
        "memtrace traces FILE sums it up",
    ),
    (
        &["format", "memtrace_version"],
        "a report of memtrace",
        "import takes the files of load generators",
    ),
];

/// What file each generator writes.
fn known() -> String {
    let docs: Vec<&str> = FORMATS.iter().map(|format| format.doc).collect();
    docs.join("; ")
}

/// Refuses what can't be JSON by its first bytes.
fn no_json(begin: &[u8]) -> Result<(), FormatError> {
    let other = |what, instead| Err(FormatError::Other { what, instead });
    match begin.trim_ascii_start() {
        [0x1f, 0x8b, ..] => other(
            "compressed by gzip",
            "unpack it first: gunzip FILE".to_owned(),
        ),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => other(
            "compressed by zstd",
            "unpack it first: unzstd FILE".to_owned(),
        ),
        [] | [b'{' | b'[', ..] => Ok(()),
        text => {
            let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
            // A comma also stands in a sentence, and one in the times of many logs.
            let behind = line.split(|&byte| byte == b',').skip(1);
            let commas = behind.filter(|rest| rest.first() != Some(&b' ')).count();
            let what = match commas >= 2 {
                true => "no JSON: it looks like CSV",
                false => "no JSON",
            };
            other(what, format!("requests are read from {}", known()))
        }
    }
}

/// Understands a file, whichever generator wrote it, of at most so many requests.
///
/// # Errors
/// When it is of none, or lacks what is needed.
pub fn read(
    file: &mut dyn Source,
    beside: Beside<'_>,
    requests_max: usize,
) -> Result<(&'static Format, LoadFile), FormatError> {
    let format = format_of(file)?;
    file.seek(SeekFrom::Start(0))?;
    begin_file(requests_max);
    let read = (format.read)(file, beside);
    let mut read = read.map_err(|error| take_refusal().unwrap_or(error))?;
    read.unknown_fields = take_unknown();
    Ok((format, read.checked()?))
}
