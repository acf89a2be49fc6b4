//! What a section of the report is: what it finds, what it says, its table, its keys in JSON.

use super::analysis::Analysis;
use memtrace_model::RowSource;
use memtrace_report::{Chapter, Style, Table};
use serde::Serialize;
use std::iter::once;

/// How many lines a list has unless the person says otherwise.
pub(super) const DEFAULT_TOP: usize = 10;

/// What is said of a list that is cut.
pub(super) const MORE_IN_JSON: &str = " more: see `--format json`.";

/// A section of the report. Most tell of the [`Analysis`]; what one alone finds are its own fields,
/// and keys of the JSON object.
pub(super) trait Section: Default + Serialize {
    /// Its name on the command line.
    const NAME: &'static str;
    /// What it shows, in one line.
    const DOC: &'static str;
    /// The keys of the JSON object that it tells of.
    const KEYS: &'static [&'static str];
    /// In which reports it stands.
    const MODES: &'static [Mode] = &[Mode::Whole];
    /// Its table for programs, if it has one.
    const TABLES: Option<Tables<Self>> = None;

    /// Looks for what it alone tells.
    ///
    /// # Errors
    /// When the recording can't be read.
    fn find<S: RowSource>(_source: &S, _analysis: &Analysis) -> Result<Self, S::Error> {
        Ok(Self::default())
    }

    /// Whether a person should read it unasked; else it stands in a full report only.
    fn is_worth_telling(&self, _analysis: &Analysis) -> bool {
        true
    }

    /// What it says; nothing where there is nothing to tell.
    fn tell(&self, analysis: &Analysis, view: &View<'_>) -> Vec<Chapter>;
}

/// Fills a table with at most so many rows.
pub(super) type Tables<S> = for<'a> fn(&'a S, &'a Analysis, usize) -> Parts<'a>;

/// The parts of one table: each has the same columns.
pub(super) type Parts<'a> = Box<dyn Iterator<Item = Table> + 'a>;

/// A table in one part.
pub(super) fn one_part(table: Table) -> Parts<'static> {
    Box::new(once(table))
}

/// What a report is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The whole recording.
    Whole,
    /// An instant: who asks for it has read the rest.
    At,
    /// The phases of one name.
    Phase,
    Process,
    /// The phases as a log.
    Startup,
}

impl Mode {
    pub(super) const ALL: &'static [Self] = &[
        Self::Whole,
        Self::At,
        Self::Phase,
        Self::Process,
        Self::Startup,
    ];

    fn of(analysis: &Analysis, style: &Style) -> Self {
        if analysis.process.is_some() {
            return Self::Process;
        }
        match (&analysis.phase, &analysis.at) {
            (Some(_), _) => Self::Phase,
            _ if style.is_startup_log => Self::Startup,
            (None, Some(_)) => Self::At,
            (None, None) => Self::Whole,
        }
    }
}

/// How people look at the report.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    /// How many lines a list has.
    pub(super) top: usize,
    pub(super) mode: Mode,
    /// Whether one section was asked for, and nothing else.
    pub(super) is_alone: bool,
    pub(super) style: &'a Style,
}

impl<'a> View<'a> {
    /// Whether the first lines have reported the gravest already.
    pub(super) fn is_below_the_answer(&self) -> bool {
        self.mode == Mode::Whole && !self.is_alone
    }

    /// How many lines a list has of which a few are enough, unless all is asked for.
    pub(super) fn most(&self, few: usize) -> usize {
        match self.style.is_full {
            true => usize::MAX,
            false => few,
        }
    }

    pub(super) fn of(analysis: &Analysis, style: &'a Style) -> Self {
        Self {
            top: style.top.unwrap_or(match style.is_full {
                true => usize::MAX,
                false => DEFAULT_TOP,
            }),
            mode: Mode::of(analysis, style),
            is_alone: style.section.is_some(),
            style,
        }
    }
}
