//! One recording, reduced to what it adds to the answer for its run.

use super::coded::HeldCurve;
use super::marks::PhaseSums;
use super::part::{
    HostPart, Machine, PartClock, PartEnd, PartGpu, PartHolder, PartLimit, PartPeak, PartRank,
    PartRole, Place,
};
use crate::diff::error_of;
use crate::growth::{Growth, Verdict};
use crate::run::{AnalyzeError, Options, analyze_into};
use crate::sections::growth::time_to_fill;
use crate::{Analysis, Composition, Ending, Loss, Process};
use memtrace_model::tables::{Finding, Severity};
use memtrace_model::{Instant, Kind, Order, Role, RowSource, RunInfo, WallNs};
use std::cmp::Reverse;

/// So many entries the lists have.
const SENTENCES_MAX: usize = 5;
const HOLDERS_MAX: usize = 3;
const ROLES_MAX: usize = 32;
const RANKS_MAX: usize = 64;
const ENDS_MAX: usize = 32;
const GPUS_MAX: usize = 32;
/// So many characters a name or a sentence has: a command line can be one.
const CHARS_MAX: usize = 200;

/// Reads a recording and says what it adds to the answer for its run.
///
/// # Errors
/// When the rows can't be read.
pub fn reduce<S>(
    info: &RunInfo,
    source: &S,
    options: Options,
    place: Place,
) -> Result<HostPart, AnalyzeError<S::Error>>
where
    S: RowSource,
    S::Error: std::error::Error + 'static,
{
    let options = Options {
        has_bins: true,
        ..options
    };
    let mut phases = PhaseSums::default();
    let mut note = |finding: Finding| {
        if let Finding::Phase(row) = finding {
            phases.take(&row);
        }
    };
    let report = analyze_into(info, source, options, Some(&mut note))?;
    Ok(part(&report.analysis, &phases, place))
}

fn part(analysis: &Analysis, phases: &PhaseSums, place: Place) -> HostPart {
    let (info, clock) = (&analysis.info, &analysis.clock);
    let (format, version) = HostPart::head();
    let is_loss = |loss: &&Loss| loss.severity == Severity::Loss;
    let losses = analysis.losses.iter().filter(is_loss);
    let losses: Vec<String> = losses.map(|loss| cut(&loss.detail)).collect();
    let seen = analysis.host_seen.as_deref();
    let (reported_phases, phase_count) = phases.phases();
    let (ranks, rank_count) = ranks(analysis, phases);
    let (ends, end_count) = ends(analysis);
    let held = seen.and_then(|seen| {
        let names = seen.role_names.iter().map(|name| cut(name));
        Some(HeldCurve::of(seen.binned.as_ref()?, names))
    });
    HostPart {
        format,
        version,
        place,
        expected_hosts: expected_hosts(info),
        machine: Machine {
            hostname: cut(&info.hostname),
            kernel: cut(&info.kernel),
            cpu_count: info.cpu_count,
            mem_total_bytes: info.mem_total_bytes,
            schema_version: info.schema_version,
            memtrace_version: cut(&info.memtrace_version),
            is_polled: info.is_polled(),
            interval_ns: info.is_polled().then_some(info.interval_ns),
        },
        state: info.state,
        is_live: analysis.is_live,
        rotate_ns: info.place.as_ref().map(|place| place.rotate_ns),
        start_wall_ns: clock.to_wall(clock.start()),
        end_wall_ns: clock.to_wall(clock.end()),
        problems: Vec::new(),
        problem_count: 0,
        loss_count: losses.len(),
        losses: losses.into_iter().take(SENTENCES_MAX).collect(),
        clock: seen.map_or_else(PartClock::default, |seen| PartClock {
            reading_count: seen.clock.reading_count(),
            is_synchronized: seen.clock.is_synchronized,
            error_ns: seen.clock.error(),
            step_count: seen.clock.step_count,
        }),
        held,
        peak: analysis
            .peak
            .as_ref()
            .and_then(|peak| self::peak(analysis, peak)),
        limit: limit(analysis),
        role_count: analysis.roles.len(),
        roles: roles(analysis),
        ranks,
        rank_count,
        phases: reported_phases,
        phase_count,
        marks: phases.marks(),
        ends,
        end_count,
        gpus: gpus(analysis),
    }
}

impl HostPart {
    /// With the damage of the files, which shows only while they are read.
    pub fn with_problems(mut self, problems: &[String]) -> Self {
        self.problem_count = problems.len();
        self.problems = problems
            .iter()
            .take(SENTENCES_MAX)
            .map(|one| cut(one))
            .collect();
        self
    }
}

fn expected_hosts(info: &RunInfo) -> Option<Vec<String>> {
    let hosts = info.place.as_ref()?.expected_hosts.as_ref()?;
    Some(hosts.iter().map(ToString::to_string).collect())
}

