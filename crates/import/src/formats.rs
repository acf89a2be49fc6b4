//! The load generators whose files are understood, and which one a file is of.

use super::file::{Beside, FormatError, LoadFile, Source};
use super::object::{Shape, begin_file, take_refusal, take_unknown};
use super::python_json::deserializer;
use super::{aiperf, bench_serving, guidellm, inference_perf};
use serde::Deserialize;
use std::io::SeekFrom;

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
    let shape = Shape::deserialize(&mut deserializer(file))?;
    let found = FORMATS.iter().find(|format| (format.is_of)(&shape));
    found.ok_or_else(|| {
        let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
        FormatError::Unknown {
            known: names.join(", "),
        }
    })
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
