//! Writes one Parquet part.

use super::batch::times;
use super::checksum::{COLUMNS_KEY, FOOTER_KEY, UNKNOWN, crc32, digits, place_in_footer, seal};
use super::column_encoder::ColumnEncoder;
use super::disk::Disk;
use super::error::StoreError;
use super::layout::{table_and_seq, temporary};
use super::manifest::{Line, PartFacts, PartReplaced};
use super::part_head::{CUT_KEY, PartHead, REPLACES_KEY};
use super::part_schema::{arrow_schema, parquet_schema};
use super::schema::{RECORDING_KEY, SEQ_KEY, TABLE_KEY, VERSION_KEY, bare_schema, table_schema};
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use memtrace_model::{ColumnType, SCHEMA_VERSION, Table};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows per row group: DuckDB's own, below which its readers lose parallelism. Only the
/// encoded pages of one row group are in memory.
pub(super) const ROW_GROUP_ROWS: usize = 122_880;
const ZSTD_LEVEL: i32 = 3;
/// Rows per page. zstd keeps a context for every column, as large as a page asks for, and
/// the recorder has a memory budget: pages of 20,000 rows would save 3 % of the file and
/// take 4 MB more while it is written.
const PAGE_ROWS: usize = 8_192;
/// Beyond 4,096 values an index takes 13 bits, and plain values compress better.
const NUMBER_DICTIONARY_BYTES: usize = 4_096 * size_of::<i64>();
/// Bounds what the dictionaries of a table with many texts take while it is written.
const TEXT_DICTIONARY_BYTES: usize = 128 << 10;

/// A part being written, under a temporary name.
pub(super) struct PartWriter {
    writer: SerializedFileWriter<File>,
    table: &'static Table,
    /// The columns of the row group that grows; none before its first row.
    columns: Vec<ColumnEncoder>,
    rows: usize,
    /// What is in the row groups before it.
    written: Written,
    /// The checksums of the column chunks of all row groups before it.
    checksums: String,
    path: PathBuf,
}

/// Rows in all, and the times of the first and the last in order of time.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    rows: u64,
    first_boot_ns: Option<i64>,
    last_boot_ns: Option<i64>,
}

impl Written {
    fn note(&mut self, table: &Table, batch: &RecordBatch) {
        self.rows += batch.num_rows() as u64;
        if table.key.is_none() {
            let times = times(batch);
            self.first_boot_ns = self.first_boot_ns.or(times.first().copied());
            self.last_boot_ns = times.last().copied().or(self.last_boot_ns);
        }
    }
}

impl PartWriter {
    /// Starts a part; `path` is its final name.
    pub(super) fn create(
        disk: &Disk,
        table: &'static Table,
        path: &Path,
    ) -> Result<Self, StoreError> {
        Self::create_with(disk, table, path, &table_schema(table))
    }

    /// The same for one that others soon take the place of: it does not say what its columns mean.
    pub(super) fn create_bare(
        disk: &Disk,
        table: &'static Table,
        path: &Path,
    ) -> Result<Self, StoreError> {
        Self::create_with(disk, table, path, &bare_schema(table))
    }

    fn create_with(
        disk: &Disk,
        table: &'static Table,
        path: &Path,
        schema: &Schema,
    ) -> Result<Self, StoreError> {
        let temporary = temporary(path);
        // Left behind by a recorder that was killed at this point.
        disk.remove_file_if_there(&temporary)?;
        let file = disk.create_file(&temporary)?;
        let start = || {
            let properties = Arc::new(properties(table, schema)?);
            SerializedFileWriter::new(file, parquet_schema(table)?, properties)
        };
        let encode = |error: ParquetError| StoreError::encode(&disk.full_path(path), &error);
        Ok(Self {
            writer: start().map_err(encode)?,
            table,
            columns: Vec::new(),
            rows: 0,
            written: Written::default(),
            checksums: String::new(),
            path: path.to_path_buf(),
        })
    }

