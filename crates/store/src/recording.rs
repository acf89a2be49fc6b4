//! Reads a recording: closed, still being written, or left behind by a killed recorder.

use super::ahead::for_each_ahead;
use super::batch::{Irregular, Projection, for_each_row, times};
use super::bounds::Bounds;
use super::checksum::Checked;
use super::dir::Dir;
use super::error::StoreError;
use super::files::Files;
use super::layout::{SPOOL, list_damaged, names_in};
use super::manifest::{MANIFEST, Manifest};
use super::origin::Origin;
use super::problem::{MAX_PROBLEMS, Problem, ProblemKind, Problems};
use super::reading::Reading;
use super::remote::{Remote, RemoteReader};
use super::run_file::{RUN_FILE, open_dir, read, written_at_ns};
use super::sources::Sources;
use memtrace_model::{BootNs, Row, RunInfo, RunState, SCHEMA_VERSION, TABLES, Table};
use std::path::Path;
use std::sync::Arc;
use std::thread::Builder;

/// At an address `run.json` can be replaced between its listing, which says how long it is, and
/// its reading.
const REMOTE_ATTEMPTS: usize = 3;

/// So often is looked for files that go while a recording is looked at.
const CHECK_ATTEMPTS: usize = 5;

/// An opened recording.
///
/// Tables are read from the disk each time they are asked for. Files that are damaged
/// never make reading fail: their readable rows are given, and [`Recording::problems`]
/// names them.
#[derive(Debug)]
pub struct Recording {
    info: RunInfo,
    is_live: bool,
    reading: Reading,
}

impl Recording {
    /// Opens the recording in a directory.
    ///
    /// # Errors
    /// When the directory holds no recording, or one of a schema that this version can't
    /// read.
    pub(super) fn open(dir: &Path) -> Result<Self, StoreError> {
        Self::of(Arc::new(open_dir(dir)?))
    }

