//! The Arrow schema of a table, made from its declaration.

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use memtrace_model::{Column, ColumnType, SCHEMA_VERSION, Table};
use std::collections::HashMap;
use std::sync::Arc;

/// Key of the schema version in the metadata of every segment and part.
pub(super) const VERSION_KEY: &str = "memtrace.schema_version";
/// Key of the table's name.
pub(super) const TABLE_KEY: &str = "memtrace.table";
/// Key of the id of the recording that it is of, as in `run.json`.
pub(super) const RECORDING_KEY: &str = "memtrace.recording";
/// Key of its number among those of its table.
pub(super) const SEQ_KEY: &str = "memtrace.seq";
/// The column by which rows of a recording are in order.
pub(super) const TIME_COLUMN: &str = "boot_ns";
/// The column that orders rows of the same time, where the table has it: it puts equal
/// samples into equal patterns, which compress well.
pub(super) const TIE_COLUMN: &str = "upid";

/// The Arrow type of a column.
pub(super) fn data_type(column_type: ColumnType) -> DataType {
    match column_type {
        ColumnType::Int64 => DataType::Int64,
        ColumnType::Int32 => DataType::Int32,
        ColumnType::Float64 => DataType::Float64,
        ColumnType::Boolean => DataType::Boolean,
        ColumnType::Utf8 => DataType::Utf8,
        ColumnType::TimestampNs => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
    }
}

/// The column's type that an Arrow type is, where it is one of ours.
pub(super) fn column_type(found: &DataType) -> Option<ColumnType> {
    match found {
        DataType::Int64 => Some(ColumnType::Int64),
        DataType::Int32 => Some(ColumnType::Int32),
        DataType::Float64 => Some(ColumnType::Float64),
        DataType::Boolean => Some(ColumnType::Boolean),
        DataType::Utf8 => Some(ColumnType::Utf8),
        DataType::Timestamp(TimeUnit::Nanosecond, Some(zone)) if &**zone == "UTC" => {
            Some(ColumnType::TimestampNs)
        }
        _ => None,
    }
}

/// The schema of some columns of a table, in the given order.
pub(super) fn schema_of(table: &Table, columns: &[usize]) -> SchemaRef {
    let fields: Vec<Field> = columns
        .iter()
        .filter_map(|&index| table.columns.get(index))
        .map(field)
        .collect();
    let metadata = HashMap::from([
        (VERSION_KEY.to_owned(), SCHEMA_VERSION.to_string()),
        (TABLE_KEY.to_owned(), table.name.to_owned()),
        ("doc".to_owned(), table.doc.trim().to_owned()),
    ]);
    Arc::new(Schema::new(fields).with_metadata(metadata))
}

/// The schema of a whole table.
pub(super) fn table_schema(table: &Table) -> SchemaRef {
    let all: Vec<usize> = (0..table.columns.len()).collect();
    schema_of(table, &all)
}

/// The same without what its columns mean, which takes most of a small part.
pub(super) fn bare_schema(table: &Table) -> Schema {
    let columns = table.columns.iter();
    let fields = columns
        .map(|column| Field::new(column.name, data_type(column.column_type), column.nullable));
    Schema::new(fields.collect::<Vec<_>>())
}

fn field(column: &Column) -> Field {
    let mut metadata = HashMap::from([("doc".to_owned(), column.doc.trim().to_owned())]);
    if let Some(unit) = column.unit {
        metadata.insert("unit".to_owned(), unit.to_owned());
    }
    Field::new(column.name, data_type(column.column_type), column.nullable).with_metadata(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::TABLES;

    #[test]
    fn every_table_has_an_order_or_a_key_that_the_store_can_use() {
        for table in TABLES {
            let name = table.key.unwrap_or(TIME_COLUMN);
            let column = &table.columns[table.column_index(name).unwrap()];
            assert!(!column.nullable, "{}.{name}", table.name);
            assert_eq!(
                column.column_type,
                ColumnType::Int64,
                "{}.{name}",
                table.name
            );
        }
    }

    #[test]
    fn the_unit_and_the_doc_of_a_column_are_in_its_field() {
        for table in TABLES {
            let schema = table_schema(table);
            assert_eq!(schema.fields().len(), table.columns.len());
            for (field, column) in schema.fields().iter().zip(table.columns) {
                assert_eq!(field.name(), column.name);
                assert_eq!(field.metadata()["doc"], column.doc.trim());
                assert_eq!(
                    field.metadata().get("unit").map(String::as_str),
                    column.unit
                );
            }
        }
    }
}
