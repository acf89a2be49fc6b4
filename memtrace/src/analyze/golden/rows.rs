//! Rows in memory. A scan goes through cells as the store does, and leaves out what was not
//! asked for, so a column that the analysis forgets to ask for shows.

use crate::analyze::RowSource;
use crate::model::tables::{MemRow, MemSource};
use crate::model::{BootNs, Bytes, CellSink, CellSource, Record, Row, TABLES, Upid, WallNs};
use std::collections::VecDeque;
use std::convert::Infallible;

#[derive(Clone, Debug, Default)]
pub(crate) struct Rows(pub(crate) Vec<Record>);

impl RowSource for Rows {
    type Error = Infallible;

    fn scan<R: Row>(&self, columns: &[&str], mut each: impl FnMut(R)) -> Result<(), Infallible> {
        for record in &self.0 {
            let table = TABLES[record.table_index()];
            if table.name != R::TABLE.name {
                continue;
            }
            let mut cells = Cells::default();
            record.put(&mut cells);
            for (cell, column) in cells.0.iter_mut().zip(table.columns) {
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
    pub(crate) fn arrived(mut self, late: impl Fn(i64) -> i64) -> Self {
        self.0.sort_by_cached_key(|row| {
            let time = time_of(row).unwrap_or(0);
            time + late(time)
        });
        self
    }
}

/// The time of a row; `None` in a table with a key.
fn time_of(record: &Record) -> Option<i64> {
    let time = TABLES[record.table_index()].column_index("boot_ns")?;
    let mut cells = Cells::default();
    record.put(&mut cells);
    match cells.0.get(time) {
        Some(Value::Integer(time)) => Some(*time),
        _ => None,
    }
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

impl Cells {
    fn push(&mut self, value: Option<Value>) {
        self.0.push_back(value.unwrap_or(Value::Null));
    }

    fn integer(&mut self) -> Option<i64> {
        match self.0.pop_front() {
            Some(Value::Integer(value)) => Some(value),
            _ => None,
        }
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
pub(crate) fn mem_row(upid: i64, boot_ns: i64, rss: Option<i64>) -> MemRow {
    MemRow {
        ts: WallNs(boot_ns),
        boot_ns: BootNs(boot_ns),
        upid: Upid(upid),
        rss_bytes: rss.map(Bytes),
        source: Some(MemSource::Snapshot),
        ..MemRow::default()
    }
}
