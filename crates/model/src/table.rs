//! The declaration of a table: one list of columns from which schema, rows and docs come.

use super::cell::{CellError, CellSink, CellSource, ColumnType};

/// A table of a recording.
#[derive(Debug)]
pub struct Table {
    /// Its name, which is also its folder in the recording.
    pub name: &'static str,
    /// What a row means.
    pub doc: &'static str,
    /// The column whose value names the row, where later rows replace earlier ones of the
    /// same value: a process is written when it is born and again when it changes.
    pub key: Option<&'static str>,
    /// Its columns in order.
    pub columns: &'static [Column],
}

/// One column of a table.
#[derive(Debug)]
pub struct Column {
    /// Its name; carries the unit where there is one.
    pub name: &'static str,
    /// What a cell means and when it is null.
    pub doc: &'static str,
    /// The physical type.
    pub column_type: ColumnType,
    /// "bytes", "ns", or none.
    pub unit: Option<&'static str>,
    /// Whether cells may be null, which always means unknown.
    pub nullable: bool,
    /// The words a cell can hold with their meaning, where the set is closed.
    pub words: &'static [(&'static str, &'static str)],
}

impl Table {
    /// The position of a column by name.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}

/// One row of a table.
pub trait Row: Clone + Sized + 'static {
    /// The table this row belongs to.
    const TABLE: &'static Table;
    /// Bytes that it holds outside of itself.
    fn heap_bytes(&self) -> usize;
    /// Writes every cell, left to right.
    fn put(&self, sink: &mut impl CellSink);
    /// Reads every cell, left to right.
    ///
    /// # Errors
    /// When a cell that must have a value is null.
    fn take(source: &mut impl CellSource) -> Result<Self, CellError>;
}

/// Declares a table as a struct: the doc comment of a field is the doc of its column, its
/// type gives the physical type, the unit and whether it may be null.
macro_rules! table {
    (
        $(#[doc = $doc:literal])+
        $(#[derive($($derive:ident),+)])?
        pub struct $row:ident in $name:literal $(keyed by $key:literal)? {
            $($(#[doc = $column_doc:literal])+ $column:ident: $type:ty,)+
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, Default, PartialEq)]
        $(#[derive($($derive),+)])?
        pub struct $row { $($(#[doc = $column_doc])+ pub $column: $type,)+ }

        impl $crate::Row for $row {
            const TABLE: &'static $crate::Table = &$crate::Table {
                name: $name,
                doc: concat!($($doc, "\n"),+),
                key: $crate::table::key_of!($($key)?),
                columns: &[$($crate::Column {
                    name: stringify!($column),
                    doc: concat!($($column_doc, "\n"),+),
                    column_type: <$type as $crate::Cell>::TYPE,
                    unit: <$type as $crate::Cell>::UNIT,
                    nullable: <$type as $crate::Cell>::NULLABLE,
                    words: <$type as $crate::Cell>::WORDS,
                }),+],
            };
            fn heap_bytes(&self) -> usize {
                0 $(+ $crate::Cell::heap_bytes(&self.$column))+
            }
            fn put(&self, sink: &mut impl $crate::CellSink) {
                $($crate::Cell::put(&self.$column, sink);)+
            }
            fn take(
                source: &mut impl $crate::CellSource,
            ) -> Result<Self, $crate::CellError> {
                Ok(Self { $($column: $crate::Cell::take(source)?,)+ })
            }
        }
    };
}
pub(crate) use table;

macro_rules! key_of {
    () => {
        None
    };
    ($key:literal) => {
        Some($key)
    };
}
pub(crate) use key_of;
