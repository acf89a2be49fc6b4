//! `run.json`: read, replaced as a whole, and locked by the recorder while it lives.

use super::checksum::{self, Checked};
use super::dir::{Dir, Inspected};
use super::disk::Disk;
use super::error::StoreError;
use super::files::Files;
use super::layout::temporary;
use memtrace_model::{
    ClockReading, RunInfo, RunPlace, SCHEMA_VERSION, SchemaVersion, Target, WallNs,
};
use serde::Deserialize;
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// The name of the file.
pub const RUN_FILE: &str = "run.json";

/// The command's arguments take most of it, and JSON can make six times as much of a byte; the
/// hosts of a run can take 3 MiB.
const MAX_RUN_FILE_BYTES: u64 = 12 << 20;
const MAX_ARGV_BYTES: usize = 1 << 20;
/// The kernel's limit for a host's name is 64 bytes, and DNS has 253.
const MAX_NAME_CHARS: usize = 255;
/// For what is one line.
const MAX_LINE_CHARS: usize = 4_096;
/// No machine runs for longer than a hundred years, nor starts in a later millennium.
const MAX_BOOT_NS: i64 = 100 * 366 * 86_400 * 1_000_000_000;
const MAX_WALL_NS: i64 = i64::MAX / 2;

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
        Self::write_json(disk, info, checksum::seal_json)
    }

    /// The same, without a checksum.
    pub(super) fn write_unsealed(disk: &Disk, info: &RunInfo) -> Result<Self, StoreError> {
        Self::write_json(disk, info, |json| json.push(b'\n'))
    }

    fn write_json(
        disk: &Disk,
        info: &RunInfo,
        seal: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Self, StoreError> {
        let path = Path::new(RUN_FILE);
        let temporary = temporary(path);
        let full_path = disk.full_path(&temporary);
        let info = bounded(info.clone());
        let mut json = serde_json::to_vec_pretty(&info).map_err(|source| StoreError::RunInfo {
            path: disk.full_path(path),
            source,
        })?;
        seal(&mut json);
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
    pub(super) fn lock(dir: &Dir) -> Result<Self, StoreError> {
        let path = dir.full_path(Path::new(RUN_FILE));
        let mut attempts = 1..=LOCK_ATTEMPTS;
        loop {
            attempts.next();
            // Opened for writing, because NFS turns this lock into one that demands it.
            let file = dir
                .open_file_to_write(Path::new(RUN_FILE))
                .map_err(|error| open_error(dir, error))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if !attempts.is_empty() => {
                    std::thread::sleep(LOCK_PAUSE);
                    continue;
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(StoreError::Live {
                        dir: dir.path().to_path_buf(),
                    });
                }
                Err(TryLockError::Error(error)) => {
                    return Err(StoreError::io("lock", &path, error));
                }
            }
            // Its owner may have replaced the file between our open and our lock; then
            // this is a lock on a file without a name, and the new one is asked.
            let io_error = |error| StoreError::io("inspect", &path, error);
            let named = dir.inspect(Path::new(RUN_FILE)).map_err(io_error)?;
            let locked = Inspected::of_file(&file).map_err(io_error)?;
            if named.is_same_file(&locked) {
                return Ok(Self { _lock: Some(file) });
            }
        }
    }
}

