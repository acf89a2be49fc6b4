//! Two runs against each other, in chapters for people: in the words of two recordings.

use super::compared::{count as count_of, highest_host};
use super::{Bounded, ComparedRun, HostChange, JobRoleChange, RankStageChange, RunDiff};
use crate::comparison::{
    Change, Changes, DiffReport, change_share, counts, growth, in_words, unchanged,
};
use crate::hosts::answer::{happened, names};
use crate::hosts::run::HostStatus;
use memtrace_model::{Bytes, Label};
use memtrace_report::words::{self, bytes, counted};
use memtrace_report::{Cell, Chapter, DEFAULT_TOP, Table, TableOf, Tone, visible};

/// The job, roles, growth from step to step, then hosts.
pub(super) const CHANGES: &[Changes<RunDiff>] = &[
    |report, _| leaks(report),
    |report, _| Some(whole(report)),
    |report, top| Some(roles(report, top)),
    stages,
    |report, top| Some(hosts(report, top)),
];

pub(super) fn head(reported: &DiffReport<RunDiff>) -> Chapter {
    let mut chapter = Chapter::new("memtrace diff");
    for (name, run) in [("A", &reported.before), ("B", &reported.after)] {
        chapter.say(line_of(name, run));
    }
    let diff = &reported.diff;
    if diff.is_newly_failed {
        chapter.alert(
            "Processes or hosts of B ended unexpectedly, and none of A did: what they did not get \
             to do is missing from the figures of B.",
        );
    }
    for (name, run) in [("A", &reported.before), ("B", &reported.after)] {
        if let Some(ended) = happened(&run.report) {
            chapter.say(format!("What happened in {name}: {ended}"));
        }
        for (status, words) in [
            (HostStatus::Silent, "not heard from any more in"),
            (HostStatus::Missing, "expected and without a recording in"),
        ] {
            let hosts = run.report.hosts.iter().filter(|line| line.status == status);
            let hosts: Vec<&str> = hosts.map(|line| &*line.host).collect();
            if !hosts.is_empty() {
                let hosts = names(hosts.into_iter());
                chapter.alert(format!("Hosts {words} {name}: {hosts}."));
            }
        }
    }
    if diff.has_other_basis {
        chapter.alert(
            "A and B were observed in different ways: a rise of memory may only be a better view \
             of it, so --fail-above does not judge it.",
        );
    } else if diff.has_other_hosts {
        chapter.alert(
            "A and B do not know the memory of the same number of hosts throughout: their sums \
             over hosts do not compare, so --fail-above does not judge them.",
        );
    }
    for (name, run) in [("A", &reported.before), ("B", &reported.after)] {
        let has_losses = run.report.hosts.iter().any(|line| line.loss_count > 0);
        if has_losses || !run.report.problems.is_empty() {
            chapter.alert(format!(
                "{name} lost data or could not see all of it: see its own report."
            ));
        }
    }
    chapter
}

/// `A: root/run=4711, run 4711, 2 hosts, 7m10s`.
fn line_of(name: &str, ComparedRun { path, report }: &ComparedRun) -> String {
    let mut parts = vec![
        visible(path).into_owned(),
        format!("run {}", report.run),
        counted(report.host_count, "host", "hosts"),
    ];
    parts.extend(report.duration().map(words::duration));
    let open = count_of(report, HostStatus::Open);
    if open > 0 {
        parts.push(format!(
            "{} not closed",
            counted(open, "host is", "hosts are")
        ));
    }
    format!("{name}: {}", parts.join(", "))
}

/// What the fastest rank grows by: `0 B → 40.0 MiB`.
pub(super) fn per_step(change: &Change) -> String {
    let [before, after] = [change.before, change.after].map(words::bytes_or_unknown);
    format!("growth of the fastest rank per step {before} → {after}")
}

