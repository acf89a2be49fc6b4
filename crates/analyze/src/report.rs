//! The report as it is written, and the object of its JSON. A key is never renamed and never
//! changes its meaning within a version; new ones may come. docs/report-json.md describes each.

use super::answer::AnswerLine;
use super::page::{self, Document};
use super::sections::answer;
use super::sections::{MAIN_TABLE, Report, SECTIONS};
use super::{Analysis, Loss, Process};
use memtrace_model::tables::Severity;
use memtrace_model::{Bytes, Downsampled, DurationNs, Instant, RunState, SchemaVersion, Target};
use memtrace_report::{Chapter, Mode, Reported, Section, Style};
use schemars::JsonSchema;
use serde::Serialize;
use std::io;

const FORMAT: &str = "memtrace-report";
const VERSION: u32 = 2;
/// The keys that tell what object it is.
const HEAD: &[&str] = &["format", "version", "memtrace_version"];

impl Reported for Report {
    const HEAD: &'static [&'static str] = HEAD;
    const MAIN_TABLE: &'static str = MAIN_TABLE;

    fn sections() -> &'static [Section<Self>] {
        SECTIONS
    }

    fn mode(&self, style: &Style) -> Mode {
        match (self.process, &self.phase, &self.at) {
            (Some(_), ..) => Mode::Process,
            (_, Some(_), _) => Mode::Phase,
            _ if style.is_startup_log => Mode::Startup,
            (.., Some(_)) => Mode::At,
            _ => Mode::Whole,
        }
    }

    fn object(&mut self, top: Option<usize>) -> impl Serialize {
        Object::of(cut(self, top))
    }

    fn write_page(
        &mut self,
        style: &Style,
        reported: &[Chapter],
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let head = reported.get(..1).unwrap_or_default();
        let whole = cut(self, Some(style.top.unwrap_or(page::TOP)));
        let analysis = &whole.report.analysis;
        let document: Document<'_, _, ()> = Document::of(Object::of(whole), analysis, head);
        document.write(out)
    }
}

/// A report of which lists of findings are cut, and how many lines they had.
pub(super) struct Cut<'a> {
    pub(super) report: &'a Report,
    answer: Vec<AnswerLine>,
    role_count: usize,
    /// Other lists may have so many lines.
    most: usize,
}

/// Cuts lists to at most `top` processes, roles and leftovers, or to none of them.
pub(super) fn cut(report: &mut Report, top: Option<usize>) -> Cut<'_> {
    let most = top.unwrap_or(usize::MAX);
    let role_count = report.analysis.roles.len();
    let answer = answer::lines(&report.analysis);
    report.analysis.cut(most);
    Cut {
        report,
        answer,
        role_count,
        most,
    }
}

/// What `memtrace report` writes.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Report")]
pub(super) struct Object<'a> {
    /// What object this is.
    #[schemars(extend("const" = FORMAT))]
    format: &'static str,
    /// Within a version no key is renamed, removed or given another meaning.
    #[schemars(extend("const" = VERSION))]
    version: u32,
    /// The memtrace that wrote the report.
    memtrace_version: &'static str,
    /// What was recorded.
    recording: Recording<'a>,
    /// The answer in short, a sentence for each thing that there is to say.
    answer: Vec<AnswerLine>,
    /// What was lost or not visible, the gravest first.
    losses: Vec<&'a Loss>,
    /// What is good to know about the recording and is no loss.
    notes: Vec<&'a Loss>,
    #[serde(flatten)]
    report: &'a Report,
    /// How many roles there are; `roles` may list fewer.
    role_count: usize,
    /// How many processes there are; `processes` may list fewer.
    process_count: usize,
    /// The processes, the one with the highest peak first.
    processes: Vec<&'a Process>,
}

/// What was recorded.
#[derive(Serialize, JsonSchema)]
struct Recording<'a> {
    /// Where it is.
    path: Option<&'a str>,
    /// Whether a recorder was still writing to it.
    is_live: bool,
    /// Whether these are parts of a recording that was not closed where they come from: later ones
    /// may come yet, and `end` is when it was last heard of.
    is_open: bool,
    /// Version of its tables.
    schema_version: SchemaVersion,
    /// The memtrace that recorded it.
    memtrace_version: &'a str,
    /// How far it got.
    state: RunState,
    /// Damage in its files, one sentence each.
    problems: &'a [String],
    /// The host that was recorded.
    hostname: &'a str,
    /// Release of its kernel, or of its OS.
    kernel: &'a str,
    /// Its architecture, as in `x86_64`.
    arch: &'a str,
    /// How many CPUs it has.
    cpu_count: u32,
    /// Its memory; null when unknown.
    mem_total_bytes: Option<Bytes>,
    /// What was to be recorded.
    target: &'a Target,
    /// The exit code of the command, 128 + n for signal n; null for other targets.
    command_exit_code: Option<i32>,
    /// How it was observed: `bpf`, `procfs`, `sysinfo`.
    backend: &'a str,
    /// Why by that one.
    backend_reason: &'a str,
    /// Time between two readings.
    interval_ns: DurationNs,
    /// That it was downsampled since; absent where all rows are there.
    #[serde(skip_serializing_if = "Option::is_none")]
    downsampled: Option<Downsampled>,
    /// When the recording started.
    start: Instant,
    /// When it ended, or was last heard of.
    end: Instant,
    /// How long it is.
    duration_ns: DurationNs,
}

impl<'a> Object<'a> {
    /// The report with the lines that are left.
    pub(super) fn of(cut: Cut<'a>) -> Self {
        let Cut {
            report,
            answer,
            role_count,
            most,
        } = cut;
        let analysis = &report.analysis;
        let order = analysis.by_peak();
        let listed = order.iter().take(most);
        let reported = |is_wanted: fn(Severity) -> bool| {
            let losses = analysis.losses.iter();
            losses.filter(|loss| is_wanted(loss.severity)).collect()
        };
        Self {
            format: FORMAT,
            version: VERSION,
            memtrace_version: env!("CARGO_PKG_VERSION"),
            recording: Recording::of(analysis),
            answer,
            losses: reported(|severity| severity != Severity::Info),
            notes: reported(|severity| severity == Severity::Info),
            report,
            role_count,
            process_count: analysis.processes.len(),
            processes: listed.map(|&place| &analysis.processes[place]).collect(),
        }
    }
}

impl<'a> Recording<'a> {
    fn of(analysis: &'a Analysis) -> Self {
        let (info, clock) = (&analysis.info, &analysis.clock);
        Self {
            path: analysis.path.as_deref(),
            is_live: analysis.is_live,
            is_open: analysis.is_open,
            schema_version: info.schema_version,
            memtrace_version: &info.memtrace_version,
            state: info.state,
            problems: &analysis.problems,
            hostname: &info.hostname,
            kernel: &info.kernel,
            arch: &info.arch,
            cpu_count: info.cpu_count,
            mem_total_bytes: info.mem_total_bytes,
            target: &info.target,
            command_exit_code: info.command_exit_code,
            backend: &info.backend,
            backend_reason: &info.backend_reason,
            interval_ns: info.interval_ns,
            downsampled: info.downsampled,
            start: clock.at(clock.start()),
            end: clock.at(clock.end()),
            duration_ns: clock.duration(),
        }
    }
}
