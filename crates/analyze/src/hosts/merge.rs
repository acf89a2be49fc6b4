//! The parts of all hosts, merged into the answer for their run: all of them are there at once, each
//! of a bounded size, in the order of their places.

use super::clocks;
use super::curves::RunCurves;
use super::ends::{self, Silence};
use super::host::{Host, added};
use super::page;
use super::part::{HostPart, PartPhase, Place};
use super::peers::{self, median};
use super::reduce::rank_order;
use super::run::{
    HostLine, HostStatus, JobPeak, JobPhase, JobRole, RankLine, RoleShare, RunProblem, RunReport,
    WallTime,
};
use super::sum::{self, Course, Highest, Sums};
use memtrace_model::{Bytes, DurationNs, Order, RunState, WallNs};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// So long after its parts should have closed a host is missed.
const GRACE_NS: i64 = 30_000_000_000;
/// Lists of a report have so many entries at most; there are a thousand hosts.
const RANKS_MAX: usize = 16_384;
const ROLES_MAX: usize = 256;
const PHASES_MAX: usize = 256;

/// A recording that could not be reduced.
#[derive(Clone, Debug)]
pub struct Unread {
    /// Which recording it is.
    pub place: Place,
    /// Why, in a sentence.
    pub why: String,
}

/// Merges the parts of a run, in any order. `expected` are the hosts that the run should have,
/// where the person reported.
pub fn merge(
    run: &str,
    parts: impl IntoIterator<Item = HostPart>,
    unread: Vec<Unread>,
    expected: Option<Vec<String>>,
) -> RunReport {
    merged(run, parts, unread, expected, false)
}

/// The same, with memory over time for a page.
pub fn merge_with_curves(
    run: &str,
    parts: impl IntoIterator<Item = HostPart>,
    unread: Vec<Unread>,
    expected: Option<Vec<String>>,
) -> RunReport {
    merged(run, parts, unread, expected, true)
}

fn merged(
    run: &str,
    parts: impl IntoIterator<Item = HostPart>,
    unread: Vec<Unread>,
    expected: Option<Vec<String>>,
    has_curves: bool,
) -> RunReport {
    let mut parts: Vec<HostPart> = parts.into_iter().collect();
    parts.order_by(|a, b| a.place.cmp(&b.place));
    let mut problems: Vec<RunProblem> = unread
        .into_iter()
        .map(|one| RunProblem {
            host: one.place.host,
            rec: Some(one.place.rec),
            text: one.why,
        })
        .collect();
    parts.dedup_by(|later, first| {
        let is_same = later.place == first.place;
        if is_same {
            problems.push(RunProblem {
                host: first.place.host.clone(),
                rec: Some(first.place.rec.clone()),
                text: "there are two recordings of this place; only the first one found counts"
                    .to_owned(),
            });
        }
        is_same
    });
    Merged::of(run, &parts, expected).reported(problems, has_curves)
}

struct Merged<'a> {
    run: &'a str,
    parts: &'a [HostPart],
    hosts: Vec<Host<'a>>,
    /// When the last host was heard of, as far as clocks can be trusted.
    end: Option<WallNs>,
    expected: Option<BTreeSet<String>>,
}

impl<'a> Merged<'a> {
    fn of(run: &'a str, parts: &'a [HostPart], expected: Option<Vec<String>>) -> Self {
        let by_host = parts.chunk_by(|a, b| a.place.host == b.place.host);
        let by_host = by_host.filter_map(|parts| {
            Some((
                &*parts.first()?.place.host,
                parts.iter().collect::<Vec<_>>(),
            ))
        });
        let by_host: Vec<(&str, Vec<&HostPart>)> = by_host.collect();
        let clocks = clocks::known(&by_host);
        let hosts = by_host.into_iter().zip(clocks);
        let hosts: Vec<Host<'_>> = hosts
            .map(|((name, parts), clock)| Host { name, parts, clock })
            .collect();
        let reported = parts.iter().filter_map(|part| part.expected_hosts.as_ref());
        let reported: BTreeSet<String> = reported.flatten().cloned().collect();
        let expected: Option<BTreeSet<String>> = expected.map(|hosts| hosts.into_iter().collect());
        Self {
            run,
            parts,
            end: end(&hosts),
            hosts,
            expected: expected.or(Some(reported).filter(|reported| !reported.is_empty())),
        }
    }

