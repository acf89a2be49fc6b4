//! The sections of a report, one file each: what it finds, what it says, its table, its keys in
//! JSON. To add one: a file, and a line in the list.

mod abnormal_endings;
mod about;
mod address_space;
pub(super) mod allocations;
pub(super) mod answer;
mod at;
mod conditions;
mod endings;
pub(super) mod gpus;
pub(super) mod growth;
mod held_by_line;
mod layout;
pub(super) mod ledger;
mod limits;
pub(crate) mod missing;
pub(super) mod oom_kills;
mod orphaned_shm;
mod parts;
mod peak;
pub(super) mod phases;
mod process;
mod processes;
mod recorder;
mod roles;
mod steps;
mod survivors;
mod torch;
mod tree;
mod trees;

use super::Analysis;
use abnormal_endings::AbnormalEndings;
use endings::Endings;
use memtrace_model::RowSource;
use memtrace_report::Section;
use process::OneProcess;
use schemars::JsonSchema;
use serde::Serialize;
use std::ops::Deref;

/// What there is to tell of a recording.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Report {
    /// What the sections look at.
    #[serde(flatten)]
    pub analysis: Analysis,
    #[serde(flatten)]
    life: OneProcess,
    #[serde(flatten)]
    abnormal_endings: AbnormalEndings,
    #[serde(flatten)]
    endings: Endings,
}

impl Report {
    /// Looks for what one section alone tells.
    pub(super) fn find<S: RowSource>(source: &S, analysis: Analysis) -> Result<Self, S::Error> {
        Ok(Self {
            life: OneProcess::find(source, &analysis)?,
            abnormal_endings: AbnormalEndings::of(&analysis),
            endings: Endings::of(&analysis),
            analysis,
        })
    }
}

impl Deref for Report {
    type Target = Analysis;

    fn deref(&self) -> &Analysis {
        &self.analysis
    }
}

/// Every section of the report of a recording, in the order in which a person reads them.
pub static SECTIONS: &[Section<Report>] = &[
    about::SECTION,
    missing::SECTION,
    phases::one::SECTION,
    process::SECTION,
    at::SECTION,
    oom_kills::SECTION,
    abnormal_endings::SECTION,
    steps::SECTION,
    survivors::SECTION,
    orphaned_shm::SECTION,
    peak::SECTION,
    ledger::SECTION,
    roles::SECTION,
    gpus::SECTION,
    torch::SECTION,
    trees::SECTION,
    conditions::SECTION,
    phases::SECTION,
    processes::SECTION,
    tree::SECTION,
    growth::SECTION,
    layout::SECTION,
    allocations::SECTION,
    address_space::SECTION,
    endings::SECTION,
    recorder::SECTION,
];

/// The section whose table a report is for programs that read tables.
pub(super) const MAIN_TABLE: &str = processes::SECTION.name;

#[cfg(test)]
mod tests;
