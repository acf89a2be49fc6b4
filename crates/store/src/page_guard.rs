//! The columns of a row group of a Parquet file, whose page headers are checked before parquet
//! decodes the pages.
//!
//! parquet allocates what a page header says its data unpacks to, and fills a dictionary
//! of as many values as the header says it has: a flipped bit can ask for gigabytes. The
//! headers are small and stand in a chain, so they are walked first, and a chunk with one
//! that no part of ours can have is refused. A checksum tells damage, but whoever makes up a
//! recording can make up that too.

use bytes::buf::Reader;
use bytes::{Buf, Bytes};
use parquet::basic::Type;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};
use std::ops::Range;

/// Rows per batch. A row group is a multiple, so that no batch spans two.
const BATCH_ROWS: u64 = 8_192;
/// What the columns of one row group may take, as they stand in the file: a row group of texts
/// of 4 KiB takes half of that.
pub(super) const MAX_ROW_GROUP_BYTES: u64 = 1 << 28;
/// What the texts of one batch may take.
const MAX_BATCH_BYTES: u64 = 1 << 26;
/// Pages are cut at 1 MiB; a batch of long texts can make one larger.
const MAX_PAGE_BYTES: i64 = 1 << 26;
/// A page holds at most one row group.
const MAX_PAGE_VALUES: i64 = 1 << 22;
/// A dictionary of texts is cut at 128 KiB, and each takes 4 bytes at least; the decoder holds 32 for
/// each while its row group is read.
const MAX_DICTIONARY_VALUES: i64 = 1 << 17;
/// Encodings by their numbers in Parquet: the values themselves, or places in a dictionary. Any other
/// of texts can make each of a few bytes as long as the page.
const TEXT_ENCODINGS: [i64; 3] = [0, 2, 8];
/// The structs of a page header are nested two deep.
const MAX_DEPTH: usize = 8;

// Types of fields in the Thrift compact protocol.
const STOP: u8 = 0;
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const STRUCT: u8 = 12;

/// The columns of one row group, in memory: what was checked is what is decoded.
pub(super) struct Chunks {
    chunks: Vec<(u64, Bytes)>,
    batch_rows: u64,
}

impl Chunks {
    /// Reads columns with `read`, by their ranges in the file, and checks their pages.
    ///
    /// # Errors
    /// One line about what can't be read or does not fit.
    pub(super) fn open(
        row_group: &RowGroupMetaData,
        columns: &[usize],
        read: impl FnOnce(&[Range<u64>]) -> Result<Vec<Bytes>, String>,
    ) -> Result<Self, String> {
        let mut ranges = Vec::with_capacity(columns.len());
        let mut room = MAX_ROW_GROUP_BYTES;
        for &column in columns {
            let chunk = row_group.columns().get(column);
            let chunk = chunk.ok_or("the footer lacks a column")?;
            let (start, length) = chunk.byte_range();
            let rest = room.checked_sub(length);
            room = rest.ok_or("columns larger than memtrace writes")?;
            ranges.push(start..start.saturating_add(length));
        }
        let read = read(&ranges)?;
        let mut chunks = Vec::with_capacity(columns.len());
        let mut batch_rows = BATCH_ROWS;
        for ((&column, range), bytes) in columns.iter().zip(ranges).zip(read) {
            let chunk = row_group.column(column);
            let pages = check_chunk(&bytes, chunk, row_group.num_rows())?;
            batch_rows = batch_rows.min(fitting_rows(chunk, &pages));
            chunks.push((range.start, bytes));
        }
        Ok(Self { chunks, batch_rows })
    }

    /// How many rows can be in memory at once.
    pub(super) fn batch_rows(&self) -> usize {
        self.batch_rows as usize
    }

    /// The bytes of a chunk from a place in the file on.
    fn from(&self, start: u64) -> Result<Bytes, ParquetError> {
        let mut found = self.chunks.iter().filter_map(|(at, bytes)| {
            let skipped = usize::try_from(start.checked_sub(*at)?).ok()?;
            (skipped < bytes.len()).then(|| bytes.slice(skipped..))
        });
        found
            .next()
            .ok_or_else(|| ParquetError::EOF("outside of the columns".to_owned()))
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        let ends = self
            .chunks
            .iter()
            .map(|(at, bytes)| at + bytes.len() as u64);
        ends.max().unwrap_or(0)
    }
}

