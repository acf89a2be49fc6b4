//! Address space in the JSON report.

use crate::analyze::{self, Analysis};
use crate::model::{Bytes, Instant, Tgid, Upid};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Mappings<'a> {
    process_count: usize,
    processes: Vec<ProcessMappings>,
    largest_mappings: Vec<Mapping<'a>>,
}

#[derive(Serialize)]
struct ProcessMappings {
    upid: Upid,
    pid: Option<Tgid>,
    reserved_bytes: Option<Bytes>,
    peak_rss_bytes: Option<Bytes>,
    mapped_bytes: Bytes,
    anon_mapped_bytes: Bytes,
    unmapped_bytes: Bytes,
    returned_bytes: Bytes,
    heap_growth_bytes: Bytes,
    call_count: i64,
    churn_bytes_per_second: Option<f64>,
}

#[derive(Serialize)]
struct Mapping<'a> {
    upid: Upid,
    pid: Option<Tgid>,
    at: Instant,
    length_bytes: Bytes,
    file: Option<&'a str>,
    is_anonymous: bool,
    is_reserved: bool,
}

impl<'a> Mappings<'a> {
    /// With at most `top` processes, or all of them.
    pub(super) fn of(analysis: &'a Analysis, top: Option<usize>) -> Option<Self> {
        let found = analysis.mappings.as_ref()?;
        let listed = found.processes.iter().take(top.unwrap_or(usize::MAX));
        Some(Self {
            process_count: found.processes.len(),
            processes: listed
                .map(|sums| ProcessMappings::of(analysis, sums))
                .collect(),
            largest_mappings: found
                .largest
                .iter()
                .map(|mapping| Mapping::of(analysis, mapping))
                .collect(),
        })
    }
}

impl ProcessMappings {
    fn of(analysis: &Analysis, sums: &analyze::ProcessMappings) -> Self {
        let process = &analysis.processes[sums.process];
        Self {
            upid: process.upid,
            pid: process.tgid,
            reserved_bytes: sums.reserved_bytes,
            peak_rss_bytes: sums.resident_bytes,
            mapped_bytes: sums.mapped_bytes,
            anon_mapped_bytes: sums.anon_bytes,
            unmapped_bytes: sums.unmapped_bytes,
            returned_bytes: sums.returned_bytes,
            heap_growth_bytes: sums.heap_bytes,
            call_count: sums.call_count,
            churn_bytes_per_second: sums.churn_bytes_per_second,
        }
    }
}

impl<'a> Mapping<'a> {
    fn of(analysis: &'a Analysis, mapping: &'a analyze::Mapping) -> Self {
        let process = &analysis.processes[mapping.process];
        Self {
            upid: process.upid,
            pid: process.tgid,
            at: analysis.clock.at(mapping.boot_ns),
            length_bytes: mapping.length_bytes,
            file: mapping.file.as_deref(),
            is_anonymous: mapping.is_anonymous,
            is_reserved: mapping.is_reserved,
        }
    }
}
