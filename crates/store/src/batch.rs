//! Batches as all of the room handles them: a projection of a table, whatever file they
//! come from, and the way from a batch back to rows.

use super::error::StoreError;
use super::gather::nulls;
use super::schema::{TIME_COLUMN, column_type, data_type, schema_of};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, TimestampNanosecondType};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use memtrace_model::{CellSource, ColumnType, Row, Table};
use std::sync::Arc;

/// Which columns of a table are read. Columns that can't be null are always among them:
/// without them there is no row.
#[derive(Clone, Debug)]
pub(super) struct Projection {
    table: &'static Table,
    columns: Vec<usize>,
    schema: SchemaRef,
}

impl Projection {
    pub(super) fn all(table: &'static Table) -> Self {
        Self::new(table, (0..table.columns.len()).collect())
    }

    /// Only the columns without which there is no row: time, identity, key.
    pub(super) fn required(table: &'static Table) -> Self {
        Self::with(table, |_| false)
    }

    /// The named columns, and those that can't be null.
    ///
    /// # Errors
    /// When the table has no column of a name.
    pub(super) fn named(table: &'static Table, names: &[&str]) -> Result<Self, StoreError> {
        if let Some(unknown) = names.iter().find(|name| table.column_index(name).is_none()) {
            return Err(StoreError::NoSuchColumn {
                table: table.name,
                column: (*unknown).to_owned(),
            });
        }
        Ok(Self::with(table, |name| names.contains(&name)))
    }

    fn with(table: &'static Table, is_wanted: impl Fn(&str) -> bool) -> Self {
        let columns = table.columns.iter().enumerate();
        let columns = columns
            .filter(|(_, column)| !column.nullable || is_wanted(column.name))
            .map(|(index, _)| index);
        Self::new(table, columns.collect())
    }

    fn new(table: &'static Table, columns: Vec<usize>) -> Self {
        let schema = schema_of(table, &columns);
        Self {
            table,
            columns,
            schema,
        }
    }

    /// The schema of the batches.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(super) fn table(&self) -> &'static Table {
        self.table
    }

    /// Finds the columns in a file, among its columns by their place.
    ///
    /// # Errors
    /// One line about the column that does not fit.
    pub(super) fn bind(&self, file: &[FileColumn<'_>]) -> Result<Binding, String> {
        let mut read = Vec::new();
        let mut places = Vec::new();
        for &index in &self.columns {
            let Some(column) = self.table.columns.get(index) else {
                continue;
            };
            let place = file.iter().position(|found| found.name == column.name);
            let found = place.and_then(|place| file.get(place));
            match (place, found.map(|found| &found.column_type)) {
                (Some(place), Some(Ok(found))) if *found == column.column_type => {
                    read.push((place, *found));
                    places.push(Some(place));
                }
                (_, Some(found)) => {
                    let found = match found {
                        Ok(known) => data_type(*known).to_string(),
                        Err(other) => other.clone(),
                    };
                    let expected = data_type(column.column_type);
                    return Err(format!("column {} is {found}, not {expected}", column.name));
                }
                // An older minor version did not have it yet.
                _ if column.nullable => places.push(None),
                _ => return Err(format!("column {} is missing", column.name)),
            }
        }
        read.sort_unstable_by_key(|&(place, _)| place);
        // From places in the file to places among the columns that are read.
        let places = places.into_iter().map(|place| {
            place.and_then(|place| read.binary_search_by_key(&place, |&(place, _)| place).ok())
        });
        Ok(Binding {
            schema: Arc::clone(&self.schema),
            places: places.collect(),
            read,
        })
    }
}

/// A column of a file.
#[derive(Debug)]
pub(super) struct FileColumn<'a> {
    pub(super) name: &'a str,
    /// Its type; of one that is none of ours, what it is.
    pub(super) column_type: Result<ColumnType, String>,
}

/// The columns of a file that states its schema as Arrow does.
pub(super) fn arrow_columns(schema: &Schema) -> Vec<FileColumn<'_>> {
    let fields = schema.fields().iter();
    fields
        .map(|field| FileColumn {
            name: field.name(),
            column_type: column_type(field.data_type())
                .ok_or_else(|| field.data_type().to_string()),
        })
        .collect()
}

/// Where a projection's columns are in one file.
#[derive(Debug)]
pub(super) struct Binding {
    schema: SchemaRef,
    read: Vec<(usize, ColumnType)>,
    places: Vec<Option<usize>>,
}

