//! The answer for a run in short, for the first lines of its report: what happened to which host,
//! how much was held and where, who stands out, who meets a limit first, and what is not known.

use super::part::Place;
use super::run::{ChainLink, HostLine, HostStatus, Measure, Outlier, RunReport, WallTime};
use crate::answer::{AnswerLine, Topic};
use memtrace_model::{Bytes, DurationNs, quoted};
use memtrace_report::shorten;
use memtrace_report::words::{self, bytes, count, counted, duration};

/// So many names stand in a sentence.
const NAMES_MAX: usize = 4;
/// So many columns a name of a process has in a sentence.
const NAME_COLUMNS: usize = 40;
/// So many who stand out are reported in the first lines.
const OUTLIERS_MAX: usize = 2;

/// The answer, a sentence for each thing that there is to say.
pub(super) fn lines(report: &RunReport) -> Vec<AnswerLine> {
    let line = |about, is_alarming| move |text: String| AnswerLine::of(about, text, is_alarming);
    let lines = [
        happened(report).map(line(Topic::WhatHappened, true)),
        hosts(report).map(line(Topic::Hosts, true)),
        all_well(report).map(line(Topic::WhatHappened, false)),
        most_held(report).map(line(Topic::MostHeld, false)),
        stands_out(report).map(line(Topic::StandsOut, true)),
        limit(report).map(line(Topic::Limit, false)),
        clocks(report).map(line(Topic::Clocks, true)),
        not_known(report).map(line(Topic::Missing, true)),
        look_next(report),
    ];
    lines.into_iter().flatten().collect()
}

/// A time of day; with the date in a run that is longer than a day.
pub(super) fn at(report: &RunReport, at: WallTime) -> String {
    let length = report.duration().unwrap_or_default();
    words::wall(at.0, length).unwrap_or_else(|| words::UNKNOWN.to_owned())
}

/// `node1, node2, node3, node4 and 3 more`.
pub(super) fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = names.collect();
    let shown = all.iter().take(NAMES_MAX).copied();
    let shown = shown.collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMES_MAX) {
        0 => shown,
        more => format!("{shown} and {} more", count(more)),
    }
}

/// `PyTorch rank 3 on node2 (pid 512)`.
fn who(link: &ChainLink) -> String {
    let name = shorten(link.name.as_deref().unwrap_or_default(), NAME_COLUMNS);
    let pid = link.pid.map(|pid| format!(" (pid {pid})"));
    format!("{name} on {}{}", link.host, pid.unwrap_or_default())
}

pub(super) fn happened(report: &RunReport) -> Option<String> {
    let ends = report.ends.iter().filter(|link| !link.is_host);
    let ends: Vec<&ChainLink> = ends.collect();
    let (first, others) = ends.split_first()?;
    let when = first.at.map(|when| format!(" at {}", at(report, when)));
    let limit = first
        .cgroup
        .as_ref()
        .map(|path| format!(", at the limit of {}", group(path, first.pod.as_deref())));
    let mut reported = format!(
        "{} was first: {}{}{}",
        who(first),
        first.how,
        when.unwrap_or_default(),
        limit.unwrap_or_default()
    );
    if let Some(next) = others.iter().find(|link| link.is_after_first) {
        let others = others.iter().filter(|link| link.is_after_first);
        let (all, elsewhere) = others.fold((0, 0), |(all, elsewhere), link| {
            (all + 1, elsewhere + usize::from(link.host != first.host))
        });
        let after = next.after_first_ns.map(duration).unwrap_or_default();
        reported.push_str(&format!(
            "; {} followed, {} of them on other hosts, the next one {} after {after}",
            counted(all, "end", "ends"),
            count(elsewhere),
            who(next),
        ));
    }
    let same = others
        .iter()
        .filter(|link| !link.is_after_first && link.error_ns.is_some());
    let errors = same.clone().filter_map(|link| link.error_ns).max();
    if let Some(error) = errors.filter(|error| error.0 > 0) {
        let ends = counted(same.count(), "end was", "ends were");
        reported.push_str(&format!(
            "; {ends} at the same time within ±{}",
            duration(error)
        ));
    }
    let unknown = others.iter().filter(|link| link.error_ns.is_none()).count();
    if unknown > 0 {
        let ends = counted(unknown, "end has", "ends have");
        reported.push_str(&format!(
            "; {ends} no known order, because a clock is not synchronized"
        ));
    }
    Some(reported + ".")
}

