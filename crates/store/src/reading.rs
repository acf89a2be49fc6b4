//! What every reader of one recording shares: its directory, what is known of it beforehand,
//! and the list of what was wrong with it.

use super::bounds::Bounds;
use super::checksum::Checked;
use super::disk::Disk;
use super::error::StoreError;
use super::files::Files;
use super::layout::{part_path, table_and_seq};
use super::manifest::{Manifest, PartFacts};
use super::origin::Origin;
use super::problem::{Problem, ProblemKind, Problems};
use super::run_file::RunFile;
use arrow_array::RecordBatch;
use memtrace_model::{RunState, SCHEMA_VERSION, TABLES, Table};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

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
    /// Whether it is closed.
    pub(super) is_closed: bool,
    /// Its id, where it has one.
    pub(super) id: Option<String>,
    /// Which files it has, where that is known.
    pub(super) manifest: Option<Arc<Manifest>>,
    /// The same as it is where something did not agree with it.
    manifest_since: Arc<OnceLock<Option<Manifest>>>,
    problems: Problems,
}

impl Reading {
    /// The recording that this process writes.
    pub(super) fn of_own(disk: &Disk) -> Self {
        Self {
            id: disk.id().map(str::to_owned),
            ..Self::from(Origin::Dir(Arc::clone(disk.dir())))
        }
    }

    fn from(origin: Origin) -> Self {
        Self {
            origin,
            has_checksums: true,
            is_of_this_version: true,
            bounds: None,
            is_closed: false,
            id: None,
            manifest: None,
            manifest_since: Arc::default(),
            problems: Problems::default(),
        }
    }

    /// A recording as its `run.json` describes it.
    pub(super) fn of(origin: Origin, run: &RunFile) -> Self {
        Self {
            has_checksums: run.checked != Checked::Absent,
            is_of_this_version: run.info.schema_version == SCHEMA_VERSION,
            is_closed: run.info.state != RunState::Recording,
            id: run.info.id.clone(),
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

    /// That no damage was met so far. What was put aside when it was closed has been missing since then.
    pub(super) fn check_whole(&self) -> Result<(), StoreError> {
        let mut problems = self.problems().into_iter();
        match problems.find(|problem| problem.kind != ProblemKind::PutAside) {
            Some(problem) => Err(StoreError::Damaged {
                path: self.origin.full_path(&problem.file),
                reason: problem.kind.to_string(),
            }),
            None => Ok(()),
        }
    }

    /// Takes a part that is there for the recording's, or notes that it is none of it.
    pub(super) fn admit(&self, table: &Table, seq: u32) -> bool {
        // What a report found, and has saved there, is no part of what was recorded.
        if TABLES.iter().all(|one| one.name != table.name) {
            return true;
        }
        if self.is_by_manifest(|manifest| manifest.admits(table.name, seq)) {
            return true;
        }
        let has_replaced = self.is_by_manifest(|manifest| manifest.has_replaced(table.name, seq));
        // While a recording is closed, parts go that one stands for.
        if self.is_closed || !has_replaced {
            self.note(&part_path(table.name, seq), ProblemKind::Unlisted);
        }
        false
    }

    /// Whether the recording's manifest does not name a part: it comes behind the parts, or can't be
    /// read. Who keeps all rows as they are reads what this machine wrote, where nothing replaced stays.
    pub(super) fn is_unnamed(&self, table: &Table, seq: u32) -> bool {
        match &self.manifest {
            Some(manifest) => !manifest.names(table.name, seq),
            None => self.bounds.is_some(),
        }
    }

    /// What the manifest says: that which was read first, or, where rows were added since, that which
    /// is there now.
    fn is_by_manifest(&self, says: impl Fn(&Manifest) -> bool) -> bool {
        let Some((manifest, id)) = self.manifest.as_ref().zip(self.id.as_ref()) else {
            return true;
        };
        let read = || Manifest::read(&self.origin, id, &mut Vec::new());
        let since = || self.manifest_since.get_or_init(read).as_ref();
        says(manifest) || since().is_some_and(says)
    }

    /// That a file of rows is what its name says, by what stands in it: the id of its recording, its
    /// table and its number; and that a part is the one that was written.
    pub(super) fn check_file(
        &self,
        path: &Path,
        stated: [Option<&str>; 3],
        facts: Option<&PartFacts>,
    ) -> Result<(), String> {
        let (Some(id), Some((table, seq))) = (&self.id, table_and_seq(path)) else {
            return Ok(());
        };
        let [of, of_table, of_seq] = stated;
        if of != Some(id) {
            return Err(match of {
                Some(other) => format!("it belongs to another recording, {other}"),
                None => "it does not say which recording it belongs to".to_owned(),
            });
        }
        if of_table != Some(table) || of_seq.and_then(|of| of.parse().ok()) != Some(seq) {
            let (of_table, of_seq) = (of_table.unwrap_or("?"), of_seq.unwrap_or("?"));
            return Err(format!(
                "it was file {of_seq} of {of_table} when it was written: files were copied, or have \
                 changed their names"
            ));
        }
        let agrees = |facts| self.is_by_manifest(|manifest| manifest.agrees(table, seq, facts));
        match facts.is_none_or(agrees) {
            true => Ok(()),
            false => Err("it is not the file that manifest.jsonl names".to_owned()),
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
