//! The tools: what each is asked with, and the command lines that answer it.

use super::answer::Words;
use super::places::Places;
use memtrace_analyze::{RUN_SECTIONS, SECTIONS};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::ffi::OsString;

/// What a client may call.
pub(super) struct Tool {
    pub(super) name: &'static str,
    title: &'static str,
    /// What it is for, to whoever chooses one.
    doc: &'static str,
    schema: fn(SchemaGenerator) -> Value,
    asked: fn(&Places, Value) -> Result<Asked, String>,
}

/// What a call comes to.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) commands: Vec<Words>,
    pub(super) is_json: bool,
}

/// Every tool, in the order in which one asks.
pub(super) const TOOLS: [Tool; 6] = [
    tool::<ListRecordings>(
        "list_recordings",
        "List recordings",
        "The recordings of a directory, the newest first: when each began, how long it is, how it ended \
         (exit code, OOM kills), and what was recorded.",
    ),
    tool::<WhatHappened>(
        "what_happened",
        "What happened, and who held most",
        "The report of a recording: first the answer (how it ended, the most that was held and by whom, \
         what grows, what to look at next), then its sections. A section alone has all of its detail. For \
         a root of many hosts (ROOT/run=ID) it is the answer for the whole run.",
    ),
    tool::<WhoHeldMemory>(
        "who_held_memory",
        "Who held what at an instant",
        "Each process, role, cgroup and GPU at one instant of a recording: who held what then.",
    ),
    tool::<WhatGrew>(
        "what_grew",
        "What grew, and why",
        "Processes, roles and steps that grow steadily and how fast; what the memory is inside of them \
         (live data, freed memory that malloc keeps, caches, files); and which lines allocated it where \
         stacks were recorded. With a window: who gained and lost what in it.",
    ),
    tool::<AboutProcess>(
        "about_process",
        "One process",
        "The life of one process: what it held over time, what is inside of it, its phases, shared memory \
         and children, and how it ended.",
    ),
    tool::<CompareRecordings>(
        "compare_recordings",
        "Compare two recordings",
        "What changed from one recording (or run of many hosts) to another: peaks, means, growth, roles, \
         and how each ended.",
    ),
];

const fn tool<Q: Question>(name: &'static str, title: &'static str, doc: &'static str) -> Tool {
    Tool {
        name,
        title,
        doc,
        schema: |generator| generator.into_root_schema_for::<Q>().to_value(),
        asked: |places, arguments| {
            let question: Q = serde_json::from_value(arguments)
                .map_err(|error| format!("wrong arguments: {error}"))?;
            question.asked(places)
        },
    }
}

impl Tool {
    /// The tool as a client sees it.
    pub(super) fn listed(&self) -> Value {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
        json!({
            "name": self.name,
            "title": self.title,
            "description": self.doc,
            "inputSchema": (self.schema)(settings.into_generator()),
            // It reads recordings and asks nobody else.
            "annotations": {"readOnlyHint": true, "openWorldHint": false},
        })
    }

    /// The commands that answer a call with these arguments.
    ///
    /// # Errors
    /// The sentence says what is wrong with them.
    pub(super) fn asked(&self, places: &Places, arguments: Value) -> Result<Asked, String> {
        (self.asked)(places, arguments)
    }
}

/// What a tool is asked with.
trait Question: DeserializeOwned + JsonSchema {
    fn asked(self, places: &Places) -> Result<Asked, String>;
}

/// How to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// As people read it
    #[default]
    Text,
    /// Every figure, in bytes and nanoseconds
    Json,
}

