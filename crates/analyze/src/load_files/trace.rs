//! Requests as `request_trace.csv`, a line for each. An empty field is unknown.

use memtrace_model::tables::RequestRow;
use memtrace_model::{BootNs, Label, WallNs};
use memtrace_report::quote;
use std::borrow::Cow;
use std::io::{self, Write};

/// The wall-clock time of an instant, where that is known.
type ToWall<'a> = &'a dyn Fn(BootNs) -> Option<WallNs>;
type Cell = for<'r> fn(&'r RequestRow, ToWall<'_>) -> Option<Cow<'r, str>>;

/// Every column, in order, and how it is filled.
const COLUMNS: &[(&str, Cell)] = &[
    ("condition", |row, _| Some(row.condition.as_str().into())),
    ("request", |row, _| number(Some(row.request))),
    ("attempt", |row, _| number(Some(row.attempt))),
    ("planned_prompt_tokens", |row, _| {
        number(row.planned_prompt_tokens)
    }),
    ("prompt_tokens", |row, _| number(row.prompt_tokens)),
    ("planned_output_tokens", |row, _| {
        number(row.planned_output_tokens)
    }),
    ("output_tokens", |row, _| number(row.output_tokens)),
    ("start_boot_ns", |row, _| number(Some(row.start_boot_ns.0))),
    ("start_wall_ns", |row, to_wall| {
        number(to_wall(row.start_boot_ns).map(|at| at.0))
    }),
    ("first_token_boot_ns", |row, _| {
        number(row.first_token_boot_ns.map(|at| at.0))
    }),
    ("boot_ns", |row, _| number(Some(row.boot_ns.0))),
    ("wall_ns", |row, to_wall| {
        number(to_wall(row.boot_ns).map(|at| at.0))
    }),
    ("http_status", |row, _| {
        number(row.http_status.map(i64::from))
    }),
    ("outcome", |row, _| {
        row.outcome.map(|outcome| outcome.as_str().into())
    }),
    ("error", |row, _| row.error.as_deref().map(Cow::from)),
];

fn number(value: Option<i64>) -> Option<Cow<'static, str>> {
    value.map(|value| value.to_string().into())
}

/// Writes the first line.
///
/// # Errors
/// When `out` can't be written to.
pub fn trace_head(out: &mut dyn Write) -> io::Result<()> {
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    writeln!(out, "{}", names.join(","))
}

/// Writes one line.
///
/// # Errors
/// When `out` can't be written to.
pub fn trace_line(out: &mut dyn Write, row: &RequestRow, to_wall: ToWall<'_>) -> io::Result<()> {
    for (place, (_, cell)) in COLUMNS.iter().enumerate() {
        let between = if place == 0 { "" } else { "," };
        let cell = cell(row, to_wall).unwrap_or_default();
        write!(out, "{between}{}", quote(&cell))?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_server_stay_one_field_of_the_trace() {
        let row = RequestRow {
            condition: "a,b".to_owned(),
            error: Some("status 500: \"no\"\nroom".to_owned()),
            ..RequestRow::default()
        };
        let mut out = Vec::new();
        trace_head(&mut out).unwrap();
        let one_later = |at: BootNs| Some(WallNs(at.0 + 1));
        trace_line(&mut out, &row, &one_later).unwrap();
        let text = String::from_utf8(out).unwrap();
        let (head, line) = text.split_once('\n').unwrap();
        assert_eq!(head.split(',').count(), 15);
        assert_eq!(
            line,
            "\"a,b\",0,0,,,,,0,1,,0,1,,,\"status 500: \"\"no\"\"\\nroom\"\n"
        );
    }
}