fn whole(reported: &DiffReport<RunDiff>) -> Chapter {
    let diff = &reported.diff;
    let peak = &diff.peak;
    let mut chapter = Chapter::new(format!("Peak of all hosts: {}", in_words(&peak.change)));
    let spans = [&reported.before, &reported.after].map(|run| {
        let peak = run.report.peak.as_ref()?;
        Some((bytes(peak.at_least_bytes), bytes(peak.at_most_bytes)))
    });
    if let [Some(before), Some(after)] = spans {
        let is_unsure = !peak.is_sure && peak.change.difference() != Some(Bytes(0));
        if is_unsure || before.0 != before.1 || after.0 != after.1 {
            let between = |(least, most)| format!("between {least} and {most}");
            let unsure = if is_unsure { ": no certain change" } else { "" };
            let (before, after) = (between(before), between(after));
            chapter.say(format!("It was {before} in A, {after} in B{unsure}."));
        }
    }
    let on = |run: &ComparedRun| {
        let host = highest_host(&run.report);
        host.map_or_else(|| words::UNKNOWN.to_owned(), |line| line.host.clone())
    };
    let (before, after) = (on(&reported.before), on(&reported.after));
    let on = match before == after {
        true => format!("on {before} in both"),
        false => format!("on {before} in A and on {after} in B"),
    };
    let most = in_words(&diff.host_peak.change);
    chapter.say(format!("Most on one host: {most}, {on}."));
    if diff.gpu_peak != Change::default() {
        chapter.say(format!(
            "Most on the GPUs of one host: {}.",
            in_words(&diff.gpu_peak)
        ));
    }
    chapter
}

/// What grows from step to step in B, and did not in A; `None` where nothing does.
fn leaks(reported: &DiffReport<RunDiff>) -> Option<Chapter> {
    let stages = reported.diff.stages.iter();
    let risen: Vec<&RankStageChange> = stages.filter(|stage| stage.has_risen).collect();
    if risen.is_empty() {
        return None;
    }
    let mut chapter = Chapter::alarming("Grows from step to step, more than before");
    let lines = risen.into_iter().map(|stage| {
        let who = stage.fastest_rank.as_ref().zip(stage.fastest_host.as_ref());
        let who = who.map(|(rank, host)| format!(", in rank {rank} on {host}"));
        format!(
            "{} at the end of {}: {} per step in A, {} in B{}.",
            stage.role,
            stage.stage,
            words::bytes_or_unknown(stage.fastest.before),
            words::bytes_or_unknown(stage.fastest.after),
            who.unwrap_or_default()
        )
    });
    chapter.tell(Tone::Strong, lines.take(DEFAULT_TOP));
    Some(chapter)
}

/// Whether a role moved by more than its figures can be off, and by more than two runs of the same
/// do.
fn has_moved(role: &JobRoleChange) -> bool {
    let figures = [&role.highest, &role.median];
    let is_moved = figures
        .iter()
        .any(|figure| figure.is_sure && figure.change.is_notable());
    is_moved || role.bytes_per_hour.is_notable()
}

fn roles(reported: &DiffReport<RunDiff>, top: usize) -> Chapter {
    let roles = reported.diff.roles.iter();
    let moved: Vec<&JobRoleChange> = roles.filter(|role| has_moved(role)).collect();
    if moved.is_empty() {
        return Chapter::new(unchanged("By role"));
    }
    let mut chapter = Chapter::new("By role, the highest sums of anonymous memory on a host");
    TableOf::of(moved.iter().take(top))
        .flexible("role", |role| role.name.clone())
        .words("hosts", 3, |role| {
            counts(role.host_count_before, role.host_count_after)
        })
        .held("highest_a_bytes", 1, |role| role.highest.change.before)
        .held("highest_b_bytes", 0, |role| role.highest.change.after)
        .change("change_bytes", 0, |role| role.highest.change.difference())
        .figures(("change", ""), 2, |role| change_share(&role.highest.change))
        .change("median_bytes", 4, |role| role.median.change.difference())
        .change("at_job_peak_bytes", 6, |role| role.at_job_peak.difference())
        .figures("growth_a_bytes_per_hour", 7, |role| {
            growth(role.bytes_per_hour.before)
        })
        .figures("growth_b_bytes_per_hour", 5, |role| {
            growth(role.bytes_per_hour.after)
        })
        .add_to(&mut chapter);
    let (all, shown) = (reported.diff.roles.len(), moved.len().min(top));
    chapter.rest(all, shown, words::more_roles, " changed less.");
    chapter.quiet(
        "MEDIAN is the change of the median over a role's hosts, AT JOB PEAK that of what it held \
         when all hosts held most. A dash means no change, or no steady growth.",
    );
    chapter
}

