//! What a report says, before it is laid out: headings, lines and tables, which `text` and `md`
//! render.

use super::Style;
use super::table::{Table, TableOf};

/// A heading with what belongs to it.
#[derive(Debug)]
pub struct Chapter {
    /// The words of the heading.
    pub title: String,
    /// How that wants to be read.
    pub tone: Tone,
    /// What stands below it.
    pub blocks: Vec<Block>,
    /// How its figures are to be read: sentences that are the same in every report.
    pub explanations: Vec<String>,
}

/// How a line wants to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it is.
    Plain,
    /// It is the answer.
    Strong,
    /// Something is wrong, or missing.
    Alert,
    /// A remark on what stands above.
    Quiet,
}

/// What stands below a heading.
#[derive(Debug)]
pub enum Block {
    /// A sentence or more.
    Line(Tone, String),
    /// A drawing that must not be wrapped.
    Drawing(String),
    /// A command to type, which must not be wrapped or cut.
    Command(String),
    /// Rows of figures and words.
    Table(Table),
}

impl Chapter {
    /// A heading, with nothing below it yet.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            tone: Tone::Strong,
            blocks: Vec::new(),
            explanations: Vec::new(),
        }
    }

    /// The same about something that is wrong.
    pub fn alarming(title: impl Into<String>) -> Self {
        Self {
            tone: Tone::Alert,
            ..Self::new(title)
        }
    }

    /// Says what there is to say: one line, none, or several.
    pub fn tell(&mut self, tone: Tone, lines: impl IntoIterator<Item = String>) {
        let lines = lines.into_iter().map(|line| Block::Line(tone, line));
        self.blocks.extend(lines);
    }

    /// Says a line.
    pub fn say(&mut self, line: impl Into<String>) {
        self.tell(Tone::Plain, [line.into()]);
    }

    /// Says a line that is the answer.
    pub fn strong(&mut self, line: impl Into<String>) {
        self.tell(Tone::Strong, [line.into()]);
    }

    /// Says what is wrong.
    pub fn alert(&mut self, line: impl Into<String>) {
        self.tell(Tone::Alert, [line.into()]);
    }

    /// Remarks on what stands above.
    pub fn quiet(&mut self, line: impl Into<String>) {
        self.tell(Tone::Quiet, [line.into()]);
    }

    /// Says how figures above are to be read: once, at the end of the report, where that is wanted.
    pub fn explain(&mut self, line: impl Into<String>) {
        self.explanations.push(line.into());
    }

    /// Shows a table, unless it has no rows.
    pub fn table(&mut self, table: Table) {
        if table.row_count() > 0 {
            self.blocks.push(Block::Table(table));
        }
    }

    /// What is said of those that a list leaves out, when there are any.
    pub fn rest(&mut self, all: usize, top: usize, count: impl Fn(usize) -> String, words: &str) {
        if all > top {
            self.quiet(count(all - top) + words);
        }
    }
}

impl<R> TableOf<R> {
    /// Shows the table below a heading, unless it has no rows.
    pub fn add_to(self, reported: &mut Chapter) {
        reported.table(self.done());
    }
}

/// Gathers the explanations of all chapters in one at the end, each once. Where they are not wanted,
/// the last line says how to get them, and what else is left out.
pub fn explained(mut chapters: Vec<Chapter>, style: &Style) -> Vec<Chapter> {
    let mut lines: Vec<String> = Vec::new();
    for chapter in &mut chapters {
        for line in chapter.explanations.drain(..) {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    if style.has_explanations && !lines.is_empty() {
        let mut last = Chapter::new("How to read it");
        last.tell(Tone::Plain, lines);
        chapters.push(last);
    }
    if let Some(last) = chapters
        .last_mut()
        .filter(|_| style.section.is_none() && !style.is_full)
    {
        last.quiet(
            "`--full` shows every section and line; `--explain` says how to read the columns.",
        );
    }
    chapters
}
