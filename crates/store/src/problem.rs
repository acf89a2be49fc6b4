//! Damage met while reading: which file, what is wrong with it, and what is missing.

use memtrace_model::{Bytes, SCHEMA_VERSION, SchemaVersion};
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
    /// A stretch of the file could not be read. What comes after it was, as far as it could be
    /// found.
    Damaged {
        /// Where, in bytes from its start.
        at_byte: u64,
        /// How many bytes.
        lost_bytes: Bytes,
        /// What does not fit.
        reason: String,
    },
    /// The file was put aside when a recording was closed or converted, because it could not be
    /// read in full.
    PutAside,
    /// The recording had it, and it is not there.
    Missing {
        /// How many rows were in it; not known of a file of the spool.
        rows: Option<u64>,
    },
    /// The recording did not have it; what is in it was left out.
    Unlisted,
    /// `run.json` has no checksum. Those of the other files are not asked for then, as in recordings
    /// of the first versions of memtrace.
    Unsealed,
    /// It was changed after it was written. What it says is used.
    Changed,
    /// A newer memtrace wrote the recording. Tables and columns that this version does not know are
    /// left out; all others mean the same.
    Newer {
        /// The version of its tables.
        schema: SchemaVersion,
        /// The memtrace that wrote it.
        memtrace_version: String,
    },
    /// Rows are of a time that is not the recording's, or of more memory than there can be, and
    /// were left out.
    Outside {
        /// How many rows.
        count: u64,
    },
    /// There are more rows than a recording of this length can have; the rest was left out.
    TooMany {
        /// How many were read.
        count: u64,
    },
    /// Texts are longer than any that memtrace writes, and were cut.
    LongTexts {
        /// How many texts.
        count: u64,
    },
    /// The file's columns are not those of its table.
    WrongColumns {
        /// What does not fit.
        reason: String,
    },
    /// Rows lack a value that they must have, and were left out.
    IncompleteRows {
        /// How many rows.
        count: u64,
    },
    /// The system refused to read the file.
    Unreadable {
        /// What the system says.
        reason: String,
    },
}

impl Problem {
    /// Whether something of what was recorded could not be read, or is not as it was written. What a
    /// newer memtrace has more is not.
    pub fn is_loss(&self) -> bool {
        !matches!(self.kind, ProblemKind::Newer { .. })
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
            Self::Damaged {
                at_byte,
                lost_bytes,
                reason,
            } => write!(
                f,
                "damaged at byte {at_byte}; {lost_bytes} bytes left out: {reason}"
            ),
            Self::PutAside => f.write_str(
                "could not be read in full and was put aside; the rest of it is in the recording",
            ),
            Self::Missing { rows: Some(rows) } => write!(f, "is missing, with {rows} rows"),
            Self::Missing { rows: None } => f.write_str("is missing"),
            Self::Unlisted => {
                f.write_str("is not a file of the recording (manifest.jsonl), and is left out")
            }
            Self::Unsealed => f.write_str(
                "has no checksum, as in the first versions of memtrace: what was changed in the \
                 recording, or is missing, is not noticed",
            ),
            Self::Changed => f.write_str(
                "does not match its checksum: it was changed after it was written, and is used \
                 as it is",
            ),
            Self::Newer {
                schema,
                memtrace_version,
            } => write!(
                f,
                "written by memtrace {memtrace_version} with schema {schema}; what schema \
                 {SCHEMA_VERSION} of this memtrace does not know is left out"
            ),
            Self::Outside { count } => write!(
                f,
                "{count} rows have an impossible time or amount, and are left out"
            ),
            Self::TooMany { count } => write!(
                f,
                "more rows than a recording of this length can have; all but the first {count} \
                 are left out"
            ),
            Self::LongTexts { count } => {
                write!(f, "{count} texts are longer than memtrace writes, and cut")
            }
            Self::WrongColumns { reason } => write!(f, "not read: {reason}"),
            Self::IncompleteRows { count } => {
                write!(f, "{count} rows lack a required value and are left out")
            }
            Self::Unreadable { reason } => write!(f, "could not be read: {reason}"),
        }
    }
}

/// Damage is reported file by file and batch by batch; a recording made of damage would be reported
/// for ever.
pub(super) const MAX_PROBLEMS: usize = 1_000;

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
        // How many rows are left out depends on which were read, and on their columns.
        let mut more = list.iter_mut().filter(|known| known.file == file);
        let more = more.find_map(|known| match (&mut known.kind, &problem.kind) {
            (ProblemKind::Outside { count: known }, ProblemKind::Outside { count })
            | (
                ProblemKind::IncompleteRows { count: known },
                ProblemKind::IncompleteRows { count },
            ) => Some((known, *count)),
            _ => None,
        });
        if let Some((known, count)) = more {
            *known = count.max(*known);
        } else if list.len() < MAX_PROBLEMS && !list.contains(&problem) {
            list.push(problem);
        }
    }

    /// The problems so far, in the order in which they were met.
    pub(super) fn list(&self) -> Vec<Problem> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.clone()
    }
}
