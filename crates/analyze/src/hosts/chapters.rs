//! The report of a run in chapters, for people.

use super::answer::{self, RunTopic};
use super::run::{
    ChainLink, HostLine, HostStatus, JobPhase, JobRole, Outlier, RankLine, RunReport, WallTime,
};
use memtrace_model::{Bytes, DurationNs, Label, Order};
use memtrace_report::words::{self, bytes, count, counted, duration};
use memtrace_report::{Block, Cell, Chapter, Table, TableOf, Tone};

/// Sentences of a list that are reported unless all are asked for.
const FEW: usize = 5;

/// The head: which run it is, and the answer.
pub(super) fn about(report: &RunReport, _top: usize) -> Option<Chapter> {
    let mut chapter = Chapter::new(format!("memtrace: run {}", report.run));
    let mut parts = Vec::new();
    parts.extend(
        report
            .start
            .and_then(|start| words::date_and_time(start.0, None)),
    );
    if let Some((start, end)) = report.start.zip(report.end) {
        parts.push(duration(DurationNs(end.0.0.saturating_sub(start.0.0))));
    }
    parts.push(counted(report.host_count, "host", "hosts"));
    parts.push(counted(report.recording_count, "recording", "recordings"));
    chapter.say(parts.join(" · "));
    for line in answer::lines(report) {
        let tone = match (line.about, line.is_alarming) {
            (_, true) => Tone::Alert,
            (RunTopic::WhatHappened | RunTopic::MostHeld, _) => Tone::Strong,
            _ => Tone::Plain,
        };
        chapter.tell(tone, [format!("{}: {}", line.about.heading(), line.text)]);
        let known = report.next_path.as_deref().map(answer::command);
        let command = line.command.map(|command| known.unwrap_or(command));
        chapter.blocks.extend(command.map(Block::Command));
    }
    Some(chapter)
}

/// What could not be used.
pub(super) fn problems(report: &RunReport, top: usize) -> Option<Chapter> {
    if report.problems.len() < 2 {
        return None;
    }
    let what = counted(report.problems.len(), "thing", "things");
    let mut chapter = Chapter::alarming(format!("Not used, or only in part: {what}"));
    let reported = report.problems.iter().map(|problem| {
        let rec = problem
            .rec
            .as_ref()
            .map_or_else(String::new, |rec| format!(" {rec}"));
        format!("{}{rec}: {}", problem.host, problem.text)
    });
    chapter.tell(Tone::Plain, reported.take(top.max(FEW)));
    chapter.rest(
        report.problems.len(),
        top.max(FEW),
        count,
        " more: see `--format json`.",
    );
    Some(chapter)
}

/// The chain of ends.
pub(super) fn ends(report: &RunReport, top: usize) -> Option<Chapter> {
    if report.ends.is_empty() {
        return None;
    }
    let mut chapter = Chapter::alarming(format!("Unexpected ends: {}", count(report.end_count)));
    chapter.table(ends_table(report, top));
    chapter.rest(report.end_count, top, count, " more: see `--format json`.");
    chapter.explain(
        "An end counts as later than the first one only if the difference is more than both \
         clocks can be off; otherwise both were at the same time, within that.",
    );
    Some(chapter)
}

pub(super) fn ends_table(report: &RunReport, top: usize) -> Table {
    let is_first = |link: &ChainLink| report.ends.first() == Some(link);
    TableOf::of(report.ends.iter().take(top))
        .figures(("time", "AT"), 0, |link| time(report, link.at))
        .figures(("after_first_s", "AFTER THE FIRST"), 0, |link| {
            let after = Cell::Took(link.after_first_ns);
            let shown = after.shown();
            match link.error_ns {
                _ if is_first(link) => Cell::shown_only(""),
                None => after.shown_as("unknown".to_owned()),
                Some(_) if link.is_after_first => after.shown_as(shown),
                Some(DurationNs(0)) => after.shown_as(shown),
                Some(error) => after.shown_as(format!("same time ±{}", duration(error))),
            }
        })
        .words("host", 0, |link| link.host.clone())
        .words("rank", 2, |link| match &link.rank {
            None => Cell::Absent,
            Some(rank) => rank.clone().into(),
        })
        .figures("pid", 1, |link| match link.pid {
            None => Cell::Absent,
            pid => Cell::known(pid),
        })
        .words("how", 0, |link| link.how.clone())
        .flexible("process", |link| link.name.clone().unwrap_or_default())
        .words(("cgroup", "LIMIT OF"), 3, |link| match &link.cgroup {
            None => Cell::Absent,
            Some(path) => path.clone().into(),
        })
        .data("pod", |link| link.pod.clone().unwrap_or_default())
        .data("error_s", |link| Cell::Took(link.error_ns))
        .data("is_after_first", |link| link.is_after_first.to_string())
        .done()
}

