//! The processes as CSV (RFC 4180), one per line, for a spreadsheet or a script.

use super::document::{diff, processes};
use super::table::{Column, Table};
use super::visible::visible;
use super::{Format, Report, Style};
use std::io::{self, Write};

/// One line per process.
#[derive(Debug)]
pub(super) struct Csv;

/// So many processes are laid out at a time, at least,
const CHUNK: usize = 1_000;
/// and in so many tables at most: each looks through all that is held.
const TABLES_MAX: usize = 16;

impl Format for Csv {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn doc(&self) -> &'static str {
        "one line per process, of a diff per role and kind (RFC 4180)"
    }

    fn write(&self, report: Report<'_>, style: &Style, out: &mut dyn Write) -> io::Result<()> {
        let top = style.top.unwrap_or(usize::MAX);
        let analysis = match report {
            Report::One(analysis) => analysis,
            Report::Diff(told) => {
                let table = diff::figures(told, top);
                write_names(&table, out)?;
                return write_rows(&table, out);
            }
        };
        let order = analysis.by_peak();
        let shown = &order[..order.len().min(top)];
        write_names(&processes::table(analysis, [].into_iter()), out)?;
        for part in shown.chunks(CHUNK.max(shown.len().div_ceil(TABLES_MAX))) {
            write_rows(&processes::table(analysis, part.chunks(1)), out)?;
        }
        Ok(())
    }
}

/// The first line.
fn write_names(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    write_line(columns(table).map(|column| column.name.clone()), out)
}

fn write_rows(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    for row in 0..table.row_count() {
        write_line(
            columns(table).map(|column| quote(&column.cells[row].data())),
            out,
        )?;
    }
    Ok(())
}

fn columns(table: &Table) -> impl Iterator<Item = &Column> {
    table
        .columns
        .iter()
        .filter(|column| !column.name.is_empty())
}

fn write_line(cells: impl Iterator<Item = String>, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{}\r\n", cells.collect::<Vec<_>>().join(","))
}

/// A cell that a spreadsheet shows and does not run. A text that starts like a formula gets an
/// apostrophe in front; figures keep their minus.
pub(super) fn quote(cell: &str) -> String {
    let cell = visible(cell);
    let is_figure = cell.parse::<f64>().is_ok();
    let is_formula = cell.starts_with(['=', '+', '-', '@']) && !is_figure;
    let cell = if is_formula {
        format!("'{cell}")
    } else {
        cell.into_owned()
    };
    if cell.contains([',', '"', '\'']) || cell.starts_with(' ') || cell.ends_with(' ') {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_described_in_its_order() {
        let described: Vec<&str> = include_str!("../../../docs/report.md")
            .lines()
            .skip_while(|line| *line != "| column | meaning |")
            .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
            .map(|(name, _)| name)
            .collect();
        let run = crate::analyze::golden::Script::command(&["a"], 30.0);
        let table = processes::table(&run.analyzed(None), [].into_iter());
        let names: Vec<&str> = columns(&table).map(|column| &*column.name).collect();
        assert_eq!(described, names);
    }

    #[test]
    fn cells_are_quoted_and_formulas_defused() {
        let cases = [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("=1+1", "\"'=1+1\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("-12.5", "-12.5"),
            ("-x", "\"'-x\""),
            ("two\nlines", "two\\nlines"),
        ];
        for (cell, quoted) in cases {
            assert_eq!(quote(cell), quoted);
        }
    }
}