    /// Opens the recording at an address; `below` is its path there, empty for the address itself.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub(super) fn open_remote(reader: Arc<RemoteReader>, below: &str) -> Result<Self, StoreError> {
        let mut attempts = 1..=REMOTE_ATTEMPTS;
        loop {
            attempts.next();
            let remote = Remote::open(Arc::clone(&reader), below)?;
            match Self::from(Origin::Remote(Arc::new(remote))) {
                Err(error) if attempts.is_empty() || is_lasting(&error) => return Err(error),
                Err(_) => {}
                opened => return opened,
            }
        }
    }

    /// Reads what an opened directory says about itself.
    pub(super) fn of(dir: Arc<Dir>) -> Result<Self, StoreError> {
        Self::from(Origin::Dir(dir))
    }

    fn from(origin: Origin) -> Result<Self, StoreError> {
        // Asked before the state is read: a recorder that finishes in between is seen as
        // live and closed, never as dead and unclosed.
        let is_live = origin.is_live();
        let run = read(&origin)?;
        let mut reading = Reading::of(origin.clone(), &run);
        reading.bounds = Bounds::of(&run.info, last_write_ns(&origin)?);
        if run.checked == Checked::Changed {
            reading.note(Path::new(RUN_FILE), ProblemKind::Changed);
        }
        if run.info.schema_version.minor > SCHEMA_VERSION.minor {
            let kind = ProblemKind::Newer {
                schema: run.info.schema_version,
                memtrace_version: run.info.memtrace_version.clone(),
            };
            reading.note(Path::new(RUN_FILE), kind);
        }
        for path in list_damaged(&origin)? {
            reading.note(&path, ProblemKind::PutAside);
        }
        if run.checked == Checked::Absent {
            reading.note(Path::new(RUN_FILE), ProblemKind::Unsealed);
        }
        let mut recording = Self {
            info: run.info,
            is_live,
            reading,
        };
        recording.check_files()?;
        Ok(recording)
    }

    /// Where the recording is.
    pub fn dir(&self) -> &Path {
        self.reading.origin.path()
    }

    /// How it is read.
    pub(super) fn reading(&self) -> &Reading {
        &self.reading
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

    /// Whether these are the parts of a recording that went on where they come from: it was not
    /// closed, and what a recorder, also one that was killed, keeps beside parts is not here.
    pub fn is_open(&self) -> bool {
        let has_spool = || self.reading.origin.has(Path::new(SPOOL));
        self.info.place.is_some() && !self.is_closed() && !self.is_live && !has_spool()
    }

    /// Whether its recorder was gone before it closed it, whether or not [`super::recover`] has since:
    /// its end is missing.
    pub fn is_cut_off(&self) -> bool {
        self.info.state != RunState::Closed && !self.is_live && !self.is_open()
    }

    /// That nobody writes to it any more.
    pub fn check_closed(&self, doing: &'static str) -> Result<(), StoreError> {
        match self.is_closed() {
            true => Ok(()),
            false => Err(StoreError::Unclosed {
                doing,
                dir: self.dir().to_path_buf(),
                is_live: self.is_live(),
            }),
        }
    }

    /// That no damage was met so far. What was put aside when it was closed has been missing since then.
    ///
    /// # Errors
    /// With the first that was.
    pub fn check_whole(&self) -> Result<(), StoreError> {
        self.reading.check_whole()
    }

    /// Learns which files it has, and notes which of them are missing.
    fn check_files(&mut self) -> Result<(), StoreError> {
        let Some(id) = self.reading.id.clone() else {
            return Ok(());
        };
        let mut attempts = 1..=CHECK_ATTEMPTS;
        loop {
            attempts.next();
            let mut found = Vec::new();
            let manifest = Manifest::read(&self.reading.origin, &id, &mut found);
            let is_on_its_way = self.is_open();
            // Who carries a recording puts its manifest behind the first parts.
            found
                .retain(|(_, kind)| !is_on_its_way || *kind != ProblemKind::Missing { rows: None });
            let has_spool = !self.is_closed() && !is_on_its_way;
            if let Some(manifest) = &manifest {
                found.extend(manifest.missing(&self.reading.origin, has_spool)?);
            }
            // What a recorder makes a part of goes between two looks.
            if !found.is_empty() && !self.is_closed() && !attempts.is_empty() {
                self.reading.origin.look_again()?;
                continue;
            }
            if self.is_closed() && manifest.as_ref().is_some_and(|one| !one.is_closed()) {
                let reason =
                    "it ends before the recording does: what is missing is not known".to_owned();
                found.push((MANIFEST.into(), ProblemKind::Unreadable { reason }));
            }
            for (path, kind) in found.into_iter().take(MAX_PROBLEMS) {
                self.reading.note(&path, kind);
            }
            self.reading.manifest = manifest.map(Arc::new);
            return Ok(());
        }
    }

    /// What list that is put on.
    pub(super) fn problem_list(&self) -> Problems {
        self.reading.problem_list()
    }

    /// The damage met so far, by what was read so far.
    pub fn problems(&self) -> Vec<Problem> {
        self.reading.problems()
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

    /// The same of a recording that its recorder did not close, whether or not [`super::recover`] has;
    /// `None` of one that it closed, which says itself when it ended.
    ///
    /// # Errors
    /// When the recording's directory can't be read.
    pub fn cut_off_boot_ns(&self) -> Result<Option<BootNs>, StoreError> {
        match self.info.state {
            RunState::Closed => Ok(None),
            RunState::Recording | RunState::Recovered => self.last_boot_ns(),
        }
    }

    fn last_boot_ns_of(&self, table: &'static Table) -> Result<Option<i64>, StoreError> {
        let projection = Projection::required(table);
        let mut sources = Sources::open_lasting(&self.reading, table)?;
        // Parts are in order of time, so the newest one has the latest row.
        let older = sources.parts.len().saturating_sub(1);
        sources.parts.drain(..older);
        let mut last = None;
        for batch in sources.rows(&projection) {
            // What can't be put in order is reported when the rows are read.
            let batch = batch.ok();
            last = last.max(batch.and_then(|batch| times(&batch).iter().copied().max()));
        }
        self.reading.origin.check()?;
        Ok(last)
    }

    fn read<R: Row>(
        &self,
        projection: &Projection,
        mut take_row: impl FnMut(R),
    ) -> Result<(), StoreError> {
        let sources = Sources::open_lasting(&self.reading, R::TABLE)?;
        let note = |kind| self.reading.note(Path::new(R::TABLE.name), kind);
        let mut irregular = Irregular::default();
        for_each_ahead(
            Builder::new(),
            sources.rows(projection),
            |batch| match batch {
                Ok(batch) => for_each_row(&batch, &mut irregular, &mut take_row),
                Err(error) => note(ProblemKind::Unreadable {
                    reason: error.to_string(),
                }),
            },
        );
        if irregular.incomplete_rows > 0 {
            let count = irregular.incomplete_rows;
            note(ProblemKind::IncompleteRows { count });
        }
        if irregular.long_texts > 0 {
            let count = irregular.long_texts;
            note(ProblemKind::LongTexts { count });
        }
        self.reading.origin.check()
    }
}

/// Whether it is the same when it is tried again.
fn is_lasting(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::NotARecording { .. } | StoreError::UnsupportedSchema { .. }
    )
}

/// When the newest file of a recording was written that was not closed, on the wall clock.
pub(super) fn last_write_ns(dir: &impl Files) -> Result<Option<i64>, StoreError> {
    let spool = Path::new(SPOOL);
    let segments = names_in(dir, spool)?.into_iter();
    let times = segments.filter_map(|name| dir.modified_ns(&spool.join(name)).ok());
    Ok(times.chain(written_at_ns(dir)).max())
}
