//! The folder of a run: the plan as it was sent, a row for each request, figures, and how it was sent.
//! Rows are there as soon as requests have ended.

use super::summary::{Summary, to_wall};
use crate::load::plan::{Condition, lines};
use anyhow::{Context, bail};
use jiff::Timestamp;
use memtrace_analyze::{trace_head, trace_line};
use memtrace_model::{BootNs, RequestRow, WallNs};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// The folder with the results.
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
    /// Recordings that heard of it.
    pub(crate) recordings: Vec<String>,
    /// Requests that found no room at a recorder.
    pub(crate) unreported_count: u64,
    /// UTC, as RFC 3339 writes it.
    pub(crate) start_wall: Option<String>,
    pub(crate) start_wall_ns: WallNs,
    pub(crate) start_boot_ns: BootNs,
    pub(crate) end_wall: Option<String>,
    pub(crate) end_wall_ns: Option<WallNs>,
    pub(crate) end_boot_ns: Option<BootNs>,
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// It goes on, or its sender was killed.
    Running,
    /// Every condition was sent.
    Done,
    /// It was asked to end: Ctrl-C, or SIGTERM.
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
        bail!(
            "a tag has letters, digits, '-', '_' and '.' only, and does not start with '.': \
             {tag:?}"
        );
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
        trace_head(&mut trace)?;
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
        let written = trace_line(&mut self.trace, row, &to_wall).and_then(|()| self.trace.flush());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_run_can_be_that_of_a_folder() {
        let now: Timestamp = "2026-03-01T12:01:44Z".parse().unwrap();
        assert_eq!(run_id("a-1", now).unwrap(), "a-1-20260301T120144Z");
        for tag in ["", "a/b", "..", "a b", "ü"] {
            assert!(run_id(tag, now).is_err(), "{tag}");
        }
    }
}
