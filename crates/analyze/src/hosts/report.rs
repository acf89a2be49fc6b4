//! The report of a run as it is written: the object of its JSON, and its page.

use super::answer;
use super::chapters::RUN_SECTIONS;
use super::page;
use super::run::RunReport;
use crate::answer::AnswerLine;
use crate::page::TOP;
use memtrace_report::{Chapter, Reported, Section, Style};
use schemars::JsonSchema;
use serde::Serialize;
use std::io;

const FORMAT: &str = "memtrace-run";
const VERSION: u32 = 1;

impl Reported for RunReport {
    const HEAD: &'static [&'static str] =
        &["format", "version", "memtrace_version", "run", "answer"];
    const MAIN_TABLE: &'static str = "hosts";

    fn sections() -> &'static [Section<Self>] {
        RUN_SECTIONS
    }

    fn object(&mut self, top: Option<usize>) -> impl Serialize {
        let answer = answer::lines(self);
        self.cut(top.unwrap_or(usize::MAX));
        Object::of(answer, self)
    }

    fn write_page(
        &mut self,
        style: &Style,
        reported: &[Chapter],
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let curves = self.curves.take();
        // Before lists are cut.
        let flags = page::flags(self, curves.as_deref());
        let counts = page::Counts::of(self);
        let head = reported.get(..1).unwrap_or_default();
        let object = self.object(Some(style.top.unwrap_or(TOP)));
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
    answer: Vec<AnswerLine>,
    #[serde(flatten)]
    report: &'a RunReport,
}

impl<'a> Object<'a> {
    fn of(answer: Vec<AnswerLine>, report: &'a RunReport) -> Self {
        Self {
            format: FORMAT,
            version: VERSION,
            memtrace_version: env!("CARGO_PKG_VERSION"),
            answer,
            report,
        }
    }
}
