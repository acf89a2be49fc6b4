//! The sections of the report of a run.

use super::answer;
use super::run::{ChainLink, HostLine, HostStatus, JobPeak, RunReport, WallTime};
use crate::answer::tell;
use memtrace_model::{Bytes, DurationNs, Label, Order};
use memtrace_report::words::{self, bytes, count, counted, duration};
use memtrace_report::{Cell, Chapter, MORE_IN_JSON, Section, Table, TableOf, Tone, View, one_part};

/// Sentences of a list that are reported unless all are asked for.
const FEW: usize = 5;

/// Every section of the report of a run, in the order in which a person reads them.
pub static RUN_SECTIONS: &[Section<RunReport>] = &[
    Section {
        name: "about",
        doc: "which run it is, and the answer in short",
        keys: &[
            "host_count",
            "recording_count",
            "start",
            "end",
            "expected_host_count",
        ],
        tell: |run, _| vec![about(run)],
        ..Section::EMPTY
    },
    Section {
        name: "missing",
        doc: "what could not be used, or only in part",
        keys: &["problems"],
        tell: problems,
        ..Section::EMPTY
    },
    Section {
        name: "ends",
        doc: "OOM kills and other unexpected ends, over all hosts in the order of time",
        keys: &["ends", "end_count"],
        tables: Some(|run, top| one_part(ends(run, top))),
        tell: |run, view| {
            let title = format!("Unexpected ends: {}", count(run.end_count));
            let mut chapter = Chapter::alarming(title);
            chapter.explain(
                "An end counts as later than the first one only if the difference is more than \
                 both clocks can be off; otherwise both were at the same time, within that.",
            );
            let more = |ends| count(ends) + MORE_IN_JSON;
            listed(
                chapter,
                ends(run, view.top),
                (run.end_count, view.top),
                more,
            )
        },
        ..Section::EMPTY
    },
    Section {
        name: "outliers",
        doc: "who stands out from others that do the same",
        keys: &["outliers"],
        tables: Some(|run, top| one_part(outliers_table(run, top))),
        tell: outliers,
        ..Section::EMPTY
    },
    Section {
        name: "hosts",
        doc: "each host: its status, its peak, its limit and what was left of it",
        keys: &["hosts"],
        tables: Some(|run, top| one_part(hosts_table(run, top))),
        tell: |run, view| vec![hosts(run, view.top)],
        ..Section::EMPTY
    },
    Section {
        name: "peak",
        doc: "the most that all hosts held at one time",
        keys: &["peak"],
        tell: |run, view| {
            let peak = run.peak.iter();
            peak.map(|peak| self::peak(run, peak, view.top)).collect()
        },
        ..Section::EMPTY
    },
    Section {
        name: "roles",
        doc: "roles over all hosts",
        keys: &["roles"],
        tables: Some(|run, top| one_part(roles(run, top))),
        tell: |run, view| {
            let mut chapter = Chapter::new(format!("Roles: {}", count(run.roles.len())));
            chapter.explain(
                "HIGHEST, MEDIAN and LOWEST are the highest sums of a role's anonymous memory on \
                 a host.",
            );
            let more = |roles| words::more_roles(roles) + ".";
            listed(
                chapter,
                roles(run, view.top),
                (run.roles.len(), view.top),
                more,
            )
        },
        ..Section::EMPTY
    },
    Section {
        name: "ranks",
        doc: "ranks, over all hosts",
        keys: &["ranks", "rank_count"],
        tables: Some(|run, top| one_part(ranks(run, top))),
        tell: |run, view| {
            let chapter = Chapter::new(format!("Ranks: {}", count(run.rank_count)));
            listed(
                chapter,
                ranks(run, view.top),
                (run.rank_count, view.top),
                more_in_csv,
            )
        },
        ..Section::EMPTY
    },
    Section {
        name: "phases",
        doc: "phases over all hosts, and where they took longest",
        keys: &["phases"],
        tables: Some(|run, top| one_part(phases(run, top))),
        tell: |run, view| {
            let mut chapter = Chapter::new(format!("Phases: {}", count(run.phases.len())));
            chapter.explain(
                "MEAN is that of the median process, SLOWEST the mean of the slowest one.",
            );
            listed(
                chapter,
                phases(run, view.top),
                (run.phases.len(), view.top),
                more_in_csv,
            )
        },
        ..Section::EMPTY
    },
    Section {
        name: "clocks",
        doc: "how far apart the clocks of hosts are",
        keys: &["clocks"],
        tables: Some(|run, top| one_part(clocks(run, top))),
        tell: |run, view| {
            if run.clocks.len() < 2 {
                return Vec::new();
            }
            let mut chapter = Chapter::new("Clocks of the hosts");
            chapter.tone = Tone::Plain;
            chapter.explain(
                "OFF BY is the error bound that a host's kernel assumes for its clock. AHEAD is \
                 how much later its steps start, by its own clock, than those of the reference: \
                 the skew of the clock, if all hosts wait for each other. It is used where it is \
                 known better.",
            );
            listed(
                chapter,
                clocks(run, view.top),
                (run.clocks.len(), view.top),
                more_in_csv,
            )
        },
        ..Section::EMPTY
    },
];

