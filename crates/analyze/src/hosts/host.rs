//! One host of a run: its recordings together, and its line in the report.

use super::clocks::KnownClock;
use super::part::{HostPart, PartPeak};
use super::run::{HostLine, HostStatus, Observed, RunProblem, WallTime};
use super::sum::{self, Course};
use memtrace_model::{Bytes, DurationNs, RunState, WallNs};
use memtrace_report::words;

/// A host with its recordings in the order of their starts.
pub(super) struct Host<'a> {
    pub(super) name: &'a str,
    pub(super) parts: Vec<&'a HostPart>,
    pub(super) clock: KnownClock,
}

impl<'a> Host<'a> {
    /// One that has no recording.
    pub(super) fn missing(name: &'a str) -> Self {
        Self {
            name,
            parts: Vec::new(),
            clock: KnownClock::default(),
        }
    }

    pub(super) fn course(&self) -> Course<'a> {
        Course {
            parts: self.parts.clone(),
            standing: self.clock.standing(),
        }
    }

    pub(super) fn start(&self) -> Option<WallNs> {
        let starts = self.parts.iter().filter_map(|part| part.start_wall_ns);
        starts.min().map(|start| self.clock.reported(start))
    }

    pub(super) fn end(&self) -> Option<WallNs> {
        let ends = self.parts.iter().filter_map(|part| part.end_wall_ns);
        ends.max().map(|end| self.clock.reported(end))
    }

    pub(super) fn peak(&self) -> Option<&'a PartPeak> {
        let peaks = self.parts.iter().filter_map(|part| part.peak.as_ref());
        peaks.rev().max_by_key(|peak| peak.bytes)
    }

    /// How it was observed, by the recording of its peak.
    fn observed(&self) -> Option<Observed> {
        let peaks = self
            .parts
            .iter()
            .filter_map(|part| Some((part.peak.as_ref()?, part)));
        let (peak, part) = peaks.rev().max_by_key(|(peak, _)| peak.bytes)?;
        Some(Observed {
            is_polled: part.machine.is_polled,
            interval_ns: part.machine.interval_ns,
            is_sum_of_rss: peak.anon_bytes.is_none(),
        })
    }

    pub(super) fn status(&self, is_silent: bool) -> HostStatus {
        let mut ends = self.parts.iter().flat_map(|part| &part.ends);
        let is_open = self
            .parts
            .last()
            .is_some_and(|part| part.state == RunState::Recording);
        match () {
            () if is_silent => HostStatus::Silent,
            () if ends.clone().any(|end| end.is_oom_kill) => HostStatus::OomKilled,
            () if ends.next().is_some() => HostStatus::Failed,
            () if is_open => HostStatus::Open,
            () => HostStatus::Closed,
        }
    }

    pub(super) fn line(
        &self,
        status: HostStatus,
        at_job_peak: Option<Bytes>,
        end: Option<WallNs>,
    ) -> HostLine {
        let peak = self.peak();
        let limits = self.parts.iter().filter_map(|part| part.limit.as_ref());
        let limit = limits.min_by_key(|limit| limit.headroom_bytes);
        let ends = || self.parts.iter().flat_map(|part| &part.ends);
        let gpus = self.parts.iter().map(|part| {
            let peaks = part.gpus.iter().filter_map(|gpu| gpu.peak_bytes);
            (!part.gpus.is_empty()).then(|| added(peaks))
        });
        let silent = self
            .end()
            .zip(end)
            .map(|(own, all)| DurationNs(all.0.saturating_sub(own.0).max(0)));
        HostLine {
            host: self.name.to_owned(),
            status,
            recs: self
                .parts
                .iter()
                .map(|part| part.place.rec.clone())
                .collect(),
            start: self.start().map(WallTime),
            end: self.end().map(WallTime),
            silent_ns: silent,
            observed: self.observed(),
            mem_total_bytes: self
                .parts
                .iter()
                .filter_map(|part| part.machine.mem_total_bytes)
                .max(),
            peak_bytes: peak.map(|peak| peak.bytes),
            peak_at_least_bytes: peak.map(|peak| peak.at_least_bytes),
            peak_at_most_bytes: peak.map(|peak| peak.at_most_bytes),
            peak_at: peak.and_then(|peak| Some(WallTime(self.clock.reported(peak.wall_ns?)))),
            largest: peak.and_then(|peak| Some(peak.holders.first()?.name.clone())),
            at_job_peak_bytes: at_job_peak,
            limit_cgroup: limit.and_then(|limit| limit.cgroup.clone()),
            limit_pod: limit.and_then(|limit| limit.pod.clone()),
            limit_bytes: limit.map(|limit| limit.limit_bytes),
            headroom_bytes: limit.map(|limit| limit.headroom_bytes),
            bytes_per_hour: limit.and_then(|limit| limit.bytes_per_hour),
            left_ns: limit.and_then(|limit| limit.left_ns),
            end_count: self.parts.iter().map(|part| part.end_count).sum(),
            oom_kill_count: ends().filter(|end| end.is_oom_kill).count(),
            loss_count: self.parts.iter().map(|part| part.loss_count).sum(),
            gpu_peak_bytes: gpus.max().flatten(),
        }
    }

    /// What is wrong with its recordings.
    pub(super) fn problems(&self) -> Vec<RunProblem> {
        let problem = |part: &HostPart, text: String| RunProblem {
            host: self.name.to_owned(),
            rec: Some(part.place.rec.clone()),
            text,
        };
        let mut problems: Vec<RunProblem> = Vec::new();
        for part in &self.parts {
            problems.extend(part.problems.iter().map(|text| problem(part, text.clone())));
            let more = part.problem_count.saturating_sub(part.problems.len());
            if more > 0 {
                let text = format!("and {} of its files more", words::count(more));
                problems.push(problem(part, text));
            }
        }
        for pair in self.parts.windows(2) {
            let [first, second] = [pair[0], pair[1]];
            if !sum::is_over_before(first, second) {
                let text = format!(
                    "it began before {} ended; for a second that is in both, the larger figure \
                     counts, and the upper bound is both together",
                    first.place.rec
                );
                problems.push(problem(second, text));
            }
        }
        problems
    }
}

/// A sum of figures that were written elsewhere.
pub(super) fn added(amounts: impl Iterator<Item = Bytes>) -> Bytes {
    Bytes(amounts.fold(0, |sum, amount| sum.saturating_add(amount.0)))
}
