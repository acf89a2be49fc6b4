//! The report for a terminal.

use super::chapter::{Block, Chapter, Tone};
use super::table::{Cell, Column, Layout, Table};
use super::visible::{columns, shorten, visible};
use super::{Style, Written};
use std::io::{self, Write};

/// A name in less than this says nothing; rather a column is left out.
const MIN_FLEXIBLE: usize = 28;
/// Below this, lines are longer than the terminal.
const MIN_WIDTH: usize = 60;
const INDENT: &str = "  ";
const GAP: &str = "  ";

/// Writes lines that fit the terminal.
pub(super) fn write(
    report: &mut dyn Written,
    style: &Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let width = style.width.max(MIN_WIDTH);
    for (place, section) in report.chapters(style).iter().enumerate() {
        if place > 0 {
            writeln!(out)?;
        }
        write_section(section, width, style, out)?;
    }
    Ok(())
}

fn write_section(
    section: &Chapter,
    width: usize,
    style: &Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    for Line { indent, tone, text } in lines(section, width) {
        writeln!(out, "{indent}{}", paint(&text, tone, style.has_color))?;
    }
    Ok(())
}

/// A line of a chapter.
#[derive(Debug)]
pub struct Line {
    /// What stands before it.
    pub indent: &'static str,
    /// How it sounds.
    pub tone: Tone,
    /// What it says, safe to show.
    pub text: String,
}

/// A chapter in lines of at most so many columns.
pub fn lines(section: &Chapter, width: usize) -> Vec<Line> {
    let tone = match section.tone {
        Tone::Plain | Tone::Quiet => Tone::Plain,
        Tone::Strong => Tone::Strong,
        Tone::Alert => Tone::Alert,
    };
    let title = wrap(&visible(&section.title), width).into_iter();
    let title = title.map(|text| Line {
        indent: "",
        tone,
        text,
    });
    let inner = width.saturating_sub(INDENT.len());
    let blocks = section.blocks.iter().flat_map(|block| match block {
        Block::Line(tone, text) => {
            let lines = wrap(&visible(text), inner).into_iter();
            lines.map(|text| (*tone, text)).collect()
        }
        Block::Drawing(text) => vec![(Tone::Plain, shorten(&visible(text), inner).into_owned())],
        Block::Command(text) => vec![(Tone::Plain, format!("{INDENT}{}", visible(text)))],
        Block::Table(table) => table_lines(table, inner),
    });
    let blocks = blocks.map(|(tone, text)| Line {
        indent: INDENT,
        tone,
        text,
    });
    title.chain(blocks).collect()
}

fn table_lines(table: &Table, width: usize) -> Vec<(Tone, String)> {
    let fitted = Fitted::of(table, width);
    let title = fitted.line(|shown| shown.title);
    let rows = (0..table.row_count()).map(|row| fitted.line(|shown| &shown.cells[row]));
    let rows = rows.map(|row| (Tone::Plain, row));
    std::iter::once((Tone::Quiet, title)).chain(rows).collect()
}

/// The columns that there is room for.
struct Fitted<'a> {
    columns: Vec<Shown<'a>>,
}

/// A column as it is shown.
struct Shown<'a> {
    column: &'a Column,
    title: &'a str,
    cells: Vec<String>,
    width: usize,
}

impl Shown<'_> {
    fn is_flexible(&self) -> bool {
        self.column.layout == Layout::Flexible
    }
}

impl<'a> Fitted<'a> {
    fn of(table: &'a Table, width: usize) -> Self {
        let natural = |(title, column): (&'a str, &'a Column)| {
            let cells = column.cells.iter().map(Cell::shown);
            let cells: Vec<String> = cells.map(|cell| visible(&cell).into_owned()).collect();
            let widest = cells.iter().map(|cell| columns(cell)).max().unwrap_or(0);
            Shown {
                column,
                title,
                cells,
                width: widest.max(columns(title)),
            }
        };
        let mut fitted = Self {
            columns: table.shown().map(natural).collect(),
        };
        while let Some(room) = fitted.room_for_flexible(width) {
            let ranks = fitted.columns.iter().map(|shown| shown.column.rank);
            let last = ranks.enumerate().max_by_key(|&(_, rank)| rank);
            if let Some((place, 1..)) = last.filter(|_| room < MIN_FLEXIBLE) {
                fitted.columns.remove(place);
                continue;
            }
            if let Some(flexible) = fitted.columns.iter_mut().find(|one| one.is_flexible()) {
                flexible.width = room.max(columns(flexible.title));
            }
            break;
        }
        fitted
    }

    /// The room for the flexible column, when it is less than that column wants.
    fn room_for_flexible(&self, width: usize) -> Option<usize> {
        let gaps = GAP.len() * self.columns.len().saturating_sub(1);
        let total = self.columns.iter().map(|shown| shown.width).sum::<usize>() + gaps;
        let over = total.checked_sub(width).filter(|&over| over > 0)?;
        let flexible = self.columns.iter().find(|shown| shown.is_flexible());
        Some(flexible.map_or(0, |shown| shown.width).saturating_sub(over))
    }

    fn line(&self, cell: impl for<'s> Fn(&'s Shown<'a>) -> &'s str) -> String {
        let mut line = String::new();
        for shown in &self.columns {
            if !line.is_empty() {
                line.push_str(GAP);
            }
            let cell = shorten(cell(shown), shown.width);
            let padding = " ".repeat(shown.width - columns(&cell));
            let (first, second) = match shown.column.layout {
                Layout::Figures => (&*padding, &*cell),
                Layout::Words | Layout::Flexible => (&*cell, &*padding),
            };
            line.extend([first, second]);
        }
        line.truncate(line.trim_end().len());
        line
    }
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let word = shorten(word, width);
        if !line.is_empty() && columns(&line) + 1 + columns(&word) > width {
            lines.push(std::mem::take(&mut line));
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    lines.push(line);
    lines
}

fn paint(text: &str, tone: Tone, has_color: bool) -> String {
    let code = match tone {
        _ if !has_color => return text.to_owned(),
        Tone::Plain => return text.to_owned(),
        Tone::Strong => "1",
        Tone::Alert => "31",
        Tone::Quiet => "2",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}