    fn reported(&self, mut problems: Vec<RunProblem>, has_curves: bool) -> RunReport {
        let mut courses: Vec<Course<'_>> = self.hosts.iter().map(Host::course).collect();
        let far = sum::take_far(&mut courses);
        problems.extend(far.into_iter().map(|part| {
            RunProblem {
            host: part.place.host.clone(),
            rec: Some(part.place.rec.clone()),
            text: "its clock says that it was recorded at another time than most; it is not added \
                 to them"
                .to_owned(),
        }
        }));
        let width_s = sum::width_of(&courses);
        let highest = Sums::of(&courses, width_s).highest();
        let (ends, end_count) = ends::chain(&self.hosts, |host| self.silence(host));
        problems.extend(self.hosts.iter().flat_map(Host::problems));
        problems.sort();
        let (ranks, rank_count) = self.ranks();
        let shares = self.shares(&courses, highest.as_ref());
        let starts = self.hosts.iter().filter_map(Host::start);
        let mut report = RunReport {
            run: self.run.to_owned(),
            start: starts.min().map(WallTime),
            end: self.end.map(WallTime),
            host_count: self.hosts.len(),
            recording_count: self.parts.len(),
            expected_host_count: self.expected.as_ref().map(BTreeSet::len),
            peak: highest.map(|highest| self.peak(&highest, &courses, &shares)),
            hosts: self.lines(&courses, highest.as_ref()),
            outliers: peers::outliers(self.parts),
            ends,
            end_count,
            roles: self.roles(&shares),
            ranks,
            rank_count,
            phases: self.phases(),
            clocks: self
                .hosts
                .iter()
                .map(|host| host.clock.line.clone())
                .collect(),
            problems,
            next_path: None,
            curves: None,
        };
        if has_curves {
            let names: Vec<&str> = self.hosts.iter().map(|host| host.name).collect();
            report.curves =
                RunCurves::of(&courses, &names, width_s, &page::drawn(&report)).map(Box::new);
        }
        report
    }

    /// Since when nothing was heard of a host whose recording was not closed, where others were
    /// heard of later than its next part should have come.
    fn silence(&self, host: &Host<'_>) -> Option<Silence> {
        let last = host.parts.last()?;
        let since = host.end()?;
        let is_open = last.state == RunState::Recording && !last.is_live;
        let after = self.end?.0.saturating_sub(since.0);
        let patience = last
            .rotate_ns
            .map_or(0, |rotate| rotate.0)
            .saturating_add(GRACE_NS);
        (is_open && after > patience).then(|| Silence {
            since: last.end_wall_ns.unwrap_or(since),
            how: "not heard from any more; its recording was not closed".to_owned(),
        })
    }