/// The most rows that can be asked for.
const ROWS_MAX: u32 = 1_000;
/// As a person gets.
const ROWS: u32 = 10;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListRecordings {
    /// Where to look [default: the first that may be read]
    directory: Option<String>,
    /// Only recordings that have this time: `03:12`, `12:03:07` (UTC), or RFC 3339
    at: Option<String>,
    #[serde(default)]
    format: Format,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WhatHappened {
    /// A recording, or a directory for its newest [default: the first that may be read]
    recording: Option<String>,
    /// Only that section
    #[schemars(extend("enum" = section_names()))]
    section: Option<String>,
    /// Rows of each list [default: 10]
    #[schemars(range(min = 1, max = ROWS_MAX))]
    rows: Option<u32>,
    #[serde(default)]
    format: Format,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WhoHeldMemory {
    /// A recording, or a directory for its newest [default: the first that may be read]
    recording: Option<String>,
    /// `peak`, an offset from the start such as `+83.2s`, a time of day in UTC, or RFC 3339
    at: String,
    /// Rows of each list [default: 10]
    #[schemars(range(min = 1, max = ROWS_MAX))]
    rows: Option<u32>,
    #[serde(default)]
    format: Format,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WhatGrew {
    /// A recording, or a directory for its newest [default: the first that may be read]
    recording: Option<String>,
    /// Begin of a window: an offset from the start (`+83.2s`), a time of day in UTC, or RFC 3339
    from: Option<String>,
    /// End of the window
    to: Option<String>,
    /// Rows of each list [default: 10]
    #[schemars(range(min = 1, max = ROWS_MAX))]
    rows: Option<u32>,
    #[serde(default)]
    format: Format,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AboutProcess {
    /// A recording, or a directory for its newest [default: the first that may be read]
    recording: Option<String>,
    /// Its process id, or words of its name or role: the largest that matches
    process: Process,
    /// Rows of each list [default: 10]
    #[schemars(range(min = 1, max = ROWS_MAX))]
    rows: Option<u32>,
    #[serde(default)]
    format: Format,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "`process` is an id or a text")]
enum Process {
    Id(u32),
    Words(String),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CompareRecordings {
    /// The recording before, or the run (ROOT/run=ID)
    before: String,
    /// The recording after, or the run
    after: String,
    /// Rows of each list [default: 10]
    #[schemars(range(min = 1, max = ROWS_MAX))]
    rows: Option<u32>,
    #[serde(default)]
    format: Format,
}

/// The sections that need no more than their name.
fn section_names() -> Vec<&'static str> {
    let of_one = SECTIONS.iter().map(|section| section.name);
    let of_one = of_one.filter(|name| !["phase", "process", "at"].contains(name));
    let mut names: Vec<&str> = of_one.collect();
    for section in RUN_SECTIONS {
        if !names.contains(&section.name) {
            names.push(section.name);
        }
    }
    names
}

impl Question for ListRecordings {
    fn asked(self, places: &Places) -> Result<Asked, String> {
        let mut line = Line::of("list", self.format, None)?;
        line.option("at", self.at);
        line.end(places, [self.directory.as_deref()])
    }
}

impl Question for WhatHappened {
    fn asked(self, places: &Places) -> Result<Asked, String> {
        let mut line = Line::of("report", self.format, Some(self.rows))?;
        line.option("section", self.section);
        line.end(places, [self.recording.as_deref()])
    }
}

impl Question for WhoHeldMemory {
    fn asked(self, places: &Places) -> Result<Asked, String> {
        let mut line = Line::of("report", self.format, Some(self.rows))?;
        line.option("at", Some(self.at));
        line.end(places, [self.recording.as_deref()])
    }
}

impl Question for WhatGrew {
    fn asked(self, places: &Places) -> Result<Asked, String> {
        let line = |section: Option<&str>| {
            let mut line = Line::of("report", self.format, Some(self.rows))?;
            line.option("section", section.map(str::to_owned));
            line.option("from", self.from.clone());
            line.option("to", self.to.clone());
            line.end(places, [self.recording.as_deref()])
        };
        if self.from.is_some() || self.to.is_some() {
            return line(None);
        }
        let mut all = line(Some("growth"))?;
        for why in ["layout", "allocations"] {
            all.commands.extend(line(Some(why))?.commands);
        }
        Ok(all)
    }
}

impl Question for AboutProcess {
    fn asked(self, places: &Places) -> Result<Asked, String> {
        let mut line = Line::of("report", self.format, Some(self.rows))?;
        line.option(
            "process",
            Some(match self.process {
                Process::Id(id) => id.to_string(),
                Process::Words(words) => words,
            }),
        );
        line.end(places, [self.recording.as_deref()])
    }
}

impl Question for CompareRecordings {
    fn asked(self, places: &Places) -> Result<Asked, String> {
        let line = Line::of("diff", self.format, Some(self.rows))?;
        line.end(places, [Some(&*self.before), Some(&self.after)])
    }
}

/// A command line that grows. Values stand behind `=` and paths behind `--`, so that none is taken for
/// an option.
struct Line {
    words: Words,
    is_json: bool,
}

impl Line {
    /// That of a command; with so many rows in each list where it has lists that are cut.
    fn of(command: &str, format: Format, rows: Option<Option<u32>>) -> Result<Self, String> {
        let is_json = format == Format::Json;
        let mut line = Self {
            words: vec![command.into()],
            is_json,
        };
        line.option("format", is_json.then(|| "json".to_owned()));
        if let Some(rows) = rows {
            let rows = rows.unwrap_or(ROWS);
            if !(1..=ROWS_MAX).contains(&rows) {
                return Err(format!(
                    "wrong arguments: `rows` is {rows}, and can be from 1 to {ROWS_MAX}"
                ));
            }
            line.option("top", Some(rows.to_string()));
        }
        Ok(line)
    }

    fn option(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.words.push(OsString::from(format!("--{name}={value}")));
        }
    }

    fn end<const N: usize>(
        mut self,
        places: &Places,
        paths: [Option<&str>; N],
    ) -> Result<Asked, String> {
        self.words.push("--".into());
        for path in paths {
            self.words.push(places.path(path)?.into());
        }
        Ok(Asked {
            commands: vec![self.words],
            is_json: self.is_json,
        })
    }
}