fn cut(text: &str) -> String {
    text.chars().take(CHARS_MAX).collect()
}

fn wall(at: Instant) -> Option<WallNs> {
    at.wall_ns
}

fn peak(analysis: &Analysis, peak: &Composition) -> Option<PartPeak> {
    let rss = peak.totals[Kind::Rss].bytes();
    let held = peak.held.map(|held| held.all());
    let bytes = held.map(|held| held.bytes).or(rss)?;
    let mut holders: Vec<PartHolder> = peak
        .holders
        .iter()
        .take(HOLDERS_MAX)
        .map(|holder| PartHolder {
            pid: holder.who.pid,
            name: cut(holder.who.name.as_deref().unwrap_or_default()),
            rss_bytes: holder.amounts.rss(),
        })
        .collect();
    holders.retain(|holder| holder.rss_bytes.is_some_and(|rss| rss.0 > 0));
    let whole = analysis.held_peak.filter(|_| held.is_some());
    Some(PartPeak {
        wall_ns: wall(peak.at),
        at_least_bytes: whole.map_or(bytes, |whole| whole.at_least),
        bytes,
        at_most_bytes: whole.map_or(bytes, |whole| whole.at_most),
        anon_bytes: peak.held.map(|held| held.anon.bytes),
        shared_bytes: peak.held.map(|held| held.shared.bytes),
        is_lower_bound: peak.is_lower_bound,
        holders,
    })
}

/// The limit of which least is left: of a cgroup, or of the machine.
fn limit(analysis: &Analysis) -> Option<PartLimit> {
    let peak = analysis.peak.as_ref()?;
    let limited = peak.cgroups.iter().filter_map(|cgroup| {
        let path = cgroup.limited_by.as_ref()?;
        let setter = peak.cgroups.iter().find(|one| one.row.cgroup == *path)?;
        let limit = cgroup.effective_limit_bytes?;
        Some((Some(path.clone()), limit, limit - setter.row.current_bytes?))
    });
    let node = peak.node.as_ref().and_then(|node| {
        let row = &node.row;
        Some((None, row.mem_total_bytes?, row.mem_available_bytes?))
    });
    let (cgroup, limit_bytes, headroom_bytes) =
        limited.chain(node).min_by_key(|(.., headroom)| *headroom)?;
    let trend = time_to_fill(analysis, headroom_bytes);
    let pod = cgroup
        .as_deref()
        .and_then(|path| analysis.pod_in_words(path));
    Some(PartLimit {
        cgroup,
        pod: pod.as_deref().map(cut),
        limit_bytes,
        headroom_bytes,
        bytes_per_hour: trend.map(|(slope, _)| slope as i64),
        left_ns: trend.map(|(_, left)| left),
    })
}

/// Zero where it does not grow for sure.
fn per_hour(growth: Option<&Growth>) -> Option<i64> {
    growth.and_then(|growth| match growth.verdict {
        Verdict::Growing => Some(growth.bytes_per_hour as i64),
        // A rise in a short run has no pace per hour.
        Verdict::Rising => None,
        Verdict::Shrinking | Verdict::NoTrend => Some(0),
    })
}

fn roles(analysis: &Analysis) -> Vec<PartRole> {
    let roles = analysis.roles.iter().map(|role| {
        let at_peak = role.at_peak.as_ref().and_then(|at_peak| {
            let anon = at_peak.totals[Kind::Anon].bytes();
            at_peak
                .host_bytes()
                .or(anon)
                .or(at_peak.totals[Kind::Rss].bytes())
        });
        let anon = role.kind(Kind::Anon);
        PartRole {
            name: cut(&role.name),
            is_known: role.role.is_some(),
            process_count: role.process_count,
            at_peak_bytes: at_peak,
            peak_bytes: anon
                .peak
                .or(role.kind(Kind::Rss).peak)
                .map(|(bytes, _)| bytes),
            error_bytes: error_of(role, analysis),
            bytes_per_hour: per_hour(anon.growth.as_ref()),
        }
    });
    let mut roles: Vec<PartRole> = roles.collect();
    roles.order_by(|a, b| (b.peak_bytes, &a.name).cmp(&(a.peak_bytes, &b.name)));
    roles.truncate(ROLES_MAX);
    roles
}

/// A role in words: `PyTorch rank`.
fn role_in_words(role: &Role) -> String {
    match &role.framework {
        Some(framework) => format!("{framework} {}", role.role),
        None => role.role.clone(),
    }
}

/// The number at the end of a rank, by which those of one name are in order.
pub(super) fn rank_order(rank: &str) -> (String, u64) {
    let letters = rank.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = rank[letters.len()..].parse().unwrap_or(u64::MAX);
    (letters.to_owned(), number)
}