/// What ranks of both grow by from step to step; `None` where there are none.
fn stages(reported: &DiffReport<RunDiff>, top: usize) -> Option<Chapter> {
    let grows = |stage: &&RankStageChange| {
        let slopes = [stage.fastest.before, stage.fastest.after];
        slopes.into_iter().flatten().any(|slope| slope.0 != 0)
    };
    let growing: Vec<&RankStageChange> = reported.diff.stages.iter().filter(grows).collect();
    if growing.is_empty() {
        return None;
    }
    let mut chapter = Chapter::new("From step to step, the RSS of ranks");
    let rate = |bytes: Option<Bytes>| Cell::Change(bytes);
    TableOf::of(growing.iter().take(top))
        .flexible("role", |stage| stage.role.clone())
        .words("stage", 0, |stage| stage.stage.clone())
        .words("ranks", 2, |stage| {
            counts(Some(stage.rank_count_before), Some(stage.rank_count_after))
        })
        .figures(("fastest_a_bytes_per_step", "FASTEST A"), 0, |stage| {
            rate(stage.fastest.before)
        })
        .figures(("fastest_b_bytes_per_step", "FASTEST B"), 0, |stage| {
            rate(stage.fastest.after)
        })
        .figures(("median_a_bytes_per_step", "MEDIAN A"), 1, |stage| {
            rate(stage.median.before)
        })
        .figures(("median_b_bytes_per_step", "MEDIAN B"), 1, |stage| {
            rate(stage.median.after)
        })
        .add_to(&mut chapter);
    Some(chapter)
}

fn hosts(reported: &DiffReport<RunDiff>, top: usize) -> Chapter {
    let diff = &reported.diff;
    let mut only = Vec::new();
    for (name, hosts) in [("A", &diff.only_before), ("B", &diff.only_after)] {
        if !hosts.is_empty() {
            let hosts = names(hosts.iter().map(String::as_str));
            only.push(format!("Only in {name}: {hosts}."));
        }
    }
    let has_moved = |host: &&HostChange| {
        let is_held = host.peak.is_sure && host.peak.change.is_notable();
        is_held || host.status_before != host.status_after || host.limit.is_notable()
    };
    let moved: Vec<&HostChange> = diff.hosts.iter().filter(has_moved).collect();
    if moved.is_empty() {
        let mut chapter = Chapter::new(match diff.hosts.is_empty() {
            true => "By host: no name is in both".to_owned(),
            false => unchanged("By host"),
        });
        chapter.tell(Tone::Plain, only);
        return chapter;
    }
    let mut chapter = Chapter::new("By host, the most that was held");
    hosts_table(moved.iter().take(top).copied()).add_to(&mut chapter);
    let (all, shown) = (diff.hosts.len(), moved.len().min(top));
    let more = |hosts: usize| counted(hosts, "more host", "more hosts");
    chapter.rest(all, shown, more, " changed less.");
    chapter.tell(Tone::Plain, only);
    if moved.iter().any(|host| host.has_limit()) {
        chapter.quiet("LEFT is what was left of a host's limit at its own peak.");
    }
    chapter
}

