//! The figures of two runs side by side.

use super::{Bounded, Fastest, HostChange, JobRoleChange, RankStageChange, RunDiff, Span, within};
use crate::comparison::{Change, paired};
use crate::hosts::peers::median;
use crate::hosts::run::{HostLine, HostStatus, JobRole, Observed, RankLine, RunReport};
use memtrace_model::{Bytes, Order};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

impl RunDiff {
    /// Compares two runs by what their reports say.
    pub fn of(before: &RunReport, after: &RunReport) -> Self {
        let names = |report: &RunReport| -> BTreeSet<String> {
            let recorded = recorded(report);
            recorded.map(|line| line.host.clone()).collect()
        };
        let (one, other) = (names(before), names(after));
        let only =
            |of: &BTreeSet<String>, not: &BTreeSet<String>| of.difference(not).cloned().collect();
        Self {
            is_newly_failed: !has_failed(before) && has_failed(after),
            has_other_basis: has_other_basis(before, after),
            has_other_hosts: holding(before) != holding(after) || has_silent(before),
            peak: peak(before, after),
            host_peak: host_peak(before, after),
            gpu_peak: Change::of([before, after], |report| {
                let lines = recorded(report);
                lines.filter_map(|line| line.gpu_peak_bytes).max()
            }),
            roles: roles(before, after),
            stages: stages(before, after),
            hosts: hosts(before, after),
            only_before: only(&one, &other),
            only_after: only(&other, &one),
        }
    }
}

/// The hosts that have a recording.
fn recorded(report: &RunReport) -> impl Iterator<Item = &HostLine> {
    let lines = report.hosts.iter();
    lines.filter(|line| line.status != HostStatus::Missing)
}

/// How many hosts there are of whose memory something is known.
fn holding(report: &RunReport) -> usize {
    recorded(report)
        .filter(|line| line.peak_bytes.is_some())
        .count()
}

pub(super) fn has_silent(report: &RunReport) -> bool {
    count(report, HostStatus::Silent) > 0
}

/// So many hosts stand like that.
pub(super) fn count(report: &RunReport, status: HostStatus) -> usize {
    let lines = report.hosts.iter();
    lines.filter(|line| line.status == status).count()
}

/// Whether processes ended as nobody asked for, or hosts fell silent or are missing.
fn has_failed(report: &RunReport) -> bool {
    report.end_count > 0 || has_silent(report) || count(report, HostStatus::Missing) > 0
}

/// Whether both were observed in different ways: all together, or a host that is in both.
fn has_other_basis(before: &RunReport, after: &RunReport) -> bool {
    let (one, other) = (bases(before), bases(after));
    let is_known = !one.is_empty() && !other.is_empty();
    is_known && (one != other || hosts(before, after).iter().any(|host| host.has_other_basis))
}

/// How hosts were observed.
fn bases(report: &RunReport) -> BTreeSet<Observed> {
    recorded(report).filter_map(|line| line.observed).collect()
}

fn peak(before: &RunReport, after: &RunReport) -> Bounded {
    let figure = |report: &RunReport| {
        let peak = report.peak.as_ref()?;
        let (least, most) = (peak.at_least_bytes, peak.at_most_bytes);
        Some((peak.bytes, Span { least, most }))
    };
    Bounded::of(figure(before), figure(after))
}

fn peak_of(line: &HostLine) -> Option<(Bytes, Span)> {
    let bytes = line.peak_bytes?;
    let least = line.peak_at_least_bytes.unwrap_or(bytes);
    let most = line.peak_at_most_bytes.unwrap_or(bytes);
    Some((bytes, Span { least, most }))
}

/// The host on which most was held.
pub(super) fn highest_host(report: &RunReport) -> Option<&HostLine> {
    let held = recorded(report).filter(|line| line.peak_bytes.is_some());
    held.min_by_key(|line| (Reverse(line.peak_bytes), &line.host))
}

fn host_peak(before: &RunReport, after: &RunReport) -> Bounded {
    // Whichever host it was, on none was more held than the most that any can have held.
    let figure = |report: &RunReport| {
        let (bytes, span) = peak_of(highest_host(report)?)?;
        let spans = recorded(report).filter_map(|line| Some(peak_of(line)?.1));
        let (least, most) = spans.fold((span.least, span.most), |(least, most), span| {
            (span.least.max(least), span.most.max(most))
        });
        Some((bytes, Span { least, most }))
    };
    Bounded::of(figure(before), figure(after))
}

