//! Writes a recording.

use super::append::RowBuffer;
use super::batch::times;
use super::bounds::Taken;
use super::close::{close_manifest, list_unlisted};
use super::compact::{Through, compact};
use super::compactor::Compactor;
use super::disk::Disk;
use super::error::StoreError;
use super::layout::{SPOOL, names_in, segment_path};
use super::manifest::{MANIFEST, id_of};
use super::part_writer::ROW_GROUP_ROWS;
use super::reading::Reading;
use super::resequence::WINDOW_NS;
use super::run_file::{LockedRunFile, RUN_FILE};
use super::segment_writer::SegmentWriter;
use memtrace_model::tables::{DiagKind, DiagRow, Severity};
use memtrace_model::{
    BootNs, Bytes, ClockOffset, ClockReading, DurationNs, Record, RunInfo, RunState,
    SCHEMA_VERSION, TABLES, Table,
};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// When buffers are flushed and segments closed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// A table's rows are flushed when this many wait, or when they take this much. Bounds
    /// the memory of the recorder, not the loss after a crash: that is the caller's, who
    /// calls [`Writer::flush`] by the clock.
    pub(super) flush_rows: usize,
    pub(super) flush_bytes: usize,
    /// A segment is closed and converted at this size.
    pub(super) segment_rows: usize,
    pub(super) segment_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            flush_rows: 4_096,
            flush_bytes: 512 << 10,
            // Four whole row groups make one part.
            segment_rows: 4 * ROW_GROUP_ROWS,
            segment_bytes: 64 << 20,
        }
    }
}

/// What was written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Rows taken, all tables.
    pub row_count: i64,
    /// Bytes written to disk, spool and Parquet together.
    pub written_bytes: Bytes,
}

/// Writes a recording: rows into buffers, buffers into the spool, full segments into
/// Parquet by a thread in the background.
///
/// Not finishing it leaves an unclosed recording, which reads without loss up to the last
/// flush and can be closed with [`recover`](super::recover).
pub struct Writer {
    disk: Arc<Disk>,
    tables: Vec<TableWriter>,
    limits: Limits,
    // Stops before the lock is released: fields are dropped in this order.
    compactor: Compactor,
    run_file: LockedRunFile,
    row_count: i64,
    /// Rows that were left out since that was reported.
    left_out_count: i64,
    /// When the recording began.
    began: Option<ClockReading>,
    cpu_count: u32,
    /// After how long segments are closed, and when that was last looked at.
    rotation: Option<Rotation>,
}

#[derive(Clone, Copy, Debug)]
struct Rotation {
    every: DurationNs,
    looked: Option<BootNs>,
}

impl Writer {
    /// Makes the directory of a new recording, and `run.json` in it with the state
    /// [`RunState::Recording`].
    ///
    /// # Errors
    /// When the directory exists and is not empty, when its parent does not exist, and
    /// when the system refuses.
    pub fn create(dir: &Path, info: &RunInfo) -> Result<Self, StoreError> {
        Self::create_for(dir, info, None)
    }

