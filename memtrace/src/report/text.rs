//! The report for a terminal.

use super::document::{self, Block, Column, Document, Section, Table, Tone};
use super::visible::{columns, shorten, visible};
use super::{DiffReport, Format, Style};
use crate::analyze::Analysis;
use std::io::{self, Write};

/// A name in less than this says nothing; rather a column is left out.
const MIN_FLEXIBLE: usize = 28;
/// Below this, lines are longer than the terminal.
const MIN_WIDTH: usize = 60;
const INDENT: &str = "  ";
const GAP: &str = "  ";

/// Fits the terminal: the default.
#[derive(Debug)]
pub(super) struct Text;

impl Format for Text {
    fn name(&self) -> &'static str {
        "text"
    }

    fn doc(&self) -> &'static str {
        "for a terminal, fitted to its width"
    }

    fn write(&self, analysis: &Analysis, style: &Style, out: &mut dyn Write) -> io::Result<()> {
        write_document(&document::build(analysis, style), style, out)
    }

    fn write_diff(
        &self,
        told: &DiffReport<'_>,
        style: &Style,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        write_document(&document::diff::build(told, style), style, out)
    }
}

fn write_document(document: &Document, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let width = style.width.max(MIN_WIDTH);
    for (place, section) in document.sections.iter().enumerate() {
        if place > 0 {
            writeln!(out)?;
        }
        write_section(section, width, style, out)?;
    }
    Ok(())
}

fn write_section(
    section: &Section,
    width: usize,
    style: &Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let title_tone = match section.tone {
        Tone::Plain | Tone::Quiet => Tone::Plain,
        Tone::Strong => Tone::Strong,
        Tone::Alert => Tone::Alert,
    };
    for line in wrap(&visible(&section.title), width) {
        writeln!(out, "{}", paint(&line, title_tone, style.has_color))?;
    }
    let inner = width - INDENT.len();
    for block in &section.blocks {
        match block {
            Block::Line(tone, text) => {
                for line in wrap(&visible(text), inner) {
                    writeln!(out, "{INDENT}{}", paint(&line, *tone, style.has_color))?;
                }
            }
            Block::Drawing(text) => writeln!(out, "{INDENT}{}", shorten(&visible(text), inner))?,
            Block::Table(table) => write_table(table, inner, style.has_color, out)?,
        }
    }
    Ok(())
}

fn write_table(
    table: &Table,
    width: usize,
    has_color: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let rows: Vec<Vec<String>> = table
        .rows
        .iter()
        .map(|row| row.iter().map(|cell| visible(cell).into_owned()).collect())
        .collect();
    let layout = Layout::of(&table.columns, &rows, width);
    let titles: Vec<String> = table.columns.iter().map(|c| c.title.to_owned()).collect();
    let title = layout.line(&table.columns, &titles);
    writeln!(out, "{INDENT}{}", paint(&title, Tone::Quiet, has_color))?;
    for row in &rows {
        writeln!(out, "{INDENT}{}", layout.line(&table.columns, row))?;
    }
    Ok(())
}

/// Which columns are shown, and how wide.
struct Layout {
    /// `None` for a column that is left out.
    widths: Vec<Option<usize>>,
}

impl Layout {
    fn of(table_columns: &[Column], rows: &[Vec<String>], width: usize) -> Self {
        let natural = |(place, column): (usize, &Column)| {
            let cells = rows.iter().filter_map(|row| row.get(place));
            let widest = cells.map(|cell| columns(cell)).max().unwrap_or(0);
            Some(widest.max(columns(column.title)))
        };
        let mut layout = Self {
            widths: table_columns.iter().enumerate().map(natural).collect(),
        };
        while let Some(wanted) = layout.flexible_overrun(table_columns, width) {
            let last = (0..table_columns.len())
                .filter(|&place| layout.widths[place].is_some() && table_columns[place].rank > 0)
                .max_by_key(|&place| table_columns[place].rank);
            match last {
                Some(place) if wanted < MIN_FLEXIBLE => layout.widths[place] = None,
                _ => {
                    layout.shrink(table_columns, wanted);
                    break;
                }
            }
        }
        layout
    }

    /// The room for the flexible column, when it is less than that column wants.
    fn flexible_overrun(&self, table_columns: &[Column], width: usize) -> Option<usize> {
        let shown = self.widths.iter().flatten();
        let gaps = GAP.len() * shown.clone().count().saturating_sub(1);
        let total = shown.sum::<usize>() + gaps;
        let over = total.checked_sub(width).filter(|&over| over > 0)?;
        let flexible = table_columns.iter().position(|column| column.is_flexible);
        let natural = flexible.and_then(|place| self.widths[place]).unwrap_or(0);
        Some(natural.saturating_sub(over))
    }

    fn shrink(&mut self, table_columns: &[Column], room: usize) {
        for (column, width) in table_columns.iter().zip(&mut self.widths) {
            if let (true, Some(width)) = (column.is_flexible, width) {
                *width = room.max(columns(column.title));
            }
        }
    }

    fn line(&self, table_columns: &[Column], cells: &[String]) -> String {
        let mut line = String::new();
        for ((column, cell), width) in table_columns.iter().zip(cells).zip(&self.widths) {
            let Some(width) = *width else { continue };
            if !line.is_empty() {
                line.push_str(GAP);
            }
            let cell = shorten(cell, width);
            let padding = " ".repeat(width - columns(&cell));
            if column.is_left {
                line.push_str(&cell);
                line.push_str(&padding);
            } else {
                line.push_str(&padding);
                line.push_str(&cell);
            }
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