impl Binding {
    /// The file's columns to read, by their place, ascending, with their types.
    pub(super) fn read(&self) -> &[(usize, ColumnType)] {
        &self.read
    }

    /// The places of the file's columns to read.
    pub(super) fn read_places(&self) -> Vec<usize> {
        self.read.iter().map(|&(place, _)| place).collect()
    }

    /// Brings `rows` values of exactly these columns into the projection's form; what the file
    /// does not have becomes null.
    pub(super) fn apply(&self, rows: usize, read: &[ArrayRef]) -> Result<RecordBatch, ArrowError> {
        let columns = self.places.iter().zip(self.schema.fields());
        let columns =
            columns.filter_map(
                |(place, field)| match place.and_then(|place| read.get(place)) {
                    Some(column) => Some(Arc::clone(column)),
                    None => Some(nulls(column_type(field.data_type())?, rows)),
                },
            );
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns.collect(), &options)
    }
}

/// The values of a required Int64 column; `None` when there is no such column.
pub(super) fn int64_values<'a>(batch: &'a RecordBatch, name: &str) -> Option<&'a [i64]> {
    let column: &Int64Array = batch.column_by_name(name)?.as_primitive_opt()?;
    Some(column.values())
}

/// The times of a batch's rows, in ns on the boot clock; empty for a table without.
pub(super) fn times(batch: &RecordBatch) -> &[i64] {
    int64_values(batch, TIME_COLUMN).unwrap_or(&[])
}

/// Bytes that the rows of a batch take, without those that it was cut from.
pub(super) fn slice_bytes(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    let bytes = columns.map(|column| column.to_data().get_slice_memory_size().unwrap_or(0));
    bytes.sum()
}

/// The longest text of a cell that is read. A mark takes up to 32 KiB, nothing else as much.
const MAX_TEXT_BYTES: usize = 1 << 16;

/// Rows that are not just what stands in their file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Irregular {
    /// Rows that could not be made, for a value that they must have.
    pub(super) incomplete_rows: u64,
    /// Texts that were cut.
    pub(super) long_texts: u64,
}

/// Gives every row of a batch to `take_row`, and counts what is not regular.
pub(super) fn for_each_row<R: Row>(
    batch: &RecordBatch,
    irregular: &mut Irregular,
    take_row: &mut impl FnMut(R),
) {
    let columns = R::TABLE.columns.iter();
    let columns = columns
        .map(|column| Cells::of(batch.column_by_name(column.name)))
        .collect();
    let mut row_cells = RowCells {
        columns,
        next: 0,
        row: 0,
        long_texts: 0,
    };
    for row in 0..batch.num_rows() {
        row_cells.row = row;
        row_cells.next = 0;
        match R::take(&mut row_cells) {
            Ok(row) => take_row(row),
            Err(_) => irregular.incomplete_rows += 1,
        }
    }
    irregular.long_texts += row_cells.long_texts;
}

/// The cells of one column of a batch.
enum Cells<'a> {
    /// Not read: every cell is null.
    Absent,
    Int64(&'a [i64], Option<&'a NullBuffer>),
    Int32(&'a [i32], Option<&'a NullBuffer>),
    Float64(&'a [f64], Option<&'a NullBuffer>),
    Boolean(&'a BooleanArray),
    Utf8(&'a StringArray),
}

impl<'a> Cells<'a> {
    fn of(column: Option<&'a ArrayRef>) -> Self {
        let Some(column) = column else {
            return Self::Absent;
        };
        // A column of nulls only has no need to look at each.
        if column.null_count() == column.len() {
            return Self::Absent;
        }
        // Asking for nulls only where there are some keeps the loop over rows short.
        let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
        match column.data_type() {
            DataType::Int64 => Self::Int64(column.as_primitive::<Int64Type>().values(), nulls),
            DataType::Timestamp(..) => Self::Int64(
                column.as_primitive::<TimestampNanosecondType>().values(),
                nulls,
            ),
            DataType::Int32 => Self::Int32(column.as_primitive::<Int32Type>().values(), nulls),
            DataType::Float64 => {
                Self::Float64(column.as_primitive::<Float64Type>().values(), nulls)
            }
            DataType::Boolean => Self::Boolean(column.as_boolean()),
            DataType::Utf8 => Self::Utf8(column.as_string()),
            _ => Self::Absent,
        }
    }
}

/// One row of a batch, read cell by cell. Every cell of every row comes by here, so that what is given
/// to people, and optimised for size, has it inlined all the same.
struct RowCells<'a> {
    columns: Vec<Cells<'a>>,
    next: usize,
    row: usize,
    long_texts: u64,
}

