//! `memtrace schema`: the tables of a recording, as this build writes them, and the JSON of its
//! reports.
//!
//! Everything here is read from the declarations in `model::tables` and from the findings;
//! docs/tables.md is the output of `memtrace schema --format md`, docs/report-json.md that of
//! `memtrace schema --report --format md`. docs/report.schema.json is made of the findings, and carried: what makes
//! it is a twentieth of the program.

mod page;

use super::output::print;
use anyhow::{Context, bail};
use clap::ValueEnum;
use memtrace_model::{
    BUILTIN_MARK_RULES, Column, ColumnType, FINDINGS, SCHEMA_VERSION, TABLES, Table,
};
use memtrace_packed::{packed, unpacked_text};
use serde_json::{Value, json};
use std::fmt::{self, Write};
use std::process::ExitCode;

/// Describe the tables and columns of a recording.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memtrace schema mem phase
  memtrace schema --mark-rules > rules.toml")]
pub(super) struct Args {
    /// Only these tables [default: all]
    #[arg(value_parser = table_names())]
    tables: Vec<String>,
    /// Form of the description [default: text; of reports json]
    #[arg(short, long, value_enum)]
    format: Option<Format>,
    /// Print the built-in rules for log lines that are marks, in the form of a file for `record
    /// --mark-rules`
    #[arg(long, conflicts_with_all = ["tables", "format"])]
    mark_rules: bool,
    /// Describe the JSON of `report -f json` and `diff -f json`: as a JSON Schema, or as a page
    /// with `--format md`
    #[arg(long, conflicts_with_all = ["tables", "mark_rules"])]
    report: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For reading in a terminal
    Text,
    /// Markdown, for a page
    Md,
    /// JSON, for programs
    Json,
}

fn table_names() -> clap::builder::PossibleValuesParser {
    all_tables().map(|table| table.name).into()
}

/// Those of a recording, then those of findings.
fn all_tables() -> impl Iterator<Item = &'static Table> {
    TABLES.iter().chain(FINDINGS).copied()
}

/// Runs the command.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.mark_rules {
        return print(BUILTIN_MARK_RULES).context("failed to print the rules");
    }
    if args.report {
        let described = match args.format.unwrap_or(Format::Json) {
            Format::Json => report_schema(),
            Format::Md => page::markdown(),
            Format::Text => bail!("reports are described as `json` and as `md`"),
        };
        return print(&described).context("failed to print the schema");
    }
    let is_wanted =
        |table: &Table| args.tables.is_empty() || args.tables.iter().any(|name| name == table.name);
    let tables: Vec<&Table> = all_tables().filter(|table| is_wanted(table)).collect();
    let text = match args.format.unwrap_or(Format::Text) {
        Format::Text => text(&tables),
        Format::Md => markdown(&tables),
        Format::Json => serde_json::to_string_pretty(&json(&tables)).map(|text| text + "\n")?,
    };
    print(&text).context("failed to print the schema")
}

/// The contents of docs/report.schema.json.
fn report_schema() -> String {
    unpacked_text(packed!("report.schema.json"))
}

/// The width that text is wrapped to.
const TEXT_WIDTH: usize = 96;

fn text(tables: &[&Table]) -> String {
    let mut out = format!("schema {SCHEMA_VERSION}\n");
    for table in tables {
        // Writing to a String can't fail.
        let _ = writeln!(out, "\n{}{}", table.name, KeyNote(table));
        wrap(&mut out, 4, table.doc);
        for column in table.columns {
            let _ = writeln!(out, "\n  {}  {}", column.name, TypeNote(column));
            wrap(&mut out, 6, column.doc);
            for (word, meaning) in column.words {
                wrap(&mut out, 8, &format!("{word}: {}", meaning.trim()));
            }
        }
    }
    out
}

/// A table's rule for rows of the same key.
struct KeyNote<'a>(&'a Table);

impl fmt::Display for KeyNote<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.key {
            Some(key) => write!(f, "  one row per {key}"),
            None => Ok(()),
        }
    }
}

/// A column's type, unit and nullability on one line.
struct TypeNote<'a>(&'a Column);

impl fmt::Display for TypeNote<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(type_name(self.0.column_type))?;
        if let Some(unit) = unit(self.0) {
            write!(f, ", {unit}")?;
        }
        if self.0.nullable {
            Ok(())
        } else {
            f.write_str(", never null")
        }
    }
}

fn type_name(column_type: ColumnType) -> &'static str {
    match column_type {
        ColumnType::Int64 => "int64",
        ColumnType::Int32 => "int32",
        ColumnType::Float64 => "float64",
        ColumnType::Boolean => "boolean",
        ColumnType::Utf8 => "string",
        ColumnType::TimestampNs => "timestamp[ns, UTC]",
    }
}

/// The unit, where the type does not say it.
fn unit(column: &Column) -> Option<&'static str> {
    match column.column_type {
        ColumnType::TimestampNs => None,
        _ => column.unit,
    }
}

