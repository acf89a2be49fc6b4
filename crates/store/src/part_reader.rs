//! Reads one Parquet part, row group by row group, damaged or not.

use super::batch::{Binding, Projection};
use super::checksum::{COLUMNS_KEY, Checked, UNKNOWN, check, crc32, digits, place_in_footer};
use super::column_decoder::RowGroupDecoder;
use super::contain::contain;
use super::manifest::PartFacts;
use super::page_guard::Chunks;
use super::part_file::PartFile;
use super::part_head::{CUT_KEY, PartHead, REPLACES_KEY};
use super::part_schema::file_columns;
use super::part_writer::TAIL_BYTES;
use super::problem::ProblemKind;
use super::reading::Reading;
use super::schema::{RECORDING_KEY, SEQ_KEY, TABLE_KEY};
use arrow_array::{ArrayRef, RecordBatch};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use std::io;
use std::path::{Path, PathBuf};

/// A column chunk takes some hundred bytes of the footer.
const MAX_FOOTER_BYTES: u64 = 1 << 24;

/// The batches of a part, in the form of a projection. A row group that can't be read
/// becomes a problem, and iteration goes on behind it.
pub(super) struct PartReader {
    file: PartFile,
    name: PathBuf,
    footer: Footer,
    binding: Binding,
    next_row_group: usize,
    batches: Option<RowGroupDecoder>,
    reading: Reading,
}

impl PartReader {
    /// Reads the footer of a part; `None`, with a problem noted, when that can't be done.
    pub(super) fn open(
        file: io::Result<PartFile>,
        name: PathBuf,
        projection: &Projection,
        reading: &Reading,
    ) -> Option<Self> {
        let file = match file {
            Ok(file) => file,
            Err(error) => {
                let reason = error.to_string();
                reading.note(&name, ProblemKind::Unreadable { reason });
                return None;
            }
        };
        let footer = match Footer::read(&file, &name, reading) {
            Ok(footer) => footer,
            Err(reason) => {
                // Without its footer nothing of a part is found.
                let kind = ProblemKind::Damaged {
                    at_byte: 0,
                    lost_bytes: memtrace_model::Bytes(file.len().cast_signed()),
                    reason,
                };
                reading.note(&name, kind);
                return None;
            }
        };
        match projection.bind(&file_columns(
            footer.metadata.file_metadata().schema_descr(),
        )) {
            Ok(binding) => Some(Self {
                file,
                name,
                footer,
                binding,
                next_row_group: 0,
                batches: None,
                reading: reading.clone(),
            }),
            Err(reason) => {
                reading.note(&name, ProblemKind::WrongColumns { reason });
                None
            }
        }
    }

    /// Reads the columns of a row group and checks them before any of it is decoded.
    fn open_row_group(&self, index: usize) -> Result<RowGroupDecoder, String> {
        let columns = self.binding.read_places();
        let row_group = self.footer.metadata.row_group(index);
        let chunks = Chunks::open(row_group, &columns, |ranges| {
            let chunks = self.file.read_all(ranges)?;
            for (column, bytes) in columns.iter().zip(&chunks) {
                let place = index * row_group.num_columns() + column;
                self.footer.check(place, bytes)?;
            }
            Ok(chunks)
        })?;
        RowGroupDecoder::new(row_group, self.binding.read(), chunks)
            .map_err(|error| error.to_string())
    }

    fn note_damage(&self, index: usize, reason: String) {
        self.reading
            .note(&self.name, ProblemKind::DamagedBatch { index, reason });
    }
}

impl Iterator for PartReader {
    type Item = RecordBatch;

