//! Tables of a closed recording that are written anew: with rows that another program noted while it
//! was recorded, which stand in the order of time as if the recorder had written them; or with fewer.
//!
//! A part whose rows change is written anew and takes the place of the old one in one step. Between
//! two such steps the recording is whole, with some of the rows; to add the rest, one asks again
//! which are there. The new rows are of this memtrace's schema: a recording of an older one becomes
//! one of this before any part is replaced.

use super::append::RowBuffer;
use super::batch::{Irregular, Projection, for_each_row, times};
use super::bounds::{Allowance, Bounds};
use super::disk::Disk;
use super::error::StoreError;
use super::files::Files;
use super::layout::{list, part_path, temporary};
use super::manifest::PartReplaced;
use super::part_head::PartHead;
use super::part_reader::{PartReader, head_of};
use super::part_writer::{FinishedPart, PartWriter};
use super::reading::Reading;
use super::recording::Recording;
use super::run_file::{self, LockedRunFile};
use memtrace_model::{BootNs, Downsampled, DurationNs, Row, RunInfo, SCHEMA_VERSION, TABLES};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows that wait for their row group.
const BATCH_ROWS: usize = 4_096;

/// A closed recording of which tables are written anew.
pub struct Revision {
    disk: Disk,
    reading: Reading,
    info: RunInfo,
    /// What its readers will take.
    bounds: Option<Bounds>,
    /// Parts with the new rows, which have not taken the place of the old ones yet.
    parts: Vec<FinishedPart>,
    /// Where parts are written, in case they are not finished.
    begun: Vec<PathBuf>,
}

impl Revision {
    /// Waits a moment for whoever else writes there, and begins.
    ///
    /// # Errors
    /// When the recording is not closed, is of a newer schema, or the system refuses.
    pub fn begin(recording: &Recording) -> Result<Self, StoreError> {
        Self::begin_to("add rows to", recording)
    }

    /// The same for whoever does something else to it, which an error names.
    ///
    /// # Errors
    /// As [`Revision::begin`].
    pub fn begin_to(doing: &'static str, recording: &Recording) -> Result<Self, StoreError> {
        recording.check_closed(doing)?;
        let info = recording.info();
        if info.schema_version.minor > SCHEMA_VERSION.minor {
            return Err(StoreError::NewerSchema {
                doing,
                dir: recording.dir().to_path_buf(),
                found: info.schema_version,
                memtrace_version: info.memtrace_version.clone(),
            });
        }
        let reading = recording.reading().to_keep();
        let dir = Arc::clone(reading.origin.dir()?);
        let locked = dir.lock();
        locked.map_err(|error| StoreError::io("lock", dir.path(), error))?;
        // Another revision may have ended since the recording was opened.
        let info = run_file::read(dir.as_ref())?.info;
        Ok(Self {
            disk: Disk::of_recording(dir, info.id.as_deref())?,
            reading,
            info,
            bounds: recording.reading().bounds,
            parts: Vec::new(),
            begun: Vec::new(),
        })
    }

    /// Adds rows to a table without a key, in the order of time; `at` is the time of each.
    ///
    /// # Errors
    /// When the table is damaged, since what could not be read of it would be lost, when a part of it
    /// would have more rows than are read of the whole table, or the system refuses.
    pub fn add<R: Row>(
        &mut self,
        rows: impl IntoIterator<Item = R>,
        at: impl Fn(&R) -> BootNs,
    ) -> Result<(), StoreError> {
        let table = R::TABLE;
        let files = list(&self.reading.origin, table.name)?;
        if !files.segments.is_empty() {
            return Err(StoreError::Unclosed {
                doing: "add rows to",
                dir: self.reading.origin.path().to_path_buf(),
                is_live: false,
            });
        }
        let mut parts = Vec::new();
        for &seq in &files.parts {
            if let Some(first_ns) = self.first_ns::<R>(seq)? {
                parts.push((seq, first_ns));
            }
        }
        if parts.is_empty() {
            // No part has a row, or the recording is older than the table.
            parts.push((files.parts.first().copied().unwrap_or(1), i64::MIN));
        }
        // A part has the rows from its first one on, up to the next part's first.
        let mut rest = rows.into_iter().peekable();
        for (place, &(seq, _)) in parts.iter().enumerate() {
            let next_ns = parts.get(place + 1).map(|&(_, next_ns)| next_ns);
            let is_own = |row: &R| next_ns.is_none_or(|next_ns| at(row).0 < next_ns);
            if rest.peek().is_some_and(is_own) {
                let mut own = std::iter::from_fn(|| rest.next_if(is_own)).peekable();
                self.write(seq, |row: Option<R>, out| match row {
                    Some(row) => {
                        let before = at(&row);
                        out.extend(std::iter::from_fn(|| own.next_if(|one| at(one) < before)));
                        out.push(row);
                    }
                    None => out.extend(&mut own),
                })?;
            }
        }
        Ok(())
    }