/// A chapter with its table, and of so many lines those that are left out; nothing without a line.
fn listed(
    mut chapter: Chapter,
    table: Table,
    (all, top): (usize, usize),
    more: impl Fn(usize) -> String,
) -> Vec<Chapter> {
    if table.row_count() == 0 {
        return Vec::new();
    }
    chapter.table(table);
    chapter.rest(all, top, more, "");
    vec![chapter]
}

fn more_in_csv(lines: usize) -> String {
    format!("{} more: see `--top` or `--format csv`.", count(lines))
}

/// The head: which run it is, and the answer.
fn about(report: &RunReport) -> Chapter {
    let mut chapter = Chapter::new(format!("memtrace: run {}", report.run));
    let start = report.start;
    let mut parts: Vec<String> = start
        .and_then(|start| words::date_and_time(start.0, None))
        .into_iter()
        .collect();
    parts.extend(report.duration().map(duration));
    parts.push(counted(report.host_count, "host", "hosts"));
    parts.push(counted(report.recording_count, "recording", "recordings"));
    chapter.say(parts.join(" · "));
    let mut lines = answer::lines(report);
    if let (Some(last), Some(path)) = (lines.last_mut(), &report.next_path) {
        last.command = last.command.as_ref().map(|_| answer::command(path));
    }
    tell(&mut chapter, lines);
    chapter
}

/// What could not be used.
fn problems(report: &RunReport, view: &View<'_>) -> Vec<Chapter> {
    if report.problems.len() < 2 {
        return Vec::new();
    }
    let what = counted(report.problems.len(), "thing", "things");
    let mut chapter = Chapter::alarming(format!("Not used, or only in part: {what}"));
    let most = view.top.max(FEW);
    let reported = report.problems.iter().map(|problem| {
        let (place, text) = (problem.place(), &problem.text);
        format!("{place}: {text}")
    });
    chapter.tell(Tone::Plain, reported.take(most));
    chapter.rest(report.problems.len(), most, count, MORE_IN_JSON);
    vec![chapter]
}

/// The chain of ends.
fn ends(report: &RunReport, top: usize) -> Table {
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
        .words("rank", 2, |link| link.rank.clone().map(Cell::from))
        .figures("pid", 1, |link| link.pid.map(|pid| Cell::known(Some(pid))))
        .words("how", 0, |link| link.how.clone())
        .flexible("process", |link| link.name.clone().unwrap_or_default())
        .words(("cgroup", "LIMIT OF"), 3, |link| {
            link.cgroup.clone().map(Cell::from)
        })
        .data("pod", |link| link.pod.clone().unwrap_or_default())
        .data("error_s", |link| link.error_ns)
        .data("is_after_first", |link| link.is_after_first.to_string())
        .done()
}

