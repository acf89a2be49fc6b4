//! `run.json`: read, replaced as a whole, and locked by the recorder while it lives.

use super::disk::Disk;
use super::error::StoreError;
use super::layout::temporary;
use crate::model::{RunInfo, SCHEMA_VERSION, SchemaVersion, WallNs};
use serde::Deserialize;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The name of the file.
pub(super) const RUN_FILE: &str = "run.json";

/// Whoever asks whether a recorder lives holds the lock for some microseconds. A recorder
/// holds it as long as it lives.
const LOCK_ATTEMPTS: usize = 3;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// A `run.json` that this process has locked. The lock tells others that a recorder
/// lives, and ends with this value or with the process, however that ends.
///
/// It is an advisory lock on the file itself, not on a file beside it, so that nothing
/// is left behind. Replacing `run.json` makes a new file; it is locked before it gets
/// the name, so there is no moment without a lock.
#[derive(Debug)]
pub(super) struct LockedRunFile {
    _lock: Option<File>,
}

impl LockedRunFile {
    /// Writes `run.json` and locks it. What was there before is replaced in one step.
    pub(super) fn write(disk: &Disk, info: &RunInfo) -> Result<Self, StoreError> {
        let path = Path::new(RUN_FILE);
        let temporary = temporary(path);
        let full_path = disk.full_path(&temporary);
        let mut json = serde_json::to_vec_pretty(info).map_err(|source| StoreError::RunInfo {
            path: disk.full_path(path),
            source,
        })?;
        json.push(b'\n');
        disk.remove_file_if_there(&temporary)?;
        let mut file = disk.create_file(&temporary)?;
        // Some network file systems have no locks. A recording there is worth more than
        // the guard against closing it too early, so it goes on without.
        let is_locked = file.try_lock().is_ok();
        file.write_all(&json)
            .and_then(|()| file.sync_all())
            .map_err(|error| StoreError::io("write", &full_path, error))?;
        disk.count_written(json.len() as u64);
        disk.publish(&temporary, path)?;
        Ok(Self {
            _lock: is_locked.then_some(file),
        })
    }

    /// Locks the `run.json` of an existing recording.
    ///
    /// # Errors
    /// [`StoreError::Live`] when another process holds the lock.
    pub(super) fn lock(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(RUN_FILE);
        let mut attempts = 1..=LOCK_ATTEMPTS;
        loop {
            attempts.next();
            // Opened for writing, because NFS turns this lock into one that demands it.
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .map_err(|error| open_error(dir, &path, error))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if !attempts.is_empty() => {
                    std::thread::sleep(LOCK_PAUSE);
                    continue;
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(StoreError::Live {
                        dir: dir.to_path_buf(),
                    });
                }
                Err(TryLockError::Error(error)) => {
                    return Err(StoreError::io("lock", &path, error));
                }
            }
            // Its owner may have replaced the file between our open and our lock; then
            // this is a lock on a file without a name, and the new one is asked.
            let io_error = |error| StoreError::io("inspect", &path, error);
            let named = std::fs::metadata(&path).map_err(io_error)?;
            let locked = file.metadata().map_err(io_error)?;
            if (named.dev(), named.ino()) == (locked.dev(), locked.ino()) {
                return Ok(Self { _lock: Some(file) });
            }
        }
    }
}

/// Whether a recorder, or a recovery, holds the recording's lock at this moment. False
/// also where the file system has no locks.
pub(super) fn is_locked(dir: &Path) -> bool {
    File::open(dir.join(RUN_FILE))
        .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// What stays the same in `run.json` whatever its version.
#[derive(Deserialize)]
struct Versions {
    schema_version: SchemaVersion,
    #[serde(default)]
    memtrace_version: String,
}

/// Reads `run.json`.
///
/// # Errors
/// When it is missing, is no such file, or is of a major version that this build does
/// not know.
pub fn read(dir: &Path) -> Result<RunInfo, StoreError> {
    let path = dir.join(RUN_FILE);
    let json = std::fs::read(&path).map_err(|error| open_error(dir, &path, error))?;
    let understand = |source| StoreError::RunInfo {
        path: path.clone(),
        source,
    };
    // The version is asked first: another major version may differ in all the rest.
    let versions: Versions = serde_json::from_slice(&json).map_err(understand)?;
    if versions.schema_version.major != SCHEMA_VERSION.major {
        return Err(StoreError::UnsupportedSchema {
            dir: dir.to_path_buf(),
            found: versions.schema_version,
            supported: SCHEMA_VERSION,
            memtrace_version: versions.memtrace_version,
        });
    }
    serde_json::from_slice(&json).map_err(understand)
}

/// When a recording was started; `None` when its `run.json` doesn't tell, also because it
/// is of another version.
pub(super) fn start_time(dir: &Path) -> Option<WallNs> {
    #[derive(Deserialize)]
    struct Clocks {
        clocks: Vec<Wall>,
    }
    #[derive(Deserialize)]
    struct Wall {
        wall_ns: WallNs,
    }
    let json = std::fs::read(dir.join(RUN_FILE)).ok()?;
    let clocks: Clocks = serde_json::from_slice(&json).ok()?;
    clocks.clocks.first().map(|clock| clock.wall_ns)
}

fn open_error(dir: &Path, path: &Path, error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => StoreError::NotARecording {
            dir: dir.to_path_buf(),
        },
        _ => StoreError::io("open", path, error),
    }
}
