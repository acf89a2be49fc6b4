//! Values of every type, with nulls and without, through a part of several row groups.

use crate::batch::Projection;
use crate::dir::Dir;
use crate::disk::Disk;
use crate::part_file::PartFile;
use crate::part_head::PartHead;
use crate::part_reader::PartReader;
use crate::part_writer::{PartWriter, ROW_GROUP_ROWS};
use crate::reading::Reading;
use crate::schema::table_schema;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampNanosecondArray,
};
use memtrace_model::{Column, ColumnType, Table};
use std::path::Path;
use std::sync::Arc;

macro_rules! column {
    ($name:literal, $column_type:ident, $nullable:literal) => {
        Column {
            name: $name,
            doc: "A cell.",
            column_type: ColumnType::$column_type,
            unit: None,
            nullable: $nullable,
            words: &[],
        }
    };
}

static TABLE: Table = Table {
    name: "every_type",
    doc: "Every type.",
    key: None,
    columns: &[
        column!("boot_ns", Int64, false),
        column!("count", Int64, true),
        column!("id", Int32, true),
        column!("share", Float64, true),
        column!("is_so", Boolean, true),
        column!("text", Utf8, true),
        column!("ts", TimestampNs, true),
        column!("name", Utf8, false),
        column!("is_it", Boolean, false),
    ],
};

/// Rows from one on, of which some are null: none, all, or every third.
fn batch(rows: std::ops::Range<i64>, is_null: fn(i64) -> bool) -> RecordBatch {
    let some = |n: i64| (!is_null(n)).then_some(n);
    let rows = || rows.clone();
    let text = |n: i64| some(n).map(|n| format!("text {} ünï", n % 5_000));
    let wide = || rows().map(some);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows().collect::<Int64Array>()),
        Arc::new(wide().collect::<Int64Array>()),
        Arc::new(wide().map(|n| n.map(|n| n as i32)).collect::<Int32Array>()),
        Arc::new(
            wide()
                .map(|n| n.map(|n| n as f64 / 3.0))
                .collect::<Float64Array>(),
        ),
        Arc::new(
            wide()
                .map(|n| n.map(|n| n % 2 == 0))
                .collect::<BooleanArray>(),
        ),
        Arc::new(rows().map(text).collect::<StringArray>()),
        Arc::new(
            wide()
                .collect::<TimestampNanosecondArray>()
                .with_timezone("UTC"),
        ),
        Arc::new(
            rows()
                .map(|n| Some(format!("n{}", n % 7)))
                .collect::<StringArray>(),
        ),
        Arc::new(rows().map(|n| Some(n % 3 == 0)).collect::<BooleanArray>()),
    ];
    RecordBatch::try_new(table_schema(&TABLE), columns).unwrap()
}

#[test]
fn values_of_every_type_come_back_with_their_nulls_from_several_row_groups() {
    let parent = tempfile::tempdir().unwrap();
    let dir = Arc::new(Dir::open(parent.path()).unwrap());
    let disk = Disk::new(Arc::clone(&dir));
    let path = Path::new("part-00001.parquet");
    let mut part = PartWriter::create(&disk, &TABLE, path).unwrap();
    let third = ROW_GROUP_ROWS as i64 / 3 + 1_001;
    let nulls: [fn(i64) -> bool; 4] = [|_| false, |n| n % 3 == 0, |_| true, |n| n % 5_000 < 4_000];
    let mut written = Vec::new();
    for (at, is_null) in (0..).zip(nulls) {
        let rows = batch(at * third..(at + 1) * third, is_null);
        part.write(&disk, &rows).unwrap();
        written.push(rows);
    }
    part.publish(&disk, PartHead::default()).unwrap();

    let reading = Reading::of_own(&disk);
    let projection = Projection::all(&TABLE);
    let file = PartFile::open(&dir, path);
    let reader = PartReader::open(file, path.to_path_buf(), &projection, &reading).unwrap();
    let mut row = 0;
    for read in reader {
        for at in 0..read.num_rows() {
            let expected = written.get(row / third as usize).unwrap();
            let expected = expected.slice(row % third as usize, 1);
            if at == 0 || at + 1 == read.num_rows() || row % 101 == 0 {
                assert_eq!(read.slice(at, 1), expected, "row {row}");
            }
            row += 1;
        }
    }
    assert_eq!(row as i64, 4 * third);
    assert!(reading.problems().is_empty(), "{:?}", reading.problems());
}
