//! Lays out: what findings say of themselves goes in, text comes out. It knows no finding, and does
//! no I/O of its own: it writes into what it is given.
//!
//! `text` and `md` render what is [`Chapter`], so they say the same, and `csv` writes a [`Table`] of
//! it; `json` comes straight from the findings, and so does what `html` draws. To add a format: one
//! file, one entry of [`FORMATS`].

mod chapter;
mod csv;
mod html;
mod json;
mod markdown;
mod section;
mod table;
mod text;
mod visible;
pub mod words;

pub use chapter::{Block, Chapter, Tone, explained};
pub use csv::quote;
pub use json::{write_line, write_object};
pub use section::{
    DEFAULT_TOP, MORE_IN_JSON, Mode, Parts, Reported, Section, Tables, View, one_part,
};
use std::io;
pub use table::{Cell, Column, Heading, Layout, Table, TableOf};
pub use text::{Line, lines};
pub use visible::{columns, is_hidden, shorten, visible};

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
    /// Whether to show all there is, in `text` and `md`.
    pub is_full: bool,
    /// Whether to say how figures are to be read, in `text` and `md`.
    pub has_explanations: bool,
    /// Whether to write the phases as a log and nothing else, in `text` and `md`.
    pub is_startup_log: bool,
    /// Whether to write a row for each phase that was asked for and nothing else, in `text` and `md`.
    pub has_only_rows: bool,
    /// The name of the only section to write; all of them without.
    pub section: Option<&'static str>,
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
            is_full: false,
            has_explanations: false,
            is_startup_log: false,
            has_only_rows: false,
            section: None,
            has_path: false,
        }
    }
}

/// A format in which a report can be written.
pub struct Format {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is for, in one line.
    pub doc: &'static str,
    /// Whether it is a page that draws memory over time: for a file and a browser, not for a
    /// terminal.
    pub is_page: bool,
    write: fn(&mut dyn Written, &Style, &mut dyn io::Write) -> io::Result<()>,
}

impl Format {
    /// Writes a report. Lists that `style` cuts may be cut in place.
    ///
    /// # Errors
    /// When `out` can't be written to.
    pub fn write(
        &self,
        report: &mut dyn Written,
        style: &Style,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        (self.write)(report, style, out)
    }
}

/// What can be written: what is [`Reported`], or a comparison of two.
pub trait Written {
    /// What it tells people.
    fn chapters(&self, style: &Style) -> Vec<Chapter>;
    /// Its figures as one table for programs, in parts that have the same columns: one at least.
    fn tables<'a>(&'a self, style: &Style) -> Parts<'a>;
    /// Writes all of it as one object. Lists that `style` cuts may be cut in place.
    ///
    /// # Errors
    /// When `out` can't be written to.
    fn json(&mut self, style: &Style, out: &mut dyn io::Write) -> io::Result<()>;
    /// Writes the document that a page with pictures is made of, as one line of JSON. `reported` is what
    /// it tells people. Long lists are cut in place.
    ///
    /// # Errors
    /// When `out` can't be written to, and where there is no such page.
    fn page(
        &mut self,
        _style: &Style,
        _reported: &[Chapter],
        _out: &mut dyn io::Write,
    ) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Every format; the first is the default.
pub static FORMATS: &[Format] = &[
    Format {
        name: "text",
        doc: "for a terminal, fitted to its width",
        is_page: false,
        write: text::write,
    },
    Format {
        name: "md",
        doc: "Markdown, for an issue or a chat",
        is_page: false,
        write: markdown::write,
    },
    Format {
        name: "json",
        doc: "one versioned object for programs, with every figure",
        is_page: false,
        write: |report, style, out| report.json(style, out),
    },
    Format {
        name: "csv",
        doc: "one line per process, of a section its table, of a diff per role and kind (RFC 4180)",
        is_page: false,
        write: csv::write,
    },
    Format {
        name: "html",
        doc: "one file with charts for a browser, which works offline; with -o FILE, or see --open",
        is_page: true,
        write: html::write,
    },
];
