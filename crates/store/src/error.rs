//! What can go wrong with a recording as a whole. Damage within one file is a
//! [`Problem`](super::Problem) instead: it is reported, and the rest is read.

use memtrace_model::SchemaVersion;
use std::io;
use std::path::{Path, PathBuf};

/// Why a recording could not be written, read or closed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory for a new recording already holds something.
    #[error("create {}: it exists and is not an empty directory", dir.display())]
    NotEmpty {
        /// The directory that was asked for.
        dir: PathBuf,
    },
    /// The directory holds no `run.json`.
    #[error("open {}: it holds no run.json, so it is not a recording", dir.display())]
    NotARecording {
        /// The directory that was asked for.
        dir: PathBuf,
    },
    /// `run.json` is there but does not say what a recording says.
    #[error("understand {}", path.display())]
    RunInfo {
        /// Path of the `run.json`.
        path: PathBuf,
        /// What the parser says.
        source: serde_json::Error,
    },
    /// The recording's tables mean something else than this version knows.
    #[error(
        "read {}: it was written by memtrace {memtrace_version} with schema {found}, and this memtrace reads schema {}.x; read it with that version{}",
        dir.display(), supported.major, if found.major > supported.major { " or a newer one" } else { "" }
    )]
    UnsupportedSchema {
        /// Where the recording is.
        dir: PathBuf,
        /// The version of its tables.
        found: SchemaVersion,
        /// The version that this build knows.
        supported: SchemaVersion,
        /// The memtrace that wrote it; empty when it doesn't say.
        memtrace_version: String,
    },
    /// Writing its tables anew would drop columns that this version does not know.
    #[error(
        "{doing} {}: it was written by the newer memtrace {memtrace_version} with schema {found}, and to do that with this one would drop what that version added; do it with that version (reading works with this one)",
        dir.display()
    )]
    NewerSchema {
        /// What was asked for, as a verb.
        doing: &'static str,
        /// Where the recording is.
        dir: PathBuf,
        /// The version of its tables.
        found: SchemaVersion,
        /// The memtrace that wrote it.
        memtrace_version: String,
    },
    /// What is at an address is read, and nothing is written there.
    #[error("write to {}: an address is only read from; do it where the recording is, then upload \
         it with `memtrace push`", address.display())]
    ReadOnly {
        /// The address of the recording.
        address: PathBuf,
    },
    /// A recorder still writes to it.
    #[error("close {}: a recorder is still writing to it; stop that first", dir.display())]
    Live {
        /// Where the recording is.
        dir: PathBuf,
    },
    /// What was found in a recording that was never closed would not stay true, and what is added
    /// to it would meet its recorder.
    #[error(
        "{doing} {}: {}",
        dir.display(),
        if *is_live {
            "it is still being recorded; stop that first".to_owned()
        } else {
            format!("it was never closed; do that first: memtrace recover {}", dir.display())
        }
    )]
    Unclosed {
        /// What was asked for, as a verb.
        doing: &'static str,
        /// Where the recording is.
        dir: PathBuf,
        /// A recorder still writes to it.
        is_live: bool,
    },
    /// What can't be read of a file would be lost when it is written anew.
    #[error("rewrite {}: {reason}", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody would read all of them.
    #[error(
        "add rows to {}: its table {table} would have more rows than a recording of this length can \
         have",
        dir.display()
    )]
    TooManyRows {
        /// Where the recording is.
        dir: PathBuf,
        /// The table that would have them.
        table: &'static str,
    },
    /// A projection named a column that the table does not have.
    #[error("read {table}: it has no column {column}")]
    NoSuchColumn {
        /// The name of the table.
        table: &'static str,
        /// The column that was asked for.
        column: String,
    },
    /// No room is left: the disk, a quota, or the limit on the size of a file. What was
    /// written before stays readable.
    #[error("write {}: {}", path.display(), no_room(source))]
    DiskFull {
        /// The file that could not grow.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The recording's directory was removed while it was written.
    #[error("write {}: the directory was removed", dir.display())]
    Removed {
        /// The directory that was removed.
        dir: PathBuf,
    },
    /// `run.json` is longer than any that memtrace writes, or its clock is out of this world.
    #[error("understand {}: {reason}", path.display())]
    Absurd {
        /// Path of the `run.json`.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
    /// The disk took nothing for so long that it was given up.
    #[error(
        "write {}: the disk has accepted nothing for {seconds} s; {waiting_bytes} bytes of rows \
         that waited for it are lost",
        dir.display()
    )]
    Stalled {
        /// Where the recording is.
        dir: PathBuf,
        /// For how long.
        seconds: i64,
        /// What waited, in memory.
        waiting_bytes: usize,
    },
    /// The system refused an operation on a file.
    #[error("{doing} {}", path.display())]
    Io {
        /// The operation, as a verb.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Rows could not be put into the form of the file.
    #[error("encode {}: {reason}", path.display())]
    Encode {
        /// Path of the file.
        path: PathBuf,
        /// What arrow or parquet says.
        reason: String,
    },
}

fn no_room(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::FileTooLarge => {
            "no file may be larger here: raise the limit on their size (`ulimit -f`), or write to \
             a file system that takes larger ones"
        }
        io::ErrorKind::QuotaExceeded => "the quota is used up",
        _ => "no space is left for it",
    }
}

impl StoreError {
    /// An error of the system, distinguished from lack of space.
    pub(super) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Self::DiskFull { path, source },
            _ => Self::Io {
                doing,
                path,
                source,
            },
        }
    }

    /// An error of arrow or parquet while writing, which may wrap one of the system.
    pub(super) fn encode(path: &Path, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut cause = Some(error);
        while let Some(inner) = cause {
            if let Some(system) = inner.downcast_ref::<io::Error>() {
                // io::Error can't be cloned; the OS code carries all that it says.
                let copy = match system.raw_os_error() {
                    Some(code) => io::Error::from_raw_os_error(code),
                    None => io::Error::new(system.kind(), system.to_string()),
                };
                return Self::io("write", path, copy);
            }
            cause = inner.source();
        }
        Self::Encode {
            path: path.to_path_buf(),
            reason: error.to_string(),
        }
    }

    /// Whether the disk takes no more, and what it took before stays as it is.
    pub fn ends_with_what_is_there(&self) -> bool {
        self.is_disk_full() || matches!(self, Self::Stalled { .. })
    }

    /// Whether no space was left.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::DiskFull { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lack_of_space_is_distinguished_from_other_errors() {
        for kind in [
            io::ErrorKind::StorageFull,
            io::ErrorKind::QuotaExceeded,
            io::ErrorKind::FileTooLarge,
        ] {
            let full = StoreError::io("write", Path::new("x"), kind.into());
            assert!(full.is_disk_full());
            let is_limit = kind == io::ErrorKind::FileTooLarge;
            assert_eq!(full.to_string().contains("ulimit -f"), is_limit, "{full}");
        }
        let refused = io::ErrorKind::PermissionDenied.into();
        assert!(!StoreError::io("write", Path::new("x"), refused).is_disk_full());
    }

    #[test]
    fn lack_of_space_is_found_below_an_error_of_parquet() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let wrapped = parquet::errors::ParquetError::from(full);
        assert!(StoreError::encode(Path::new("x"), &wrapped).is_disk_full());
        let other = parquet::errors::ParquetError::General("bad".to_owned());
        assert!(!StoreError::encode(Path::new("x"), &other).is_disk_full());
    }
}
