//! Two recordings against each other.

use super::{Diff, sites};
use crate::comparison::{
    Change, Changes, DiffReport, MIN_CHANGE, change_share, counts, growth, in_words, unchanged,
};
use crate::sections::answer::what_happened;
use crate::sections::missing;
use crate::sections::phases::per_step;
use crate::{Analysis, Comparison, KindChange, StageChange, Who};
use memtrace_model::{Bytes, Kind, Label, Order};
use memtrace_report::words::{self, bytes};
use memtrace_report::{Chapter, Table, TableOf, Tone, visible};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::iter::once;

/// So many lines of what each recording lacks are listed.
const MISSING_MAX: usize = 3;

/// The whole, the roles, then kinds within roles.
pub(super) const CHANGES: &[Changes<Diff>] = &[
    |report, _| leaks(report),
    |report, _| Some(whole(report)),
    |report, top| Some(roles(report, top)),
    stages,
    inside,
    sites::chapter,
    on_gpus,
    kinds,
];

pub(super) fn head(report: &DiffReport<Diff>) -> Chapter {
    let mut section = Chapter::new("memtrace diff");
    if report.diff.is_newly_failed {
        let how = report.after.analysis.failed_root().map(|root| {
            let who = Who::from(root).in_words();
            format!(" ({who}: {})", root.ended_in_words())
        });
        section.alert(format!(
            "B failed and A did not{}: what B did not get to do is missing from its figures.",
            how.unwrap_or_default()
        ));
    }
    let both = [
        ("A", &report.before.analysis),
        ("B", &report.after.analysis),
    ];
    section.tell(
        Tone::Alert,
        both.iter().filter_map(|(name, analysis)| {
            let ended = what_happened(analysis);
            let line = format!("What happened in {name}: {}", ended.text);
            ended.is_alarming.then_some(line)
        }),
    );
    section.say(recording("A", &report.before.analysis));
    section.say(recording("B", &report.after.analysis));
    if report.before.analysis.info.is_polled() || report.after.analysis.info.is_polled() {
        section.quiet(
            "Peaks of a recording made by polling are lower bounds: what lies between two polls \
             is not in them.",
        );
    }
    if report.diff.has_other_basis {
        section.alert(
            "A and B were observed in different ways: a rise of RSS may only be a better view of \
             it, so --fail-above does not judge RSS.",
        );
    }
    let periods = both.map(|(_, analysis)| analysis.info.downsampled.map(|done| done.period_ns));
    if periods[0] != periods[1] {
        section.alert(
            "A and B do not have the same values over time (memtrace downsample): peaks compare, means \
             and growth only roughly.",
        );
    }
    section.tell(Tone::Alert, other_gpus(report));
    for (name, analysis) in both {
        let mut missing = missing::lines(analysis);
        for (tone, line) in missing.by_ref().take(MISSING_MAX) {
            section.tell(tone, [format!("{name}: {line}")]);
        }
        let more = missing.count();
        if more > 0 {
            section.say(format!("{name}: {more} more in its own report."));
        }
    }
    section
}

/// Devices that are not the same: what is held on them does not compare.
fn other_gpus(report: &DiffReport<Diff>) -> Option<String> {
    let [before, after] =
        [&report.before.analysis, &report.after.analysis].map(Analysis::gpu_models);
    let named = |models: &[(&str, usize)]| {
        let models = models.iter();
        let models = models.map(|(name, count)| format!("{count} × {}", visible(name)));
        match models.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "none".to_owned(),
            models => models,
        }
    };
    (before != after).then(|| {
        let (before, after) = (named(&before), named(&after));
        format!("Other GPUs: {before} in A, {after} in B.")
    })
}

fn recording(name: &str, analysis: &Analysis) -> String {
    let info = &analysis.info;
    let path = analysis.path.as_deref().unwrap_or("recording");
    let ending = match analysis.command_ended_in_words() {
        Some(how) => format!(", {how}"),
        None => String::new(),
    };
    format!(
        "{name}: {path}, {}, {} by {}, {}{ending}",
        info.hostname,
        words::duration(analysis.clock.duration()),
        info.backend,
        words::processes(analysis.processes.len())
    )
}

fn whole(report: &DiffReport<Diff>) -> Chapter {
    let rss = report.diff.whole.kind(Kind::Rss);
    let held = &report.diff.held_peak;
    let mut section = Chapter::new(format!("Most held: {}", in_words(held)));
    section.say(format!(
        "Sum of RSS: peak {}; mean {}.",
        in_words(&rss.peak),
        in_words(&rss.mean)
    ));
    if has_gpu(report) {
        let line = format!("Peak on GPUs: {}.", in_words(&report.diff.whole.gpu_peak));
        section.say(line);
    }
    if let (Some(before), Some(after)) = (rss.slope.before, rss.slope.after) {
        let slope = |bytes: Bytes| match bytes.0 {
            0 => "no trend".to_owned(),
            slope => words::slope(slope as f64),
        };
        let line = format!("Growth: {} → {}.", slope(before), slope(after));
        section.say(line);
    }
    section
}

