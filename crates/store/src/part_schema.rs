//! The Parquet schema of a table, and what is found of one in a file.

use super::batch::FileColumn;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow_schema::Schema;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use memtrace_model::{Column, ColumnType, Table};
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type, TypePtr};
use std::sync::Arc;

/// The key under which readers that know Arrow look for its schema.
const ARROW_SCHEMA_KEY: &str = "ARROW:schema";
/// What precedes a message of Arrow's IPC format.
const CONTINUATION: [u8; 4] = [0xFF; 4];

/// The schema of a table.
pub(super) fn parquet_schema(table: &Table) -> Result<TypePtr, ParquetError> {
    let columns = table
        .columns
        .iter()
        .map(|column| Ok(Arc::new(leaf(column)?)));
    let columns = columns.collect::<Result<Vec<_>, ParquetError>>()?;
    let root = Type::group_type_builder("arrow_schema").with_fields(columns);
    Ok(Arc::new(root.build()?))
}

fn leaf(column: &Column) -> Result<Type, ParquetError> {
    let (physical, logical) = types(column.column_type);
    let repetition = match column.nullable {
        true => Repetition::OPTIONAL,
        false => Repetition::REQUIRED,
    };
    Type::primitive_type_builder(column.name, physical)
        .with_logical_type(logical)
        .with_repetition(repetition)
        .build()
}

fn types(column_type: ColumnType) -> (PhysicalType, Option<LogicalType>) {
    let utc = LogicalType::timestamp(true, TimeUnit::NANOS);
    match column_type {
        ColumnType::Int64 => (PhysicalType::INT64, None),
        ColumnType::Int32 => (PhysicalType::INT32, None),
        ColumnType::Float64 => (PhysicalType::DOUBLE, None),
        ColumnType::Boolean => (PhysicalType::BOOLEAN, None),
        ColumnType::Utf8 => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        ColumnType::TimestampNs => (PhysicalType::INT64, Some(utc)),
    }
}

/// The Arrow schema in a part's metadata, from which readers have the unit and the meaning of each
/// column: as a message of Arrow's IPC format, in base64.
pub(super) fn arrow_schema(schema: &Schema) -> KeyValue {
    let encoded = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
        schema,
        &mut DictionaryTracker::new(true),
        &IpcWriteOptions::default(),
    );
    let message = encoded.ipc_message;
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let framed = [&CONTINUATION[..], &length.to_le_bytes(), &message].concat();
    KeyValue::new(ARROW_SCHEMA_KEY.to_owned(), BASE64_STANDARD.encode(framed))
}

/// The columns of a file, by their place.
pub(super) fn file_columns(schema: &SchemaDescriptor) -> Vec<FileColumn<'_>> {
    let columns = schema.columns().iter();
    columns
        .map(|column| FileColumn {
            name: column.path().parts().first().map_or("", String::as_str),
            column_type: column_type(column),
        })
        .collect()
}

/// The type of a column, or what it is instead. Our columns follow from their Parquet types alone, so the Arrow schema that a part has for other
/// readers is one thing less to trust.
fn column_type(column: &ColumnDescriptor) -> Result<ColumnType, String> {
    let is_flat = column.path().parts().len() == 1 && column.max_rep_level() == 0;
    if !is_flat {
        return Err("nested".to_owned());
    }
    let found = (column.physical_type(), column.logical_type_ref());
    let mut known = ColumnType::ALL.into_iter();
    let fitting = known.find(|&column_type| {
        let (physical, logical) = types(column_type);
        found == (physical, logical.as_ref())
    });
    fitting.ok_or_else(|| match found {
        (physical, Some(logical)) => format!("{physical} as {logical:?}"),
        (physical, None) => physical.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::TABLES;

    #[test]
    fn every_column_of_every_table_is_found_again_by_its_type() {
        for table in TABLES {
            let schema = SchemaDescriptor::new(parquet_schema(table).unwrap());
            let found = file_columns(&schema);
            assert_eq!(found.len(), table.columns.len());
            for (found, column) in found.iter().zip(table.columns) {
                assert_eq!(found.name, column.name);
                assert_eq!(found.column_type, Ok(column.column_type));
            }
        }
    }

    #[test]
    fn a_column_of_another_type_is_named_by_it() {
        let leaf = |physical, logical| {
            let column = Type::primitive_type_builder("c", physical).with_logical_type(logical);
            Arc::new(column.build().unwrap())
        };
        let nested = Type::group_type_builder("c").with_repetition(Repetition::REQUIRED);
        let nested = nested.with_fields(vec![leaf(PhysicalType::INT64, None)]);
        let millis = LogicalType::timestamp(true, TimeUnit::MILLIS);
        for (column, shown) in [
            (leaf(PhysicalType::FLOAT, None), "FLOAT"),
            (leaf(PhysicalType::BYTE_ARRAY, None), "BYTE_ARRAY"),
            (
                leaf(PhysicalType::INT64, Some(millis)),
                "INT64 as Timestamp",
            ),
            (Arc::new(nested.build().unwrap()), "nested"),
        ] {
            let root = Type::group_type_builder("root").with_fields(vec![column]);
            let schema = SchemaDescriptor::new(Arc::new(root.build().unwrap()));
            let found = file_columns(&schema).remove(0).column_type.unwrap_err();
            assert!(found.starts_with(shown), "{found} is not {shown}");
        }
    }
}