    pub(super) fn write(&mut self, disk: &Disk, batch: &RecordBatch) -> Result<(), StoreError> {
        self.written.note(self.table, batch);
        self.encode(batch)
            .map_err(|error| StoreError::encode(&disk.full_path(&self.path), &error))
    }

    fn encode(&mut self, batch: &RecordBatch) -> Result<(), ParquetError> {
        let mut at = 0;
        while at < batch.num_rows() {
            if self.columns.is_empty() {
                self.columns = self.new_columns();
            }
            let fitting = (ROW_GROUP_ROWS - self.rows).min(batch.num_rows() - at);
            for (column, array) in self.columns.iter_mut().zip(batch.columns()) {
                column.write(&array.slice(at, fitting))?;
            }
            at += fitting;
            self.rows += fitting;
            if self.rows == ROW_GROUP_ROWS {
                self.end_row_group()?;
            }
        }
        Ok(())
    }

    fn new_columns(&self) -> Vec<ColumnEncoder> {
        let described = self.writer.schema_descr().columns().iter();
        let columns = self.table.columns.iter().zip(described);
        columns
            .map(|(column, described)| {
                let properties = Arc::clone(self.writer.properties());
                ColumnEncoder::new(column.column_type, Arc::clone(described), properties)
            })
            .collect()
    }

    fn end_row_group(&mut self) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        self.rows = 0;
        let mut row_group = self.writer.next_row_group()?;
        for column in self.columns.drain(..) {
            let (bytes, closed) = column.close()?;
            self.checksums.push_str(&digits(crc32(&bytes)));
            row_group.append_column(&bytes, closed)?;
        }
        row_group.close()?;
        Ok(())
    }

    /// Puts a text into the metadata.
    pub(super) fn note(&mut self, key: &str, value: String) {
        let entry = KeyValue::new(key.to_owned(), value);
        self.writer.append_key_value_metadata(entry);
    }

    /// Closes the part and gives it its name, after which it lasts.
    pub(super) fn publish(self, disk: &Disk, head: PartHead) -> Result<FinishedPart, StoreError> {
        let part = self.finish(disk, head)?;
        part.publish(disk)?;
        Ok(part)
    }

    /// Closes the part: all of it is on disk, under its temporary name.
    pub(super) fn finish(
        mut self,
        disk: &Disk,
        head: PartHead,
    ) -> Result<FinishedPart, StoreError> {
        let full_path = disk.full_path(&self.path);
        let io_error = |error| StoreError::io("write", &full_path, error);
        if let Some(cut_ns) = head.cut_ns {
            self.note(CUT_KEY, cut_ns.to_string());
        }
        if let Some(first) = head.replaces_from {
            self.note(REPLACES_KEY, first.to_string());
        }
        let encode = |error: ParquetError| StoreError::encode(&full_path, &error);
        self.end_row_group().map_err(encode)?;
        if let Some(id) = disk.id() {
            self.note(RECORDING_KEY, id.to_owned());
        }
        if let Some((_, seq)) = table_and_seq(&self.path) {
            self.note(SEQ_KEY, seq.to_string());
        }
        let columns = std::mem::take(&mut self.checksums);
        for (key, value) in [(COLUMNS_KEY, columns), (FOOTER_KEY, UNKNOWN.to_owned())] {
            self.note(key, value);
        }
        self.writer.finish().map_err(encode)?;
        let footer_crc32 = seal_footer(self.writer.inner()).map_err(io_error)?;
        let bytes = self.writer.bytes_written() as u64;
        disk.count_written(bytes);
        self.writer
            .inner()
            .sync_all()
            .map_err(|error| StoreError::io("sync", &full_path, error))?;
        Ok(FinishedPart {
            table: self.table,
            path: self.path,
            facts: PartFacts {
                rows: self.written.rows,
                bytes,
                first_boot_ns: self.written.first_boot_ns,
                last_boot_ns: self.written.last_boot_ns,
                footer_crc32,
            },
        })
    }
}

/// A part that is whole and has no name yet.
pub(super) struct FinishedPart {
    table: &'static Table,
    path: PathBuf,
    facts: PartFacts,
}