fn hosts_table<'a>(hosts: impl Iterator<Item = &'a HostChange>) -> TableOf<&'a HostChange> {
    let hosts: Vec<&HostChange> = hosts.collect();
    let has_left = hosts.iter().any(|host| host.has_limit());
    let has_limits = hosts.iter().any(|host| host.limit.is_notable());
    TableOf::of(hosts)
        .words("host", 0, |host| host.host.clone())
        .words("status", 3, |host| {
            let (before, after) = (host.status_before.shown(), host.status_after.shown());
            match before == after {
                true => after.to_owned(),
                false => format!("{before} → {after}"),
            }
        })
        .held("peak_a_bytes", 1, |host| host.peak.change.before)
        .held("peak_b_bytes", 0, |host| host.peak.change.after)
        .change("change_bytes", 0, |host| host.peak.change.difference())
        .figures(("change", ""), 2, |host| change_share(&host.peak.change))
        .held(("headroom_a_bytes", "LEFT A"), 4, |host| {
            host.headroom.before
        })
        .only_if(has_left)
        .held(("headroom_b_bytes", "LEFT B"), 1, |host| {
            host.headroom.after
        })
        .only_if(has_left)
        .held(("limit_a_bytes", "LIMIT A"), 6, |host| host.limit.before)
        .only_if(has_limits)
        .held(("limit_b_bytes", "LIMIT B"), 5, |host| host.limit.after)
        .only_if(has_limits)
}

/// A figure before and after, and whether its change is certain; `None` where that is not judged.
type Figure = (&'static str, Change, Option<bool>);

/// Every figure, for programs: a line for each of the job, of a role, of steps, of a host.
pub(super) fn figures(reported: &DiffReport<RunDiff>, top: usize) -> Table {
    let diff = &reported.diff;
    let sure = |figure, of: &Bounded| (figure, of.change, Some(of.is_sure));
    let plain = |figure, change: Change| (figure, change, None);
    let mut lines: Vec<(&str, String, Figure)> = Vec::new();
    let mut add = |of, name: &str, figures: &[Figure]| {
        lines.extend(figures.iter().map(|figure| (of, name.to_owned(), *figure)));
    };
    let (peak, host_peak) = (&diff.peak, &diff.host_peak);
    let of_all = [
        sure("peak", peak),
        sure("host_peak", host_peak),
        plain("gpu_peak", diff.gpu_peak),
    ];
    add("job", "all", &of_all);
    for role in diff.roles.iter().take(top) {
        let (highest, median) = (sure("highest", &role.highest), sure("median", &role.median));
        let at_job_peak = plain("at_job_peak", role.at_job_peak);
        let per_hour = plain("per_hour", role.bytes_per_hour);
        add(
            "role",
            &role.name,
            &[highest, median, at_job_peak, per_hour],
        );
    }
    for stage in diff.stages.iter().take(top) {
        let name = format!("{}, {}", stage.role, stage.stage);
        let fastest = ("fastest", stage.fastest, Some(stage.has_risen));
        add("steps", &name, &[fastest, plain("median", stage.median)]);
    }
    for host in diff.hosts.iter().take(top) {
        let (peak, headroom) = (sure("peak", &host.peak), plain("headroom", host.headroom));
        let (limit, gpu_peak) = (plain("limit", host.limit), plain("gpu_peak", host.gpu_peak));
        add("host", &host.host, &[peak, headroom, limit, gpu_peak]);
    }
    TableOf::of(lines)
        .words("of", 0, |(of, ..)| *of)
        .words("name", 0, |(_, name, ..)| name.clone())
        .words("figure", 0, |(.., figure)| figure.0)
        .held("a_bytes", 0, |(.., figure)| figure.1.before)
        .held("b_bytes", 0, |(.., figure)| figure.1.after)
        .change("change_bytes", 0, |(.., figure)| figure.1.difference())
        .known("is_sure", |(.., figure)| figure.2)
        .done()
}
