//! Rows in memory. A scan goes through cells as the store does, and leaves out what was not
//! asked for, so a column that the analysis forgets to ask for shows.

use memtrace_model::tables::{MemRow, MemSource};
use memtrace_model::{
    BootNs, Bytes, CellSink, CellSource, Record, Row, RowSource, TABLES, Table, Upid, WallNs,
};
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;

/// Rows in memory, in the order of arrival.
#[derive(Clone, Debug, Default)]
pub struct Rows(pub Vec<Record>);

impl RowSource for Rows {
    type Error = Infallible;

    fn scan<R: Row>(&self, columns: &[&str], mut each: impl FnMut(R)) -> Result<(), Infallible> {
        let rows = self.0.iter();
        let mut rows: Vec<&Record> = rows
            .filter(|row| table_of(row).name == R::TABLE.name)
            .collect();
        match R::TABLE.key {
            Some(key) => {
                let last: HashMap<_, _> =
                    rows.iter().map(|row| (integer(row, key), *row)).collect();
                rows.retain(|row| std::ptr::eq(*row, last[&integer(row, key)]));
            }
            None => rows.sort_by_cached_key(|row| (integer(row, "boot_ns"), integer(row, "upid"))),
        }
        for row in rows {
            let mut cells = Cells::of(row);
            for (cell, column) in cells.0.iter_mut().zip(R::TABLE.columns) {
                let is_wanted = columns.is_empty() || columns.contains(&column.name);
                if !is_wanted && column.nullable {
                    *cell = Value::Null;
                }
            }
            each(R::take(&mut cells).expect("a row that was written can be read"));
        }
        Ok(())
    }
}

impl Rows {
    /// The rows as a recorder gets them: in the order of time, but those of an instant as much
    /// later as `late` says, in ns.
    pub fn arrived(mut self, late: impl Fn(i64) -> i64) -> Self {
        self.0.sort_by_cached_key(|row| {
            let time = integer(row, "boot_ns").unwrap_or(0);
            time + late(time)
        });
        self
    }
}

fn table_of(row: &Record) -> &'static Table {
    TABLES[row.table_index()]
}

/// A number of a row; `None` where it is unknown, or the table has no such column.
fn integer(row: &Record, column: &str) -> Option<i64> {
    let column = table_of(row).column_index(column)?;
    Cells::of(row)
        .0
        .drain(column..)
        .next()
        .and_then(Value::integer)
}

#[derive(Debug)]
enum Value {
    Null,
    Integer(i64),
    Float(f64),
    Text(String),
}

#[derive(Debug, Default)]
struct Cells(VecDeque<Value>, String);

impl Value {
    fn integer(self) -> Option<i64> {
        match self {
            Self::Integer(value) => Some(value),
            _ => None,
        }
    }
}

impl Cells {
    fn of(row: &Record) -> Self {
        let mut cells = Self::default();
        row.put(&mut cells);
        cells
    }

    fn push(&mut self, value: Option<Value>) {
        self.0.push_back(value.unwrap_or(Value::Null));
    }

    fn integer(&mut self) -> Option<i64> {
        self.0.pop_front().and_then(Value::integer)
    }
}

impl CellSink for Cells {
    fn int64(&mut self, value: Option<i64>) {
        self.push(value.map(Value::Integer));
    }
    fn int32(&mut self, value: Option<i32>) {
        self.push(value.map(|value| Value::Integer(value.into())));
    }
    fn float64(&mut self, value: Option<f64>) {
        self.push(value.map(Value::Float));
    }
    fn boolean(&mut self, value: Option<bool>) {
        self.push(value.map(|value| Value::Integer(value.into())));
    }
    fn utf8(&mut self, value: Option<&str>) {
        self.push(value.map(|value| Value::Text(value.to_owned())));
    }
}

impl CellSource for Cells {
    fn int64(&mut self) -> Option<i64> {
        self.integer()
    }
    fn int32(&mut self) -> Option<i32> {
        self.integer().and_then(|value| value.try_into().ok())
    }
    fn float64(&mut self) -> Option<f64> {
        match self.0.pop_front() {
            Some(Value::Float(value)) => Some(value),
            _ => None,
        }
    }
    fn boolean(&mut self) -> Option<bool> {
        self.integer().map(|value| value != 0)
    }
    fn utf8(&mut self) -> Option<&str> {
        match self.0.pop_front() {
            Some(Value::Text(value)) => {
                self.1 = value;
                Some(&self.1)
            }
            _ => None,
        }
    }
}

/// A row of `mem` with nothing but its RSS known.
pub fn mem_row(upid: i64, boot_ns: i64, rss: Option<i64>) -> MemRow {
    MemRow {
        ts: WallNs(boot_ns),
        boot_ns: BootNs(boot_ns),
        upid: Upid(upid),
        rss_bytes: rss.map(Bytes),
        source: Some(MemSource::Snapshot),
        ..MemRow::default()
    }
}
