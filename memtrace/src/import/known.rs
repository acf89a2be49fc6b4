//! Which runs of load generators a recording has: those that were imported before, or by a file
//! before this one.

use crate::model::{BootNs, MarkKind, MarkRow, MarkSource, RequestRow};
use serde::Deserialize;
use std::collections::HashMap;

/// What was imported.
#[derive(Debug, Default)]
pub struct Known {
    runs: HashMap<String, KnownRun>,
    /// The run of a request, by begin and end: no two runs have a request with the same of both.
    run_of: HashMap<(BootNs, BootNs), String>,
}

/// A run. Its marks come last, the end behind the begin.
#[derive(Debug, Default)]
struct KnownRun {
    request_count: usize,
    has_begin: bool,
    has_end: bool,
}

/// The recording has a run of a file, with other requests.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "import it: {run} is in the recording already with {there} requests, now it has {here}, \
     and what was imported can't be replaced; import a file only when its generator has ended"
)]
pub struct Changed {
    /// The run.
    pub run: String,
    /// Requests that are there.
    pub there: usize,
    /// Requests that the file now tells of.
    pub here: usize,
}

impl Known {
    /// Takes a row of the recording; those that no import made are of no interest.
    pub fn request(&mut self, row: &RequestRow) {
        if row.time_error_ns.is_some() {
            self.run(&row.load_run).request_count += 1;
            self.run_of.insert(times(row), row.load_run.clone());
        }
    }

    /// Takes a row of the recording; those that no import made are of no interest.
    pub fn mark(&mut self, row: &MarkRow) {
        #[derive(Deserialize)]
        struct OfRun {
            load_run: String,
        }
        if row.source != Some(MarkSource::Import) {
            return;
        }
        let attributes = row.attributes.as_deref().unwrap_or_default();
        if let Ok(OfRun { load_run }) = serde_json::from_str(attributes) {
            let run = self.run(&load_run);
            run.has_begin |= row.kind == Some(MarkKind::Begin);
            run.has_end |= row.kind == Some(MarkKind::End);
        }
    }

    fn run(&mut self, name: &str) -> &mut KnownRun {
        self.runs.entry(name.to_owned()).or_default()
    }

    /// Requests of all runs.
    pub(super) fn request_count(&self) -> usize {
        self.runs.values().map(|run| run.request_count).sum()
    }

    pub(super) fn has_run(&self, name: &str) -> bool {
        self.runs.contains_key(name)
    }

    /// The name of a run that is there, by its requests.
    ///
    /// # Errors
    /// When it is there with other requests than these.
    pub(super) fn name_of(&self, rows: &[RequestRow]) -> Result<Option<&str>, Changed> {
        let mut names = rows.iter().map(|row| self.run_of.get(&times(row)));
        let Some(name) = names.clone().flatten().next() else {
            return Ok(None);
        };
        let there = &self.runs[name];
        let is_same = there.request_count == rows.len() && names.all(|one| one == Some(name));
        // Without its end the import was interrupted, and goes on where it was.
        match is_same || !there.has_end {
            true => Ok(Some(name)),
            false => Err(Changed {
                run: name.clone(),
                there: there.request_count,
                here: rows.len(),
            }),
        }
    }

    pub(super) fn is_new_request(&self, row: &RequestRow) -> bool {
        !self.run_of.contains_key(&times(row))
    }

    pub(super) fn is_new_mark(&self, run: &str, kind: MarkKind) -> bool {
        self.runs.get(run).is_none_or(|run| match kind {
            MarkKind::Begin => !run.has_begin,
            _ => !run.has_end,
        })
    }
}

fn times(row: &RequestRow) -> (BootNs, BootNs) {
    (row.start_boot_ns, row.boot_ns)
}