/// Who stands out.
pub(super) fn outliers(report: &RunReport, top: usize) -> Option<Chapter> {
    if report.outliers.is_empty() {
        return None;
    }
    let mut chapter = Chapter::new("Stands out from others that do the same");
    let reported = report
        .outliers
        .iter()
        .map(|one| answer::difference(one) + ".");
    chapter.tell(Tone::Plain, reported.take(top));
    chapter.rest(
        report.outliers.len(),
        top,
        count,
        " more: see `--format json`.",
    );
    chapter.explain(
        "An outlier is further from the median than four times the median absolute deviation (as \
         a standard deviation), a twentieth of the median, and 64 MiB (1 MiB a step, 64 MiB an \
         hour). None is reported among fewer than four, or if more than one and more than a \
         quarter of them would qualify: then they are of two kinds.",
    );
    Some(chapter)
}

pub(super) fn outliers_table(report: &RunReport, top: usize) -> Table {
    let figure = |bytes: i64| Bytes(bytes);
    TableOf::of(report.outliers.iter().take(top))
        .words("role", 0, |one: &&Outlier| one.role.clone())
        .words("rank", 0, |one| one.rank.clone().unwrap_or_default())
        .words("host", 0, |one| one.host.clone())
        .words("measure", 0, |one| one.measure.as_str())
        .figures("value_bytes", 0, |one| figure(one.bytes))
        .figures("median_bytes", 0, |one| figure(one.median_bytes))
        .figures("threshold_bytes", 0, |one| figure(one.threshold_bytes))
        .figures("others", 0, |one| Cell::known(Some(one.other_count)))
        .done()
}

pub(super) fn hosts(report: &RunReport, top: usize) -> Option<Chapter> {
    let mut chapter = Chapter::new(format!(
        "Hosts: {}",
        counted(report.hosts.len(), "host", "hosts")
    ));
    chapter.table(hosts_table(report, top));
    let rest = report.hosts.get(top..).unwrap_or_default();
    if let Some(words) = folded(rest) {
        chapter.quiet(words);
    }
    chapter.explain(
        "LEFT is what was left of LIMIT, a cgroup's or the machine's, at the host's own peak; \
         FULL IN is the time until that is used up, from the end of the trend, if growth is \
         statistically certain.",
    );
    Some(chapter)
}

/// `… and 61 hosts like these, with peaks between 1.0 GiB and 2.0 GiB`.
fn folded(rest: &[HostLine]) -> Option<String> {
    let peaks = || rest.iter().filter_map(|line| line.peak_bytes);
    let hosts = match rest.len() {
        0 => return None,
        1 => "1 more host".to_owned(),
        many => format!("{} more hosts", count(many)),
    };
    let (least, most) = (peaks().min(), peaks().max());
    let between = least
        .zip(most)
        .map(|(least, most)| format!(", with peaks between {} and {}", bytes(least), bytes(most)));
    let statuses = HostStatus::ALL.iter().filter_map(|status| {
        let of = rest.iter().filter(|line| line.status == *status).count();
        (of > 0).then(|| format!("{} {}", count(of), status.shown()))
    });
    let statuses: Vec<String> = statuses.collect();
    Some(format!(
        "… and {hosts}{} ({}): see `--top` or `--format csv`.",
        between.unwrap_or_default(),
        statuses.join(", ")
    ))
}

