//! What every reader of one recording shares: its directory, what is known of it beforehand,
//! and the list of what was wrong with it.

use super::bounds::Bounds;
use super::checksum::Checked;
use super::dir::Dir;
use super::origin::Origin;
use super::problem::{Problem, ProblemKind, Problems};
use super::run_file::RunFile;
use crate::model::SCHEMA_VERSION;
use arrow_array::RecordBatch;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A recording while it is read. Clones share one list of problems.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    /// What it is read from.
    pub(super) origin: Origin,
    /// Whether its files have checksums, as those of older recordings don't.
    pub(super) has_checksums: bool,
    /// Whether its tables are just those of this build.
    pub(super) is_of_this_version: bool,
    /// What its rows can be, for those who ask what they say. `None` takes them as they are,
    /// for those who keep them.
    pub(super) bounds: Option<Bounds>,
    problems: Problems,
}

impl Reading {
    /// The recording that this process writes.
    pub(super) fn of_own(dir: Arc<Dir>) -> Self {
        Self::from(Origin::Dir(dir))
    }

    fn from(origin: Origin) -> Self {
        Self {
            origin,
            has_checksums: true,
            is_of_this_version: true,
            bounds: None,
            problems: Problems::default(),
        }
    }

    /// A recording as its `run.json` describes it.
    pub(super) fn of(origin: Origin, run: &RunFile) -> Self {
        Self {
            has_checksums: run.checked != Checked::Absent,
            is_of_this_version: run.info.schema_version == SCHEMA_VERSION,
            ..Self::from(origin)
        }
    }

    /// The same for whoever keeps all rows as they are, with a list of problems of its own.
    pub(super) fn to_keep(&self) -> Self {
        Self {
            bounds: None,
            problems: Problems::default(),
            ..self.clone()
        }
    }

    /// Of the rows of a file those that can be the recording's.
    pub(super) fn within<I: Iterator<Item = RecordBatch>>(
        &self,
        file: PathBuf,
        mut batches: I,
    ) -> impl Iterator<Item = RecordBatch> + use<I> {
        let reading = self.clone();
        let mut left_out = 0;
        std::iter::from_fn(move || {
            let next = batches.next();
            let Some(bounds) = &reading.bounds else {
                return next;
            };
            let Some(batch) = next else {
                if left_out > 0 {
                    reading.note(&file, ProblemKind::Outside { count: left_out });
                }
                return None;
            };
            let (batch, outside) = bounds.within(batch);
            left_out += outside;
            Some(batch)
        })
    }

    /// Notes a problem once, however often its file is read.
    pub(super) fn note(&self, file: &Path, kind: ProblemKind) {
        self.problems.note(file, kind);
    }

    /// The list that they are put on.
    pub(super) fn problem_list(&self) -> Problems {
        self.problems.clone()
    }

    /// The problems so far, in the order in which they were met.
    pub(super) fn problems(&self) -> Vec<Problem> {
        self.problems.list()
    }
}
