//! Tables of findings beside those of a recording. Nothing that reads the recording needs them:
//! they can be removed, and are written again from it.

use super::append::RowBuffer;
use super::checksum::{crc32, digits};
use super::disk::Disk;
use super::error::StoreError;
use super::layout::{names_in, part_path, parts_of, temporary};
use super::part_head::PartHead;
use super::part_writer::PartWriter;
use super::recording::Recording;
use super::run_file::{RUN_FILE, contents};
use memtrace_model::{FINDINGS, Finding, Table};
use std::path::Path;
use std::sync::Arc;

/// Key in a part's metadata: what the findings are of, so that a reader sees when the recording
/// is another by now. CRC-32 of `run.json`, then for each part of the other tables, in the order
/// of their names and numbers, a line break, its path, a space and its size.
const OF_KEY: &str = "memtrace.findings_of";

/// The number of the only part of such a table.
const PART: u32 = 1;

/// Rows that wait for their row group.
const BATCH_ROWS: usize = 4_096;

/// Writes the tables of findings of a closed recording, in place of those that were there.
pub struct FindingsWriter {
    disk: Disk,
    /// In the order of [`FINDINGS`].
    tables: Vec<TableWriter>,
    failure: Option<StoreError>,
    of: String,
}

impl FindingsWriter {
    /// Waits a moment for whoever else writes such tables there, and begins.
    ///
    /// # Errors
    /// When the recording is not closed, or the system refuses.
    pub fn create(recording: &Recording) -> Result<Self, StoreError> {
        recording.check_closed("save the findings of")?;
        let dir = Arc::clone(recording.reading().origin.dir()?);
        let locked = dir.lock();
        locked.map_err(|error| StoreError::io("lock", dir.path(), error))?;
        let mut state = contents(&dir)
            .map_err(|error| StoreError::io("read", &dir.full_path(Path::new(RUN_FILE)), error))?;
        let mut folders: Vec<String> = names_in(&dir, Path::new(""))?
            .into_iter()
            .filter_map(|name| name.into_string().ok())
            .filter(|name| FINDINGS.iter().all(|table| table.name != name))
            .collect();
        folders.sort_unstable();
        for folder in folders {
            // What is no folder has no parts.
            for seq in parts_of(&dir, &folder).unwrap_or_default() {
                let path = part_path(&folder, seq);
                let inspected = dir.inspect(&path);
                let inspected = inspected
                    .map_err(|error| StoreError::io("inspect", &dir.full_path(&path), error))?;
                let line = format!("\n{} {}", path.display(), inspected.size);
                state.extend_from_slice(line.as_bytes());
            }
        }
        let disk = Disk::new(dir).with_id(recording.info().id.as_deref());
        let tables = FINDINGS
            .iter()
            .map(|table| TableWriter::create(&disk, table));
        let tables = tables.collect::<Result<_, _>>()?;
        Ok(Self {
            disk,
            tables,
            failure: None,
            of: digits(crc32(&state)),
        })
    }

    /// Adds a row. What goes wrong is reported by [`FindingsWriter::finish`].
    pub fn append(&mut self, row: &Finding) {
        if self.failure.is_some() {
            return;
        }
        let Some(table) = self.tables.get_mut(row.table_index()) else {
            return;
        };
        table.buffer.push_cells(|sink| row.put(sink));
        if table.buffer.rows() >= BATCH_ROWS {
            self.failure = table.flush(&self.disk).err();
        }
    }

    /// Gives the tables their names.
    ///
    /// # Errors
    /// When rows could not be written; tables that were there before stay.
    pub fn finish(mut self) -> Result<(), StoreError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        for mut table in std::mem::take(&mut self.tables) {
            table.flush(&self.disk)?;
            table.part.note(OF_KEY, self.of.clone());
            table.part.publish(&self.disk, PartHead::default())?;
        }
        Ok(())
    }
}

impl Drop for FindingsWriter {
    fn drop(&mut self) {
        // Half a table is of no use.
        for table in FINDINGS {
            let half = temporary(&part_path(table.name, PART));
            let _ = self.disk.remove_file_if_there(&half);
        }
    }
}

struct TableWriter {
    buffer: RowBuffer,
    part: PartWriter,
    table: &'static Table,
}

impl TableWriter {
    fn create(disk: &Disk, table: &'static Table) -> Result<Self, StoreError> {
        disk.create_dir(Path::new(table.name))?;
        Ok(Self {
            buffer: RowBuffer::new(table),
            part: PartWriter::create(disk, table, &part_path(table.name, PART))?,
            table,
        })
    }

    fn flush(&mut self, disk: &Disk) -> Result<(), StoreError> {
        let path = || disk.full_path(&part_path(self.table.name, PART));
        let batch = self.buffer.take();
        let batch = batch.map_err(|error| StoreError::encode(&path(), &error))?;
        self.part.write(disk, &batch)
    }
}
