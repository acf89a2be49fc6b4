//! Rows out of batches: those that a mask keeps, those of an order, all of several batches.
//!
//! arrow-select does that for every type there is, of which it has code for each; a recording has six.

use super::schema::column_type;
use arrow_array::builder::{BooleanBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float64Type, Int32Type, Int64Type, TimestampNanosecondType,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::{NullBuffer, NullBufferBuilder};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use memtrace_model::ColumnType;
use std::ops::Range;
use std::sync::Arc;

/// Rows that stand one after the other in one of several batches.
struct Stretch {
    batch: usize,
    rows: Range<usize>,
}

/// The rows that are kept, by a mask of all.
pub(super) fn filter(batch: RecordBatch, kept: &[bool]) -> Result<RecordBatch, ArrowError> {
    if kept.len() == batch.num_rows() && kept.iter().all(|&kept| kept) {
        return Ok(batch);
    }
    let rows = kept.iter().enumerate();
    take(&batch, rows.filter(|&(_, &kept)| kept).map(|(row, _)| row))
}

/// The rows at these places, in this order. Every place must be one of the batch.
pub(super) fn take(
    batch: &RecordBatch,
    rows: impl IntoIterator<Item = usize>,
) -> Result<RecordBatch, ArrowError> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for row in rows {
        match stretches.last_mut() {
            Some(last) if last.rows.end == row => last.rows.end += 1,
            _ => stretches.push(Stretch {
                batch: 0,
                rows: row..row + 1,
            }),
        }
    }
    gather(batch.schema_ref(), std::slice::from_ref(batch), &stretches)
}

