//! The columns of one row group of a part, decoded into batches.
//!
//! parquet's own reader of Arrow batches can do that for every type of Arrow, which makes the program
//! much larger; here are the six types of a recording.

use super::page_guard::Chunks;
use arrow_array::types::{
    ArrowPrimitiveType, Float64Type, Int32Type, Int64Type, TimestampNanosecondType,
};
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray, StringArray};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use memtrace_model::ColumnType;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type as ParquetInt32,
    Int64Type as ParquetInt64,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::serialized_reader::SerializedPageReader;
use std::sync::Arc;

/// Columns of one row group that are read together.
pub(super) struct RowGroupDecoder {
    columns: Vec<ColumnDecoder>,
    left_rows: usize,
    batch_rows: usize,
}

impl RowGroupDecoder {
    /// Decodes these columns, by their place, of these types.
    pub(super) fn new(
        row_group: &RowGroupMetaData,
        columns: &[(usize, ColumnType)],
        chunks: Chunks,
    ) -> Result<Self, ParquetError> {
        let rows = usize::try_from(row_group.num_rows());
        let rows = rows.map_err(|_| ParquetError::General("less than no rows".to_owned()))?;
        let batch_rows = chunks.batch_rows();
        let chunks = Arc::new(chunks);
        let columns = columns.iter().map(|&(place, column_type)| {
            let chunk = row_group.column(place);
            let pages = SerializedPageReader::new(Arc::clone(&chunks), chunk, rows, None)?;
            let (column, pages) = (chunk.column_descr_ptr(), Box::new(pages));
            Ok(match column_type {
                ColumnType::Int64 => {
                    ColumnDecoder::Int64(ColumnReaderImpl::new(column, pages).into())
                }
                ColumnType::TimestampNs => {
                    ColumnDecoder::TimestampNs(ColumnReaderImpl::new(column, pages).into())
                }
                ColumnType::Int32 => {
                    ColumnDecoder::Int32(ColumnReaderImpl::new(column, pages).into())
                }
                ColumnType::Float64 => {
                    ColumnDecoder::Float64(ColumnReaderImpl::new(column, pages).into())
                }
                ColumnType::Boolean => {
                    ColumnDecoder::Boolean(ColumnReaderImpl::new(column, pages).into())
                }
                ColumnType::Utf8 => {
                    ColumnDecoder::Utf8(ColumnReaderImpl::new(column, pages).into())
                }
            })
        });
        Ok(Self {
            columns: columns.collect::<Result<_, ParquetError>>()?,
            left_rows: rows,
            batch_rows,
        })
    }

    /// The next rows: how many, and an array for each column. `None` behind the last.
    pub(super) fn next(&mut self) -> Result<Option<(usize, Vec<ArrayRef>)>, ParquetError> {
        let rows = self.left_rows.min(self.batch_rows);
        if rows == 0 {
            return Ok(None);
        }
        self.left_rows -= rows;
        let arrays = self.columns.iter_mut().map(|column| column.next(rows));
        Ok(Some((rows, arrays.collect::<Result<_, ParquetError>>()?)))
    }
}

enum ColumnDecoder {
    Int64(Values<ParquetInt64>),
    TimestampNs(Values<ParquetInt64>),
    Int32(Values<ParquetInt32>),
    Float64(Values<DoubleType>),
    Boolean(Values<BoolType>),
    Utf8(Values<ByteArrayType>),
}

impl ColumnDecoder {
    fn next(&mut self, rows: usize) -> Result<ArrayRef, ParquetError> {
        Ok(match self {
            Self::Int64(values) => Arc::new(values.primitives::<Int64Type>(rows)?),
            Self::TimestampNs(values) => {
                let times = values.primitives::<TimestampNanosecondType>(rows)?;
                Arc::new(times.with_timezone("UTC"))
            }
            Self::Int32(values) => Arc::new(values.primitives::<Int32Type>(rows)?),
            Self::Float64(values) => Arc::new(values.primitives::<Float64Type>(rows)?),
            Self::Boolean(values) => {
                let nulls = values.read(rows)?;
                Arc::new(BooleanArray::new(
                    BooleanBuffer::from(&values.values[..]),
                    nulls,
                ))
            }
            Self::Utf8(values) => {
                let nulls = values.read(rows)?;
                Arc::new(texts(&values.values, nulls)?)
            }
        })
    }
}

/// The values of one column.
struct Values<T: DataType> {
    reader: ColumnReaderImpl<T>,
    /// Those of the last reading, with anything at all where a row has none.
    values: Vec<T::T>,
    /// One for each row of a column that can be null: 0 where it is.
    levels: Vec<i16>,
}

impl<T: DataType> From<ColumnReaderImpl<T>> for Values<T> {
    fn from(reader: ColumnReaderImpl<T>) -> Self {
        Self {
            reader,
            values: Vec::new(),
            levels: Vec::new(),
        }
    }
}

impl<T: DataType> Values<T> {
    /// Reads this many rows.
    fn read(&mut self, rows: usize) -> Result<Option<NullBuffer>, ParquetError> {
        self.values.clear();
        self.values.reserve(rows);
        self.levels.clear();
        let (records, known, _) =
            self.reader
                .read_records(rows, Some(&mut self.levels), None, &mut self.values)?;
        if records != rows {
            return Err(ParquetError::EOF(format!("{records} of {rows} rows")));
        }
        if known == rows {
            return Ok(None);
        }
        self.spread(rows);
        let is_known = BooleanBuffer::collect_bool(rows, |row| {
            self.levels.get(row).is_some_and(|&level| level > 0)
        });
        Ok(Some(NullBuffer::new(is_known)))
    }

    /// Parquet has no place for the value of a null. Moves each value to its row, from the last on.
    fn spread(&mut self, rows: usize) {
        let mut from = self.values.len();
        self.values.resize(rows, T::T::default());
        for (row, &level) in self.levels.iter().enumerate().rev() {
            if level > 0 && from > 0 {
                from -= 1;
                self.values.swap(from, row);
            }
        }
    }

    fn primitives<A>(&mut self, rows: usize) -> Result<PrimitiveArray<A>, ParquetError>
    where
        A: ArrowPrimitiveType<Native = T::T>,
        T::T: ArrowNativeType,
    {
        let nulls = self.read(rows)?;
        let values = std::mem::take(&mut self.values);
        Ok(PrimitiveArray::new(values.into(), nulls))
    }
}

fn texts(values: &[ByteArray], nulls: Option<NullBuffer>) -> Result<StringArray, ParquetError> {
    let is_known = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    let known = || {
        let rows = values.iter().enumerate();
        rows.map(|(row, value)| match is_known(row) {
            true => value.data(),
            // A value that nobody set.
            false => &[],
        })
    };
    let mut bytes = Vec::with_capacity(known().map(<[u8]>::len).sum());
    known().for_each(|text| bytes.extend_from_slice(text));
    let offsets = OffsetBuffer::<i32>::from_lengths(known().map(<[u8]>::len));
    // Looks whether they are UTF-8, each by itself.
    StringArray::try_new(offsets, Buffer::from_vec(bytes), nulls)
        .map_err(|error| ParquetError::General(error.to_string()))
}