impl<'a> RowCells<'a> {
    #[inline]
    fn next_cells(&mut self) -> Option<&Cells<'a>> {
        let cells = self.columns.get(self.next);
        self.next += 1;
        cells
    }
}

#[inline]
fn value_at<T: Copy>(values: &[T], nulls: Option<&NullBuffer>, row: usize) -> Option<T> {
    match nulls {
        Some(nulls) if nulls.is_null(row) => None,
        _ => values.get(row).copied(),
    }
}

impl CellSource for RowCells<'_> {
    #[inline]
    fn int64(&mut self) -> Option<i64> {
        let row = self.row;
        match self.next_cells() {
            Some(Cells::Int64(values, nulls)) => value_at(values, *nulls, row),
            _ => None,
        }
    }

    #[inline]
    fn int32(&mut self) -> Option<i32> {
        let row = self.row;
        match self.next_cells() {
            Some(Cells::Int32(values, nulls)) => value_at(values, *nulls, row),
            _ => None,
        }
    }

    #[inline]
    fn float64(&mut self) -> Option<f64> {
        let row = self.row;
        match self.next_cells() {
            Some(Cells::Float64(values, nulls)) => value_at(values, *nulls, row),
            _ => None,
        }
    }

    #[inline]
    fn boolean(&mut self) -> Option<bool> {
        let row = self.row;
        match self.next_cells() {
            Some(Cells::Boolean(array)) if array.is_valid(row) => Some(array.value(row)),
            _ => None,
        }
    }

    fn utf8(&mut self) -> Option<&str> {
        let row = self.row;
        let text = match self.next_cells() {
            Some(Cells::Utf8(array)) if array.is_valid(row) => array.value(row),
            _ => return None,
        };
        if text.len() <= MAX_TEXT_BYTES {
            return Some(text);
        }
        self.long_texts += 1;
        let mut boundaries = (0..=MAX_TEXT_BYTES).rev();
        let end = boundaries.find(|&end| text.is_char_boundary(end))?;
        text.get(..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::Field;
    use memtrace_model::tables::OomRow;

    fn names(projection: &Projection) -> Vec<&str> {
        let fields = projection.schema().fields().iter();
        fields.map(|field| field.name().as_str()).collect()
    }

    #[test]
    fn a_projection_has_the_named_columns_and_those_that_make_a_row() {
        let table = OomRow::TABLE;
        let required = ["ts", "boot_ns", "victim_tgid"];
        assert_eq!(names(&Projection::required(table)), required);
        let named = Projection::named(table, &["memcg", "boot_ns"]).unwrap();
        assert_eq!(names(&named), ["ts", "boot_ns", "victim_tgid", "memcg"]);
        assert_eq!(names(&Projection::all(table)).len(), table.columns.len());
        Projection::named(table, &["nothing"]).unwrap_err();
    }

    #[test]
    fn a_file_may_lack_a_nullable_column_and_have_unknown_ones() {
        let projection = Projection::named(OomRow::TABLE, &["memcg"]).unwrap();
        let utc = DataType::Timestamp(arrow_schema::TimeUnit::Nanosecond, Some("UTC".into()));
        let file = Schema::new(vec![
            Field::new("from_a_newer_version", DataType::Binary, true),
            Field::new("victim_tgid", DataType::Int32, false),
            Field::new("boot_ns", DataType::Int64, false),
            Field::new("ts", utc, false),
        ]);
        let binding = projection.bind(&arrow_columns(&file)).unwrap();
        assert_eq!(binding.read_places(), [1, 2, 3]);
        assert_eq!(binding.places, [Some(2), Some(1), Some(0), None]);
    }

    #[test]
    fn a_file_that_lacks_a_required_column_or_has_it_in_another_type_does_not_bind() {
        let projection = Projection::required(OomRow::TABLE);
        let error = projection.bind(&[]).unwrap_err();
        assert_eq!(error, "column ts is missing");
        let text = Schema::new(vec![Field::new("ts", DataType::Utf8, false)]);
        let error = projection.bind(&arrow_columns(&text)).unwrap_err();
        assert!(error.contains("is Utf8, not Timestamp"), "{error}");
    }
}