fn hosts(report: &RunReport) -> Option<String> {
    let of = |status: HostStatus| {
        report
            .hosts
            .iter()
            .filter(move |line| line.status == status)
    };
    let mut reported: Vec<String> = Vec::new();
    if let Some(first) = of(HostStatus::Silent).next() {
        let since = first.end.map(|end| at(report, end)).unwrap_or_default();
        let before = first.silent_ns.map(duration).unwrap_or_default();
        let others = of(HostStatus::Silent).skip(1).map(|line| &*line.host);
        let others = match of(HostStatus::Silent).count() {
            1 => String::new(),
            _ => format!("; nor were {}", names(others)),
        };
        reported.push(format!(
            "{} was not heard from after {since}, {before} before the last host, and its \
             recording was not closed{others}",
            first.host
        ));
    }
    let missing = of(HostStatus::Missing).count();
    if missing > 0 {
        let names = names(of(HostStatus::Missing).map(|line| &*line.host));
        reported.push(format!(
            "{} of {} expected hosts {} no recording: {names}",
            count(missing),
            count(report.expected_host_count.unwrap_or(missing)),
            if missing == 1 { "has" } else { "have" },
        ));
    }
    (!reported.is_empty()).then(|| reported.join("; ") + ".")
}

fn all_well(report: &RunReport) -> Option<String> {
    if happened(report).is_some() || hosts(report).is_some() {
        return None;
    }
    let open = report
        .hosts
        .iter()
        .filter(|line| line.status == HostStatus::Open)
        .count();
    Some(match (open, report.hosts.len()) {
        (_, 0) => "no recording can be read.".to_owned(),
        (0, all) => format!(
            "{} closed, and no process was killed or crashed.",
            counted(all, "recording of a host was", "recordings of hosts were")
        ),
        (open, all) => format!(
            "{} of {} hosts have a recording that is not closed; no process was killed or crashed.",
            count(open),
            count(all)
        ),
    })
}

fn most_held(report: &RunReport) -> Option<String> {
    let peak = report.peak.as_ref()?;
    let (least, figure, most) = (
        bytes(peak.at_least_bytes),
        bytes(peak.bytes),
        bytes(peak.at_most_bytes),
    );
    let bounds = match least == most {
        true => String::new(),
        false => format!(" (between {least} and {most})"),
    };
    let first = report
        .hosts
        .iter()
        .filter_map(|line| Some((line.at_job_peak_bytes?, line)));
    let first = first.rev().max_by_key(|(held, _)| *held);
    let on = first
        .filter(|_| peak.host_count > 1)
        .map(|(held, line)| format!(", most of it on {} ({})", line.host, bytes(held)));
    let role = peak.roles.first().map(|role| {
        // Of each host the most about then, and of each process its anonymous memory, also what it
        // shares with the one that forked it.
        let how = match role.bytes > peak.bytes {
            true => {
                ", an upper bound: the maximum of each host around that time, with pages that \
                 forks share counted in each"
            }
            false => "",
        };
        format!(
            "; the largest role is {} ({}{how})",
            role.name,
            bytes(role.bytes)
        )
    });
    Some(format!(
        "{figure}{bounds} on {} at {}{}{}.",
        counted(peak.host_count, "host", "hosts"),
        at(report, peak.at),
        on.unwrap_or_default(),
        role.unwrap_or_default(),
    ))
}

/// Who it is that stands out: `PyTorch rank 3 on node1`.
fn outlier(one: &Outlier) -> String {
    match &one.rank {
        Some(rank) => format!("{} {rank} on {}", one.role, one.host),
        None => format!("{} on {}", one.role, one.host),
    }
}

/// In what somebody stands out, in a sentence without its full stop.
pub(super) fn difference(one: &Outlier) -> String {
    let who = outlier(one);
    let (own, median) = (bytes(Bytes(one.bytes)), bytes(Bytes(one.median_bytes)));
    let others = count(one.other_count);
    let by = one.bytes.saturating_sub(one.median_bytes);
    match one.measure {
        Measure::Peak => {
            let than = if by < 0 { "less" } else { "more" };
            let by = bytes(Bytes(by.saturating_abs()));
            format!(
                "{who} held {by} {than} than the other {others} ({own}; the median is {median})"
            )
        }
        Measure::PerStep => {
            format!("{who} grows by {own} a step where the other {others} grow by {median}")
        }
        Measure::PerHour => {
            format!("{who} grows by {own} an hour where the other {others} grow by {median}")
        }
    }
}

fn stands_out(report: &RunReport) -> Option<String> {
    let growing = |one: &&Outlier| one.measure != Measure::Peak && one.bytes > one.median_bytes;
    let holding = |one: &&Outlier| one.measure == Measure::Peak && one.bytes > one.median_bytes;
    let first = report.outliers.iter().find(holding);
    let growing = report.outliers.iter().find(growing);
    let reported: Vec<String> = [first, growing]
        .into_iter()
        .flatten()
        .take(OUTLIERS_MAX)
        .map(difference)
        .collect();
    (!reported.is_empty()).then(|| reported.join("; ") + ".")
}

