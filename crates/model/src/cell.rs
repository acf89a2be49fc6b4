//! How a Rust value becomes one cell of a column, and comes back.

use super::label::Label;
use super::units::{BootNs, Bytes, DurationNs, Tgid, Upid, WallNs};
use std::sync::Arc;

/// The physical types a recording uses. All integers are signed: unsigned columns are
/// where readers of Parquet disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// 64-bit signed integer.
    Int64,
    /// 32-bit signed integer.
    Int32,
    /// 64-bit floating point number.
    Float64,
    /// True or false.
    Boolean,
    /// Text in UTF-8.
    Utf8,
    /// Timestamp in nanoseconds, UTC.
    TimestampNs,
}

impl ColumnType {
    /// Each of them.
    pub const ALL: [Self; 6] = [
        Self::Int64,
        Self::Int32,
        Self::Float64,
        Self::Boolean,
        Self::Utf8,
        Self::TimestampNs,
    ];
}

/// Takes the cells of one row, left to right. `None` is written as null.
pub trait CellSink {
    /// An Int64 or TimestampNs cell.
    fn int64(&mut self, value: Option<i64>);
    /// An Int32 cell.
    fn int32(&mut self, value: Option<i32>);
    /// A Float64 cell.
    fn float64(&mut self, value: Option<f64>);
    /// A Boolean cell.
    fn boolean(&mut self, value: Option<bool>);
    /// A Utf8 cell.
    fn utf8(&mut self, value: Option<&str>);
}

/// Gives the cells of one row back, left to right, in the order of the table's columns.
/// A column that was not read, or that an older recording does not have, reads as null.
pub trait CellSource {
    /// An Int64 or TimestampNs cell.
    fn int64(&mut self) -> Option<i64>;
    /// An Int32 cell.
    fn int32(&mut self) -> Option<i32>;
    /// A Float64 cell.
    fn float64(&mut self) -> Option<f64>;
    /// A Boolean cell.
    fn boolean(&mut self) -> Option<bool>;
    /// A Utf8 cell.
    fn utf8(&mut self) -> Option<&str>;
}

/// A cell that must have a value is null, or holds a word that this version does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a required {0} cell is null or not understood")]
pub struct CellError(pub &'static str);

/// A type that can stand in a column.
pub trait Cell: Sized {
    /// The column's physical type.
    const TYPE: ColumnType;
    /// The unit of the number, where it has one.
    const UNIT: Option<&'static str>;
    /// Whether the cell may be null. Null means unknown, never zero.
    const NULLABLE: bool = false;
    /// The words a cell can hold, where the set is closed.
    const WORDS: &'static [(&'static str, &'static str)] = &[];
    /// Bytes that it holds outside of its row.
    fn heap_bytes(&self) -> usize {
        0
    }
    /// Writes this cell.
    fn put(&self, sink: &mut impl CellSink);
    /// Reads this cell.
    ///
    /// # Errors
    /// When the cell is null and the type has no place for that.
    fn take(source: &mut impl CellSource) -> Result<Self, CellError>;
}

macro_rules! number_cell {
    ($type:ty, $column:ident, $method:ident, $unit:expr, $to:expr, $from:expr) => {
        impl Cell for $type {
            const TYPE: ColumnType = ColumnType::$column;
            const UNIT: Option<&'static str> = $unit;
            fn put(&self, sink: &mut impl CellSink) {
                #[allow(clippy::redundant_closure_call)]
                sink.$method(Some($to(*self)));
            }
            #[inline]
            fn take(source: &mut impl CellSource) -> Result<Self, CellError> {
                #[allow(clippy::redundant_closure_call)]
                source
                    .$method()
                    .map($from)
                    .ok_or(CellError(stringify!($type)))
            }
        }
        impl Cell for Option<$type> {
            const TYPE: ColumnType = ColumnType::$column;
            const UNIT: Option<&'static str> = $unit;
            const NULLABLE: bool = true;
            fn put(&self, sink: &mut impl CellSink) {
                #[allow(clippy::redundant_closure_call)]
                sink.$method(self.map($to));
            }
            #[inline]
            fn take(source: &mut impl CellSource) -> Result<Self, CellError> {
                #[allow(clippy::redundant_closure_call)]
                Ok(source.$method().map($from))
            }
        }
    };
}

number_cell!(Bytes, Int64, int64, Some("bytes"), |b: Bytes| b.0, Bytes);
number_cell!(BootNs, Int64, int64, Some("ns"), |t: BootNs| t.0, BootNs);
number_cell!(
    DurationNs,
    Int64,
    int64,
    Some("ns"),
    |d: DurationNs| d.0,
    DurationNs
);
number_cell!(Upid, Int64, int64, None, |u: Upid| u.0, Upid);
number_cell!(
    WallNs,
    TimestampNs,
    int64,
    Some("ns"),
    |t: WallNs| t.0,
    WallNs
);
number_cell!(i64, Int64, int64, None, |n: i64| n, |n: i64| n);
number_cell!(i32, Int32, int32, None, |n: i32| n, |n: i32| n);
number_cell!(f64, Float64, float64, None, |n: f64| n, |n: f64| n);
number_cell!(bool, Boolean, boolean, None, |b: bool| b, |b: bool| b);
// Linux caps process ids at 2^22 and macOS below 2^17, so the sign bit is never used.
number_cell!(
    Tgid,
    Int32,
    int32,
    None,
    |t: Tgid| t.0.cast_signed(),
    |n: i32| Tgid(n.cast_unsigned())
);

macro_rules! text_cell {
    ($type:ty, $bytes:expr) => {
        impl Cell for $type {
            const TYPE: ColumnType = ColumnType::Utf8;
            const UNIT: Option<&'static str> = None;
            fn heap_bytes(&self) -> usize {
                $bytes(self)
            }
            fn put(&self, sink: &mut impl CellSink) {
                sink.utf8(Some(self));
            }
            #[inline]
            fn take(source: &mut impl CellSource) -> Result<Self, CellError> {
                source.utf8().map(Self::from).ok_or(CellError("text"))
            }
        }
        impl Cell for Option<$type> {
            const TYPE: ColumnType = ColumnType::Utf8;
            const UNIT: Option<&'static str> = None;
            const NULLABLE: bool = true;
            fn heap_bytes(&self) -> usize {
                self.as_ref().map_or(0, $bytes)
            }
            fn put(&self, sink: &mut impl CellSink) {
                sink.utf8(self.as_deref());
            }
            #[inline]
            fn take(source: &mut impl CellSource) -> Result<Self, CellError> {
                Ok(source.utf8().map(<$type>::from))
            }
        }
    };
}

text_cell!(String, String::capacity);
// Counted with every row that shares it.
text_cell!(Arc<str>, |text: &Arc<str>| text.len());

/// A label cell. A word from a newer recording reads as `None`.
impl<L: Label> Cell for Option<L> {
    const TYPE: ColumnType = ColumnType::Utf8;
    const UNIT: Option<&'static str> = None;
    const NULLABLE: bool = true;
    const WORDS: &'static [(&'static str, &'static str)] = L::WORDS;
    fn put(&self, sink: &mut impl CellSink) {
        sink.utf8(self.map(L::as_str));
    }
    #[inline]
    fn take(source: &mut impl CellSource) -> Result<Self, CellError> {
        Ok(source.utf8().and_then(L::from_word))
    }
}
