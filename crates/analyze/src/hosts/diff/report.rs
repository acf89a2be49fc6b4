//! A comparison of two runs as it is written: what is reported of both, and the object of its JSON.

use super::compared::{count, length};
use super::{ComparedRun, RunDiff, RunDiffReport, RunExcess, chapters};
use crate::hosts::run::{HostStatus, WallTime};
use memtrace_model::{Bytes, DurationNs};
use memtrace_report::{Chapter, Style, Table, Written, write_object};
use schemars::JsonSchema;
use serde::Serialize;
use std::io;
use std::iter::once;

const FORMAT: &str = "memtrace-run-diff";
const VERSION: u32 = 1;

impl Written for RunDiffReport {
    fn chapters(&self, style: &Style) -> Vec<Chapter> {
        chapters::build(self, style)
    }

    fn tables<'a>(&'a self, style: &Style) -> Box<dyn Iterator<Item = Table> + 'a> {
        let top = style.top.unwrap_or(usize::MAX);
        Box::new(once(chapters::figures(self, top)))
    }

    fn json(&mut self, style: &Style, out: &mut dyn io::Write) -> io::Result<()> {
        let top = style.top.unwrap_or(usize::MAX);
        let diff = &mut self.diff;
        diff.roles.truncate(top);
        diff.stages.truncate(top);
        diff.hosts.truncate(top);
        let object = Object {
            format: FORMAT,
            version: VERSION,
            memtrace_version: env!("CARGO_PKG_VERSION"),
            before: Run::of(&self.before),
            after: Run::of(&self.after),
            allowed_ratio: self.limit.as_ref().map(|(allowed, _)| *allowed),
            excesses: self.limit.as_ref().map(|(_, excesses)| &**excesses),
            diff: &self.diff,
        };
        write_object(&object, out)
    }

    fn page(&mut self, _: &Style, _: &[Chapter], _: &mut dyn io::Write) -> io::Result<()> {
        Err(io::Error::other("the comparison of two runs has no page"))
    }
}

/// What `memtrace diff` writes of two runs of many hosts.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RunDiff")]
pub(crate) struct Object<'a> {
    /// What object this is.
    #[schemars(extend("const" = FORMAT))]
    format: &'static str,
    /// Within a version no key is renamed, removed or given another meaning.
    #[schemars(extend("const" = VERSION))]
    version: u32,
    /// The memtrace that compared.
    memtrace_version: &'static str,
    /// The first run.
    before: Run<'a>,
    /// The second run.
    after: Run<'a>,
    /// What `--fail-above` gave, as a part of one; else `None`.
    allowed_ratio: Option<f64>,
    /// The figures that rose by more; `None` without `--fail-above`.
    excesses: Option<&'a [RunExcess]>,
    #[serde(flatten)]
    diff: &'a RunDiff,
}

/// One of two runs that are compared.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ComparedRun")]
struct Run<'a> {
    /// Where it is.
    path: &'a str,
    /// What it is called.
    run: &'a str,
    /// When the first of its recordings began.
    start: Option<WallTime>,
    /// When the last of them ended, or was heard of.
    end: Option<WallTime>,
    /// How long that is.
    duration_ns: Option<DurationNs>,
    /// How many hosts have a recording.
    host_count: usize,
    /// How many recordings they have.
    recording_count: usize,
    /// How many hosts were expected and have none.
    missing_host_count: usize,
    /// How many were not heard from any more.
    silent_host_count: usize,
    /// How many kills by the OOM killer, and other unexpected ends.
    end_count: usize,
    /// How many processes the OOM killer ended, of those that are reported.
    oom_kill_count: usize,
    /// How many things could not be used, or only in part.
    problem_count: usize,
    /// All hosts held no less than this at one instant.
    peak_at_least_bytes: Option<Bytes>,
    /// They held no more than this at any instant.
    peak_at_most_bytes: Option<Bytes>,
    /// Whether that can have been more: a host was polled, or is not known at all times.
    is_lower_bound: Option<bool>,
}

impl<'a> Run<'a> {
    fn of(ComparedRun { path, report }: &'a ComparedRun) -> Self {
        let peak = report.peak.as_ref();
        Self {
            path,
            run: &report.run,
            start: report.start,
            end: report.end,
            duration_ns: length(report),
            host_count: report.host_count,
            recording_count: report.recording_count,
            missing_host_count: count(report, HostStatus::Missing),
            silent_host_count: count(report, HostStatus::Silent),
            end_count: report.end_count,
            oom_kill_count: report.hosts.iter().map(|line| line.oom_kill_count).sum(),
            problem_count: report.problems.len(),
            peak_at_least_bytes: peak.map(|peak| peak.at_least_bytes),
            peak_at_most_bytes: peak.map(|peak| peak.at_most_bytes),
            is_lower_bound: peak.map(|peak| peak.is_lower_bound),
        }
    }
}
