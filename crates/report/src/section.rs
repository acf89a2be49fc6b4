//! Sections: what a report is made of, whatever it is about. Each is declared once; formats, the command
//! line and the docs walk the list.

use super::{Chapter, Style, Table, Written, explained, write_object};
use serde::Serialize;
use serde_json::Value;
use std::io;
use std::iter::once;

/// How many lines a list has unless the person says otherwise.
pub const DEFAULT_TOP: usize = 10;

/// What is said of a list that is cut.
pub const MORE_IN_JSON: &str = " more: see `--format json`.";

/// A section of a report that is an `R`.
#[derive(Debug)]
pub struct Section<R> {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows, in one line.
    pub doc: &'static str,
    /// The keys of the JSON object that it tells of.
    pub keys: &'static [&'static str],
    /// In which reports it stands.
    pub modes: &'static [Mode],
    /// Fills its table for programs with at most so many rows; `None` where it has no table.
    pub tables: Option<Tables<R>>,
    /// Whether a person should read it unasked; else it stands in a full report only.
    pub is_worth_telling: fn(&R) -> bool,
    /// What it says; nothing where there is nothing to report.
    pub tell: fn(&R, &View<'_>) -> Vec<Chapter>,
}

/// Fills a table with at most so many rows.
pub type Tables<R> = for<'a> fn(&'a R, usize) -> Parts<'a>;

/// The parts of one table: each has the same columns.
pub type Parts<'a> = Box<dyn Iterator<Item = Table> + 'a>;

/// A table in one part.
pub fn one_part(table: Table) -> Parts<'static> {
    Box::new(once(table))
}

impl<R> Section<R> {
    /// The section that says nothing, of which others take what they do not say otherwise.
    pub const EMPTY: Self = Self {
        name: "",
        doc: "",
        keys: &[],
        modes: &[Mode::Whole],
        tables: None,
        is_worth_telling: |_| true,
        tell: |_, _| Vec::new(),
    };
}

/// What a report is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The whole recording or run.
    Whole,
    /// An instant: who asks for it has read the rest.
    At,
    /// The phases of one name.
    Phase,
    /// The life of one process.
    Process,
    /// The phases as a log.
    Startup,
}

impl Mode {
    /// Every one of them.
    pub const ALL: &'static [Self] = &[
        Self::Whole,
        Self::At,
        Self::Phase,
        Self::Process,
        Self::Startup,
    ];
}

/// How people look at the report.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// How many lines a list has.
    pub top: usize,
    /// What the report is about.
    pub mode: Mode,
    /// Whether one section was asked for, and nothing else.
    pub is_alone: bool,
    /// What the person asked for.
    pub style: &'a Style,
}

impl<'a> View<'a> {
    fn of(report: &impl Reported, style: &'a Style) -> Self {
        Self {
            top: style.top.unwrap_or(match style.is_full {
                true => usize::MAX,
                false => DEFAULT_TOP,
            }),
            mode: report.mode(style),
            is_alone: style.section.is_some(),
            style,
        }
    }

    /// Whether the first lines have reported the gravest already.
    pub fn is_below_the_answer(&self) -> bool {
        self.mode == Mode::Whole && !self.is_alone
    }

    /// How many lines a list has of which a few are enough, unless all is asked for.
    pub fn most(&self, few: usize) -> usize {
        match self.style.is_full {
            true => usize::MAX,
            false => few,
        }
    }
}

/// A report that is made of sections.
pub trait Reported: Sized + 'static {
    /// The keys of the JSON object that stand with every section.
    const HEAD: &'static [&'static str];
    /// The section whose table a report is for programs that read tables.
    const MAIN_TABLE: &'static str;

    /// Every section, in the order in which a person reads them.
    fn sections() -> &'static [Section<Self>];

    /// What it is about.
    fn mode(&self, _style: &Style) -> Mode {
        Mode::Whole
    }

    /// The object of its JSON, with at most so many lines in each list.
    fn object(&mut self, top: Option<usize>) -> impl Serialize;

    /// What [`Written::page`] writes.
    ///
    /// # Errors
    /// When `out` can't be written to.
    fn write_page(
        &mut self,
        style: &Style,
        reported: &[Chapter],
        out: &mut dyn io::Write,
    ) -> io::Result<()>;
}

impl<R: Reported> Section<R> {
    /// The section of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        R::sections().iter().find(|section| section.name == name)
    }

    /// Of the whole object what this section tells of.
    fn only(&self, object: &impl Serialize) -> serde_json::Result<Value> {
        let mut value = serde_json::to_value(object)?;
        if let Some(keys) = value.as_object_mut() {
            keys.retain(|key, _| R::HEAD.contains(&&**key) || self.keys.contains(&&**key));
        }
        Ok(value)
    }
}

impl<R: Reported> Written for R {
    fn chapters(&self, style: &Style) -> Vec<Chapter> {
        let view = View::of(self, style);
        if let Some(section) = style.section.and_then(Section::<R>::named) {
            let mut reported = (section.tell)(self, &view);
            if reported.is_empty() {
                let mut nothing = Chapter::new(format!("{}: nothing to report", section.name));
                nothing.quiet(format!("It would show {}.", section.doc));
                reported.push(nothing);
            }
            return explained(reported, style);
        }
        let sections = R::sections().iter();
        let sections = sections.filter(|section| section.modes.contains(&view.mode));
        let sections = sections.filter(|section| style.is_full || (section.is_worth_telling)(self));
        let reported = sections.flat_map(|section| (section.tell)(self, &view));
        explained(reported.collect(), style)
    }

    fn tables<'a>(&'a self, style: &Style) -> Parts<'a> {
        let section = Section::<R>::named(style.section.unwrap_or(R::MAIN_TABLE));
        let fill = section.and_then(|section| section.tables);
        let parts = fill.map(|fill| fill(self, style.top.unwrap_or(usize::MAX)));
        Box::new(parts.into_iter().flatten())
    }

    fn json(&mut self, style: &Style, out: &mut dyn io::Write) -> io::Result<()> {
        let object = self.object(style.top);
        match style.section.and_then(Section::<R>::named) {
            Some(section) => write_object(&section.only(&object)?, out),
            None => write_object(&object, out),
        }
    }

    fn page(
        &mut self,
        style: &Style,
        reported: &[Chapter],
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        self.write_page(style, reported, out)
    }
}
