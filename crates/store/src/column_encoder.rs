//! One column chunk of a part while its row group grows: values in, encoded pages out.
//!
//! parquet's own writer of Arrow batches does the same for every type of Arrow, which makes the
//! program much larger; here are the six types of a recording.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float64Type, Int32Type, Int64Type, TimestampNanosecondType,
};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use bytes::Bytes;
use memtrace_model::ColumnType;
use parquet::column::page::{CompressedPage, PageWriteSpec, PageWriter};
use parquet::column::writer::{ColumnCloseResult, ColumnWriterImpl};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type as ParquetInt32,
    Int64Type as ParquetInt64,
};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use std::sync::{Arc, Mutex, PoisonError};

/// A column chunk that takes values.
pub(super) struct ColumnEncoder {
    values: Values,
    pages: Pages,
}

enum Values {
    Int64(ColumnWriterImpl<'static, ParquetInt64>),
    TimestampNs(ColumnWriterImpl<'static, ParquetInt64>),
    Int32(ColumnWriterImpl<'static, ParquetInt32>),
    Float64(ColumnWriterImpl<'static, DoubleType>),
    Boolean(ColumnWriterImpl<'static, BoolType>),
    Utf8(ColumnWriterImpl<'static, ByteArrayType>),
}

impl ColumnEncoder {
    /// An empty chunk.
    pub(super) fn new(
        column_type: ColumnType,
        column: ColumnDescPtr,
        properties: WriterPropertiesPtr,
    ) -> Self {
        let pages = Pages::default();
        let sink = Box::new(pages.clone());
        let values = match column_type {
            ColumnType::Int64 => Values::Int64(ColumnWriterImpl::new(column, properties, sink)),
            ColumnType::TimestampNs => {
                Values::TimestampNs(ColumnWriterImpl::new(column, properties, sink))
            }
            ColumnType::Int32 => Values::Int32(ColumnWriterImpl::new(column, properties, sink)),
            ColumnType::Float64 => Values::Float64(ColumnWriterImpl::new(column, properties, sink)),
            ColumnType::Boolean => Values::Boolean(ColumnWriterImpl::new(column, properties, sink)),
            ColumnType::Utf8 => Values::Utf8(ColumnWriterImpl::new(column, properties, sink)),
        };
        Self { values, pages }
    }

    /// Adds values, of the column's type.
    pub(super) fn write(&mut self, array: &ArrayRef) -> Result<(), ParquetError> {
        let nulls = array.nulls();
        match &mut self.values {
            Values::Int64(writer) => write(writer, primitives::<Int64Type>(array)?, nulls),
            Values::TimestampNs(writer) => {
                write(writer, primitives::<TimestampNanosecondType>(array)?, nulls)
            }
            Values::Int32(writer) => write(writer, primitives::<Int32Type>(array)?, nulls),
            Values::Float64(writer) => write(writer, primitives::<Float64Type>(array)?, nulls),
            Values::Boolean(writer) => {
                let array = array.as_boolean_opt().ok_or_else(|| unfit(array))?;
                let values: Vec<bool> = array.values().iter().collect();
                write(writer, &values, nulls)
            }
            Values::Utf8(writer) => {
                let array = array.as_string_opt::<i32>().ok_or_else(|| unfit(array))?;
                let ends = array.value_offsets();
                let first = ends.first().map_or(0, |&end| end as usize);
                let last = ends.last().map_or(0, |&end| end as usize);
                // A copy: what the encoder keeps of a text until the chunk ends, such as one that
                // is new to its dictionary, would keep all of what the batch was read from.
                let texts = array.values().get(first..last).unwrap_or_default();
                let texts = Bytes::copy_from_slice(texts);
                let values: Vec<ByteArray> = ends
                    .windows(2)
                    .map(|ends| match *ends {
                        [start, end] => texts
                            .slice(start as usize - first..end as usize - first)
                            .into(),
                        _ => ByteArray::new(),
                    })
                    .collect();
                write(writer, &values, nulls)
            }
        }
    }

    /// Ends the chunk: its bytes, and what the footer says of it.
    pub(super) fn close(self) -> Result<(Bytes, ColumnCloseResult), ParquetError> {
        let closed = match self.values {
            Values::Int64(writer) | Values::TimestampNs(writer) => writer.close(),
            Values::Int32(writer) => writer.close(),
            Values::Float64(writer) => writer.close(),
            Values::Boolean(writer) => writer.close(),
            Values::Utf8(writer) => writer.close(),
        }?;
        Ok((self.pages.into_bytes()?, closed))
    }
}

fn primitives<T: ArrowPrimitiveType>(array: &ArrayRef) -> Result<&[T::Native], ParquetError> {
    let array = array.as_primitive_opt::<T>().ok_or_else(|| unfit(array))?;
    Ok(array.values())
}

fn unfit(array: &ArrayRef) -> ParquetError {
    ParquetError::General(format!("{} is not the column's type", array.data_type()))
}

/// Parquet has no place for the value of a null: the writer takes the values that are known, and of a
/// column that can be null one definition level a row.
fn write<T: DataType>(
    writer: &mut ColumnWriterImpl<'static, T>,
    values: &[T::T],
    nulls: Option<&NullBuffer>,
) -> Result<(), ParquetError> {
    let is_nullable = writer.get_descriptor().max_def_level() > 0;
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
    match (nulls, is_nullable) {
        (None, false) => writer.write_batch(values, None, None)?,
        (None, true) => writer.write_batch(values, Some(&vec![1; values.len()]), None)?,
        (Some(_), false) => return Err(ParquetError::General("a null where none can be".into())),
        (Some(nulls), true) => {
            let levels: Vec<i16> = nulls.iter().map(i16::from).collect();
            let known: Vec<T::T> = nulls
                .valid_indices()
                .filter_map(|row| values.get(row).cloned())
                .collect();
            writer.write_batch(&known, Some(&levels), None)?
        }
    };
    Ok(())
}

/// Where the pages of a chunk gather, until its row group is written.
#[derive(Clone)]
struct Pages(Arc<Mutex<TrackedWrite<Vec<u8>>>>);

impl Default for Pages {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(TrackedWrite::new(Vec::new()))))
    }
}

impl Pages {
    fn into_bytes(self) -> Result<Bytes, ParquetError> {
        let gathered = Arc::into_inner(self.0);
        let gathered = gathered.ok_or_else(|| ParquetError::General("an open column".into()))?;
        let gathered = gathered
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        Ok(gathered.into_inner()?.into())
    }
}

impl PageWriter for Pages {
    fn write_page(&mut self, page: CompressedPage) -> Result<PageWriteSpec, ParquetError> {
        let mut gathered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        SerializedPageWriter::new(&mut *gathered).write_page(page)
    }

    fn close(&mut self) -> Result<(), ParquetError> {
        Ok(())
    }
}
