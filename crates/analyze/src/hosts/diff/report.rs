//! What stands of two runs in the JSON of their comparison.

use super::compared::count;
use super::{ComparedRun, RunDiff};
use crate::comparison;
use crate::hosts::run::{HostStatus, WallTime};
use memtrace_model::{Bytes, DurationNs};
use schemars::JsonSchema;
use serde::Serialize;

/// What `memtrace diff` writes of two runs of many hosts.
pub(crate) type Object<'a> = comparison::Object<'a, ComparedSide<'a>, RunDiff>;

/// One of two runs that are compared.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ComparedRun")]
pub struct ComparedSide<'a> {
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

impl<'a> ComparedSide<'a> {
    pub(super) fn of(ComparedRun { path, report }: &'a ComparedRun) -> Self {
        let peak = report.peak.as_ref();
        Self {
            path,
            run: &report.run,
            start: report.start,
            end: report.end,
            duration_ns: report.duration(),
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