/// Writes text in lines of at most [`TEXT_WIDTH`], each indented.
fn wrap(out: &mut String, indent: usize, text: &str) {
    let mut width = 0;
    for word in text.split_whitespace() {
        let word_width = unicode_width::UnicodeWidthStr::width(word);
        if width == 0 || width + 1 + word_width > TEXT_WIDTH {
            if width > 0 {
                out.push('\n');
            }
            out.extend(std::iter::repeat_n(' ', indent));
            width = indent;
        } else {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += word_width;
    }
    out.push('\n');
}

/// What the page begins with: one line for each question, which the tests of the Python package
/// run.
const QUESTIONS: &str = include_str!("questions.md");

const FINDINGS_DOC: &str = "What `memtrace report` finds, for programs that read tables: \
     `memtrace report --save-findings DIR` writes these next to the others, and `memtrace record` \
     does it by itself when a recording of up to 10,000,000 rows has closed. A recording is whole \
     without them. `memtrace.findings_of` in the metadata of their files says what recording they \
     are of: CRC-32 of `run.json`, then for each part of the other tables, in the order of names \
     and numbers, of a line break, its path, a space and its size. The Python package refuses \
     those of another.";

fn markdown(tables: &[&Table]) -> String {
    let mut out = format!(
        "# The tables of a recording\n\n\
         Schema version {SCHEMA_VERSION}. Written by `memtrace schema --format md`; edit the \
         declarations in `crates/model/src/tables` instead.\n\n\
         Each table is a folder of Parquet files. Null means unknown, never zero.\n\n\
         {QUESTIONS}"
    );
    let findings = |table: &Table| FINDINGS.iter().any(|one| one.name == table.name);
    let (findings, tables): (Vec<&Table>, Vec<&Table>) =
        tables.iter().partition(|table| findings(table));
    describe(&mut out, &tables, "##");
    if !findings.is_empty() {
        let _ = writeln!(out, "\n## Findings\n\n{FINDINGS_DOC}");
        describe(&mut out, &findings, "###");
    }
    out
}

fn describe(out: &mut String, tables: &[&Table], heading: &str) {
    for table in tables {
        let _ = writeln!(out, "\n{heading} {}\n\n{}", table.name, table.doc.trim());
        if let Some(key) = table.key {
            let _ = writeln!(out, "\nA finished recording has one row per `{key}`.");
        }
        out.push_str("\n| column | type | unit | null | meaning |\n|---|---|---|---|---|\n");
        for column in table.columns {
            let _ = writeln!(
                out,
                "| `{}` | {} | {} | {} | {} |",
                column.name,
                type_name(column.column_type),
                unit(column).unwrap_or(""),
                if column.nullable { "yes" } else { "no" },
                column.doc.trim().replace('|', "\\|"),
            );
        }
        for column in table
            .columns
            .iter()
            .filter(|column| !column.words.is_empty())
        {
            let _ = writeln!(out, "\nWords in `{}`:\n", column.name);
            for (word, meaning) in column.words {
                let _ = writeln!(out, "- `{word}`: {}", meaning.trim());
            }
        }
    }
}

fn json(tables: &[&Table]) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "tables": tables.iter().map(|table| json!({
            "name": table.name,
            "doc": table.doc.trim(),
            "key": table.key,
            "columns": table.columns.iter().map(json_column).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}

fn json_column(column: &Column) -> Value {
    let words = column.words.iter();
    json!({
        "name": column.name,
        "type": type_name(column.column_type),
        "unit": unit(column),
        "nullable": column.nullable,
        "doc": column.doc.trim(),
        "words": words
            .map(|(word, meaning)| json!({"word": word, "meaning": meaning.trim()}))
            .collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_what_the_command_prints() {
        let page = include_str!("../../../docs/tables.md");
        assert!(
            page == markdown(&all_tables().collect::<Vec<_>>()),
            "docs/tables.md is out of date; run: memtrace schema --format md > docs/tables.md"
        );
    }

    #[test]
    fn the_carried_schema_is_that_of_the_findings() {
        let fresh = serde_json::to_string_pretty(&memtrace_analyze::json_schema()).unwrap() + "\n";
        assert!(
            report_schema() == fresh,
            "docs/report.schema.json is out of date; run: cargo xtask schema"
        );
    }

    #[test]
    fn every_column_is_in_every_form() {
        let tables: Vec<&Table> = all_tables().collect();
        let (text, json) = (text(&tables), json(&tables));
        for (table, json) in tables.iter().zip(json["tables"].as_array().unwrap()) {
            assert_eq!(
                json["columns"].as_array().unwrap().len(),
                table.columns.len()
            );
            for column in table.columns {
                assert!(text.contains(&format!("\n  {}  ", column.name)));
            }
        }
    }

    #[test]
    fn text_is_wrapped_to_the_width_with_its_indent() {
        let mut out = String::new();
        wrap(&mut out, 4, &"word ".repeat(60));
        assert!(out.lines().count() > 2);
        assert!(
            out.lines()
                .all(|line| line.len() <= TEXT_WIDTH && line.starts_with("    w"))
        );
    }
}