    fn next(&mut self) -> Option<RecordBatch> {
        loop {
            let Some(batches) = &mut self.batches else {
                let index = self.next_row_group;
                if index >= self.footer.metadata.num_row_groups() {
                    return None;
                }
                self.next_row_group += 1;
                match contain(|| self.open_row_group(index)) {
                    Ok(batches) => self.batches = Some(batches),
                    Err(reason) => self.note_damage(index, reason),
                }
                continue;
            };
            let batch = contain(|| {
                let read = batches.next().map_err(|error| error.to_string())?;
                let bind =
                    |(rows, columns): (usize, Vec<ArrayRef>)| self.binding.apply(rows, &columns);
                read.map(bind)
                    .transpose()
                    .map_err(|error| error.to_string())
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

/// What a part says of other files; nothing when it can't be read.
pub(super) fn head_of(path: &Path, reading: &Reading) -> Option<PartHead> {
    let file = reading.origin.open_part(path).ok()?;
    let footer = Footer::read(&file, path, reading).ok()?;
    let cut_ns = footer.value(CUT_KEY).map(str::parse).transpose().ok()?;
    let replaces_from = footer
        .value(REPLACES_KEY)
        .map(str::parse)
        .transpose()
        .ok()?;
    Some(PartHead {
        cut_ns,
        replaces_from,
    })
}

/// What tells a part from others; nothing when it can't be read.
pub(super) fn facts_of(path: &Path, reading: &Reading) -> Option<PartFacts> {
    let file = reading.origin.open_part(path).ok()?;
    Footer::read(&file, path, reading)
        .ok()
        .map(|footer| footer.facts)
}

/// The footer of a part, as it was written.
struct Footer {
    metadata: ParquetMetaData,
    has_checksums: bool,
    facts: PartFacts,
}

impl Footer {
    fn read(file: &PartFile, path: &Path, reading: &Reading) -> Result<Self, String> {
        let tail = file.read(file.len().saturating_sub(TAIL_BYTES), TAIL_BYTES)?;
        let [l0, l1, l2, l3, b'P', b'A', b'R', b'1'] = tail[..] else {
            return Err("it does not end as a Parquet file does".to_owned());
        };
        let length = u64::from(u32::from_le_bytes([l0, l1, l2, l3])) + TAIL_BYTES;
        if length > MAX_FOOTER_BYTES {
            return Err(format!("a footer of {length} bytes"));
        }
        let start = file.len().checked_sub(length);
        let bytes = file.read(start.ok_or("a footer larger than the file")?, length)?;
        let place = place_in_footer(&bytes);
        let checked = place
            .clone()
            .map_or(Checked::Absent, |place| check(&bytes, place));
        match checked {
            Checked::Changed => return Err("the footer does not match its checksum".to_owned()),
            Checked::Absent if reading.has_checksums => {
                return Err("the footer has no checksum".to_owned());
            }
            Checked::Absent | Checked::Intact => {}
        }
        let encoded = bytes.get(..bytes.len() - TAIL_BYTES as usize);
        let metadata =
            contain(|| ParquetMetaDataReader::decode_metadata(encoded.unwrap_or_default()))?;
        let stated = place.and_then(|place| bytes.get(place));
        let facts = PartFacts {
            rows: metadata.file_metadata().num_rows().cast_unsigned(),
            bytes: file.len(),
            first_boot_ns: None,
            last_boot_ns: None,
            footer_crc32: String::from_utf8_lossy(stated.unwrap_or_default()).into_owned(),
        };
        let footer = Self {
            metadata,
            has_checksums: checked == Checked::Intact,
            facts,
        };
        let stated = [RECORDING_KEY, TABLE_KEY, SEQ_KEY].map(|key| footer.value(key));
        reading.check_file(path, stated, Some(&footer.facts))?;
        Ok(footer)
    }

    fn value(&self, key: &str) -> Option<&str> {
        let metadata = self.metadata.file_metadata();
        let mut entries = metadata.key_value_metadata().into_iter().flatten();
        entries.find(|entry| entry.key == key)?.value.as_deref()
    }

    /// Compares the checksum of a column chunk; `place` counts them through all row groups.
    fn check(&self, place: usize, bytes: &[u8]) -> Result<(), String> {
        if !self.has_checksums {
            return Ok(());
        }
        let width = UNKNOWN.len();
        let stated = self.value(COLUMNS_KEY).unwrap_or_default();
        match stated.get(place * width..(place + 1) * width) == Some(&digits(crc32(bytes))) {
            true => Ok(()),
            false => Err("a column does not match its checksum".to_owned()),
        }
    }
}
