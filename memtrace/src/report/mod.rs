//! Speaks: findings go in, text comes out. No I/O of its own: it writes into what it is given.
//!
//! `text` and `md` render one [`document`], so they say the same, and `csv` writes one [`table`]
//! of it; `json` comes straight from the findings. To add a format: one file, one line in
//! [`FORMATS`].

mod csv;
mod document;
mod json;
mod markdown;
pub mod samples;
mod table;
mod text;
mod visible;
mod words;

use crate::analyze::{Analysis, Diff, Excess};
use std::io;

pub(crate) use visible::visible;
pub(crate) use words::bytes as amount;

/// How a report is to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal; only `text` fits itself to it.
    pub width: usize,
    /// Whether to use colours; only `text` has any.
    pub has_color: bool,
    /// How many processes to list. By default `text` and `md` list ten, `json` and `csv` all.
    pub top: Option<usize>,
    /// Whether to show the tree of processes, in `text` and `md`.
    pub has_tree: bool,
    /// Whether to list every phase, in `text` and `md`.
    pub has_phases: bool,
    /// Whether to write the phases as a log and nothing else, in `text` and `md`.
    pub is_startup_log: bool,
    /// Whether to say which recording it is, in `text` and `md`: the person did not name it.
    pub has_path: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            width: 100,
            has_color: false,
            top: None,
            has_tree: false,
            has_phases: false,
            is_startup_log: false,
            has_path: false,
        }
    }
}

/// A format in which a report can be written.
pub trait Format: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;
    /// What it is for, in one line.
    fn doc(&self) -> &'static str;
    /// Writes a report. Lists that `style` cuts may be cut in place.
    ///
    /// # Errors
    /// When `out` can't be written to.
    fn write(&self, report: Report<'_>, style: &Style, out: &mut dyn io::Write) -> io::Result<()>;
}

/// What can be written.
#[derive(Debug)]
pub enum Report<'a> {
    /// A recording.
    One(&'a mut Analysis),
    /// Two recordings against each other.
    Diff(&'a mut DiffReport),
}

/// What there is to tell of two recordings.
#[derive(Debug)]
pub struct DiffReport {
    /// The first.
    pub before: Analysis,
    /// The second.
    pub after: Analysis,
    /// What changed from one to the other.
    pub diff: Diff,
    /// By which part of itself a figure may rise, and those that rose by more; `None` where
    /// that was not asked.
    pub limit: Option<(f64, Vec<Excess>)>,
}

impl DiffReport {
    /// Whether either of them has GPUs.
    pub fn has_gpu(&self) -> bool {
        self.before.gpus.is_some() || self.after.gpus.is_some()
    }
}

/// Every format; the first is the default.
pub static FORMATS: &[&dyn Format] = &[&text::Text, &markdown::Markdown, &json::Json, &csv::Csv];

#[cfg(test)]
mod tests;