/// Who stands out.
fn outliers(report: &RunReport, view: &View<'_>) -> Vec<Chapter> {
    if report.outliers.is_empty() {
        return Vec::new();
    }
    let mut chapter = Chapter::new("Stands out from others that do the same");
    let reported = report.outliers.iter();
    let reported = reported.map(|one| answer::difference(one) + ".");
    chapter.tell(Tone::Plain, reported.take(view.top));
    chapter.rest(report.outliers.len(), view.top, count, MORE_IN_JSON);
    chapter.explain(
        "An outlier is further from the median than four times the median absolute deviation (as \
         a standard deviation), a twentieth of the median, and 64 MiB (1 MiB a step, 64 MiB an \
         hour). None is reported among fewer than four, or if more than one and more than a \
         quarter of them would qualify: then they are of two kinds.",
    );
    vec![chapter]
}

fn outliers_table(report: &RunReport, top: usize) -> Table {
    TableOf::of(report.outliers.iter().take(top))
        .words("role", 0, |one| one.role.clone())
        .words("rank", 0, |one| one.rank.clone().unwrap_or_default())
        .words("host", 0, |one| one.host.clone())
        .words("measure", 0, |one| one.measure.as_str())
        .figures("value_bytes", 0, |one| Bytes(one.bytes))
        .figures("median_bytes", 0, |one| Bytes(one.median_bytes))
        .figures("threshold_bytes", 0, |one| Bytes(one.threshold_bytes))
        .figures("others", 0, |one| one.other_count)
        .done()
}