impl ChunkReader for Chunks {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let bytes = self.from(start)?;
        match length <= bytes.len() {
            true => Ok(bytes.slice(..length)),
            false => Err(ParquetError::EOF("beyond its column".to_owned())),
        }
    }
}

/// How many rows of a column can be in memory at once. A few bytes of a page can stand for any
/// number of texts out of its dictionary, and a batch can span pages.
fn fitting_rows(chunk: &ColumnChunkMetaData, pages: &Pages) -> u64 {
    if chunk.column_type() != Type::BYTE_ARRAY {
        return BATCH_ROWS;
    }
    let of_dictionary = MAX_BATCH_BYTES / pages.dictionary_bytes.max(1);
    let is_one_page_enough = pages.largest_bytes * BATCH_ROWS <= MAX_BATCH_BYTES;
    let of_pages = match is_one_page_enough {
        true => BATCH_ROWS,
        false => pages.fewest_values,
    };
    of_dictionary.min(of_pages).clamp(1, BATCH_ROWS)
}

/// What is checked of a page header.
#[derive(Debug, Default)]
struct PageHeader {
    unpacked_bytes: Option<i64>,
    packed_bytes: Option<i64>,
    values: Option<i64>,
    /// How the values stand in a data page.
    encoding: Option<i64>,
    is_dictionary: bool,
}

/// What the pages of a chunk take when they are decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pages {
    /// The largest page, unpacked.
    largest_bytes: u64,
    /// The dictionary, unpacked: its longest text can stand in every row.
    dictionary_bytes: u64,
    /// The fewest values of a page but the last.
    fewest_values: u64,
}

/// Walks the pages of a chunk of a row group with `row_count` rows. `bytes` are the chunk's.
fn check_chunk(bytes: &[u8], chunk: &ColumnChunkMetaData, row_count: i64) -> Result<Pages, String> {
    if chunk.num_values() != row_count {
        return Err(format!(
            "a column of {} values for {row_count} rows",
            chunk.num_values()
        ));
    }
    let mut pages = Pages {
        fewest_values: u64::MAX,
        ..Pages::default()
    };
    let mut reader = ThriftReader { bytes };
    while !reader.bytes.is_empty() {
        let header = reader.page_header()?;
        let packed = check_page(&header, reader.bytes.len() as u64)?;
        check_encoding(&header, chunk.column_type())?;
        reader.skip_bytes(packed)?;
        let unpacked = header.unpacked_bytes.unwrap_or(0).unsigned_abs();
        pages.largest_bytes = pages.largest_bytes.max(unpacked);
        if header.is_dictionary {
            pages.dictionary_bytes = pages.dictionary_bytes.max(unpacked);
        } else if !reader.bytes.is_empty() {
            let values = header.values.unwrap_or(0).unsigned_abs();
            pages.fewest_values = pages.fewest_values.min(values);
        }
    }
    Ok(pages)
}

/// Gives the size of the page's data in the file.
fn check_page(header: &PageHeader, remaining: u64) -> Result<u64, String> {
    let packed = header.packed_bytes.unwrap_or(-1);
    let unpacked = header.unpacked_bytes.unwrap_or(-1);
    let values = header.values.unwrap_or(-1);
    let most = match header.is_dictionary {
        true => MAX_DICTIONARY_VALUES,
        false => MAX_PAGE_VALUES,
    };
    if !(0..=MAX_PAGE_BYTES).contains(&packed)
        || !(0..=MAX_PAGE_BYTES).contains(&unpacked)
        || !(0..=most).contains(&values)
        || packed.unsigned_abs() > remaining
    {
        return Err(format!(
            "a page of {packed} bytes, {unpacked} unpacked, with {values} values"
        ));
    }
    Ok(packed.unsigned_abs())
}

/// That texts do not stand as differences from each other.
fn check_encoding(header: &PageHeader, column_type: Type) -> Result<(), String> {
    let is_text = column_type == Type::BYTE_ARRAY && !header.is_dictionary;
    match header.encoding {
        _ if !is_text => Ok(()),
        Some(known) if TEXT_ENCODINGS.contains(&known) => Ok(()),
        other => Err(format!(
            "texts in an encoding that memtrace does not write: {other:?}"
        )),
    }
}

