//! Damage met while reading: which file, what is wrong with it, and what is missing.

use crate::model::Bytes;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// One file of a recording that could not be read in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, relative to the recording's directory.
    pub file: PathBuf,
    /// What is wrong with it.
    pub kind: ProblemKind,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// A spool segment ends within a batch, as it does when the recorder is killed while
    /// writing. Every complete batch before it was read.
    TruncatedTail {
        /// Size of the incomplete rest.
        lost_bytes: Bytes,
    },
    /// A batch of a spool segment, or a row group of a part, could not be read; what
    /// comes after it in the file was read.
    DamagedBatch {
        /// Which one, counted from 0.
        index: usize,
        /// What the decoder says.
        reason: String,
    },
    /// The file could not be read from some point on.
    Damaged {
        /// Where, in bytes from its start.
        at_byte: u64,
        /// What does not fit.
        reason: String,
    },
    /// The file's columns are not those of its table.
    WrongColumns {
        /// What does not fit.
        reason: String,
    },
    /// Rows lack a value that they must have, and were left out.
    IncompleteRows {
        /// How many.
        count: u64,
    },
    /// The system refused to read the file.
    Unreadable {
        /// What the system says.
        reason: String,
    },
}

impl ProblemKind {
    /// Whether the file holds bytes that should be kept for a closer look: true for
    /// damage, false for the incomplete tail that every kill leaves.
    pub(super) fn is_damage(&self) -> bool {
        !matches!(self, Self::TruncatedTail { .. })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.kind)
    }
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TruncatedTail { lost_bytes } => {
                write!(f, "ends within a batch; {lost_bytes} bytes left out")
            }
            Self::DamagedBatch { index, reason } => {
                write!(f, "batch {index} is damaged and left out: {reason}")
            }
            Self::Damaged { at_byte, reason } => {
                write!(f, "damaged and not read from byte {at_byte} on: {reason}")
            }
            Self::WrongColumns { reason } => write!(f, "not read: {reason}"),
            Self::IncompleteRows { count } => {
                write!(f, "{count} rows lack a required value and are left out")
            }
            Self::Unreadable { reason } => write!(f, "could not be read: {reason}"),
        }
    }
}

/// Collects problems from the readers of one recording. Clones share one list.
#[derive(Clone, Debug, Default)]
pub(super) struct Problems(Arc<Mutex<Vec<Problem>>>);

impl Problems {
    /// Notes a problem once, however often its file is read.
    pub(super) fn note(&self, file: &Path, kind: ProblemKind) {
        let problem = Problem {
            file: file.to_path_buf(),
            kind,
        };
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !list.contains(&problem) {
            list.push(problem);
        }
    }

    /// The problems so far, in the order in which they were met.
    pub(super) fn list(&self) -> Vec<Problem> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.clone()
    }
}