pub(super) fn hosts_table(report: &RunReport, top: usize) -> Table {
    let has_ends = report.hosts.iter().any(|line| line.end_count > 0);
    TableOf::of(report.hosts.iter().take(top))
        .words("host", 0, |line: &&HostLine| line.host.clone())
        .words("status", 0, |line| {
            let status = Cell::from(line.status.as_str());
            status.shown_as(line.status.shown().to_owned())
        })
        .figures("peak_bytes", 0, |line| known(line, line.peak_bytes))
        .figures(("peak_time", "AT"), 2, |line| match line.peak_at {
            None => Cell::Absent,
            at => time(report, at),
        })
        .figures(("at_job_peak_bytes", "AT JOB'S PEAK"), 1, |line| {
            known(line, line.at_job_peak_bytes)
        })
        .figures("limit_bytes", 1, |line| known(line, line.limit_bytes))
        .figures(("headroom_bytes", "LEFT"), 0, |line| {
            known(line, line.headroom_bytes)
        })
        .figures(("left_s", "FULL IN"), 0, |line| match line.left_ns {
            None => Cell::Absent,
            left => Cell::Took(left),
        })
        .figures(("end_count", "ENDS"), 3, |line| {
            Cell::known(Some(line.end_count))
        })
        .only_if(has_ends)
        .flexible("largest", |line| line.largest.clone().unwrap_or_default())
        .data("limit_cgroup", |line| {
            line.limit_cgroup.clone().unwrap_or_default()
        })
        .data("limit_pod", |line| {
            line.limit_pod.clone().unwrap_or_default()
        })
        .data("bytes_per_hour", |line| {
            Cell::known(line.bytes_per_hour).data()
        })
        .data("peak_at_least_bytes", |line| line.peak_at_least_bytes)
        .data("peak_at_most_bytes", |line| line.peak_at_most_bytes)
        .data("start", |line| rfc3339(line.start))
        .data("end", |line| rfc3339(line.end))
        .data("recs", |line| line.recs.join(" "))
        .done()
}

/// Of a host that is missing nothing is to be known.
fn known(line: &HostLine, amount: Option<Bytes>) -> Cell {
    match line.status {
        HostStatus::Missing => Cell::shown_only(""),
        _ => Cell::Bytes(amount),
    }
}

fn rfc3339(at: Option<WallTime>) -> Option<String> {
    at?.0.rfc3339()
}

fn time(report: &RunReport, when: Option<WallTime>) -> Cell {
    let shown = when.map_or_else(
        || words::UNKNOWN.to_owned(),
        |when| answer::at(report, when),
    );
    Cell::Both {
        shown,
        data: rfc3339(when).unwrap_or_default(),
    }
}

/// The peak of the job.
pub(super) fn peak(report: &RunReport, top: usize) -> Option<Chapter> {
    let peak = report.peak.as_ref()?;
    let mut chapter = Chapter::new(format!(
        "Peak of all hosts: {} at {}",
        bytes(peak.bytes),
        answer::at(report, peak.at)
    ));
    let (least, most) = (bytes(peak.at_least_bytes), bytes(peak.at_most_bytes));
    let polled = if peak.is_lower_bound {
        "; some hosts were polled, and may have held more"
    } else {
        ""
    };
    chapter.say(format!(
        "At one instant they held at least {least} and at most {most}{polled}. The hosts' own \
         peaks, which were at other times, add up to {}.",
        bytes(peak.sum_of_peaks_bytes)
    ));
    if peak.unsure_host_count > 0 && report.host_count > 1 {
        chapter.say(format!(
            "The clock error of {} is unknown, so these bounds assume that its readings could be \
             from any time.",
            counted(peak.unsure_host_count, "host", "hosts")
        ));
    }
    if peak.roles.iter().any(|role| role.bytes > peak.bytes) {
        chapter.say(
            "ABOUT is an upper bound: the maximum of a role's anonymous memory on each host \
             around that time, not necessarily at one instant, with pages that forks share \
             counted in each.",
        );
    }
    let shared = Some(peak.shared_bytes).filter(|shared| *shared != Some(Bytes(0)));
    let shared = shared.map(|shared| (None, report.host_count, shared));
    let roles = peak
        .roles
        .iter()
        .map(|role| (Some(&role.name), role.host_count, Some(role.bytes)));
    let parts: Vec<_> = roles.take(top).chain(shared).collect();
    TableOf::of(parts)
        .flexible(("role", "ROLE"), |(name, ..)| match name {
            Some(name) => Cell::from((*name).clone()),
            None => Cell::from("shared, once a host"),
        })
        .figures(("hosts", "HOSTS"), 1, |(_, hosts, _)| {
            Cell::known(Some(*hosts))
        })
        .figures(("held_bytes", "ABOUT"), 0, |(.., bytes)| *bytes)
        .add_to(&mut chapter);
    chapter.explain(format!(
        "Hosts are added up in bins of {} of the wall clock. The upper bound is the sum of each \
         host's maximum. The lower bound is the sum of each host's minimum, or what one host held \
         alone; where clocks are exact, also what all hosts held in the mean of a bin, or while \
         the one that moves most was at its highest.",
        duration(DurationNs(peak.bin_s.saturating_mul(1_000_000_000)))
    ));
    Some(chapter)
}