fn ranks(analysis: &Analysis, phases: &PhaseSums) -> (Vec<PartRank>, usize) {
    let holders = analysis.peak.iter().flat_map(|peak| &peak.holders);
    let at_peak = |process: usize| {
        let mut holders = holders.clone();
        holders
            .find(|holder| holder.process == process)?
            .amounts
            .rss()
    };
    let rank = |(place, process): (usize, &Process)| {
        let role = process.role.as_ref()?;
        let growth = phases.growth_of(process.upid);
        Some(PartRank {
            rank: cut(role.rank.as_deref()?),
            role: cut(&role_in_words(role)),
            pid: process.tgid,
            peak_bytes: process.peak.rss_bytes,
            at_peak_bytes: at_peak(place),
            bytes_per_hour: per_hour(process.growth.as_deref()),
            bytes_per_step: growth.as_ref().map(|growth| growth.bytes_per_step),
            step_bounds: growth
                .as_ref()
                .map(|growth| growth.bounds)
                .unwrap_or_default(),
            stage: growth.map(|growth| cut(&growth.stage)),
        })
    };
    let ranked = analysis.processes.iter().enumerate();
    let ranked = ranked.filter(|(_, process)| {
        process
            .role
            .as_ref()
            .is_some_and(|role| role.rank.is_some())
    });
    let mut ranked: Vec<(usize, &Process)> = ranked.collect();
    let count = ranked.len();
    ranked.order_by_key(|(place, process)| (Reverse(process.peak.rss_bytes), *place));
    ranked.truncate(RANKS_MAX);
    let mut ranks: Vec<PartRank> = ranked.into_iter().filter_map(rank).collect();
    ranks.order_by_key(|one| (one.role.clone(), rank_order(&one.rank), one.pid));
    (ranks, count)
}

/// OOM kills and what follows them: processes that a signal ended which nobody sent to end them, and
/// those that are a rank, or what the person started, and failed.
fn ends(analysis: &Analysis) -> (Vec<PartEnd>, usize) {
    let processes = &analysis.processes;
    let mut killed: Vec<usize> = Vec::new();
    let concerning = analysis.ooms.iter().filter(|kill| !kill.is_elsewhere);
    let kills = concerning.map(|kill| {
        let victim = kill.victim.and_then(|place| processes.get(place));
        killed.extend(kill.victim);
        let name = kill
            .victim_name
            .as_deref()
            .or(kill.row.victim_comm.as_deref());
        let rank = victim.and_then(|process| process.role.as_ref()?.rank.as_deref());
        let memcg = kill.row.memcg.as_deref();
        let pod = memcg.and_then(|path| analysis.pod_in_words(path));
        PartEnd {
            wall_ns: wall(kill.at),
            is_oom_kill: true,
            cgroup: kill.row.memcg.as_deref().map(cut),
            pod: pod.as_deref().map(cut),
            name: cut(name.unwrap_or_default()),
            pid: Some(kill.row.victim_tgid),
            rank: rank.map(cut),
            how: Ending::Killed {
                signal: 9,
                by_oom_killer: Some(true),
            }
            .shown(),
        }
    });
    let mut ends: Vec<PartEnd> = kills.collect();
    let is_reported = |(place, process): &(usize, &Process)| {
        let rank = process.role.as_ref().and_then(|role| role.rank.as_ref());
        let is_watched = process.is_main || rank.is_some();
        let is_failure = matches!(process.ending, Ending::Exited(_)) && is_watched;
        let is_violent = process.gravity() <= Ending::STOPPED;
        process.ending.is_notable() && (is_violent || is_failure) && !killed.contains(place)
    };
    let others = processes.iter().enumerate().filter(is_reported);
    ends.extend(others.map(|(_, process)| {
        PartEnd {
            wall_ns: process.end.and_then(wall),
            is_oom_kill: process.ending.by_oom_killer() == Some(true),
            cgroup: None,
            pod: None,
            name: cut(&process.name),
            pid: process.tgid,
            rank: process
                .role
                .as_ref()
                .and_then(|role| role.rank.as_deref())
                .map(cut),
            how: process.ended_in_short(),
        }
    }));
    ends.order_by_key(|end| (end.wall_ns.is_none(), end.wall_ns, end.pid));
    let count = ends.len();
    ends.truncate(ENDS_MAX);
    (ends, count)
}

fn gpus(analysis: &Analysis) -> Vec<PartGpu> {
    let devices = analysis.gpus.iter().flat_map(|gpus| &gpus.devices);
    let gpus = devices.map(|device| PartGpu {
        device: cut(&device.device),
        index: device.index,
        name: device.name.as_deref().map(cut),
        total_bytes: device.total_bytes,
        peak_bytes: device.peak.as_ref().and_then(|peak| peak.used_bytes),
    });
    gpus.take(GPUS_MAX).collect::<Vec<_>>()
}