    /// Writes each part of a table anew. `change` gets its rows in the order of time, and `None` at its
    /// end, and gives what stands for them, in that order too.
    ///
    /// # Errors
    /// When the table is damaged, since what could not be read of it would be lost, or the system
    /// refuses.
    pub(super) fn rewrite<R: Row>(
        &mut self,
        mut change: impl FnMut(Option<R>, &mut Vec<R>),
    ) -> Result<(), StoreError> {
        for seq in list(&self.reading.origin, R::TABLE.name)?.parts {
            if self.reading.admit(R::TABLE, seq) {
                self.write(seq, &mut change)?;
            }
        }
        self.reading.check_whole()
    }

    /// Writes each part of a table anew with the rows that are to stay.
    ///
    /// # Errors
    /// As [`Revision::rewrite`].
    pub(super) fn retain<R: Row>(&mut self, stays: impl Fn(&R) -> bool) -> Result<(), StoreError> {
        self.rewrite(|row: Option<R>, rows| rows.extend(row.filter(&stays)))
    }

    /// What `run.json` says now.
    pub fn info(&self) -> &RunInfo {
        &self.info
    }

    /// Has the parts that were written take the place of the old ones, in their order.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn finish(mut self) -> Result<(), StoreError> {
        self.raise_schema()?;
        self.replace_parts()
    }

    /// The same, and has `run.json` say of its rows that they are of such a period: before any part is
    /// replaced, and once all are.
    pub(super) fn finish_downsampled(mut self, period_ns: DurationNs) -> Result<(), StoreError> {
        self.raise_schema()?;
        let write = |revision: &mut Self, is_complete| {
            revision.info.downsampled = Some(Downsampled {
                period_ns,
                is_complete,
            });
            revision.write_info()
        };
        write(&mut self, false)?;
        self.replace_parts()?;
        write(&mut self, true)
    }

    fn replace_parts(&mut self) -> Result<(), StoreError> {
        for part in self.parts.drain(..) {
            part.list(&self.disk, PartReplaced::default())?;
            part.publish(&self.disk)?;
        }
        Ok(())
    }

    /// Has a recording of an older schema be one of this: with the tables that came later, empty,
    /// and with the version in `run.json`.
    fn raise_schema(&mut self) -> Result<(), StoreError> {
        if self.info.schema_version == SCHEMA_VERSION {
            return Ok(());
        }
        for table in TABLES {
            let path = part_path(table.name, 1);
            let is_to_come = self.begun.contains(&temporary(&path));
            if !is_to_come && list(&self.reading.origin, table.name)?.parts.is_empty() {
                self.disk.create_dir(Path::new(table.name))?;
                let part = PartWriter::create(&self.disk, table, &path)?;
                let part = part.finish(&self.disk, PartHead::default())?;
                part.list(&self.disk, PartReplaced::default())?;
                part.publish(&self.disk)?;
            }
        }
        self.info.schema_version = SCHEMA_VERSION;
        self.write_info()
    }

    fn write_info(&self) -> Result<(), StoreError> {
        // As in a recovery: its checksum says that all files have one.
        match self.reading.has_checksums {
            true => LockedRunFile::write(&self.disk, &self.info)?,
            false => LockedRunFile::write_unsealed(&self.disk, &self.info)?,
        };
        Ok(())
    }

    /// The time of the first row of a part; `None` of one without.
    fn first_ns<R: Row>(&self, seq: u32) -> Result<Option<i64>, StoreError> {
        let path = part_path(R::TABLE.name, seq);
        let projection = Projection::required(R::TABLE);
        let file = self.reading.origin.open_part(&path);
        let batches = PartReader::open(file, path, &projection, &self.reading);
        let first = batches.into_iter().flatten().next();
        let first = first.and_then(|batch| times(&batch).first().copied());
        self.reading.check_whole()?;
        Ok(first)
    }

    /// Writes a part anew, or one that is not there; `change` as in [`Revision::rewrite`].
    fn write<R: Row>(
        &mut self,
        seq: u32,
        mut change: impl FnMut(Option<R>, &mut Vec<R>),
    ) -> Result<(), StoreError> {
        let table = R::TABLE;
        let path = part_path(table.name, seq);
        self.disk.create_dir(Path::new(table.name))?;
        self.begun.push(temporary(&path));
        let mut output = Output {
            buffer: RowBuffer::new(table),
            part: PartWriter::create(&self.disk, table, &path)?,
            table: table.name,
            path: path.clone(),
            allowance: self.bounds.map(|bounds| bounds.allowance(table)),
        };
        let mut rows = Vec::new();
        let mut irregular = Irregular::default();
        let mut head = PartHead::default();
        if self.reading.origin.modified_ns(&path).is_ok() {
            head = head_of(&path, &self.reading).unwrap_or_default();
            let projection = Projection::all(table);
            let file = self.reading.origin.open_part(&path);
            let batches = PartReader::open(file, path.clone(), &projection, &self.reading);
            for batch in batches.into_iter().flatten() {
                for_each_row(&batch, &mut irregular, &mut |row| {
                    change(Some(row), &mut rows);
                });
                output.push_all(&self.disk, &mut rows)?;
            }
        }
        change(None, &mut rows);
        output.push_all(&self.disk, &mut rows)?;
        self.reading.check_whole()?;
        if irregular.incomplete_rows + irregular.long_texts > 0 {
            let reason = "some of its rows are not what memtrace writes".to_owned();
            return Err(self.damaged(path, reason));
        }
        self.parts.push(output.finish(&self.disk, head)?);
        Ok(())
    }

    fn damaged(&self, file: PathBuf, reason: String) -> StoreError {
        StoreError::Damaged {
            path: self.reading.origin.full_path(&file),
            reason,
        }
    }
}

