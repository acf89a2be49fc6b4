//! The object of the JSON report. A key is never renamed and never changes its meaning within a
//! version; new ones may come. docs/report-json.md describes each.

use super::section::{Parts, View};
use super::sections::answer::{self, AnswerLine};
use super::sections::{Report, SECTIONS, SectionInfo};
use super::{Analysis, Loss, Process, diff};
use crate::model::tables::Severity;
use crate::model::{Bytes, DurationNs, Instant, RunState, SchemaVersion, Target};
use crate::report::{Chapter, Style, Written, explained, write_object};
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Value, json};
use std::io;

const FORMAT: &str = "memtrace-report";
const VERSION: u32 = 2;
/// The keys that tell what object it is.
const HEAD: [&str; 3] = ["format", "version", "memtrace_version"];

impl Written for Report {
    fn told(&self, style: &Style) -> Vec<Chapter> {
        let view = View::of(&self.analysis, style);
        if let Some(section) = style.section.and_then(SectionInfo::named) {
            let told = (section.tell)(self, &view);
            let nothing = || vec![Chapter::new(format!("{}: nothing to tell", section.name))];
            let told = Some(told).filter(|told| !told.is_empty());
            return explained(told.unwrap_or_else(nothing), style);
        }
        let sections = SECTIONS.iter();
        let sections = sections.filter(|section| section.modes.contains(&view.mode));
        let is_told = |section: &&SectionInfo| style.is_full || (section.is_worth_telling)(self);
        let told = sections.filter(is_told);
        let told = told
            .flat_map(|section| (section.tell)(self, &view))
            .collect();
        explained(told, style)
    }

    fn tables<'a>(&'a self, style: &Style) -> Parts<'a> {
        let section =
            SectionInfo::named(style.section.unwrap_or(SectionInfo::MAIN_TABLE)).into_iter();
        let top = style.top.unwrap_or(usize::MAX);
        Box::new(section.flat_map(move |section| (section.tables)(self, top)))
    }

    fn json(&mut self, style: &Style, out: &mut dyn io::Write) -> io::Result<()> {
        let object = Object::of(self, style.top);
        match style.section.and_then(SectionInfo::named) {
            Some(section) => write_object(&section.only(&object)?, out),
            None => write_object(&object, out),
        }
    }
}

/// The JSON Schema of what `memtrace report` and `memtrace diff` write as JSON.
pub fn json_schema() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let settings = settings.with_transform(RecursiveTransform(in_words_of_json));
    let mut generator = settings.into_generator();
    let objects = [
        generator.subschema_for::<Object<'_>>(),
        generator.subschema_for::<diff::Object<'_>>(),
    ];
    json!({
        "$schema": generator.settings().meta_schema,
        "title": "JSON of memtrace report and memtrace diff",
        "oneOf": objects,
        "$defs": generator.take_definitions(true),
    })
}

/// What is said of a field in the code, for a reader of JSON.
fn in_words_of_json(schema: &mut Schema) {
    // Of numbers it tells how Rust keeps them.
    schema.remove("format");
    if let Some(Value::String(doc)) = schema.get_mut("description") {
        *doc = doc.replace('\n', " ").replace("`None`", "null");
        *doc = doc.replace("[`", "`").replace("`]", "`");
    }
}

impl SectionInfo {
    /// Of the whole object what this section tells of.
    fn only(&self, object: &Object<'_>) -> serde_json::Result<Value> {
        let mut value = serde_json::to_value(object)?;
        if let Some(keys) = value.as_object_mut() {
            keys.retain(|key, _| HEAD.contains(&&**key) || self.keys.contains(&&**key));
        }
        Ok(value)
    }
}

/// What `memtrace report` writes.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Report")]
struct Object<'a> {
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
    /// Its kernel.
    kernel: &'a str,
    /// Its architecture.
    arch: &'a str,
    /// Its CPUs.
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
    /// Its start.
    start: Instant,
    /// Its end.
    end: Instant,
    /// How long it is.
    duration_ns: DurationNs,
}

impl<'a> Object<'a> {
    /// The report with at most `top` processes, roles and leftovers, or all of them.
    fn of(report: &'a mut Report, top: Option<usize>) -> Self {
        let most = top.unwrap_or(usize::MAX);
        let role_count = report.analysis.roles.len();
        let answer = answer::lines(&report.analysis);
        report.analysis.cut(most);
        let report = &*report;
        let analysis = &report.analysis;
        let order = analysis.by_peak();
        let listed = order.iter().take(most);
        let told = |is_wanted: fn(Severity) -> bool| {
            let losses = analysis.losses.iter();
            losses.filter(|loss| is_wanted(loss.severity)).collect()
        };
        Self {
            format: FORMAT,
            version: VERSION,
            memtrace_version: env!("CARGO_PKG_VERSION"),
            recording: Recording::of(analysis),
            answer,
            losses: told(|severity| severity != Severity::Info),
            notes: told(|severity| severity == Severity::Info),
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
            start: clock.at(clock.start()),
            end: clock.at(clock.end()),
            duration_ns: clock.duration(),
        }
    }
}
