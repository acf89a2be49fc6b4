//! A comparison as it is written: what is reported of both recordings, and the object of its JSON.

use super::{Diff, DiffReport, Excess, chapters};
use crate::page::{self, Document};
use crate::sections::answer::what_happened;
use crate::{Analysis, Ending, report};
use memtrace_model::DurationNs;
use memtrace_report::{Block, Chapter, Style, Table, Written, write_object};
use schemars::JsonSchema;
use serde::Serialize;
use std::io;
use std::iter::once;

const FORMAT: &str = "memtrace-diff";
const VERSION: u32 = 1;

impl Written for DiffReport {
    fn chapters(&self, style: &Style) -> Vec<Chapter> {
        chapters::build(self, style)
    }

    fn tables<'a>(&'a self, style: &Style) -> Box<dyn Iterator<Item = Table> + 'a> {
        let top = style.top.unwrap_or(usize::MAX);
        Box::new(once(chapters::figures(self, top)))
    }

    fn json(&mut self, style: &Style, out: &mut dyn io::Write) -> io::Result<()> {
        self.diff.roles.truncate(style.top.unwrap_or(usize::MAX));
        let analyses = [&self.before.analysis, &self.after.analysis];
        let object = Object::of(analyses, &self.diff, self.limit.as_ref());
        write_object(&object, out)
    }

    fn page(
        &mut self,
        style: &Style,
        reported: &[Chapter],
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let top = style.top.unwrap_or(page::TOP);
        self.diff.roles.truncate(top);
        let before = report::cut(&mut self.before, Some(top));
        let after = report::cut(&mut self.after, Some(top));
        let analyses = [&before.report.analysis, &after.report.analysis];
        let object = Object::of(analyses, &self.diff, self.limit.as_ref());
        // What changed is reported above the first table.
        let is_table = |block: &Block| matches!(block, Block::Table(_));
        let mut chapters = reported.iter();
        let first_table = chapters.position(|chapter| chapter.blocks.iter().any(is_table));
        let head = &reported[..first_table.unwrap_or(reported.len())];
        let [before, after] = [(before, &[][..]), (after, head)].map(|(report, head)| {
            let analysis = &report.report.analysis;
            Document::of(report::Object::of(report), analysis, head)
        });
        after.compared(object, before).write(out)
    }
}

/// What `memtrace diff` writes.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Diff")]
pub(crate) struct Object<'a> {
    /// What object this is.
    #[schemars(extend("const" = FORMAT))]
    format: &'static str,
    /// Within a version no key is renamed, removed or given another meaning.
    #[schemars(extend("const" = VERSION))]
    version: u32,
    /// The memtrace that compared.
    memtrace_version: &'static str,
    /// The first recording.
    before: Recording<'a>,
    /// The second recording.
    after: Recording<'a>,
    /// What `--fail-above` gave, as a part of one; else `None`.
    allowed_ratio: Option<f64>,
    /// The figures that rose by more; `None` without `--fail-above`.
    excesses: Option<&'a [Excess]>,
    #[serde(flatten)]
    diff: &'a Diff,
}

/// One of two recordings that are compared.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ComparedRecording")]
struct Recording<'a> {
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

impl<'a> Object<'a> {
    fn of(
        [before, after]: [&'a Analysis; 2],
        diff: &'a Diff,
        limit: Option<&'a (f64, Vec<Excess>)>,
    ) -> Self {
        Self {
            format: FORMAT,
            version: VERSION,
            memtrace_version: env!("CARGO_PKG_VERSION"),
            before: Recording::of(before),
            after: Recording::of(after),
            allowed_ratio: limit.map(|(allowed, _)| *allowed),
            excesses: limit.map(|(_, excesses)| excesses.as_slice()),
            diff,
        }
    }
}

impl<'a> Recording<'a> {
    fn of(analysis: &'a Analysis) -> Self {
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
