//! Tables as CSV (RFC 4180), for a spreadsheet or a script.

use super::table::{Column, Table};
use super::visible::visible;
use super::{Style, Written};
use std::io::{self, Write};

/// Writes one line per row.
pub(super) fn write(
    report: &mut dyn Written,
    style: &Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    for (place, table) in report.tables(style).enumerate() {
        if place == 0 {
            write_names(&table, out)?;
        }
        write_rows(&table, out)?;
    }
    Ok(())
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
pub fn quote(cell: &str) -> String {
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