pub(super) fn roles(report: &RunReport, top: usize) -> Option<Chapter> {
    if report.roles.is_empty() {
        return None;
    }
    let mut chapter = Chapter::new(format!("Roles: {}", count(report.roles.len())));
    chapter.table(roles_table(report, top));
    chapter.rest(report.roles.len(), top, words::more_roles, ".");
    chapter.explain(
        "HIGHEST, MEDIAN and LOWEST are the highest sums of a role's anonymous memory on a host.",
    );
    Some(chapter)
}

pub(super) fn roles_table(report: &RunReport, top: usize) -> Table {
    let number = |number: usize| Cell::known(Some(number));
    TableOf::of(report.roles.iter().take(top))
        .flexible("role", |role: &&JobRole| role.name.clone())
        .figures("hosts", 2, |role| number(role.host_count))
        .figures("processes", 2, |role| number(role.process_count))
        .figures(
            ("at_job_peak_bytes", "AT JOB'S PEAK"),
            1,
            |role| match role.at_job_peak_bytes {
                None => Cell::Absent,
                held => Cell::Bytes(held),
            },
        )
        .figures("highest_bytes", 0, |role| role.highest_bytes)
        .words(("highest_host", "ON"), 0, |role| role.highest_host.clone())
        .figures("median_bytes", 0, |role| role.median_bytes)
        .figures("lowest_bytes", 1, |role| role.lowest_bytes)
        .words(("lowest_host", "ON"), 1, |role| role.lowest_host.clone())
        .figures(("growing_hosts", "GROWS ON"), 1, |role| {
            match role.growing_count {
                0 => Cell::Absent,
                count => number(count),
            }
        })
        .figures(("growth_bytes_per_hour", "BY"), 1, |role| {
            match role.bytes_per_hour {
                None => Cell::Absent,
                slope => Cell::Rate(slope.map(|slope| slope as f64)),
            }
        })
        .done()
}

pub(super) fn ranks(report: &RunReport, top: usize) -> Option<Chapter> {
    if report.ranks.is_empty() {
        return None;
    }
    let mut chapter = Chapter::new(format!("Ranks: {}", count(report.rank_count)));
    chapter.table(ranks_table(report, top));
    chapter.rest(
        report.rank_count,
        top,
        count,
        " more: see `--top` or `--format csv`.",
    );
    Some(chapter)
}

pub(super) fn ranks_table(report: &RunReport, top: usize) -> Table {
    TableOf::of(report.ranks.iter().take(top))
        .words("role", 2, |line: &&RankLine| line.role.clone())
        .words("rank", 0, |line| line.rank.clone())
        .words("host", 0, |line| line.host.clone())
        .figures("pid", 1, |line| Cell::known(line.pid))
        .figures("peak_bytes", 0, |line| line.peak_bytes)
        .figures(("growth_bytes_per_step", "A STEP"), 0, |line| {
            match line.bytes_per_step {
                None => Cell::Absent,
                slope => Cell::Change(slope.map(Bytes)),
            }
        })
        .figures(("growth_bytes_per_hour", "AN HOUR"), 0, |line| {
            match line.bytes_per_hour {
                None => Cell::Absent,
                slope => Cell::Change(slope.map(Bytes)),
            }
        })
        .flexible(("stage", "STEPS"), |line| match &line.stage {
            None => Cell::Absent,
            Some(stage) => stage.clone().into(),
        })
        .done()
}

