//! Rows on their way to the spool: one growing column buffer per column of a table.

use super::schema::{data_type, table_schema};
use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int32Builder, Int64Builder, StringBuilder,
    TimestampNanosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, SchemaRef};
use memtrace_model::{CellSink, ColumnType, Record, Table};
use std::slice::IterMut;
use std::sync::Arc;

/// The rows of one table that are not yet in its segment.
#[derive(Debug)]
pub(super) struct RowBuffer {
    schema: SchemaRef,
    columns: Vec<ColumnBuffer>,
    fixed_bytes_per_row: usize,
    rows: usize,
    text_bytes: usize,
}

impl RowBuffer {
    /// An empty buffer. Takes no memory for rows until there are some.
    pub(super) fn new(table: &Table) -> Self {
        let columns: Vec<ColumnBuffer> = table
            .columns
            .iter()
            .map(|column| ColumnBuffer::new(column.column_type, 0))
            .collect();
        Self {
            schema: table_schema(table),
            fixed_bytes_per_row: columns.iter().map(ColumnBuffer::fixed_bytes).sum(),
            columns,
            rows: 0,
            text_bytes: 0,
        }
    }

    /// Adds a row of this buffer's table.
    pub(super) fn push(&mut self, record: &Record) {
        self.push_cells(|sink| record.put(sink));
    }

    /// Adds a row whose cells are put by a function.
    pub(super) fn push_cells(&mut self, put: impl FnOnce(&mut RowSink<'_>)) {
        put(&mut RowSink {
            columns: self.columns.iter_mut(),
            text_bytes: &mut self.text_bytes,
        });
        self.rows += 1;
    }

    /// How many rows it holds.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// About how many bytes the rows take.
    pub(super) fn bytes(&self) -> usize {
        self.rows * self.fixed_bytes_per_row + self.text_bytes
    }

    /// Takes the rows out as one batch. What comes next finds room for as many again.
    pub(super) fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        let rows = std::mem::take(&mut self.rows);
        self.text_bytes = 0;
        let columns = self.columns.iter_mut();
        let columns = columns.map(|column| column.take(rows)).collect();
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }
}

/// The cells of one column.
#[derive(Debug)]
enum ColumnBuffer {
    Int64(Int64Builder),
    TimestampNs(TimestampNanosecondBuilder),
    Int32(Int32Builder),
    Float64(Float64Builder),
    Boolean(BooleanBuilder),
    Utf8(StringBuilder),
}

impl ColumnBuffer {
    fn new(column_type: ColumnType, rows: usize) -> Self {
        match column_type {
            ColumnType::Int64 => Self::Int64(Int64Builder::with_capacity(rows)),
            ColumnType::TimestampNs => Self::TimestampNs(
                TimestampNanosecondBuilder::with_capacity(rows)
                    .with_data_type(data_type(column_type)),
            ),
            ColumnType::Int32 => Self::Int32(Int32Builder::with_capacity(rows)),
            ColumnType::Float64 => Self::Float64(Float64Builder::with_capacity(rows)),
            ColumnType::Boolean => Self::Boolean(BooleanBuilder::with_capacity(rows)),
            ColumnType::Utf8 => Self::Utf8(StringBuilder::with_capacity(rows, 0)),
        }
    }

    fn column_type(&self) -> ColumnType {
        match self {
            Self::Int64(_) => ColumnType::Int64,
            Self::TimestampNs(_) => ColumnType::TimestampNs,
            Self::Int32(_) => ColumnType::Int32,
            Self::Float64(_) => ColumnType::Float64,
            Self::Boolean(_) => ColumnType::Boolean,
            Self::Utf8(_) => ColumnType::Utf8,
        }
    }

    fn fixed_bytes(&self) -> usize {
        match self {
            Self::Int64(_) | Self::TimestampNs(_) | Self::Float64(_) => 8,
            Self::Int32(_) | Self::Utf8(_) => 4,
            Self::Boolean(_) => 1,
        }
    }

    /// Takes the cells out, and makes room for some more.
    fn take(&mut self, rows: usize) -> ArrayRef {
        let empty = Self::new(self.column_type(), rows);
        match std::mem::replace(self, empty) {
            Self::Int64(mut builder) => Arc::new(builder.finish()),
            Self::TimestampNs(mut builder) => Arc::new(builder.finish()),
            Self::Int32(mut builder) => Arc::new(builder.finish()),
            Self::Float64(mut builder) => Arc::new(builder.finish()),
            Self::Boolean(mut builder) => Arc::new(builder.finish()),
            Self::Utf8(mut builder) => Arc::new(builder.finish()),
        }
    }
}

/// Distributes the cells of one row over the columns, left to right.
///
/// Table, row and buffer come from one declaration, so a cell always meets a column of
/// its type; were it not so, the columns would differ in length, and `take` would say so.
pub(super) struct RowSink<'a> {
    columns: IterMut<'a, ColumnBuffer>,
    text_bytes: &'a mut usize,
}

impl CellSink for RowSink<'_> {
    fn int64(&mut self, value: Option<i64>) {
        match self.columns.next() {
            Some(ColumnBuffer::Int64(builder)) => builder.append_option(value),
            Some(ColumnBuffer::TimestampNs(builder)) => builder.append_option(value),
            _ => {}
        }
    }

    fn int32(&mut self, value: Option<i32>) {
        if let Some(ColumnBuffer::Int32(builder)) = self.columns.next() {
            builder.append_option(value);
        }
    }

    fn float64(&mut self, value: Option<f64>) {
        if let Some(ColumnBuffer::Float64(builder)) = self.columns.next() {
            builder.append_option(value);
        }
    }

    fn boolean(&mut self, value: Option<bool>) {
        if let Some(ColumnBuffer::Boolean(builder)) = self.columns.next() {
            builder.append_option(value);
        }
    }

    fn utf8(&mut self, value: Option<&str>) {
        if let Some(ColumnBuffer::Utf8(builder)) = self.columns.next() {
            *self.text_bytes += value.map_or(0, str::len);
            builder.append_option(value);
        }
    }
}
