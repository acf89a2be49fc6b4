//! What the writing thread writes to: the store, or what stands before it.

use memtrace_model::{BootNs, Record, RunInfo};
use memtrace_store::{Stats, StoreError, Writer};

/// What rows are written with.
pub(super) trait Sink {
    fn append(&mut self, row: &Record) -> Result<(), StoreError>;
    fn flush(&mut self) -> Result<(), StoreError>;
    fn sync(&mut self) -> Result<(), StoreError>;
    /// Closes what has been open for long enough.
    fn rotate(&mut self, _: BootNs) -> Result<(), StoreError> {
        Ok(())
    }
    /// Tells how far the recording is.
    fn update(&mut self, _: RunInfo) -> Result<(), StoreError> {
        Ok(())
    }
    fn finish(self, info: RunInfo) -> Result<Stats, StoreError>;
    fn stats(&self) -> Stats;
    /// Gives up what was written, where that can be done.
    fn discard(self)
    where
        Self: Sized,
    {
    }
}

impl Sink for Writer {
    fn append(&mut self, row: &Record) -> Result<(), StoreError> {
        Self::append(self, row)
    }
    fn flush(&mut self) -> Result<(), StoreError> {
        Self::flush(self)
    }
    fn sync(&mut self) -> Result<(), StoreError> {
        Self::sync(self)
    }
    fn rotate(&mut self, now: BootNs) -> Result<(), StoreError> {
        Self::rotate(self, now)
    }
    fn update(&mut self, info: RunInfo) -> Result<(), StoreError> {
        Self::update(self, info)
    }
    fn finish(self, info: RunInfo) -> Result<Stats, StoreError> {
        Self::finish(self, info)
    }
    fn stats(&self) -> Stats {
        Self::stats(self)
    }
    fn discard(self) {
        Self::discard(self);
    }
}
