//! Where the rows of a recording come from, for those who make something of them.

use super::Row;

/// Where rows come from.
pub trait RowSource {
    /// What can go wrong while reading.
    type Error;

    /// Hands every row of a table to `each`. Only `columns` need to be filled; the others may
    /// read as null. An empty list stands for all columns. A table that the recording does not
    /// have is an empty one.
    ///
    /// They come in the order of time, those of one time in the order of processes and of
    /// arrival; of a table with a key, the last row of each.
    ///
    /// # Errors
    /// When the recording can't be read.
    fn scan<R: Row>(&self, columns: &[&str], each: impl FnMut(R)) -> Result<(), Self::Error>;
}

/// Where the rows of a recording come from that goes on.
pub trait FreshRows {
    /// What can go wrong while reading.
    type Error;

    /// Hands every row of a table to `each` that came since it was last asked for, in the order of
    /// arrival. An empty list of columns stands for all.
    ///
    /// # Errors
    /// When the recording can't be read.
    fn fresh<R: Row>(&mut self, columns: &[&str], each: impl FnMut(R)) -> Result<(), Self::Error>;
}