    /// The same, and everything in it belongs to a user and a group: those of the one who
    /// called sudo. [`Writer::is_given`] tells whether the file system lets it.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn create_for(
        dir: &Path,
        info: &RunInfo,
        owner: Option<(u32, u32)>,
    ) -> Result<Self, StoreError> {
        Self::create_with(dir, info, owner, Limits::default())
    }

    pub(super) fn create_with(
        dir: &Path,
        info: &RunInfo,
        owner: Option<(u32, u32)>,
        limits: Limits,
    ) -> Result<Self, StoreError> {
        let mut disk = Disk::create(dir, owner)?;
        disk.begin_manifest(id_of(info))?;
        let disk = Arc::new(disk);
        let run_file = write_run_file(&disk, info.clone(), RunState::Recording)?;
        disk.create_dir(Path::new(SPOOL))?;
        let compactor = Compactor::start(Arc::clone(&disk))
            .map_err(|error| StoreError::io("start a thread for", dir, error))?;
        Ok(Self {
            disk,
            tables: TABLES.iter().copied().map(TableWriter::new).collect(),
            limits,
            compactor,
            run_file,
            row_count: 0,
            left_out_count: 0,
            began: info.clocks.first().copied(),
            cpu_count: info.cpu_count,
            rotation: None,
        })
    }

    /// The same, whose rows are in parts after so long at the latest, but for those of the last
    /// seconds, which later ones may have to go before. [`Writer::rotate`] sees to it.
    pub fn rotating(mut self, every: DurationNs) -> Self {
        self.rotation = Some(Rotation {
            every,
            looked: None,
        });
        self
    }

    /// The directory of the recording.
    pub fn dir(&self) -> &Path {
        self.disk.dir().path()
    }

    /// Whether the directory belongs to the owner that was asked for.
    pub fn is_given(&self) -> bool {
        self.disk.is_given()
    }

    /// Adds a row. Rows of a table should come in order of `boot_ns`, give or take 2 s;
    /// what is later than that is kept, but may be out of order in the result.
    ///
    /// # Errors
    /// When the buffer is full and can't be written. The row is then not taken, and the
    /// rows before it wait for the next attempt.
    pub fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        let table_index = record.table_index();
        let is_full = |table: &TableWriter| table.is_full(&self.limits);
        if self.tables.get(table_index).is_some_and(is_full) {
            self.flush_table(table_index)?;
        }
        if let Some(table) = self.tables.get_mut(table_index) {
            table.buffer.push(record);
            self.row_count += 1;
        }
        Ok(())
    }

    /// Writes all waiting rows to the spool. They survive the death of this process, not
    /// that of the machine. Without rows it costs nothing.
    ///
    /// # Errors
    /// When rows can't be written; they wait for the next attempt. Also when a conversion
    /// in the background has failed; its rows stay in the spool and nothing is lost.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        let mut outcome = self.disk.check_there();
        for table_index in 0..self.tables.len() {
            outcome = outcome.and(self.flush_table(table_index));
        }
        outcome = outcome.and(self.tell_left_out());
        outcome.and(self.compactor.take_failure().map_or(Ok(()), Err))
    }

    /// Of a program that floods it, a recording has no more rows than are read again.
    fn tell_left_out(&mut self) -> Result<(), StoreError> {
        let count = std::mem::take(&mut self.left_out_count);
        let (Some(began), Some(boot_ns), 1..) = (self.began, self.newest(), count) else {
            return Ok(());
        };
        let row = Record::from(DiagRow {
            ts: ClockOffset::at(began).to_wall(boot_ns),
            boot_ns,
            severity: Some(Severity::Loss),
            kind: Some(DiagKind::Limit),
            subject: "rows".to_owned(),
            count: Some(count),
            detail:
                "a program sends marks, or log lines that become marks, faster than a recording \
                 of this length has room for"
                    .to_owned(),
        });
        self.append(&row)?;
        self.flush_table(row.table_index())
    }

    /// The time of the newest row that was flushed.
    fn newest(&self) -> Option<BootNs> {
        let newest_ns = self.tables.iter().map(|table| table.newest_ns).max();
        newest_ns
            .filter(|newest_ns| *newest_ns > i64::MIN)
            .map(BootNs)
    }

    fn flush_table(&mut self, table_index: usize) -> Result<(), StoreError> {
        let began = self.began.map(|began| began.boot_ns);
        let length = self.newest().zip(began);
        let length = length.map_or(DurationNs(0), |(newest, began)| newest - began);
        let Some(table) = self.tables.get_mut(table_index) else {
            return Ok(());
        };
        self.left_out_count += table.flush(&self.disk, length, self.cpu_count)?;
        if let Some(seq) = table.close_full_segment(&self.disk, &self.limits)? {
            self.compactor.convert(table_index, seq, None);
        }
        Ok(())
    }

    /// Closes the segments whose time has come, of a writer that is [`rotating`](Self::rotating);
    /// to be called each second, after [`Writer::flush`]. A table to which nothing comes costs
    /// nothing.
    ///
    /// # Errors
    /// When a segment can't be closed, or made.
    pub fn rotate(&mut self, now: BootNs) -> Result<(), StoreError> {
        let Some(rotation) = &mut self.rotation else {
            return Ok(());
        };
        let every = rotation.every;
        let looked = rotation.looked.replace(now).unwrap_or(now);
        for (table_index, table) in self.tables.iter_mut().enumerate() {
            if table.is_due(looked, now, every) {
                if let Some(seq) = table.close_segment(&self.disk)? {
                    self.compactor.convert(table_index, seq, Some(now));
                }
                table.has_rest = table.newest_ns > now.0.saturating_sub(WINDOW_NS);
            } else if table.has_rest && table.segment.is_none() {
                table.segment = Some(SegmentWriter::create(&self.disk, table.table, table.seq)?);
            }
        }
        Ok(())
    }

    /// Writes `run.json` anew, for those who read it while the recording goes on.
    ///
    /// # Errors
    /// When it can't be written; what was there stays.
    pub fn update(&mut self, info: RunInfo) -> Result<(), StoreError> {
        self.run_file = write_run_file(&self.disk, info, RunState::Recording)?;
        Ok(())
    }

    /// Flushes, and waits until the disk has it: what is written survives the death of
    /// the machine.
    ///
    /// # Errors
    /// As [`Writer::flush`].
    pub fn sync(&mut self) -> Result<(), StoreError> {
        let flushed = self.flush();
        let mut is_new = false;
        for segment in self
            .tables
            .iter_mut()
            .filter_map(|table| table.segment.as_mut())
        {
            is_new |= segment.sync()?;
        }
        if is_new {
            self.disk.sync_dir_of(&segment_path("", 0))?;
        }
        flushed
    }

    /// What was written so far.
    pub fn stats(&self) -> Stats {
        Stats {
            row_count: self.row_count,
            written_bytes: Bytes(self.disk.written_bytes().cast_signed()),
        }
    }

    /// Closes the recording: what is in the spool becomes Parquet, the spool goes, and
    /// `run.json` says [`RunState::Closed`].
    ///
    /// # Errors
    /// The first thing that failed; what can still be done after it is done. The recording
    /// then stays unclosed, and can be read, and closed later with
    /// [`recover`](super::recover).
    pub fn finish(mut self, info: RunInfo) -> Result<Stats, StoreError> {
        let mut outcome = self.flush();
        for table in &mut self.tables {
            outcome = outcome.and(table.close_segment(&self.disk).map(drop));
        }
        self.compactor.stop();
        // What failed there is tried again here, so it does not count.
        let _ = self.compactor.take_failure();
        let reading = Reading::of_own(&self.disk);
        outcome = outcome.and(list_unlisted(&self.disk, &reading));
        for table in TABLES {
            let joins = self.rotation.is_some();
            let compacted = compact(&self.disk, &reading, table, Through::End { joins });
            outcome = outcome.and(compacted.map(drop));
        }
        outcome?;
        self.disk.remove_dir_if_empty(Path::new(SPOOL))?;
        close_manifest(&self.disk, &reading)?;
        self.run_file = write_run_file(&self.disk, info, RunState::Closed)?;
        Ok(self.stats())
    }
}