/// All rows of several batches of one schema.
pub(super) fn concat(
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> Result<RecordBatch, ArrowError> {
    if let [batch] = batches {
        return Ok(batch.clone());
    }
    let stretches = batches.iter().enumerate();
    let stretches: Vec<Stretch> = stretches
        .map(|(index, batch)| Stretch {
            batch: index,
            rows: 0..batch.num_rows(),
        })
        .collect();
    gather(schema, batches, &stretches)
}

/// A column of nulls.
pub(super) fn nulls(column_type: ColumnType, rows: usize) -> ArrayRef {
    fn primitive<T: ArrowPrimitiveType>(rows: usize) -> PrimitiveArray<T> {
        PrimitiveArray::new_null(rows)
    }
    match column_type {
        ColumnType::Int64 => Arc::new(primitive::<Int64Type>(rows)),
        ColumnType::TimestampNs => {
            Arc::new(primitive::<TimestampNanosecondType>(rows).with_timezone("UTC"))
        }
        ColumnType::Int32 => Arc::new(primitive::<Int32Type>(rows)),
        ColumnType::Float64 => Arc::new(primitive::<Float64Type>(rows)),
        ColumnType::Boolean => Arc::new(arrow_array::BooleanArray::new_null(rows)),
        ColumnType::Utf8 => Arc::new(arrow_array::StringArray::new_null(rows)),
    }
}

fn gather(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    stretches: &[Stretch],
) -> Result<RecordBatch, ArrowError> {
    let rows = stretches.iter().map(|stretch| stretch.rows.len()).sum();
    let columns = (0..schema.fields().len())
        .map(|index| {
            let arrays: Vec<&ArrayRef> = batches.iter().map(|batch| batch.column(index)).collect();
            gathered(schema, index, &arrays, stretches, rows)
        })
        .collect::<Result<Vec<ArrayRef>, ArrowError>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

fn gathered(
    schema: &Schema,
    index: usize,
    arrays: &[&ArrayRef],
    stretches: &[Stretch],
    rows: usize,
) -> Result<ArrayRef, ArrowError> {
    let data_type = schema.field(index).data_type();
    let column_type = column_type(data_type);
    let column_type =
        column_type.ok_or_else(|| ArrowError::NotYetImplemented(data_type.to_string()))?;
    Ok(match column_type {
        ColumnType::Int64 => Arc::new(primitives::<Int64Type>(arrays, stretches, rows)),
        ColumnType::Int32 => Arc::new(primitives::<Int32Type>(arrays, stretches, rows)),
        ColumnType::Float64 => Arc::new(primitives::<Float64Type>(arrays, stretches, rows)),
        ColumnType::TimestampNs => {
            let times = primitives::<TimestampNanosecondType>(arrays, stretches, rows);
            Arc::new(times.with_data_type(data_type.clone()))
        }
        ColumnType::Boolean => {
            let mut builder = BooleanBuilder::with_capacity(rows);
            for_each_row(arrays, stretches, |array, row| {
                let array = array.as_boolean();
                builder.append_option(array.is_valid(row).then(|| array.value(row)));
            });
            Arc::new(builder.finish())
        }
        ColumnType::Utf8 => {
            let mut builder = StringBuilder::with_capacity(rows, 0);
            for_each_row(arrays, stretches, |array, row| {
                let array = array.as_string::<i32>();
                builder.append_option(array.is_valid(row).then(|| array.value(row)));
            });
            Arc::new(builder.finish())
        }
    })
}

fn for_each_row(
    arrays: &[&ArrayRef],
    stretches: &[Stretch],
    mut visit: impl FnMut(&ArrayRef, usize),
) {
    for stretch in stretches {
        if let Some(array) = arrays.get(stretch.batch) {
            stretch.rows.clone().for_each(|row| visit(array, row));
        }
    }
}

fn primitives<T: ArrowPrimitiveType>(
    arrays: &[&ArrayRef],
    stretches: &[Stretch],
    rows: usize,
) -> PrimitiveArray<T> {
    let arrays: Vec<&PrimitiveArray<T>> = arrays.iter().map(|array| array.as_primitive()).collect();
    let mut values: Vec<T::Native> = Vec::with_capacity(rows);
    for stretch in stretches {
        let array = arrays.get(stretch.batch);
        let found = array.and_then(|array| array.values().get(stretch.rows.clone()));
        values.extend_from_slice(found.unwrap_or_default());
    }
    PrimitiveArray::new(values.into(), validity(&arrays, stretches, rows))
}

fn validity<T: ArrowPrimitiveType>(
    arrays: &[&PrimitiveArray<T>],
    stretches: &[Stretch],
    rows: usize,
) -> Option<NullBuffer> {
    if arrays.iter().all(|array| array.null_count() == 0) {
        return None;
    }
    let mut builder = NullBufferBuilder::new(rows);
    for stretch in stretches {
        match arrays.get(stretch.batch).and_then(|array| array.nulls()) {
            None => builder.append_n_non_nulls(stretch.rows.len()),
            Some(nulls) => {
                let rows = stretch.rows.clone();
                rows.for_each(|row| builder.append(nulls.is_valid(row)));
            }
        }
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::data_type;
    use arrow_array::TimestampNanosecondArray;
    use arrow_array::{BooleanArray, Float64Array, Int32Array, Int64Array, StringArray};
    use arrow_schema::Field;

    fn schema() -> SchemaRef {
        let fields = ColumnType::ALL.iter().enumerate();
        let fields = fields
            .map(|(at, &column_type)| Field::new(format!("c{at}"), data_type(column_type), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// A column of each type with the same values.
    fn batch(values: &[Option<i32>]) -> RecordBatch {
        let wide = || values.iter().map(|value| value.map(i64::from));
        let texts = values
            .iter()
            .map(|value| value.map(|n| format!("text {n}")));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(wide().collect::<Int64Array>()),
            Arc::new(values.iter().copied().collect::<Int32Array>()),
            Arc::new(
                values
                    .iter()
                    .map(|n| n.map(f64::from))
                    .collect::<Float64Array>(),
            ),
            Arc::new(
                values
                    .iter()
                    .map(|n| n.map(|n| n % 2 == 1))
                    .collect::<BooleanArray>(),
            ),
            Arc::new(texts.collect::<StringArray>()),
            Arc::new(
                wide()
                    .collect::<TimestampNanosecondArray>()
                    .with_timezone("UTC"),
            ),
        ];
        RecordBatch::try_new(schema(), columns).unwrap()
    }

    #[test]
    fn rows_are_chosen_ordered_and_joined_in_every_type_with_their_nulls() {
        let (some, more) = ([Some(1), None, Some(3), Some(4)], [Some(5), None]);
        let [first, second] = [&some[..], &more].map(batch);
        let joined = concat(&schema(), &[first.clone(), second]).unwrap();
        assert_eq!(
            joined,
            batch(&[Some(1), None, Some(3), Some(4), Some(5), None])
        );
        assert_eq!(
            take(&joined, [4, 1, 2, 3]).unwrap(),
            batch(&[Some(5), None, Some(3), Some(4)])
        );
        let kept = filter(joined, &[false, true, false, true, false, true]).unwrap();
        assert_eq!(kept, batch(&[None, Some(4), None]));
        assert_eq!(concat(&schema(), &[]).unwrap(), batch(&[]));
        let slice = first.slice(1, 3);
        assert_eq!(
            concat(&schema(), &[slice.clone(), slice])
                .unwrap()
                .num_rows(),
            6
        );
    }

    #[test]
    fn a_column_of_nulls_has_the_type_that_was_asked_for() {
        for column_type in ColumnType::ALL {
            let column = nulls(column_type, 3);
            assert_eq!(column.data_type(), &data_type(column_type));
            assert_eq!((column.len(), column.null_count()), (3, 3));
        }
    }
}