/// The host of whose limit the least part was left.
fn nearest(report: &RunReport) -> Option<(&HostLine, Bytes, Bytes)> {
    let limited = report.hosts.iter();
    let limited = limited.filter_map(|line| Some((line, line.limit_bytes?, line.headroom_bytes?)));
    limited.min_by(|a, b| {
        let part =
            |(_, limit, left): &(&HostLine, Bytes, Bytes)| left.0 as f64 / limit.0.max(1) as f64;
        part(a).total_cmp(&part(b))
    })
}

/// A cgroup as a person knows it.
fn group(path: &str, pod: Option<&str>) -> String {
    match pod {
        None => format!("cgroup {path}"),
        Some(pod) => pod.to_owned(),
    }
}

fn limit(report: &RunReport) -> Option<String> {
    let (line, limit, left) = nearest(report)?;
    let of = match &line.limit_cgroup {
        Some(path) => format!("in {}", group(path, line.limit_pod.as_deref())),
        None => "of memory".to_owned(),
    };
    let fills = line.left_ns.zip(line.bytes_per_hour).map(|(left, slope)| {
        format!(
            "; at {} it is full in about {}",
            words::slope(slope as f64),
            duration(left)
        )
    });
    let first = report
        .hosts
        .iter()
        .filter_map(|line| Some((line.left_ns?, line)));
    let first = first
        .min_by_key(|(left, _)| *left)
        .filter(|(_, first)| first.host != line.host);
    let other = first
        .map(|(left, line)| format!("; {} is full first, in about {}", line.host, duration(left)));
    Some(format!(
        "nearest is {}: {} of its {} {of} were left at its peak{}{}.",
        line.host,
        bytes(left),
        bytes(limit),
        fills.unwrap_or_default(),
        other.unwrap_or_default(),
    ))
}

fn clocks(report: &RunReport) -> Option<String> {
    let loose = report.clocks.iter().filter(|line| line.error_ns.is_none());
    let (by_steps, alone): (Vec<_>, Vec<_>) = loose.partition(|line| line.is_corrected);
    if report.clocks.len() < 2 || by_steps.is_empty() && alone.is_empty() {
        return None;
    }
    let mut reported = Vec::new();
    if let Some(first) = by_steps.first() {
        let skew = first.skew_ns.unwrap_or_default();
        let way = if skew.0 < 0 { "behind" } else { "ahead of" };
        reported.push(format!(
            "{} known from common steps ({} {} {way} {}, ±{})",
            names(by_steps.iter().map(|line| &*line.host))
                + if by_steps.len() == 1 { " is" } else { " are" },
            first.host,
            duration(DurationNs(skew.0.saturating_abs())),
            first.reference.as_deref().unwrap_or_default(),
            duration(first.skew_error_ns.unwrap_or_default()),
        ));
    }
    if !alone.is_empty() {
        let names = names(alone.iter().map(|line| &*line.host));
        reported.push(format!("{names} may be off by any amount"));
    }
    let all = by_steps.len() + alone.len();
    let clocks = counted(all, "clock is", "clocks are");
    Some(format!(
        "{clocks} not known to be synchronized: {}.",
        reported.join(", ")
    ))
}

fn not_known(report: &RunReport) -> Option<String> {
    let first = report.problems.first()?;
    let more = match report.problems.len() - 1 {
        0 => String::new(),
        more => format!(" ({} more)", count(more)),
    };
    Some(format!(
        "{}: {}{more}.",
        first.place(),
        first.text.trim_end_matches('.')
    ))
}

impl RunReport {
    /// The recording to look at next.
    pub fn next(&self) -> Option<Place> {
        let of_first_end = self.ends.first().map(|link| &link.host);
        let of_outlier = self.outliers.first().map(|one| &one.host);
        let of_peak = self.hosts.iter().rev();
        let of_peak = of_peak.max_by_key(|line| line.at_job_peak_bytes);
        let of_peak = of_peak.map(|line| &line.host);
        let host = of_first_end.or(of_outlier).or(of_peak)?;
        let line = self.hosts.iter().find(|line| line.host == *host)?;
        Some(Place {
            run: self.run.clone(),
            host: host.clone(),
            rec: line.recs.last()?.clone(),
        })
    }
}

/// The command that shows a recording.
pub(super) fn command(path: &str) -> String {
    format!("memtrace report {}", quoted(path))
}

fn look_next(report: &RunReport) -> Option<AnswerLine> {
    let Place { run, host, rec } = report.next()?;
    Some(AnswerLine {
        command: Some(command(&format!("ROOT/run={run}/host={host}/rec={rec}"))),
        ..AnswerLine::of(Topic::LookNext, format!("what {host} held:"), false)
    })
}