pub(super) fn phases(report: &RunReport, top: usize) -> Option<Chapter> {
    if report.phases.is_empty() {
        return None;
    }
    let mut chapter = Chapter::new(format!("Phases: {}", count(report.phases.len())));
    chapter.table(phases_table(report, top));
    chapter.rest(
        report.phases.len(),
        top,
        count,
        " more: see `--top` or `--format csv`.",
    );
    chapter.explain("MEAN is that of the median process, SLOWEST the mean of the slowest one.");
    Some(chapter)
}

pub(super) fn phases_table(report: &RunReport, top: usize) -> Table {
    let number = |number: usize| Cell::known(Some(number));
    TableOf::of(report.phases.iter().take(top))
        .flexible("phase", |phase: &&JobPhase| phase.name.clone())
        .figures("count", 1, |phase| number(phase.count))
        .figures("processes", 2, |phase| number(phase.process_count))
        .figures("hosts", 2, |phase| number(phase.host_count))
        .figures(("median_mean_s", "MEAN"), 0, |phase| {
            Cell::Took(Some(phase.median_mean_ns))
        })
        .figures(("slowest_mean_s", "SLOWEST"), 0, |phase| {
            Cell::Took(Some(phase.slowest_mean_ns))
        })
        .words(("slowest_host", "ON"), 0, |phase| {
            phase.slowest_host.clone()
        })
        .words(("slowest_rank", "RANK"), 0, |phase| {
            match &phase.slowest_rank {
                None => Cell::Absent,
                Some(rank) => rank.clone().into(),
            }
        })
        .figures("longest_s", 1, |phase| Cell::Took(Some(phase.longest_ns)))
        .figures(("open_count", "OPEN"), 1, |phase| match phase.open_count {
            0 => Cell::Absent,
            open => number(open),
        })
        .done()
}

pub(super) fn clocks(report: &RunReport, top: usize) -> Option<Chapter> {
    if report.clocks.len() < 2 {
        return None;
    }
    let mut chapter = Chapter::new("Clocks of the hosts");
    chapter.tone = Tone::Plain;
    chapter.table(clocks_table(report, top));
    chapter.rest(
        report.clocks.len(),
        top,
        count,
        " more: see `--top` or `--format csv`.",
    );
    chapter.explain(
        "OFF BY is the error bound that a host's kernel assumes for its clock. AHEAD is how much \
         later its steps start, by its own clock, than those of the reference: the skew of the \
         clock, if all hosts wait for each other. It is used where it is known better.",
    );
    Some(chapter)
}

pub(super) fn clocks_table(report: &RunReport, top: usize) -> Table {
    let optional = |length: Option<DurationNs>| match length {
        None => Cell::Absent,
        length => Cell::Took(length),
    };
    let mut lines: Vec<_> = report.clocks.iter().collect();
    lines.order_by_key(|line| (line.error_ns.is_some(), std::cmp::Reverse(line.error_ns)));
    lines.truncate(top);
    let has_corrected = lines.iter().any(|line| line.is_corrected);
    TableOf::of(lines)
        .words("host", 0, |line| line.host.clone())
        .words(("is_synchronized", "SYNCHRONIZED"), 0, |line| {
            let shown = match line.is_synchronized {
                None => words::UNKNOWN,
                Some(true) => "yes",
                Some(false) => "no",
            };
            Cell::known(line.is_synchronized).shown_as(shown.to_owned())
        })
        .figures(("error_s", "OFF BY"), 0, |line| Cell::Took(line.error_ns))
        .figures(("skew_s", "AHEAD"), 0, |line| optional(line.skew_ns))
        .figures(("skew_error_s", "±"), 0, |line| {
            optional(line.skew_error_ns)
        })
        .words(("reference", "OF"), 0, |line| match &line.reference {
            None => Cell::Absent,
            Some(host) => host.clone().into(),
        })
        .words(("is_corrected", "USED"), 0, |line| {
            Cell::from(line.is_corrected.to_string())
                .shown_as(if line.is_corrected { "yes" } else { "" }.to_owned())
        })
        .only_if(has_corrected)
        .flexible(("stage", "STEPS"), |line| match &line.stage {
            None => Cell::Absent,
            Some(stage) => format!("{} × {stage}", line.step_count).into(),
        })
        .done()
}