impl Writer {
    /// Gives up a recording in which there is nothing of interest, and removes it.
    pub fn discard(mut self) {
        self.tables.clear();
        self.compactor.stop();
        let folders = TABLES.iter().map(|table| table.name).chain([SPOOL]);
        for folder in folders.map(Path::new) {
            for name in names_in(self.disk.dir(), folder).unwrap_or_default() {
                let _ = self.disk.remove_file_if_there(&folder.join(name));
            }
            let _ = self.disk.remove_dir_if_empty(folder);
        }
        for file in [MANIFEST, RUN_FILE].map(Path::new) {
            let _ = self.disk.remove_file_if_there(file);
        }
        // It takes away nothing but an empty directory, whatever has the name by now.
        let _ = std::fs::remove_dir(self.dir());
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("dir", &self.dir())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // After `finish` there is nothing left to flush. Otherwise the recorder is going
        // down, and what it has is better on disk; there is no one to tell if it can't be.
        let _ = self.flush();
    }
}

fn write_run_file(
    disk: &Disk,
    info: RunInfo,
    state: RunState,
) -> Result<LockedRunFile, StoreError> {
    let info = RunInfo {
        id: disk.id().map(str::to_owned),
        ..with_state(info, state)
    };
    LockedRunFile::write(disk, &info)
}