    /// What roles held at the peak of all, and what was shared: in all, and on how many hosts.
    fn shares<'c>(
        &self,
        courses: &'c [Course<'a>],
        highest: Option<&Highest>,
    ) -> BTreeMap<Option<&'c str>, (i64, usize)> {
        let mut shares: BTreeMap<Option<&str>, (i64, usize)> = BTreeMap::new();
        let Some(highest) = highest else {
            return shares;
        };
        for course in courses {
            for (role, bytes) in course.parts_at(highest) {
                let share = shares.entry(role).or_default();
                *share = (share.0.saturating_add(bytes), share.1 + 1);
            }
        }
        shares
    }

    fn peak(
        &self,
        highest: &Highest,
        courses: &[Course<'_>],
        shares: &BTreeMap<Option<&str>, (i64, usize)>,
    ) -> JobPeak {
        let holding = courses.iter().filter_map(|course| course.at(highest));
        let roles = shares.iter().filter_map(|(role, &(bytes, host_count))| {
            Some(RoleShare {
                name: (*role)?.to_owned(),
                host_count,
                bytes: Bytes(bytes),
            })
        });
        let mut roles: Vec<RoleShare> = roles.collect();
        roles.order_by(|a, b| (b.bytes, &a.name).cmp(&(a.bytes, &b.name)));
        let peaks = self.hosts.iter().filter_map(Host::peak);
        let mut of_parts = self.parts.iter().filter_map(|part| part.peak.as_ref());
        let is_polled = of_parts.clone().any(|peak| peak.is_lower_bound);
        let is_shared_known = of_parts.all(|peak| peak.shared_bytes.is_some());
        let shared = Bytes(shares.get(&None).map_or(0, |(bytes, _)| *bytes));
        JobPeak {
            at: WallTime(highest.begin()),
            bin_s: highest.width_s,
            at_least_bytes: Bytes(highest.at_least),
            bytes: Bytes(highest.bytes),
            at_most_bytes: Bytes(highest.at_most),
            sum_of_peaks_bytes: added(peaks.map(|peak| peak.bytes)),
            is_lower_bound: is_polled,
            unsure_host_count: highest.unsure_host_count,
            host_count: holding.filter(|bin| bin.most > 0).count(),
            roles,
            shared_bytes: is_shared_known.then_some(shared),
        }
    }

    fn lines(&self, courses: &[Course<'_>], highest: Option<&Highest>) -> Vec<HostLine> {
        let lines = self.hosts.iter().zip(courses).map(|(host, course)| {
            let bin = highest.and_then(|highest| course.at(highest));
            let at_job_peak = bin.map(|bin| Bytes(bin.most)).filter(|bytes| bytes.0 > 0);
            let status = host.status(self.silence(host).is_some());
            host.line(status, at_job_peak, self.end)
        });
        let recorded: BTreeSet<&str> = self.hosts.iter().map(|host| host.name).collect();
        let missing = self.expected.iter().flatten();
        let missing = missing.filter(|host| !recorded.contains(host.as_str()));
        let mut lines: Vec<HostLine> = lines
            .chain(missing.map(|host| Host::missing(host).line(HostStatus::Missing, None, None)))
            .collect();
        lines.order_by(|a, b| {
            let order = |line: &HostLine| {
                let left = line.limit_bytes.zip(line.headroom_bytes);
                // The part that is left, in millionths.
                let left = left.map(|(limit, left)| {
                    i128::from(left.0) * 1_000_000 / i128::from(limit.0.max(1))
                });
                (line.status, left.is_none(), left, Reverse(line.peak_bytes))
            };
            order(a).cmp(&order(b)).then_with(|| a.host.cmp(&b.host))
        });
        lines
    }

    fn roles(&self, shares: &BTreeMap<Option<&str>, (i64, usize)>) -> Vec<JobRole> {
        let mut by_role: BTreeMap<&str, BTreeMap<&str, RoleOnHost>> = BTreeMap::new();
        for part in self.parts {
            for role in &part.roles {
                let hosts = by_role.entry(&role.name).or_default();
                let on_host = hosts.entry(&part.place.host).or_default();
                on_host.process_count = on_host.process_count.saturating_add(role.process_count);
                if role.peak_bytes > on_host.peak {
                    (on_host.peak, on_host.error) = (role.peak_bytes, role.error_bytes);
                }
                on_host.slope = on_host.slope.max(role.bytes_per_hour);
            }
        }
        let roles = by_role.into_iter().map(|(name, hosts)| {
            let mut held: Vec<(i64, &str)> = (hosts.iter())
                .filter_map(|(host, on)| Some((on.peak?.0, *host)))
                .collect();
            held.order_by_key(|(bytes, host)| (*bytes, Reverse(*host)));
            let amounts: Vec<i64> = held.iter().map(|(bytes, _)| *bytes).collect();
            let (lowest, highest) = (held.first(), held.last());
            let slopes = || {
                hosts
                    .values()
                    .filter_map(|on| on.slope.filter(|slope| *slope > 0))
            };
            JobRole {
                host_count: hosts.len(),
                process_count: hosts.values().map(|on| on.process_count).sum(),
                highest_bytes: highest.map(|(bytes, _)| Bytes(*bytes)),
                error_bytes: hosts.values().map(|on| on.error).max().unwrap_or_default(),
                highest_host: highest.map(|(_, host)| (*host).to_owned()),
                lowest_bytes: lowest.map(|(bytes, _)| Bytes(*bytes)),
                lowest_host: lowest.map(|(_, host)| (*host).to_owned()),
                median_bytes: median(&amounts).map(Bytes),
                at_job_peak_bytes: shares.get(&Some(name)).map(|(bytes, _)| Bytes(*bytes)),
                growing_count: slopes().count(),
                bytes_per_hour: slopes().max(),
                is_growth_known: hosts.values().all(|on| on.slope.is_some()),
                name: name.to_owned(),
            }
        });
        let mut roles: Vec<JobRole> = roles.collect();
        let order = |role: &JobRole| (role.at_job_peak_bytes, role.highest_bytes);
        roles.order_by(|a, b| order(b).cmp(&order(a)).then_with(|| a.name.cmp(&b.name)));
        roles.truncate(ROLES_MAX);
        roles
    }

    fn ranks(&self) -> (Vec<RankLine>, usize) {
        let ranks = self.parts.iter().flat_map(|part| {
            part.ranks.iter().map(move |rank| RankLine {
                role: rank.role.clone(),
                rank: rank.rank.clone(),
                host: part.place.host.clone(),
                pid: rank.pid,
                peak_bytes: rank.peak_bytes,
                bytes_per_hour: rank.bytes_per_hour,
                stage: rank.stage.clone(),
                bytes_per_step: rank.bytes_per_step,
                step_bounds: rank.step_bounds,
            })
        });
        let mut ranks: Vec<RankLine> = ranks.collect();
        ranks.order_by_key(|line| {
            (
                line.role.clone(),
                rank_order(&line.rank),
                line.host.clone(),
                line.pid,
            )
        });
        ranks.truncate(RANKS_MAX);
        (ranks, self.parts.iter().map(|part| part.rank_count).sum())
    }

    fn phases(&self) -> Vec<JobPhase> {
        let mut by_name: BTreeMap<&str, Vec<(&str, &PartPhase)>> = BTreeMap::new();
        for part in self.parts {
            for phase in &part.phases {
                by_name
                    .entry(&phase.name)
                    .or_default()
                    .push((&part.place.host, phase));
            }
        }
        let phases = by_name.into_iter().filter_map(|(name, of)| {
            let mean = |phase: &PartPhase| {
                let timed = phase.timed_count.unwrap_or(phase.count);
                phase.total_ns.0.checked_div(i64::try_from(timed).ok()?)
            };
            let mut means: Vec<i64> = of.iter().filter_map(|(_, phase)| mean(phase)).collect();
            means.sort_unstable();
            let hosts: BTreeSet<&str> = of.iter().map(|(host, _)| *host).collect();
            let (slowest_host, slowest) = of.iter().rev().max_by_key(|(_, phase)| mean(phase))?;
            Some(JobPhase {
                name: name.to_owned(),
                host_count: hosts.len(),
                process_count: of.len(),
                count: of.iter().map(|(_, phase)| phase.count).sum(),
                open_count: of.iter().map(|(_, phase)| phase.open_count).sum(),
                median_mean_ns: DurationNs(median(&means)?),
                slowest_mean_ns: DurationNs(mean(slowest)?),
                slowest_host: (*slowest_host).to_owned(),
                slowest_rank: slowest.rank.clone(),
                slowest_pid: slowest.pid,
                longest_ns: of.iter().map(|(_, phase)| phase.longest_ns).max()?,
            })
        });
        let mut phases: Vec<JobPhase> = phases.collect();
        let total = |phase: &JobPhase| {
            let count = i64::try_from(phase.count).unwrap_or(i64::MAX);
            Reverse(phase.median_mean_ns.0.saturating_mul(count))
        };
        phases.order_by(|a, b| total(a).cmp(&total(b)).then_with(|| a.name.cmp(&b.name)));
        phases.truncate(PHASES_MAX);
        phases
    }
}

/// When the last host was heard of: by clocks of which something is known. Of others one that is
/// ahead would have all hosts fall silent, so that the middle of them counts.
fn end(hosts: &[Host<'_>]) -> Option<WallNs> {
    let known = hosts.iter().filter(|host| host.clock.is_known());
    if let Some(end) = known.filter_map(Host::end).max() {
        return Some(end);
    }
    let mut ends: Vec<WallNs> = hosts.iter().filter_map(Host::end).collect();
    ends.sort_unstable();
    ends.get(ends.len() / 2).copied()
}

#[derive(Default)]
struct RoleOnHost {
    process_count: usize,
    peak: Option<Bytes>,
    error: Bytes,
    slope: Option<i64>,
}