impl FinishedPart {
    /// The size of its file.
    pub(super) fn bytes(&self) -> u64 {
        self.facts.bytes
    }

    /// Gives it its name, in place of what has it.
    pub(super) fn publish(&self, disk: &Disk) -> Result<(), StoreError> {
        disk.publish(&temporary(&self.path), &self.path)
    }

    /// Names it in the manifest: a part that is new once it has its name, one that takes the place of
    /// another before that.
    pub(super) fn list(&self, disk: &Disk, replaced: PartReplaced) -> Result<(), StoreError> {
        let Some((_, seq)) = table_and_seq(&self.path) else {
            return Ok(());
        };
        disk.list(&Line::Part {
            table: self.table.name.to_owned(),
            seq,
            facts: self.facts.clone(),
            replaced,
        })
    }
}

/// The end of a part: the length of its footer, and `PAR1`.
pub(super) const TAIL_BYTES: u64 = 8;
/// Puts the checksum of a finished part's footer at its place, and gives it.
fn seal_footer(file: &File) -> io::Result<String> {
    let len = file.metadata()?.len();
    let mut tail = [0; TAIL_BYTES as usize];
    file.read_exact_at(&mut tail, len.saturating_sub(TAIL_BYTES))?;
    let [l0, l1, l2, l3, ..] = tail;
    let footer_len = u64::from(u32::from_le_bytes([l0, l1, l2, l3])) + TAIL_BYTES;
    let start = len.saturating_sub(footer_len);
    let mut footer = vec![0; (len - start) as usize];
    file.read_exact_at(&mut footer, start)?;
    let place = place_in_footer(&footer)
        .ok_or_else(|| io::Error::other("the footer has no room for its checksum"))?;
    seal(&mut footer, place.clone());
    let digits = footer.get(place.clone()).unwrap_or_default();
    file.write_all_at(digits, start + place.start as u64)?;
    Ok(String::from_utf8_lossy(digits).into_owned())
}

/// How a table's columns are encoded.
///
/// - Times and durations: as differences. All rows of a sample have the same time.
/// - Other numbers: as a dictionary while a row group has few distinct values, else plain.
///   Rows of many processes stand between two rows of one, so differences from row to row
///   are as large as the values; packed at odd bit widths they hide from zstd both the
///   zero bits of page-aligned amounts and values seen before. On rows of `mem` where any
///   20 of 500 processes change per sample, differences took 17.9 bytes a row, plain
///   values 12.5, this rule 10.8.
/// - Texts: as a dictionary while it is small.
fn properties(table: &Table, schema: &Schema) -> Result<WriterProperties, ParquetError> {
    let metadata = vec![
        KeyValue::new(VERSION_KEY.to_owned(), SCHEMA_VERSION.to_string()),
        KeyValue::new(TABLE_KEY.to_owned(), table.name.to_owned()),
        arrow_schema(schema),
    ];
    let mut properties = WriterProperties::builder()
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_created_by(concat!("memtrace ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        // Without bounds of each page there is nothing that it could be used for.
        .set_offset_index_disabled(true)
        .set_key_value_metadata(Some(metadata));
    for column in table.columns {
        let path = ColumnPath::from(column.name);
        let is_time = column.unit == Some("ns");
        properties = match column.column_type {
            ColumnType::Int64 | ColumnType::Int32 | ColumnType::TimestampNs if is_time => {
                properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED)
            }
            ColumnType::Int64 | ColumnType::Int32 | ColumnType::TimestampNs => properties
                .set_column_dictionary_page_size_limit(path.clone(), NUMBER_DICTIONARY_BYTES)
                .set_column_encoding(path, Encoding::PLAIN),
            ColumnType::Utf8 => properties
                .set_column_dictionary_page_size_limit(path.clone(), TEXT_DICTIONARY_BYTES)
                .set_column_encoding(path, Encoding::PLAIN),
            ColumnType::Float64 | ColumnType::Boolean => {
                properties.set_column_dictionary_enabled(path, false)
            }
        };
    }
    Ok(properties.build())
}
