//! One open spool segment: an Arrow IPC stream that grows by whole batches.

use super::disk::Disk;
use super::error::StoreError;
use super::framing::seal;
use super::layout::segment_path;
use super::manifest::Line;
use super::schema::{RECORDING_KEY, SEQ_KEY, table_schema};
use arrow_array::RecordBatch;
use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::{ArrowError, Schema};
use memtrace_model::Table;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Buffers start on multiples of this many bytes. Arrow's default of 64 pads the batches
/// of a few rows that most flushes are to a multiple of their size.
const ALIGNMENT: usize = 8;

/// A segment being written.
///
/// Each batch reaches the file by one write of whole messages. When that write fails, the
/// file is cut back to its last whole batch and the bytes wait here for the next attempt,
/// so that the file never has an incomplete batch before a complete one.
pub(super) struct SegmentWriter {
    file: File,
    path: PathBuf,
    stream: StreamWriter<Vec<u8>>,
    written_bytes: u64,
    rows: usize,
    is_blocked: bool,
    is_synced: bool,
}

impl SegmentWriter {
    /// Makes the file, and names it in the manifest. It holds nothing before the first batch.
    pub(super) fn create(disk: &Disk, table: &Table, seq: u32) -> Result<Self, StoreError> {
        let path = segment_path(table.name, seq);
        let full_path = disk.full_path(&path);
        let schema = schema(disk, table, seq);
        let mut stream = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)
            .and_then(|options| StreamWriter::try_new_with_options(Vec::new(), &schema, options))
            .map_err(|error| StoreError::encode(&full_path, &error))?;
        seal(stream.get_mut(), 0).map_err(|error| StoreError::encode(&full_path, &error))?;
        let file = disk.create_file(&path)?;
        let listed = disk.list(&Line::Segment {
            table: table.name.to_owned(),
            seq,
        });
        if let Err(error) = listed {
            // The next attempt makes it again.
            let _ = disk.remove_file_if_there(&path);
            return Err(error);
        }
        Ok(Self {
            file,
            path: full_path,
            stream,
            written_bytes: 0,
            rows: 0,
            is_blocked: false,
            is_synced: true,
        })
    }

    /// Rows in the segment.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Size of the segment.
    pub(super) fn bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Whether a batch waits because it could not be written.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Adds a batch. After this returns it survives the death of the process, though not
    /// that of the machine.
    pub(super) fn write(&mut self, disk: &Disk, batch: &RecordBatch) -> Result<(), StoreError> {
        self.encode(|stream| stream.write(batch))?;
        self.rows += batch.num_rows();
        self.write_out(disk)
    }

    /// Writes what an earlier failure left waiting.
    pub(super) fn write_out(&mut self, disk: &Disk) -> Result<(), StoreError> {
        let bytes = self.stream.get_mut();
        if let Err(error) = self.file.write_all_at(bytes, self.written_bytes) {
            // If even this fails, the reader meets an incomplete tail, which it can take.
            let _ = self.file.set_len(self.written_bytes);
            self.is_blocked = true;
            return Err(StoreError::io("write", &self.path, error));
        }
        let count = bytes.len() as u64;
        bytes.clear();
        self.is_blocked = false;
        self.written_bytes += count;
        self.is_synced &= count == 0;
        disk.count_written(count);
        Ok(())
    }

    /// Makes what was written survive the death of the machine. The name of the file is
    /// the caller's to sync. Says whether there was something to do.
    pub(super) fn sync(&mut self) -> Result<bool, StoreError> {
        if self.is_synced {
            return Ok(false);
        }
        self.file
            .sync_data()
            .map_err(|error| StoreError::io("sync", &self.path, error))?;
        self.is_synced = true;
        Ok(true)
    }

    /// Ends the stream with its end mark.
    pub(super) fn close(mut self, disk: &Disk) -> Result<(), StoreError> {
        self.encode(StreamWriter::finish)?;
        self.write_out(disk)
    }

    fn encode(
        &mut self,
        encode: impl FnOnce(&mut StreamWriter<Vec<u8>>) -> Result<(), ArrowError>,
    ) -> Result<(), StoreError> {
        let whole = self.stream.get_ref().len();
        let encoded = encode(&mut self.stream).map_err(|error| error.to_string());
        let stream = self.stream.get_mut();
        let sealed = encoded.and_then(|()| seal(stream, whole).map_err(|error| error.to_string()));
        sealed.map_err(|reason| {
            stream.truncate(whole);
            StoreError::Encode {
                path: self.path.clone(),
                reason,
            }
        })
    }
}

/// The schema of a table with what tells which segment this is.
fn schema(disk: &Disk, table: &Table, seq: u32) -> Schema {
    let schema = (*table_schema(table)).clone();
    let mut metadata = schema.metadata.clone();
    metadata.insert(SEQ_KEY.to_owned(), seq.to_string());
    if let Some(id) = disk.id() {
        metadata.insert(RECORDING_KEY.to_owned(), id.to_owned());
    }
    schema.with_metadata(metadata)
}