/// `info` in a state, with the version of the tables that this build writes.
pub(super) fn with_state(info: RunInfo, state: RunState) -> RunInfo {
    RunInfo {
        schema_version: SCHEMA_VERSION,
        state,
        ..info
    }
}

/// The way of one table's rows to the spool.
struct TableWriter {
    table: &'static Table,
    buffer: RowBuffer,
    taken: Taken,
    segment: Option<SegmentWriter>,
    seq: u32,
    /// Its first rows came no earlier.
    since: Option<BootNs>,
    /// The time of the newest row so far; of a table with a key, whose rows wait for no others,
    /// none.
    newest_ns: i64,
    /// Whether rows of closed segments wait for the next part. It is made also where no more rows
    /// come: of a segment without any.
    has_rest: bool,
}

impl TableWriter {
    fn new(table: &'static Table) -> Self {
        Self {
            table,
            buffer: RowBuffer::new(table),
            taken: Taken::default(),
            segment: None,
            seq: 1,
            since: None,
            newest_ns: i64::MIN,
            has_rest: false,
        }
    }

    /// Whether the segment, or what waits for its part, has been there for as long as was asked
    /// for. `looked` is when that was asked before.
    fn is_due(&mut self, looked: BootNs, now: BootNs, every: DurationNs) -> bool {
        if self.segment.is_none() {
            self.since = None;
            return false;
        }
        now - *self.since.get_or_insert(looked) >= every
    }

    fn is_full(&self, limits: &Limits) -> bool {
        self.buffer.rows() >= limits.flush_rows || self.buffer.bytes() >= limits.flush_bytes
    }

    /// Writes the rows that wait, of a recording that was so long before them; gives how many of them it
    /// has no room for.
    fn flush(
        &mut self,
        disk: &Disk,
        length: DurationNs,
        cpu_count: u32,
    ) -> Result<i64, StoreError> {
        if let Some(segment) = &mut self.segment
            && segment.is_blocked()
        {
            segment.write_out(disk)?;
        }
        if self.buffer.rows() == 0 {
            return Ok(0);
        }
        let segment = match &mut self.segment {
            Some(segment) => segment,
            none => none.insert(SegmentWriter::create(disk, self.table, self.seq)?),
        };
        let batch = self.buffer.take().map_err(|error| {
            let path = segment_path(self.table.name, self.seq);
            StoreError::encode(&disk.full_path(&path), &error)
        })?;
        let rows = batch.num_rows();
        let fitting = self.taken.add(&batch, self.table, length, cpu_count);
        let batch = batch.slice(0, fitting);
        if self.table.key.is_none() {
            self.newest_ns = times(&batch).iter().copied().fold(self.newest_ns, i64::max);
        }
        if fitting > 0 {
            segment.write(disk, &batch)?;
        }
        Ok((rows - fitting) as i64)
    }

    /// Closes the segment when it is full; gives its number.
    fn close_full_segment(
        &mut self,
        disk: &Disk,
        limits: &Limits,
    ) -> Result<Option<u32>, StoreError> {
        let is_full = self.segment.as_ref().is_some_and(|segment| {
            segment.rows() >= limits.segment_rows || segment.bytes() >= limits.segment_bytes
        });
        if is_full {
            self.close_segment(disk)
        } else {
            Ok(None)
        }
    }

    fn close_segment(&mut self, disk: &Disk) -> Result<Option<u32>, StoreError> {
        let Some(segment) = self.segment.take() else {
            return Ok(None);
        };
        let seq = self.seq;
        self.seq += 1;
        self.since = None;
        // How far its part goes is not known here.
        self.has_rest = self.table.key.is_none();
        segment.close(disk)?;
        Ok(Some(seq))
    }
}
