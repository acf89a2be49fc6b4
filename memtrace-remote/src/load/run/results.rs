//! The folder of a run: the plan as it was sent, a row for each request, figures, and how it was sent.
//! Rows are there as soon as requests have ended.

use super::summary::Summary;
use crate::load::plan::{Condition, lines};
use anyhow::{Context, bail};
use jiff::Timestamp;
use memtrace::model::{Label, RequestRow};
use serde::Serialize;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// What there is of a request, in the order of its columns.
const COLUMNS: &str = "condition,request,attempt,planned_prompt_tokens,prompt_tokens,\
    planned_output_tokens,output_tokens,start_boot_ns,first_token_boot_ns,boot_ns,http_status,\
    outcome,error";

/// The folder.
pub(crate) struct Results {
    dir: PathBuf,
    trace: BufWriter<File>,
}

/// How a run was sent.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Manifest {
    pub(crate) memtrace_version: &'static str,
    pub(crate) run_id: String,
    /// Where the run is.
    pub(crate) state: State,
    pub(crate) url: String,
    pub(crate) model: String,
    pub(crate) is_chat: bool,
    pub(crate) is_stream: bool,
    pub(crate) ignores_eos: bool,
    pub(crate) timeout_s: f64,
    pub(crate) retries: u32,
    pub(crate) cool_down_s: f64,
    pub(crate) condition_count: usize,
    /// How the length of prompts is known.
    pub(crate) prompt_length: &'static str,
    /// Recordings that were told of it.
    pub(crate) recordings: Vec<String>,
    /// Requests that found no room at a recorder.
    pub(crate) untold_count: u64,
    /// UTC, as RFC 3339 writes it.
    pub(crate) start_wall: String,
    pub(crate) start_boot_ns: i64,
    pub(crate) end_wall: Option<String>,
    pub(crate) end_boot_ns: Option<i64>,
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// It goes on, or its sender was killed.
    Running,
    /// Every condition was sent.
    Done,
    /// It was told to end: Ctrl-C, or SIGTERM.
    Interrupted,
    /// The server took no connections any more.
    GivenUp,
}

/// The name of a run that begins now.
///
/// # Errors
/// When what it begins with can't be part of a file's name.
pub(crate) fn run_id(tag: &str, now: Timestamp) -> anyhow::Result<String> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if tag.is_empty() || tag.starts_with('.') || tag.len() > 100 || !tag.chars().all(is_fine) {
        bail!("a tag has letters, digits, '-', '_' and '.' only, and no '.' at its begin: {tag:?}");
    }
    Ok(format!("{tag}-{}", now.strftime("%Y%m%dT%H%M%SZ")))
}

impl Results {
    /// Makes the folder, which must not be there.
    ///
    /// # Errors
    /// When it is there, or can't be written to.
    pub(crate) fn create(dir: PathBuf) -> io::Result<Self> {
        if let Some(above) = dir.parent() {
            std::fs::create_dir_all(above)?;
        }
        std::fs::create_dir(&dir)?;
        let mut trace = BufWriter::new(File::create_new(dir.join("request_trace.csv"))?);
        writeln!(trace, "{COLUMNS}")?;
        trace.flush()?;
        Ok(Self { dir, trace })
    }

    /// Writes the plan as it is sent. It is a plan itself.
    pub(super) fn workload(&self, conditions: &[Condition]) -> anyhow::Result<()> {
        let text = lines(conditions)?;
        self.replace("workload.jsonl", &text)
    }

    pub(super) fn manifest(&self, manifest: &Manifest) -> anyhow::Result<()> {
        self.json("manifest.json", manifest)
    }

    pub(super) fn summary(&self, summary: &Summary) -> anyhow::Result<()> {
        self.json("summary.json", summary)
    }

    /// Writes a request that has ended.
    pub(super) fn request(&mut self, row: &RequestRow) -> anyhow::Result<()> {
        let written = write_row(&mut self.trace, row).and_then(|()| self.trace.flush());
        written.with_context(|| format!("failed to write to {}", self.dir.display()))
    }

    fn json(&self, name: &str, value: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        self.replace(name, &text)
    }

    /// Whoever reads it finds the old one or the new one, and no half.
    fn replace(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.dir.join(name);
        let beside = self.dir.join(format!(".{name}.new"));
        let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, &path));
        written.with_context(|| format!("failed to write {}", path.display()))
    }
}

fn write_row(out: &mut impl Write, row: &RequestRow) -> io::Result<()> {
    let known = |value: Option<i64>| value.map_or_else(String::new, |value| value.to_string());
    let outcome = row.outcome.map_or("", Label::as_str);
    let error = row.error.as_deref().unwrap_or_default();
    writeln!(
        out,
        "{},{},{},{},{},{},{},{},{},{},{},{outcome},{}",
        quoted(&row.condition),
        row.request,
        row.attempt,
        known(row.planned_prompt_tokens),
        known(row.prompt_tokens),
        known(row.planned_output_tokens),
        known(row.output_tokens),
        row.start_boot_ns.0,
        known(row.first_token_boot_ns.map(|at| at.0)),
        row.boot_ns.0,
        known(row.http_status.map(i64::from)),
        quoted(error)
    )
}

/// A field that holds what has a meaning in CSV stands in quotes (RFC 4180).
fn quoted(field: &str) -> Cow<'_, str> {
    match field.contains([',', '"', '\n', '\r']) {
        true => Cow::Owned(format!("\"{}\"", field.replace('"', "\"\""))),
        false => Cow::Borrowed(field),
    }
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
        write_row(&mut out, &row).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "\"a,b\",0,0,,,,,0,,0,,,\"status 500: \"\"no\"\"\nroom\"\n"
        );
        assert_eq!(COLUMNS.split(',').count(), 13);
    }

    #[test]
    fn the_name_of_a_run_can_be_that_of_a_folder() {
        let now: Timestamp = "2026-03-01T12:01:44Z".parse().unwrap();
        assert_eq!(run_id("a-1", now).unwrap(), "a-1-20260301T120144Z");
        for tag in ["", "a/b", "..", "a b", "ü"] {
            assert!(run_id(tag, now).is_err(), "{tag}");
        }
    }
}
