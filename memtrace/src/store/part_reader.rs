//! Reads one Parquet part, row group by row group, damaged or not.

use super::batch::{Binding, Projection};
use super::contain::contain;
use super::page_guard::check_chunk;
use super::part_writer::CUT_KEY;
use super::problem::{ProblemKind, Problems};
use arrow_array::RecordBatch;
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows per batch. A row group is a multiple, so that no batch spans two.
const BATCH_ROWS: usize = 8_192;

/// The batches of a part, in the form of a projection. A row group that can't be read
/// becomes a problem, and iteration goes on behind it.
pub(super) struct PartReader {
    file: PartFile,
    name: PathBuf,
    metadata: ArrowReaderMetadata,
    binding: Binding,
    next_row_group: usize,
    batches: Option<ParquetRecordBatchReader>,
    problems: Problems,
}

impl PartReader {
    /// Reads the footer of a part; `None`, with a problem noted, when that can't be done.
    pub(super) fn open(
        file: io::Result<PartFile>,
        name: PathBuf,
        projection: &Projection,
        problems: &Problems,
    ) -> Option<Self> {
        let file = match file {
            Ok(file) => file,
            Err(error) => {
                let reason = error.to_string();
                problems.note(&name, ProblemKind::Unreadable { reason });
                return None;
            }
        };
        let metadata = match read_footer(&file) {
            Ok(metadata) => metadata,
            Err(reason) => {
                problems.note(&name, ProblemKind::Damaged { at_byte: 0, reason });
                return None;
            }
        };
        match projection.bind(metadata.schema()) {
            Ok(binding) => Some(Self {
                file,
                name,
                metadata,
                binding,
                next_row_group: 0,
                batches: None,
                problems: problems.clone(),
            }),
            Err(reason) => {
                problems.note(&name, ProblemKind::WrongColumns { reason });
                None
            }
        }
    }

    fn open_row_group(&self, index: usize) -> Result<ParquetRecordBatchReader, String> {
        let columns = self.binding.read();
        let row_group = self.metadata.metadata().row_group(index);
        for &column in columns {
            let chunk = row_group
                .columns()
                .get(column)
                .ok_or("the footer lacks a column")?;
            check_chunk(&self.file, chunk, row_group.num_rows())?;
        }
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), columns.iter().copied());
        ParquetRecordBatchReaderBuilder::new_with_metadata(self.file.clone(), self.metadata.clone())
            .with_row_groups(vec![index])
            .with_projection(mask)
            .with_batch_size(BATCH_ROWS)
            .build()
            .map_err(|error| error.to_string())
    }

    fn note_damage(&self, index: usize, reason: String) {
        self.problems
            .note(&self.name, ProblemKind::DamagedBatch { index, reason });
    }
}

impl Iterator for PartReader {
    type Item = RecordBatch;

    fn next(&mut self) -> Option<RecordBatch> {
        loop {
            let Some(batches) = &mut self.batches else {
                let index = self.next_row_group;
                if index >= self.metadata.metadata().num_row_groups() {
                    return None;
                }
                self.next_row_group += 1;
                match contain(|| self.open_row_group(index)) {
                    Ok(batches) => self.batches = Some(batches),
                    Err(reason) => self.note_damage(index, reason),
                }
                continue;
            };
            let batch = contain(|| match batches.next() {
                Some(batch) => self.binding.apply(&batch?).map(Some),
                None => Ok(None),
            });
            match batch {
                Ok(Some(batch)) => return Some(batch),
                Ok(None) => self.batches = None,
                Err(reason) => {
                    self.batches = None;
                    self.note_damage(self.next_row_group - 1, reason);
                }
            }
        }
    }
}

/// The cut of a part: the time up to which it holds the rows of its segment, or `None`
/// inside when it holds all. Nothing when the part can't be read.
pub(super) fn cut_of(path: &Path) -> Option<Option<i64>> {
    let metadata = read_footer(&PartFile::open(path).ok()?).ok()?;
    let file_metadata = metadata.metadata().file_metadata();
    let cut = file_metadata
        .key_value_metadata()
        .into_iter()
        .flatten()
        .find(|entry| entry.key == CUT_KEY);
    match cut {
        Some(entry) => entry.value.as_ref()?.parse().ok().map(Some),
        None => Some(None),
    }
}

fn read_footer(file: &PartFile) -> Result<ArrowReaderMetadata, String> {
    // Our columns follow from their Parquet types alone, so the Arrow schema that the
    // writer embeds for other readers is one thing less to trust.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    contain(|| ArrowReaderMetadata::load(file, options))
}

/// A part's file, read by position: parquet's own reader for `File` duplicates the
/// descriptor and seeks for every page, twice.
#[derive(Clone, Debug)]
pub(super) struct PartFile {
    file: Arc<File>,
    len: u64,
}

impl PartFile {
    /// Opens a part.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Self {
            len: file.metadata()?.len(),
            file: Arc::new(file),
        })
    }
}

impl Length for PartFile {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for PartFile {
    type T = PartCursor;

    fn get_read(&self, start: u64) -> Result<PartCursor, ParquetError> {
        Ok(PartCursor {
            file: Arc::clone(&self.file),
            at: start,
            buffer: [0; CURSOR_BYTES],
            filled: 0..0,
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let is_inside = start
            .checked_add(length as u64)
            .is_some_and(|end| end <= self.len);
        if !is_inside {
            return Err(ParquetError::EOF("beyond the end of the file".to_owned()));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// The header of a page takes some tens of bytes.
const CURSOR_BYTES: usize = 128;

/// Reads a part from one position on; for the headers of pages, byte by byte.
pub(super) struct PartCursor {
    file: Arc<File>,
    at: u64,
    buffer: [u8; CURSOR_BYTES],
    filled: std::ops::Range<usize>,
}

impl Read for PartCursor {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.filled.is_empty() {
            let count = self.file.read_at(&mut self.buffer, self.at)?;
            self.at += count as u64;
            self.filled = 0..count;
        }
        let ready = self.buffer.get(self.filled.clone()).unwrap_or(&[]);
        let count = (&mut &*ready).read(out)?;
        self.filled.start += count;
        Ok(count)
    }
}