/// What grows from step to step in B, and did not in A; `None` where nothing does.
fn leaks(report: &DiffReport<Diff>) -> Option<Chapter> {
    let stages = report.diff.stages.iter();
    let risen: Vec<&StageChange> = stages.filter(|stage| stage.has_risen).collect();
    // Stages of one loop rise together.
    let most = risen.first()?;
    let mut section = Chapter::alarming("Grows from step to step, more than before");
    let role = most
        .role
        .as_ref()
        .zip(most.role_after)
        .map(|(name, slope)| {
            let bytes = bytes(Bytes(slope.bytes_per_step as i64));
            format!("; most of it in {name} ({bytes})")
        });
    let line = format!(
        "What the tree holds at the end of {}: {} per step in A, {} in B{}.",
        most.name,
        per_step(most.before).shown(),
        per_step(most.after).shown(),
        role.unwrap_or_default()
    );
    section.strong(line);
    Some(section)
}

/// The slopes of numbered phases that both have; `None` where neither has enough steps.
fn stages(report: &DiffReport<Diff>, top: usize) -> Option<Chapter> {
    let stages = report.diff.stages.iter();
    let known = stages.filter(|stage| stage.before.is_some() || stage.after.is_some());
    let shown: Vec<&StageChange> = known.take(top).collect();
    if shown.is_empty() {
        return None;
    }
    let mut section = Chapter::new("What the tree holds, from step to step");
    TableOf::of(shown)
        .flexible("stage", |stage| stage.name.to_string())
        .figures(("a_bytes_per_step", "PER STEP A"), 0, |stage| {
            per_step(stage.before)
        })
        .figures(("b_bytes_per_step", "PER STEP B"), 0, |stage| {
            per_step(stage.after)
        })
        .add_to(&mut section);
    Some(section)
}

fn roles(report: &DiffReport<Diff>, top: usize) -> Chapter {
    let roles = report.diff.roles.iter();
    let moved = |role: &&Comparison| {
        let rss = role.kind(Kind::Rss);
        rss.peak.is_notable() || rss.mean.is_notable() || rss.slope.before != rss.slope.after
    };
    let moved: Vec<&Comparison> = roles.filter(moved).collect();
    if moved.is_empty() {
        return Chapter::new(unchanged("By role"));
    }
    let mut section = Chapter::new("By role, sums of RSS");
    let rss = |role: &Comparison| *role.kind(Kind::Rss);
    TableOf::of(moved.iter().take(top))
        .flexible("role", |role| role.name.to_string())
        .words("count", 3, |role| {
            counts(role.process_count_before, role.process_count_after)
        })
        .held("peak_a_bytes", 1, |role| rss(role).peak.before)
        .held("peak_b_bytes", 0, |role| rss(role).peak.after)
        .change("change_bytes", 0, |role| rss(role).peak.difference())
        .figures(("change", ""), 2, |role| change_share(&rss(role).peak))
        .change("mean_bytes", 4, |role| rss(role).mean.difference())
        .figures("growth_a_bytes_per_hour", 6, |role| {
            growth(rss(role).slope.before)
        })
        .figures("growth_b_bytes_per_hour", 5, |role| {
            growth(rss(role).slope.after)
        })
        .add_to(&mut section);
    let (all, shown) = (report.diff.roles.len(), moved.len().min(top));
    section.rest(all, shown, words::more_roles, " changed less.");
    section.quiet(
        "MEAN is the change of the mean over the whole recording, or of a command from its exec \
         to its end. A dash means no change, or no steady growth.",
    );
    section
}

/// What changed inside of processes; `None` where nothing did.
fn inside(report: &DiffReport<Diff>, top: usize) -> Option<Chapter> {
    let changes = &report.diff.layouts;
    if changes.is_empty() {
        return None;
    }
    let mut section = Chapter::new("Inside of the largest process of each role");
    let mut seen = BTreeSet::new();
    let turned = changes
        .iter()
        .filter(|change| seen.insert(&change.role) && change.cause_before != change.cause_after);
    let lines: Vec<String> = turned
        .map(|change| {
            let (before, after) = (change.cause_before.shown(), change.cause_after.shown());
            format!(
                "Most of {}: {before} in A, {after} in B.",
                visible(&change.role)
            )
        })
        .collect();
    section.tell(Tone::Strong, lines);
    TableOf::of(changes.iter().take(top))
        .flexible("role", |change| change.role.to_string())
        .words("what", 0, |change| change.part.shown().to_owned())
        .held("a_bytes", 0, |change| change.rss.before)
        .held("b_bytes", 0, |change| change.rss.after)
        .change("change_bytes", 0, |change| change.rss.difference())
        .held("free_a_bytes", 1, |change| change.free.before)
        .held("free_b_bytes", 1, |change| change.free.after)
        .add_to(&mut section);
    section.rest(changes.len(), top, words::count, " more changes.");
    Some(section)
}

