//! The document that the page of a run is made of: the report as JSON has it, and what hosts held over
//! time beside it. What draws it computes no figure.

use super::curves::{HOSTS_MAX, RunCurves};
use super::run::{ChainLink, HostLine, HostStatus, RunReport, WallTime};
use crate::page::{Flag, Line, answer};
use memtrace_model::DurationNs;
use memtrace_report::{Chapter, visible, words, write_line};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io;

const FORMAT: &str = "memtrace-run-page";
const VERSION: u32 = 1;
/// So many ends have a flag.
const FLAGS_MAX: usize = 200;

/// All that the page of a run draws.
#[derive(Serialize)]
struct Document<'a, R> {
    /// What object this is.
    format: &'static str,
    /// Its version: the page that reads it is made with it.
    version: u32,
    /// Which run it is.
    title: String,
    /// What a person reads first.
    answer: Vec<Line>,
    /// The object of `--format json`.
    report: R,
    /// Memory over time; null without a row of memory.
    curves: Option<&'a RunCurves>,
    /// What happened at an instant.
    flags: Vec<Flag>,
    /// How long the lists of the report are that may have been cut.
    counts: Counts,
}

/// How many lines lists have before they are cut.
#[derive(Serialize)]
pub(super) struct Counts {
    hosts: usize,
    roles: usize,
    outliers: usize,
    phases: usize,
}

impl Counts {
    pub(super) fn of(report: &RunReport) -> Self {
        Self {
            hosts: report.hosts.len(),
            roles: report.roles.len(),
            outliers: report.outliers.len(),
            phases: report.phases.len(),
        }
    }
}

/// Writes it as one line of JSON.
pub(super) fn write(
    head: &[Chapter],
    report: impl Serialize,
    curves: Option<&RunCurves>,
    flags: Vec<Flag>,
    counts: Counts,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let title = head
        .first()
        .map_or("memtrace", |first| first.title.as_str());
    let document = Document {
        format: FORMAT,
        version: VERSION,
        title: visible(title).into_owned(),
        answer: answer(head),
        report,
        curves,
        flags,
        counts,
    };
    write_line(&document, out)
}

/// The peak, and unexpected ends.
pub(super) fn flags(report: &RunReport, curves: Option<&RunCurves>) -> Vec<Flag> {
    let Some(curves) = curves else {
        return Vec::new();
    };
    let since = |at: WallTime| DurationNs(at.0.0.saturating_sub(curves.start().0));
    let ends = report.ends.iter().filter_map(|link| {
        let kind = match link {
            ChainLink { is_host: true, .. } => "silent",
            ChainLink {
                is_oom_kill: true, ..
            } => "oom",
            _ => "exit",
        };
        let name = link.name.as_deref().unwrap_or("all of it");
        let text = format!("{name} on {}: {}", link.host, link.how);
        Some(Flag::new(kind, since(link.at?), &text))
    });
    let peak = report.peak.as_ref().map(|peak| {
        let text = format!("peak of all hosts: {}", words::bytes(peak.bytes));
        Flag::new("peak", since(peak.at), &text)
    });
    ends.take(FLAGS_MAX).chain(peak).collect()
}

/// The hosts that have a curve of their own, in the order of the report: those that were lost, those
/// that stand out, the one that held most when all did, and then as the report lists them.
pub(super) fn drawn(report: &RunReport) -> Vec<&str> {
    let lost = |line: &&HostLine| matches!(line.status, HostStatus::Silent | HostStatus::OomKilled);
    let lines = || report.hosts.iter();
    let most = lines().max_by_key(|line| line.at_job_peak_bytes);
    let in_order = lines()
        .filter(lost)
        .map(|line| &*line.host)
        .chain(report.outliers.iter().map(|one| &*one.host))
        .chain(most.map(|line| &*line.host))
        .chain(lines().map(|line| &*line.host));
    let recorded = lines().filter(|line| line.status != HostStatus::Missing);
    let recorded: BTreeSet<&str> = recorded.map(|line| &*line.host).collect();
    let mut drawn = BTreeSet::new();
    for host in in_order.filter(|host| recorded.contains(host)) {
        if drawn.len() < HOSTS_MAX {
            drawn.insert(host);
        }
    }
    let hosts = lines().map(|line| &*line.host);
    hosts.filter(|host| drawn.contains(host)).collect()
}
