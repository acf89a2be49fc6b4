//! What stands of two recordings in the JSON of their comparison, and its page.

use super::Diff;
use crate::comparison::{self, DiffReport, Difference};
use crate::page::{self, Document};
use crate::sections::answer::what_happened;
use crate::{Analysis, Ending, report};
use memtrace_model::DurationNs;
use memtrace_report::{Block, Chapter, Style};
use schemars::JsonSchema;
use serde::Serialize;
use std::io;

/// What `memtrace diff` writes of two recordings.
pub(crate) type Object<'a> = comparison::Object<'a, ComparedRecording<'a>, Diff>;

/// Writes the page of both.
pub(super) fn write_page(
    report: &mut DiffReport<Diff>,
    style: &Style,
    reported: &[Chapter],
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let top = style.top.unwrap_or(page::TOP);
    let DiffReport {
        before,
        after,
        diff,
        limit,
    } = report;
    diff.cut(top);
    let both = [before, after].map(|one| report::cut(one, Some(top)));
    let sides = both.each_ref().map(|one| ComparedRecording::of(one.report));
    let object = Object::of(sides, diff, limit.as_ref());
    // What changed is reported above the first table.
    let is_table = |block: &Block| matches!(block, Block::Table(_));
    let mut chapters = reported.iter();
    let first_table = chapters.position(|chapter| chapter.blocks.iter().any(is_table));
    let head = &reported[..first_table.unwrap_or(reported.len())];
    let [before, after] = both;
    let [before, after] = [(before, &[][..]), (after, head)].map(|(one, head)| {
        let analysis = &one.report.analysis;
        Document::of(report::Object::of(one), analysis, head)
    });
    after.compared(object, before).write(out)
}

/// One of two recordings that are compared.
#[derive(Serialize, JsonSchema)]
pub struct ComparedRecording<'a> {
    /// Where it is.
    path: Option<&'a str>,
    /// The host that was recorded.
    hostname: &'a str,
    /// How it was observed: `bpf`, `procfs`, `sysinfo`.
    backend: &'a str,
    /// How long it is.
    duration_ns: DurationNs,
    /// How many processes it has.
    process_count: usize,
    /// Whether its peaks are lower bounds, for it was polled.
    is_lower_bound: bool,
    /// What happened in it, as the first line of its own report says.
    what_happened: String,
    /// Whether it failed, as `is_newly_failed` means it.
    has_failed: bool,
    /// Whether its command did not end well; null when unknown.
    has_command_failed: Option<bool>,
    /// The exit code of its command.
    exit_code: Option<i32>,
    /// The signal that ended its command.
    exit_signal: Option<i32>,
    /// Whether that was the OOM killer's.
    oom_killed: Option<bool>,
    /// Its GPUs by the name of the product.
    gpus: Vec<Model<'a>>,
}

/// Devices of one name.
#[derive(Serialize, JsonSchema)]
struct Model<'a> {
    /// What they are.
    name: &'a str,
    /// How many there are.
    count: usize,
}

impl<'a> ComparedRecording<'a> {
    pub(super) fn of(analysis: &'a Analysis) -> Self {
        let ending = analysis.command_ending();
        let models = analysis.gpu_models().into_iter();
        Self {
            path: analysis.path.as_deref(),
            hostname: &analysis.info.hostname,
            backend: &analysis.info.backend,
            duration_ns: analysis.clock.duration(),
            process_count: analysis.processes.len(),
            is_lower_bound: analysis.info.is_polled(),
            what_happened: what_happened(analysis).text,
            has_failed: analysis.has_failed(),
            has_command_failed: analysis.has_command_failed(),
            exit_code: ending.and_then(Ending::exit_code),
            exit_signal: ending.and_then(Ending::exit_signal),
            oom_killed: ending.and_then(Ending::by_oom_killer),
            gpus: models.map(|(name, count)| Model { name, count }).collect(),
        }
    }
}