/// The roles that were on GPUs.
fn on_gpus(report: &DiffReport<Diff>, top: usize) -> Option<Chapter> {
    let is_there = |figure: &Change| {
        let amounts = [figure.before, figure.after];
        amounts.into_iter().flatten().any(|bytes| bytes.0 > 0)
    };
    let roles = report.diff.roles.iter();
    let mut roles: Vec<&Comparison> = roles.filter(|role| is_there(&role.gpu_peak)).collect();
    if roles.is_empty() {
        return None;
    }
    roles.order_by_key(|role| {
        let moved = role.gpu_peak.difference();
        Reverse(moved.map(|bytes| bytes.0.abs()))
    });
    let mut section = Chapter::new("By role, the highest on all GPUs together");
    TableOf::of(roles.iter().take(top))
        .flexible("role", |role| role.name.to_string())
        .held("gpu_a_bytes", 0, |role| role.gpu_peak.before)
        .held("gpu_b_bytes", 0, |role| role.gpu_peak.after)
        .change("change_bytes", 1, |role| role.gpu_peak.difference())
        .figures(("change", ""), 2, |role| change_share(&role.gpu_peak))
        .add_to(&mut section);
    section.rest(roles.len(), top, words::more_roles, " changed less.");
    Some(section)
}

/// The kinds within roles whose peak changed most.
fn kinds(report: &DiffReport<Diff>, top: usize) -> Option<Chapter> {
    let mut lines: Vec<(&Comparison, Kind)> = report
        .diff
        .roles
        .iter()
        .flat_map(|role| Kind::ALL.iter().map(move |kind| (role, *kind)))
        .filter(|(role, kind)| {
            let figures = role.kind(*kind);
            *kind != Kind::Rss && (figures.peak.is_notable() || figures.mean.is_notable())
        })
        .collect();
    if lines.is_empty() {
        return None;
    }
    lines.order_by_key(|(role, kind)| Reverse(role.kind(*kind).peak.moved()));
    let mut section = Chapter::new("By role and kind");
    let shown = lines.iter().take(top);
    section.table(table(shown.map(|(role, kind)| (*role, Some(*kind)))));
    let more = format!(" more changed by at least {}.", bytes(Bytes(MIN_CHANGE)));
    section.rest(lines.len(), top, words::count, &more);
    Some(section)
}

/// Whether either recording has GPUs.
fn has_gpu(report: &DiffReport<Diff>) -> bool {
    let both = [&report.before, &report.after];
    both.iter().any(|one| one.gpus.is_some())
}

/// Every figure of all processes and of each role, for programs.
pub(super) fn figures(report: &DiffReport<Diff>, top: usize) -> Table {
    let gpu = has_gpu(report).then_some(None);
    let kinds = || Kind::ALL.iter().copied().map(Some).chain(gpu);
    let roles = once(&report.diff.whole).chain(report.diff.roles.iter().take(top));
    table(roles.flat_map(|role| kinds().map(move |kind| (role, kind))))
}

/// A line for a role and a kind of memory; without a kind for all GPUs, of which only the peak is
/// compared.
fn table<'a>(lines: impl Iterator<Item = (&'a Comparison, Option<Kind>)>) -> Table {
    let on_gpus = |role: &Comparison| KindChange {
        peak: role.gpu_peak,
        ..KindChange::default()
    };
    let lines = lines.map(|(role, kind)| {
        let figures = kind.map_or_else(|| on_gpus(role), |kind| *role.kind(kind));
        (figures, kind, role)
    });
    let count = |count: Option<usize>| count.map(|count| count.to_string());
    TableOf::of(lines)
        .flexible("role", |(.., role)| role.name.to_string())
        .words("kind", 0, |(_, kind, _)| kind.map_or("gpu", Kind::as_str))
        .data("processes_a", |(.., role)| count(role.process_count_before))
        .data("processes_b", |(.., role)| count(role.process_count_after))
        .held("peak_a_bytes", 1, |(of, ..)| of.peak.before)
        .held("peak_b_bytes", 0, |(of, ..)| of.peak.after)
        .change(("", "CHANGE"), 0, |(of, ..)| of.peak.difference())
        .figures(("", ""), 2, |(of, ..)| change_share(&of.peak))
        .change(("", "MEAN"), 3, |(of, ..)| of.mean.difference())
        .data("mean_a_bytes", |(of, ..)| of.mean.before)
        .data("mean_b_bytes", |(of, ..)| of.mean.after)
        .data("growth_a_bytes_per_hour", |(of, ..)| {
            growth(of.slope.before)
        })
        .figures("growth_b_bytes_per_hour", 4, |(of, ..)| {
            growth(of.slope.after)
        })
        .done()
}