fn roles(before: &RunReport, after: &RunReport) -> Vec<JobRoleChange> {
    let names = paired([&before.roles, &after.roles], |role| &role.name);
    let roles = names.into_iter().map(|(name, both @ [one, other])| {
        let bounded = |figure: fn(&JobRole) -> Option<Bytes>| {
            let of = |role: Option<&JobRole>| match role {
                Some(role) => figure(role).map(|bytes| within(bytes, role.error_bytes)),
                None => Some(within(Bytes(0), Bytes(0))),
            };
            Bounded::of(of(one), of(other))
        };
        let change = |figure: fn(&JobRole) -> Option<Bytes>| {
            Change::of(both, |role| role.map_or(Some(Bytes(0)), figure))
        };
        JobRoleChange {
            name: name.to_owned(),
            host_count_before: one.map(|role| role.host_count),
            host_count_after: other.map(|role| role.host_count),
            process_count_before: one.map(|role| role.process_count),
            process_count_after: other.map(|role| role.process_count),
            highest: bounded(|role| role.highest_bytes),
            median: bounded(|role| role.median_bytes),
            at_job_peak: change(|role| role.at_job_peak_bytes),
            bytes_per_hour: change(|role| {
                let none = role.is_growth_known.then_some(0);
                role.bytes_per_hour.or(none).map(Bytes)
            }),
        }
    });
    let mut roles: Vec<JobRoleChange> = roles.collect();
    roles.order_by_key(|role| Reverse(role.highest.change.moved()));
    roles
}

/// The ranks of one role that have the same steps, by these two.
fn by_stage(report: &RunReport) -> BTreeMap<(&str, &str), Vec<&RankLine>> {
    let mut stages: BTreeMap<(&str, &str), Vec<&RankLine>> = BTreeMap::new();
    for rank in &report.ranks {
        if let (Some(stage), Some(_)) = (&rank.stage, rank.bytes_per_step) {
            stages.entry((&rank.role, stage)).or_default().push(rank);
        }
    }
    stages
}

/// Steps that ranks of both have.
fn stages(before: &RunReport, after: &RunReport) -> Vec<RankStageChange> {
    let earlier = by_stage(before);
    let both = by_stage(after).into_iter();
    let both = both.filter_map(|(key, ranks)| Some((key, earlier.get(&key)?, ranks)));
    let mut stages: Vec<RankStageChange> = both
        .map(|((role, stage), one, other)| {
            let (first, last) = (fastest(one), fastest(&other));
            let mut change = RankStageChange {
                role: role.to_owned(),
                stage: stage.to_owned(),
                rank_count_before: one.len(),
                rank_count_after: other.len(),
                median: Change::of([one, &other], |ranks| middle(ranks)),
                fastest: Change::of([first, last], |rank| rank?.bytes_per_step.map(Bytes)),
                fastest_rank: last.map(|rank| rank.rank.clone()),
                fastest_host: last.map(|rank| rank.host.clone()),
                has_risen: false,
                before: bounds(one, first),
                after: bounds(&other, last),
            };
            change.has_risen = change.has_risen_by(0.0);
            change
        })
        .collect();
    stages.order_by_key(|stage| (Reverse(stage.has_risen), Reverse(stage.difference())));
    stages
}

fn fastest<'a>(ranks: &[&'a RankLine]) -> Option<&'a RankLine> {
    let first = ranks.iter().rev();
    first.copied().max_by_key(|rank| rank.bytes_per_step)
}

fn middle(ranks: &[&RankLine]) -> Option<Bytes> {
    let mut slopes: Vec<i64> = ranks
        .iter()
        .filter_map(|rank| rank.bytes_per_step)
        .collect();
    slopes.sort_unstable();
    median(&slopes).map(Bytes)
}

/// Within what the fastest of some ranks grows. Of one that surely grows the lower bound counts.
fn bounds(ranks: &[&RankLine], fastest: Option<&RankLine>) -> Fastest {
    let growing = fastest.filter(|rank| rank.bytes_per_step > Some(0));
    let highs = ranks
        .iter()
        .map(|rank| rank.step_bounds.high_bytes_per_step);
    Fastest {
        low: growing.and_then(|rank| rank.step_bounds.low_bytes_per_step),
        // Of one whose upper bound is not known nothing is.
        high: highs
            .collect::<Option<Vec<i64>>>()
            .and_then(|highs| highs.into_iter().max()),
        steps: fastest
            .and_then(|rank| rank.step_bounds.step_count)
            .unwrap_or(0),
    }
}

/// The hosts that both have by their names.
fn hosts(before: &RunReport, after: &RunReport) -> Vec<HostChange> {
    let earlier = recorded(before).map(|line| (&*line.host, line));
    let earlier: BTreeMap<&str, &HostLine> = earlier.collect();
    let both = recorded(after);
    let both = both.filter_map(|line| Some((*earlier.get(&*line.host)?, line)));
    let hosts = both.map(|(one, other)| {
        let change = |figure: fn(&HostLine) -> Option<Bytes>| Change::of([one, other], figure);
        HostChange {
            host: other.host.clone(),
            status_before: one.status,
            status_after: other.status,
            peak: Bounded::of(peak_of(one), peak_of(other)),
            headroom: change(|line| line.headroom_bytes),
            limit: change(|line| line.limit_bytes),
            gpu_peak: change(|line| line.gpu_peak_bytes),
            has_other_basis: one
                .observed
                .zip(other.observed)
                .is_some_and(|(one, other)| one != other),
        }
    });
    let mut hosts: Vec<HostChange> = hosts.collect();
    hosts.order_by_key(|host| Reverse(host.peak.change.moved()));
    hosts
}
