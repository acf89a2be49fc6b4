//! What a recording tells its caller: on the way, at its end, and when it fails.

use super::{CommandError, OutputError, StartError};
use memtrace_model::{Bytes, DurationNs, OrphanedShmRow, SurvivorRow};
use memtrace_store::StoreError;
use std::path::PathBuf;

/// How far a recording has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since it started.
    pub elapsed: DurationNs,
    /// Processes that are alive.
    pub process_count: usize,
    /// Rows written so far.
    pub row_count: i64,
    /// Bytes written so far.
    pub written_bytes: Bytes,
    /// Whether it has ended, and its files are being closed.
    pub is_closing: bool,
}

/// How a recording ended.
#[derive(Debug)]
pub struct Outcome {
    /// Where it is.
    pub dir: PathBuf,
    /// What the command ended with, as a shell reports it.
    pub command_exit_code: Option<i32>,
    /// Processes that belonged to it.
    pub process_count: i64,
    /// Rows that were written.
    pub row_count: i64,
    /// Size on disk of what was written, spool included.
    pub written_bytes: Bytes,
    /// Log files that marks were to be taken from, and that never appeared.
    pub absent_logs: Vec<PathBuf>,
    /// Why it could not be written in full; what was on disk by then is kept.
    pub storage_failure: Option<StoreError>,
    /// Whether a second SIGINT ended it while the command ran.
    pub is_interrupted: bool,
    /// What of the tree is left behind.
    pub leftovers: Leftovers,
}

/// What a recording left behind.
#[derive(Clone, Debug, Default)]
pub struct Leftovers {
    /// Processes that outlived the root of their tree, in the order in which they were met.
    pub outlived: Vec<Outlived>,
    /// Shared memory without an owner, the largest first.
    pub objects: Vec<OrphanedShmRow>,
}

/// A process that outlived its root.
#[derive(Clone, Debug)]
pub struct Outlived {
    /// What was recorded of it.
    pub row: SurvivorRow,
    /// The kernel's name for it.
    pub name: String,
}

/// A recording could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It could not be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It could not be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The command could not be run.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The system refused timers or signals.
    #[error("set up the event loop: {0}")]
    Loop(#[source] std::io::Error),
}