impl Drop for Revision {
    fn drop(&mut self) {
        // Half a part is of no use; a part that has its name is not here any more.
        for path in &self.begun {
            let _ = self.disk.remove_file_if_there(path);
        }
    }
}

/// A part that is being written anew.
struct Output {
    buffer: RowBuffer,
    part: PartWriter,
    table: &'static str,
    path: PathBuf,
    /// Rows that it may still get.
    allowance: Option<Allowance>,
}

impl Output {
    fn push_all<R: Row>(&mut self, disk: &Disk, rows: &mut Vec<R>) -> Result<(), StoreError> {
        for row in rows.drain(..) {
            self.buffer.push_cells(|sink| row.put(sink));
            if self.buffer.rows() >= BATCH_ROWS {
                self.flush(disk)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self, disk: &Disk) -> Result<(), StoreError> {
        let batch = self.buffer.take();
        let batch =
            batch.map_err(|error| StoreError::encode(&disk.full_path(&self.path), &error))?;
        if let Some(allowance) = &mut self.allowance
            && allowance.take(&batch) < batch.num_rows()
        {
            return Err(StoreError::TooManyRows {
                dir: disk.dir().path().to_path_buf(),
                table: self.table,
            });
        }
        self.part.write(disk, &batch)
    }

    fn finish(mut self, disk: &Disk, head: PartHead) -> Result<FinishedPart, StoreError> {
        self.flush(disk)?;
        self.part.finish(disk, head)
    }
}
