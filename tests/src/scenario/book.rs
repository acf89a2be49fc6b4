//! A recording, opened for questions by process id, and scores.

use crate::recorder::Recorded;
use anyhow::{Context, Result, bail};
use memtrace_model::tables::{DiagKind, DiagRow, MemRow, ProcessRow, Severity};
use memtrace_model::{Bytes, Upid};
use memtrace_store::Recording;
use std::collections::HashMap;

/// One statement, and in how many cases of a run it held.
#[derive(Clone, Debug)]
pub struct Score {
    /// What is required of every case.
    pub requirement: &'static str,
    /// Cases in which it held.
    pub held: usize,
    /// Cases in all.
    pub cases: usize,
    /// The first case in which it did not.
    pub first_failure: Option<String>,
}

impl Score {
    /// A statement without cases yet.
    pub fn new(requirement: &'static str) -> Self {
        Self {
            requirement,
            held: 0,
            cases: 0,
            first_failure: None,
        }
    }

    /// A statement about one case.
    pub fn of(requirement: &'static str, held: bool, case: impl FnOnce() -> String) -> Self {
        let mut score = Self::new(requirement);
        score.case(held, case);
        score
    }

    /// Adds a case.
    pub fn case(&mut self, held: bool, case: impl FnOnce() -> String) {
        self.cases += 1;
        if held {
            self.held += 1;
        } else if self.first_failure.is_none() {
            self.first_failure = Some(case());
        }
    }

    /// Whether there were cases, and it held in all.
    pub fn is_full(&self) -> bool {
        self.cases > 0 && self.held == self.cases
    }
}

/// The processes of a recording.
#[derive(Debug)]
pub struct Book {
    processes: Vec<ProcessRow>,
    by_tgid: HashMap<i64, Vec<usize>>,
}

impl Book {
    /// Reads the processes of a recording that ended in order.
    ///
    /// # Errors
    /// When it did not, or can't be read in full.
    pub fn open(recorded: &Recorded) -> Result<Self> {
        if recorded.exit_code != 0 || !recorded.recording.is_closed() {
            bail!(
                "the recorder ended with {} and the recording is {}closed",
                recorded.exit_code,
                if recorded.recording.is_closed() {
                    ""
                } else {
                    "not "
                }
            );
        }
        Self::of(&recorded.recording)
    }

    /// Reads the processes of a recording.
    ///
    /// # Errors
    /// When it can't be read in full.
    pub(super) fn of(recording: &Recording) -> Result<Self> {
        let processes: Vec<ProcessRow> = recording.rows()?;
        let mut by_tgid: HashMap<i64, Vec<usize>> = HashMap::new();
        for (index, process) in processes.iter().enumerate() {
            let tgids = by_tgid.entry(i64::from(process.tgid.0)).or_default();
            tgids.push(index);
        }
        if let Some(problem) = recording.problems().first() {
            bail!("the recording has a problem: {problem:?}");
        }
        Ok(Self { processes, by_tgid })
    }

    /// All of them, in the order in which they got their identities.
    pub(super) fn processes(&self) -> impl Iterator<Item = &ProcessRow> {
        let mut processes: Vec<&ProcessRow> = self.processes.iter().collect();
        processes.sort_by_key(|process| process.upid);
        processes.into_iter()
    }

    /// The one process that had this process id, if there was exactly one.
    pub fn process(&self, pid: i64) -> Option<&ProcessRow> {
        match self.by_tgid.get(&pid).map(Vec::as_slice) {
            Some([only]) => self.processes.get(*only),
            _ => None,
        }
    }

    /// The same, where its absence is an error.
    ///
    /// # Errors
    /// When there was none, or several.
    pub fn expect(&self, pid: i64) -> Result<&ProcessRow> {
        let count = self.by_tgid.get(&pid).map_or(0, Vec::len);
        self.process(pid)
            .with_context(|| format!("the recording has {count} processes with pid {pid}, not one"))
    }
}

/// The `mem` rows of one process, in order of time.
///
/// # Errors
/// When the recording can't be read.
pub(super) fn series(recorded: &Recorded, upid: Upid) -> Result<Vec<MemRow>> {
    let mut rows = Vec::new();
    recorded
        .recording
        .scan(&["rss_bytes", "vm_size_bytes", "source"], |row: MemRow| {
            if row.upid == upid {
                rows.push(row);
            }
        })?;
    Ok(rows)
}

/// Nothing was lost, by the recording's own account.
///
/// # Errors
/// When the recording can't be read.
pub(super) fn no_loss(recorded: &Recorded) -> Result<Score> {
    let diags: Vec<DiagRow> = recorded.recording.rows()?;
    let loss = diags
        .iter()
        .find(|row| row.severity == Some(Severity::Loss));
    Ok(Score::of("nothing lost", loss.is_none(), || {
        loss.map_or_else(String::new, |row| {
            format!(
                "{} of {}: {}",
                row.count.unwrap_or(0),
                row.subject,
                row.detail
            )
        })
    }))
}

/// How far the `mem` rows of a running process with one thread may lie below the truth, by
/// the recording's own account: before Linux 6.2 its last 64 page faults may be held back,
/// each of up to 16 pages.
///
/// # Errors
/// When the recording can't be read.
pub(super) fn held_back_bytes(recorded: &Recorded) -> Result<i64> {
    let diags: Vec<DiagRow> = recorded.recording.rows()?;
    let is_said = diags.iter().any(|row| {
        row.kind == Some(DiagKind::Unavailable)
            && row
                .detail
                .starts_with("exact counters while a process runs")
    });
    Ok(if is_said { 64 * 16 * 4096 } else { 0 })
}

/// An amount as it is compared.
pub(super) fn bytes(amount: Option<Bytes>) -> Option<i64> {
    amount.map(|amount| amount.0)
}

/// Adds a case: a process whose RSS was highest at its end, where every kernel that is
/// tested lets the counters be read exactly, so that the recording must say so too.
pub(super) fn exact_peak(score: &mut Score, process: Option<&ProcessRow>, truth: i64, pid: i64) {
    let found = process.and_then(|row| bytes(row.peak_rss_bytes));
    let error = process.and_then(|row| bytes(row.peak_error_bytes));
    score.case(found == Some(truth) && error == Some(0), || {
        format!("{}, stated error {error:?}", versus(pid, found, truth))
    });
}

/// How a difference of amounts reads.
pub(super) fn versus(pid: i64, found: Option<i64>, truth: i64) -> String {
    match found {
        Some(found) => format!("pid {pid}: {found}, truth {truth} ({:+})", found - truth),
        None => format!("pid {pid}: unknown, truth {truth}"),
    }
}