fn hosts(report: &RunReport, top: usize) -> Chapter {
    let hosts = counted(report.hosts.len(), "host", "hosts");
    let mut chapter = Chapter::new(format!("Hosts: {hosts}"));
    chapter.table(hosts_table(report, top));
    let rest = report.hosts.get(top..).unwrap_or_default();
    chapter.tell(Tone::Quiet, folded(rest));
    chapter.explain(
        "LEFT is what was left of LIMIT, a cgroup's or the machine's, at the host's own peak; \
         FULL IN is the time until that is used up, from the end of the trend, if growth is \
         statistically certain.",
    );
    chapter
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

fn hosts_table(report: &RunReport, top: usize) -> Table {
    let has_ends = report.hosts.iter().any(|line| line.end_count > 0);
    TableOf::of(report.hosts.iter().take(top))
        .words("host", 0, |line| line.host.clone())
        .words("status", 0, |line| {
            let status = Cell::from(line.status.as_str());
            status.shown_as(line.status.shown().to_owned())
        })
        .figures("peak_bytes", 0, |line| known(line, line.peak_bytes))
        .figures(("peak_time", "AT"), 2, |line| {
            line.peak_at.map(|at| time(report, Some(at)))
        })
        .figures(("at_job_peak_bytes", "AT JOB'S PEAK"), 1, |line| {
            known(line, line.at_job_peak_bytes)
        })
        .figures("limit_bytes", 1, |line| known(line, line.limit_bytes))
        .figures(("headroom_bytes", "LEFT"), 0, |line| {
            known(line, line.headroom_bytes)
        })
        .figures(("left_s", "FULL IN"), 0, |line| {
            line.left_ns.map(Cell::from)
        })
        .figures(("end_count", "ENDS"), 3, |line| line.end_count)
        .only_if(has_ends)
        .flexible("largest", |line| line.largest.clone().unwrap_or_default())
        .data("limit_cgroup", |line| {
            line.limit_cgroup.clone().unwrap_or_default()
        })
        .data("limit_pod", |line| {
            line.limit_pod.clone().unwrap_or_default()
        })
        .known("bytes_per_hour", |line| line.bytes_per_hour)
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
fn peak(report: &RunReport, peak: &JobPeak, top: usize) -> Chapter {
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
        .flexible("role", |(name, ..)| match name {
            Some(name) => (*name).clone(),
            None => "shared, once a host".to_owned(),
        })
        .figures("hosts", 1, |(_, hosts, _)| *hosts)
        .figures(("held_bytes", "ABOUT"), 0, |(.., bytes)| *bytes)
        .add_to(&mut chapter);
    chapter.explain(format!(
        "Hosts are added up in bins of {} of the wall clock. The upper bound is the sum of each \
         host's maximum. The lower bound is the sum of each host's minimum, or what one host held \
         alone; where clocks are exact, also what all hosts held in the mean of a bin, or while \
         the one that moves most was at its highest.",
        duration(DurationNs(peak.bin_s.saturating_mul(1_000_000_000)))
    ));
    chapter
}

fn roles(report: &RunReport, top: usize) -> Table {
    TableOf::of(report.roles.iter().take(top))
        .flexible("role", |role| role.name.clone())
        .figures("hosts", 2, |role| role.host_count)
        .figures("processes", 2, |role| role.process_count)
        .figures(("at_job_peak_bytes", "AT JOB'S PEAK"), 1, |role| {
            role.at_job_peak_bytes.map(Cell::from)
        })
        .figures("highest_bytes", 0, |role| role.highest_bytes)
        .words(("highest_host", "ON"), 0, |role| role.highest_host.clone())
        .figures("median_bytes", 0, |role| role.median_bytes)
        .figures("lowest_bytes", 1, |role| role.lowest_bytes)
        .words(("lowest_host", "ON"), 1, |role| role.lowest_host.clone())
        .figures(("growing_hosts", "GROWS ON"), 1, |role| {
            (role.growing_count > 0).then(|| Cell::from(role.growing_count))
        })
        .figures(("growth_bytes_per_hour", "BY"), 1, |role| {
            let slope = role.bytes_per_hour;
            slope.map(|slope| Cell::Rate(Some(slope as f64)))
        })
        .done()
}

fn ranks(report: &RunReport, top: usize) -> Table {
    let change = |slope: Option<i64>| slope.map(|slope| Cell::Change(Some(Bytes(slope))));
    TableOf::of(report.ranks.iter().take(top))
        .words("role", 2, |line| line.role.clone())
        .words("rank", 0, |line| line.rank.clone())
        .words("host", 0, |line| line.host.clone())
        .figures("pid", 1, |line| Cell::known(line.pid))
        .figures("peak_bytes", 0, |line| line.peak_bytes)
        .figures(("growth_bytes_per_step", "A STEP"), 0, |line| {
            change(line.bytes_per_step)
        })
        .figures(("growth_bytes_per_hour", "AN HOUR"), 0, |line| {
            change(line.bytes_per_hour)
        })
        .flexible(("stage", "STEPS"), |line| {
            line.stage.clone().map(Cell::from)
        })
        .done()
}

fn phases(report: &RunReport, top: usize) -> Table {
    TableOf::of(report.phases.iter().take(top))
        .flexible("phase", |phase| phase.name.clone())
        .figures("count", 1, |phase| phase.count)
        .figures("processes", 2, |phase| phase.process_count)
        .figures("hosts", 2, |phase| phase.host_count)
        .figures(("median_mean_s", "MEAN"), 0, |phase| phase.median_mean_ns)
        .figures(("slowest_mean_s", "SLOWEST"), 0, |phase| {
            phase.slowest_mean_ns
        })
        .words(("slowest_host", "ON"), 0, |phase| {
            phase.slowest_host.clone()
        })
        .words(("slowest_rank", "RANK"), 0, |phase| {
            phase.slowest_rank.clone().map(Cell::from)
        })
        .figures("longest_s", 1, |phase| phase.longest_ns)
        .figures(("open_count", "OPEN"), 1, |phase| {
            (phase.open_count > 0).then(|| Cell::from(phase.open_count))
        })
        .done()
}

fn clocks(report: &RunReport, top: usize) -> Table {
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
        .figures(("error_s", "OFF BY"), 0, |line| line.error_ns)
        .figures(("skew_s", "AHEAD"), 0, |line| line.skew_ns.map(Cell::from))
        .figures(("skew_error_s", "±"), 0, |line| {
            line.skew_error_ns.map(Cell::from)
        })
        .words(("reference", "OF"), 0, |line| {
            line.reference.clone().map(Cell::from)
        })
        .words(("is_corrected", "USED"), 0, |line| {
            Cell::from(line.is_corrected.to_string())
                .shown_as(if line.is_corrected { "yes" } else { "" }.to_owned())
        })
        .only_if(has_corrected)
        .flexible(("stage", "STEPS"), |line| {
            let stage = line.stage.as_ref();
            stage.map(|stage| Cell::from(format!("{} × {stage}", line.step_count)))
        })
        .done()
}
