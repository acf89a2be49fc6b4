//! Which runs of load generators a recording has: those that were imported before, or by a file
//! before this one.

use super::file::Sent;
use memtrace_model::{MarkKind, MarkRow, MarkSource, RequestRow};
use serde::Deserialize;
use std::collections::HashMap;
use std::rc::Rc;

/// What was imported.
#[derive(Debug, Default)]
pub struct Known {
    runs: HashMap<Rc<str>, KnownRun>,
    /// Begin, end and run of each request, in this order: no two runs have a request with the same of
    /// both. A map of a million would take twice as much.
    requests: Vec<(i64, i64, Rc<str>)>,
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
    /// The run of the file.
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
            self.push((row.start_boot_ns.0, row.boot_ns.0), &row.load_run);
        }
    }

    /// Takes requests of one run. They are found only once they are [ordered](Self::order).
    pub(super) fn sent(&mut self, run: &str, requests: &[Sent]) {
        for sent in requests {
            self.push((sent.start_ns, sent.end_ns), run);
        }
    }

    /// Has all be found that were taken.
    pub fn order(&mut self) {
        self.requests.sort_unstable();
    }

    fn push(&mut self, (start_ns, end_ns): (i64, i64), run: &str) {
        let (run, known) = self.run(run);
        known.request_count += 1;
        self.requests.push((start_ns, end_ns, run));
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
            let (_, run) = self.run(&load_run);
            run.has_begin |= row.kind == Some(MarkKind::Begin);
            run.has_end |= row.kind == Some(MarkKind::End);
        }
    }

    fn run(&mut self, name: &str) -> (Rc<str>, &mut KnownRun) {
        let there = self.runs.get_key_value(name);
        let name = there.map_or_else(|| Rc::from(name), |(name, _)| Rc::clone(name));
        (Rc::clone(&name), self.runs.entry(name).or_default())
    }

    fn run_of(&self, sent: &Sent) -> Option<&str> {
        let times = (sent.start_ns, sent.end_ns);
        let place = self
            .requests
            .partition_point(|&(start, end, _)| (start, end) < times);
        let (start, end, run) = self.requests.get(place)?;
        ((*start, *end) == times).then_some(&**run)
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
    pub(super) fn name_of(&self, requests: &[Sent]) -> Result<Option<&str>, Changed> {
        let mut names = requests.iter().map(|sent| self.run_of(sent));
        let Some(name) = names.clone().flatten().next() else {
            return Ok(None);
        };
        let there = &self.runs[name];
        let is_same = there.request_count == requests.len() && names.all(|one| one == Some(name));
        // Without its end the import was interrupted, and goes on where it was.
        match is_same || !there.has_end {
            true => Ok(Some(name)),
            false => Err(Changed {
                run: name.to_owned(),
                there: there.request_count,
                here: requests.len(),
            }),
        }
    }

    pub(super) fn is_new_request(&self, sent: &Sent) -> bool {
        self.run_of(sent).is_none()
    }

    pub(super) fn is_new_mark(&self, run: &str, kind: MarkKind) -> bool {
        self.runs.get(run).is_none_or(|run| match kind {
            MarkKind::Begin => !run.has_begin,
            _ => !run.has_end,
        })
    }
}
