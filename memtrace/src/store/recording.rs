//! Reads a recording: closed, still being written, or left behind by a killed recorder.

use super::batch::{Projection, for_each_row, times};
use super::error::StoreError;
use super::problem::{Problem, ProblemKind, Problems};
use super::run_file::{is_locked, read};
use super::sources::Sources;
use crate::model::{BootNs, Row, RunInfo, RunState, TABLES, Table};
use std::path::{Path, PathBuf};

/// An opened recording.
///
/// Tables are read from the disk each time they are asked for. Files that are damaged
/// never make reading fail: their readable rows are given, and [`Recording::problems`]
/// names them.
#[derive(Debug)]
pub struct Recording {
    dir: PathBuf,
    info: RunInfo,
    is_live: bool,
    problems: Problems,
}

impl Recording {
    /// Opens the recording in a directory.
    ///
    /// # Errors
    /// When the directory holds no recording, or one of a schema that this version can't
    /// read.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        // Asked before the state is read: a recorder that finishes in between is seen as
        // live and closed, never as dead and unclosed.
        let is_live = is_locked(dir);
        Ok(Self {
            dir: dir.to_path_buf(),
            info: read(dir)?,
            is_live,
            problems: Problems::default(),
        })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the recording says about itself.
    pub fn info(&self) -> &RunInfo {
        &self.info
    }

    /// Whether the recording was closed, by its recorder or by a recovery. Otherwise the
    /// last second before its end may be missing.
    pub fn is_closed(&self) -> bool {
        self.info.state != RunState::Recording
    }

    /// Whether a recorder was writing to it when it was opened. False also where the file
    /// system can't tell.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// The damage met so far, by what was read so far.
    pub fn problems(&self) -> Vec<Problem> {
        self.problems.list()
    }

    /// All rows of a table, in order of `boot_ns`; of a table with a key, the last row of
    /// each key, in the order in which those were written.
    ///
    /// # Errors
    /// When the recording's directory can't be read.
    pub fn rows<R: Row>(&self) -> Result<Vec<R>, StoreError> {
        let mut rows = Vec::new();
        self.read(&Projection::all(R::TABLE), |row| rows.push(row))?;
        Ok(rows)
    }

    /// Gives the rows of a table one by one, in the order of [`Recording::rows`], with
    /// only the named columns read. A column that is not named reads as null, except
    /// those that are never null: they are what makes a row, and are always read.
    ///
    /// # Errors
    /// When the table has no column of a name, or the recording's directory can't be
    /// read.
    pub fn scan<R: Row>(
        &self,
        columns: &[&str],
        take_row: impl FnMut(R),
    ) -> Result<(), StoreError> {
        self.read(&Projection::named(R::TABLE, columns)?, take_row)
    }

    /// The latest time of any row on the boot clock: where the recording ends. Unknown
    /// when there are no rows.
    ///
    /// # Errors
    /// When the recording's directory can't be read.
    pub fn last_boot_ns(&self) -> Result<Option<BootNs>, StoreError> {
        let mut last = None;
        for table in TABLES.iter().filter(|table| table.key.is_none()) {
            last = last.max(self.last_boot_ns_of(table)?);
        }
        Ok(last.map(BootNs))
    }

    fn last_boot_ns_of(&self, table: &'static Table) -> Result<Option<i64>, StoreError> {
        let projection = Projection::required(table);
        let mut sources = Sources::open(&self.dir, table, &self.problems)?;
        // Parts are in order of time, so the newest one has the latest row.
        let older = sources.parts.len().saturating_sub(1);
        sources.parts.drain(..older);
        let parts = sources.part_rows(&projection, &self.problems);
        let batches = parts.chain(sources.segment_rows(&projection, &self.problems));
        Ok(batches
            .filter_map(|batch| times(&batch).iter().copied().max())
            .max())
    }

    fn read<R: Row>(
        &self,
        projection: &Projection,
        mut take_row: impl FnMut(R),
    ) -> Result<(), StoreError> {
        let sources = Sources::open(&self.dir, R::TABLE, &self.problems)?;
        let mut incomplete_rows = 0;
        for batch in sources.rows(projection, &self.problems) {
            match batch {
                Ok(batch) => incomplete_rows += for_each_row(&batch, &mut take_row),
                Err(error) => {
                    let reason = error.to_string();
                    let kind = ProblemKind::Unreadable { reason };
                    self.problems.note(Path::new(R::TABLE.name), kind);
                }
            }
        }
        if incomplete_rows > 0 {
            let count = incomplete_rows;
            let kind = ProblemKind::IncompleteRows { count };
            self.problems.note(Path::new(R::TABLE.name), kind);
        }
        Ok(())
    }
}
