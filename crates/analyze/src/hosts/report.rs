//! The report of a run as it is written: its sections, and the object of its JSON.

use super::answer::{self, RunAnswer};
use super::chapters;
use super::page;
use super::run::RunReport;
use crate::page::TOP;
use memtrace_report::{Chapter, Style, Table, Written, explained, write_object};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::io;
use std::iter::once;

const FORMAT: &str = "memtrace-run";
const VERSION: u32 = 1;
/// The keys that tell what object it is.
const HEAD: [&str; 5] = ["format", "version", "memtrace_version", "run", "answer"];
const DEFAULT_TOP: usize = 10;

/// What one of its chapters says, with so many lines in its list.
type Tell = fn(&RunReport, usize) -> Option<Chapter>;
/// Its table for programs.
type Fill = fn(&RunReport, usize) -> Table;

/// A section of the report of a run.
#[derive(Debug)]
pub struct RunSection {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows, in one line.
    pub doc: &'static str,
    keys: &'static [&'static str],
    tell: Tell,
    fill: Option<Fill>,
}

impl RunSection {
    /// The section of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        RUN_SECTIONS.iter().find(|section| section.name == name)
    }

    /// Whether it has a table for programs.
    pub fn has_table(&self) -> bool {
        self.fill.is_some()
    }
}

/// Every section, in the order in which a person reads them.
pub static RUN_SECTIONS: &[RunSection] = &[
    RunSection {
        name: "about",
        doc: "which run it is, and the answer in short",
        keys: &[
            "host_count",
            "recording_count",
            "start",
            "end",
            "expected_host_count",
        ],
        tell: chapters::about,
        fill: None,
    },
    RunSection {
        name: "missing",
        doc: "what could not be used, or only in part",
        keys: &["problems"],
        tell: chapters::problems,
        fill: None,
    },
    RunSection {
        name: "ends",
        doc: "OOM kills and other unexpected ends, over all hosts in the order of time",
        keys: &["ends", "end_count"],
        tell: chapters::ends,
        fill: Some(chapters::ends_table),
    },
    RunSection {
        name: "outliers",
        doc: "who stands out from others that do the same",
        keys: &["outliers"],
        tell: chapters::outliers,
        fill: Some(chapters::outliers_table),
    },
    RunSection {
        name: "hosts",
        doc: "each host: its status, its peak, its limit and what was left of it",
        keys: &["hosts"],
        tell: chapters::hosts,
        fill: Some(chapters::hosts_table),
    },
    RunSection {
        name: "peak",
        doc: "the most that all hosts held at one time",
        keys: &["peak"],
        tell: chapters::peak,
        fill: None,
    },
    RunSection {
        name: "roles",
        doc: "roles over all hosts",
        keys: &["roles"],
        tell: chapters::roles,
        fill: Some(chapters::roles_table),
    },
    RunSection {
        name: "ranks",
        doc: "ranks, over all hosts",
        keys: &["ranks", "rank_count"],
        tell: chapters::ranks,
        fill: Some(chapters::ranks_table),
    },
    RunSection {
        name: "phases",
        doc: "phases over all hosts, and where they took longest",
        keys: &["phases"],
        tell: chapters::phases,
        fill: Some(chapters::phases_table),
    },
    RunSection {
        name: "clocks",
        doc: "how far apart the clocks of hosts are",
        keys: &["clocks"],
        tell: chapters::clocks,
        fill: Some(chapters::clocks_table),
    },
];

/// The section whose table a report is for programs that read tables.
const MAIN_TABLE: Fill = chapters::hosts_table;

impl Written for RunReport {
    fn chapters(&self, style: &Style) -> Vec<Chapter> {
        let top = style.top.unwrap_or(match style.is_full {
            true => usize::MAX,
            false => DEFAULT_TOP,
        });
        if let Some(section) = style.section.and_then(RunSection::named) {
            let nothing = || Chapter::new(format!("{}: nothing to report", section.name));
            let reported = (section.tell)(self, top).unwrap_or_else(nothing);
            return explained(vec![reported], style);
        }
        let reported = RUN_SECTIONS
            .iter()
            .filter_map(|section| (section.tell)(self, top));
        explained(reported.collect(), style)
    }

    fn tables<'a>(&'a self, style: &Style) -> Box<dyn Iterator<Item = Table> + 'a> {
        let section = style.section.and_then(RunSection::named);
        let fill = section
            .and_then(|section| section.fill)
            .unwrap_or(MAIN_TABLE);
        Box::new(once(fill(self, style.top.unwrap_or(usize::MAX))))
    }

    fn json(&mut self, style: &Style, out: &mut dyn io::Write) -> io::Result<()> {
        let answer = answer::lines(self);
        if let Some(top) = style.top {
            self.cut(top);
        }
        let object = Object::of(answer, self);
        let Some(section) = style.section.and_then(RunSection::named) else {
            return write_object(&object, out);
        };
        let mut value = serde_json::to_value(&object)?;
        if let Some(keys) = value.as_object_mut() {
            keys.retain(|key, _: &mut Value| {
                HEAD.contains(&&**key) || section.keys.contains(&&**key)
            });
        }
        write_object(&value, out)
    }

    fn page(
        &mut self,
        style: &Style,
        reported: &[Chapter],
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let answer = answer::lines(self);
        let curves = self.curves.take();
        // Before lists are cut.
        let flags = page::flags(self, curves.as_deref());
        let counts = page::Counts::of(self);
        self.cut(style.top.unwrap_or(TOP));
        let head = reported.get(..1).unwrap_or_default();
        let object = Object::of(answer, self);
        page::write(head, object, curves.as_deref(), flags, counts, out)
    }
}

impl RunReport {
    /// Leaves at most so many in each list.
    fn cut(&mut self, top: usize) {
        self.hosts.truncate(top);
        self.outliers.truncate(top);
        self.ends.truncate(top);
        self.roles.truncate(top);
        self.ranks.truncate(top);
        self.phases.truncate(top);
        self.clocks.truncate(top);
        self.problems.truncate(top);
        if let Some(peak) = &mut self.peak {
            peak.roles.truncate(top);
        }
    }
}

/// What `memtrace report ROOT` writes.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Run")]
pub(crate) struct Object<'a> {
    /// What object this is.
    #[schemars(extend("const" = FORMAT))]
    format: &'static str,
    /// Within a version no key is renamed, removed or given another meaning.
    #[schemars(extend("const" = VERSION))]
    version: u32,
    /// The memtrace that wrote the report.
    memtrace_version: &'static str,
    /// The answer in short, a sentence for each thing that there is to say.
    answer: Vec<RunAnswer>,
    #[serde(flatten)]
    report: &'a RunReport,
}

impl<'a> Object<'a> {
    fn of(answer: Vec<RunAnswer>, report: &'a RunReport) -> Self {
        Self {
            format: FORMAT,
            version: VERSION,
            memtrace_version: env!("CARGO_PKG_VERSION"),
            answer,
            report,
        }
    }
}