/// Whether a recorder, or a recovery, holds the recording's lock at this moment. False
/// also where the file system has no locks.
pub(super) fn is_locked(dir: &Dir) -> bool {
    dir.open_file(Path::new(RUN_FILE))
        .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// When `run.json` was written last, in ns since the Unix epoch.
pub(super) fn written_at_ns(dir: &impl Files) -> Option<i64> {
    dir.modified_ns(Path::new(RUN_FILE)).ok()
}

/// What `run.json` says, and whether that is what was written.
#[derive(Debug)]
pub(super) struct RunFile {
    pub(super) info: RunInfo,
    pub(super) checked: Checked,
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
pub fn read_run_info(dir: &Path) -> Result<RunInfo, StoreError> {
    Ok(read(&open_dir(dir)?)?.info)
}

/// Opens the directory of a recording.
pub(super) fn open_dir(path: &Path) -> Result<Dir, StoreError> {
    Dir::open(path).map_err(|error| not_a_recording(path, path, error))
}

/// Reads `run.json`; the path of a recording's directory is in the errors.
pub(super) fn read(dir: &impl Files) -> Result<RunFile, StoreError> {
    let path = dir.full_path(Path::new(RUN_FILE));
    let json = contents(dir).map_err(|error| open_error(dir, error))?;
    let understand = |source| StoreError::RunInfo {
        path: path.clone(),
        source,
    };
    // The version is asked first: another major version may differ in all the rest.
    let versions: Versions = serde_json::from_slice(&json).map_err(understand)?;
    if versions.schema_version.major != SCHEMA_VERSION.major {
        return Err(StoreError::UnsupportedSchema {
            dir: dir.path().to_path_buf(),
            found: versions.schema_version,
            supported: SCHEMA_VERSION,
            memtrace_version: shortened(versions.memtrace_version, MAX_NAME_CHARS),
        });
    }
    let info: RunInfo = serde_json::from_slice(&json).map_err(understand)?;
    if let Some(clock) = info.clocks.iter().find(|clock| is_absurd(clock)) {
        let reason = format!("the clock reading {clock:?} is impossible");
        return Err(StoreError::Absurd { path, reason });
    }
    Ok(RunFile {
        info: bounded(info),
        checked: checksum::check_json(&json),
    })
}

fn is_absurd(clock: &ClockReading) -> bool {
    !(0..MAX_BOOT_NS).contains(&clock.boot_ns.0) || !(0..MAX_WALL_NS).contains(&clock.wall_ns.0)
}

/// Texts at the length that they can have, as they are written and as they are read.
fn bounded(info: RunInfo) -> RunInfo {
    RunInfo {
        memtrace_version: shortened(info.memtrace_version, MAX_NAME_CHARS),
        hostname: shortened(info.hostname, MAX_NAME_CHARS),
        kernel: shortened(info.kernel, MAX_NAME_CHARS),
        arch: shortened(info.arch, MAX_NAME_CHARS),
        backend: shortened(info.backend, MAX_NAME_CHARS),
        backend_reason: shortened(info.backend_reason, MAX_LINE_CHARS),
        mark_socket: info.mark_socket.map(|path| shortened(path, MAX_LINE_CHARS)),
        gpu_note: info.gpu_note.map(|note| shortened(note, MAX_LINE_CHARS)),
        target: match info.target {
            Target::Command { argv } => Target::Command {
                argv: shortened_argv(argv),
            },
            other => other,
        },
        place: info.place.map(RunPlace::bounded),
        ..info
    }
}

fn shortened(mut text: String, max_chars: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(max_chars) {
        text.truncate(end);
        text.push('…');
    }
    text
}

fn shortened_argv(mut argv: Vec<String>) -> Vec<String> {
    let mut bytes = 0_usize;
    let kept = argv.iter().position(|argument| {
        bytes += argument.len();
        bytes > MAX_ARGV_BYTES
    });
    if let Some(kept) = kept {
        argv.truncate(kept);
        argv.push("…".to_owned());
    }
    argv
}

/// When a recording was started; `None` when its `run.json` doesn't tell, also because it
/// is of another version.
///
/// # Errors
/// When there is no `run.json`.
pub(super) fn start_time(dir: &impl Files) -> io::Result<Option<WallNs>> {
    #[derive(Deserialize)]
    struct Clocks {
        clocks: Vec<Wall>,
    }
    #[derive(Deserialize)]
    struct Wall {
        wall_ns: WallNs,
    }
    let clocks: Option<Clocks> = serde_json::from_slice(&contents(dir)?).ok();
    Ok(clocks.and_then(|clocks| clocks.clocks.first().map(|clock| clock.wall_ns)))
}

/// The bytes of `run.json`.
pub(super) fn contents(dir: &impl Files) -> io::Result<Vec<u8>> {
    let json = dir.read_small(Path::new(RUN_FILE), MAX_RUN_FILE_BYTES)?;
    match json.len() as u64 > MAX_RUN_FILE_BYTES {
        true => Err(io::Error::other("it is too long to be one of memtrace's")),
        false => Ok(json),
    }
}

fn open_error(dir: &impl Files, error: io::Error) -> StoreError {
    not_a_recording(dir.path(), &dir.full_path(Path::new(RUN_FILE)), error)
}

fn not_a_recording(dir: &Path, opened: &Path, error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => StoreError::NotARecording {
            dir: dir.to_path_buf(),
        },
        _ => StoreError::io("open", opened, error),
    }
}
