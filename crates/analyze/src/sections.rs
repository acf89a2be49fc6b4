//! The sections of a report, one file each: what it finds, what it says, its table, its keys in
//! JSON. To add one: a file, and a line in the list.

mod abnormal_endings;
mod about;
mod address_space;
mod allocations;
pub(super) mod answer;
mod at;
mod conditions;
mod endings;
pub(super) mod gpus;
pub(super) mod growth;
mod layout;
pub(super) mod ledger;
mod missing;
mod oom_kills;
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
mod tree;
mod trees;

use super::Analysis;
use super::section::{Mode, Parts, Section, View};
use memtrace_model::RowSource;
use memtrace_report::Chapter;
use schemars::JsonSchema;
use serde::Serialize;

/// A section, as the command line and the formats know it.
#[derive(Debug)]
pub struct SectionInfo {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows, in one line.
    pub doc: &'static str,
    /// The keys of the JSON object that it tells of.
    pub keys: &'static [&'static str],
    /// Whether it has a table for programs.
    pub has_table: bool,
    pub(super) modes: &'static [Mode],
    pub(super) tables: fn(&Report, usize) -> Parts<'_>,
    pub(super) tell: fn(&Report, &View<'_>) -> Vec<Chapter>,
    pub(super) is_worth_telling: fn(&Report) -> bool,
}

macro_rules! sections {
    ($($field:ident: $section:ty,)+) => {
        /// What there is to tell of a recording.
        #[derive(Clone, Debug, Serialize, JsonSchema)]
        pub struct Report {
            /// What the sections look at.
            #[serde(flatten)]
            pub analysis: Analysis,
            $(#[serde(flatten)]
            $field: $section,)+
        }

        impl Report {
            /// Lets each section look for what it alone tells.
            pub(super) fn find<S: RowSource>(
                source: &S,
                analysis: Analysis,
            ) -> Result<Self, S::Error> {
                Ok(Self {
                    $($field: <$section>::find(source, &analysis)?,)+
                    analysis,
                })
            }
        }

        /// Every section, in the order in which a person reads them.
        pub static SECTIONS: &[SectionInfo] = &[$(SectionInfo {
            name: <$section>::NAME,
            doc: <$section>::DOC,
            keys: <$section>::KEYS,
            modes: <$section>::MODES,
            has_table: <$section>::TABLES.is_some(),
            tables: |report, top| match <$section>::TABLES {
                Some(tables) => tables(&report.$field, &report.analysis, top),
                None => Box::new(std::iter::empty()),
            },
            tell: |report, view| report.$field.tell(&report.analysis, view),
            is_worth_telling: |report| report.$field.is_worth_telling(&report.analysis),
        },)+];
    };
}

sections! {
    about: about::About,
    missing: missing::Missing,
    phase: phases::one::NamedPhase,
    process: process::OneProcess,
    at: at::At,
    oom_kills: oom_kills::OomKills,
    abnormal_endings: abnormal_endings::AbnormalEndings,
    steps: steps::Steps,
    survivors: survivors::Survivors,
    orphaned_shm: orphaned_shm::OrphanedShm,
    peak: peak::Peak,
    ledger: ledger::Ledger,
    roles: roles::Roles,
    gpus: gpus::GpuMemory,
    trees: trees::Trees,
    conditions: conditions::LoadConditions,
    phases: phases::Phases,
    processes: processes::Processes,
    tree: tree::Tree,
    growth: growth::Growths,
    layouts: layout::Layouts,
    allocations: allocations::Allocations,
    address_space: address_space::AddressSpace,
    endings: endings::Endings,
    recorder: recorder::Recorder,
}

impl SectionInfo {
    /// The section whose table a report is for programs that read tables.
    pub(super) const MAIN_TABLE: &'static str = processes::Processes::NAME;

    /// The section of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SECTIONS.iter().find(|section| section.name == name)
    }
}

#[cfg(test)]
mod tests;