/// Reads just as much of the Thrift compact protocol as a page header needs.
struct ThriftReader<'a> {
    bytes: &'a [u8],
}

impl ThriftReader<'_> {
    fn page_header(&mut self) -> Result<PageHeader, String> {
        let mut header = PageHeader::default();
        self.fields(0, |reader, field, kind, depth| {
            match (field, kind) {
                (2, I32) => header.unpacked_bytes = Some(reader.zigzag()?),
                (3, I32) => header.packed_bytes = Some(reader.zigzag()?),
                // Data page (5), dictionary page (7), data page of version 2 (8): the
                // first field of each is the number of values. Should a damaged header
                // have two of them, the larger one counts.
                (5 | 7 | 8, STRUCT) => {
                    header.is_dictionary |= field == 7;
                    let (values, encoding) = reader.page(field, depth)?;
                    header.values = header.values.max(values);
                    header.encoding = encoding.or(header.encoding);
                }
                // parquet reads these by their number, whatever their type says.
                (2 | 3 | 5 | 7 | 8, _) => return Err(format!("field {field} of type {kind}")),
                _ => reader.skip(kind, depth)?,
            }
            Ok(())
        })?;
        Ok(header)
    }

    /// How many values, which is the first field of a data or dictionary page's own header, and how
    /// they are encoded.
    fn page(&mut self, page: i64, depth: usize) -> Result<(Option<i64>, Option<i64>), String> {
        let (mut values, mut encoding) = (None, None);
        // A data page of version 2 has how many nulls and rows there are before it.
        let encoding_field = if page == 8 { 4 } else { 2 };
        self.fields(depth, |reader, field, kind, depth| {
            match (field, kind) {
                (1, I32) => values = values.max(Some(reader.zigzag()?)),
                (1, _) => return Err(format!("a number of values of type {kind}")),
                (field, I32) if field == encoding_field && encoding.is_none() => {
                    encoding = Some(reader.zigzag()?);
                }
                (field, _) if field == encoding_field => {
                    return Err(format!("an encoding of type {kind}, or a second one"));
                }
                _ => reader.skip(kind, depth)?,
            }
            Ok(())
        })?;
        Ok((values, encoding))
    }

    /// Calls `visit` with the id and type of each field of a struct; it must read the
    /// field's value.
    fn fields(
        &mut self,
        depth: usize,
        mut visit: impl FnMut(&mut Self, i64, u8, usize) -> Result<(), String>,
    ) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err("a page header nested too deep".to_owned());
        }
        let mut field = 0;
        loop {
            let byte = self.byte()?;
            let kind = byte & 0x0F;
            if kind == STOP {
                return Ok(());
            }
            field = match byte >> 4 {
                0 => self.zigzag()?,
                step => field + i64::from(step),
            };
            // parquet cuts a number to the 16 bits that it should have.
            if i16::try_from(field).is_err() {
                return Err(format!("a field numbered {field}"));
            }
            visit(self, field, kind, depth + 1)?;
        }
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Result<(), String> {
        match kind {
            TRUE | FALSE => Ok(()),
            BYTE => self.skip_bytes(1),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.skip_bytes(8),
            BINARY => {
                let length = self.varint()?;
                self.skip_bytes(length)
            }
            STRUCT => self.fields(depth, |reader, _, kind, depth| reader.skip(kind, depth)),
            // Lists, sets and maps: no page header has any.
            other => Err(format!("a page header with a field of type {other}")),
        }
    }

    fn skip_bytes(&mut self, count: u64) -> Result<(), String> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let rest = self.bytes.get(count..);
        self.bytes = rest.ok_or("a page header beyond its column")?;
        Ok(())
    }

    fn zigzag(&mut self) -> Result<i64, String> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a page header with an endless number".to_owned())
    }

    fn byte(&mut self) -> Result<u8, String> {
        let (&byte, rest) = self
            .bytes
            .split_first()
            .ok_or("a page header beyond its column")?;
        self.bytes = rest;
        Ok(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<PageHeader, String> {
        ThriftReader { bytes }.page_header()
    }

    fn varint(mut value: u64, out: &mut Vec<u8>) {
        while value >= 0x80 {
            out.push((value & 0x7F) as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }

    fn zigzag(value: i64, out: &mut Vec<u8>) {
        varint(((value << 1) ^ (value >> 63)).cast_unsigned(), out);
    }

    /// A data page: type, unpacked and packed size, and a header of its own.
    fn data_page(unpacked: i64, packed: i64, values: i64) -> Vec<u8> {
        let mut bytes = vec![0x15, 0x00, 0x15];
        zigzag(unpacked, &mut bytes);
        bytes.push(0x15);
        zigzag(packed, &mut bytes);
        bytes.extend([0x2C, 0x15]);
        zigzag(values, &mut bytes);
        // An encoding; statistics with two texts; the ends of the three structs.
        bytes.extend([0x15, 0x00, 0x3C, 0x18, 1, b'x', 0x18, 1, b'y', 0, 0, 0]);
        bytes
    }

    #[test]
    fn sizes_and_the_number_of_values_are_found_past_other_fields() {
        let header = parse(&data_page(1000, 300, 77)).unwrap();
        assert_eq!(header.unpacked_bytes, Some(1000));
        assert_eq!(header.packed_bytes, Some(300));
        assert_eq!(header.values, Some(77));
        assert_eq!(check_page(&header, 300), Ok(300));
    }

    #[test]
    fn a_page_that_asks_for_too_much_is_refused() {
        for (unpacked, packed, values) in [
            (i64::from(i32::MAX), 300, 77),
            (1000, 301, 77),
            (1000, 300, i64::from(i32::MAX)),
            (-1, 300, 77),
            (1000, -1, 77),
            (1000, 300, -1),
        ] {
            let header = parse(&data_page(unpacked, packed, values)).unwrap();
            check_page(&header, 300).unwrap_err();
        }
        check_page(&PageHeader::default(), 300).unwrap_err();
    }

    #[test]
    fn texts_as_differences_and_dictionaries_of_millions_are_refused() {
        for (encoding, is_known) in [(0, true), (2, true), (8, true), (6, false), (7, false)] {
            let header = PageHeader {
                encoding: Some(encoding),
                ..PageHeader::default()
            };
            let checked = check_encoding(&header, Type::BYTE_ARRAY);
            assert_eq!(checked.is_ok(), is_known, "{encoding}");
            check_encoding(&header, Type::INT64).unwrap();
        }
        check_encoding(&PageHeader::default(), Type::BYTE_ARRAY).unwrap_err();
        // DELTA_BYTE_ARRAY is 7.
        let mut bytes = data_page(1000, 300, 77);
        let at = bytes.windows(2).rposition(|pair| pair == [0x15, 0x00]);
        bytes[at.unwrap() + 1] = 14;
        assert_eq!(parse(&bytes).unwrap().encoding, Some(7));
        let dictionary = PageHeader {
            unpacked_bytes: Some(1 << 24),
            packed_bytes: Some(300),
            values: Some(1 << 22),
            is_dictionary: true,
            ..PageHeader::default()
        };
        check_page(&dictionary, 300).unwrap_err();
    }

    #[test]
    fn a_header_that_ends_early_or_never_is_an_error() {
        let whole = data_page(1000, 300, 77);
        for length in 0..whole.len() {
            parse(&whole[..length]).unwrap_err();
        }
        parse(&[0x1C; 100]).unwrap_err();
        parse(&[0x15; 3]).unwrap_err();
        parse(&[0xFF; 30]).unwrap_err();
    }

    #[test]
    fn a_second_larger_value_can_not_hide_behind_a_small_one() {
        let mut bytes = data_page(1000, 300, 77);
        bytes.pop();
        // Field 7, a dictionary page's header, with 2^31 - 1 values.
        bytes.extend([0x2C, 0x15]);
        zigzag(i64::from(i32::MAX), &mut bytes);
        bytes.extend([0, 0]);
        assert_eq!(parse(&bytes).unwrap().values, Some(i64::from(i32::MAX)));
    }
}
