//! Where rows go: a thread of its own owns the store's writer, so that a slow disk never
//! stops the collectors until the channel is full; then they wait and the kernel counts
//! what is lost.

use crate::model::{Record, RunInfo};
use crate::store::{Stats, StoreError, Writer};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Batches that may wait for the disk: some seconds of a busy tree.
const BATCHES_MAX: usize = 64;

/// The recording could not be created or written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The writing thread could not be started.
    #[error("start the writing thread: {0}")]
    Thread(#[source] std::io::Error),
    /// The writing thread died.
    #[error("the writing thread of {} ended unexpectedly", .0.display())]
    Died(PathBuf),
}

enum Message {
    Rows(Vec<Record>),
    Flush,
    Sync,
    Finish(Box<RunInfo>),
    Discard,
}

/// What the writing thread tells back.
#[derive(Default)]
struct Shared {
    stats: Stats,
    failure: Option<StoreError>,
}

/// The sending side.
pub(super) struct Output {
    dir: PathBuf,
    sender: SyncSender<Message>,
    shared: Arc<Mutex<Shared>>,
    thread: JoinHandle<Result<Stats, StoreError>>,
}

impl Output {
    /// Creates the recording and starts the thread that writes it. `owner` is the user and
    /// group whose files they should be.
    pub(super) fn create(
        dir: &Path,
        info: &RunInfo,
        owner: Option<(u32, u32)>,
    ) -> Result<Self, OutputError> {
        let writer = Writer::create_for(dir, info, owner)?;
        // A file system without owners is no reason not to record.
        if !writer.is_given() {
            tracing::warn!("the recording's directory can't be given to you");
        }
        let (sender, receiver) = sync_channel(BATCHES_MAX);
        let shared = Arc::new(Mutex::new(Shared::default()));
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("memtrace-writer".to_owned())
            // Parquet and zstd need more than the loop; ONFAULT locking charges only
            // what is touched.
            .stack_size(1 << 20)
            .spawn(move || write_all(writer, &receiver, &theirs))
            .map_err(OutputError::Thread)?;
        Ok(Self {
            dir: dir.to_owned(),
            sender,
            shared,
            thread,
        })
    }

    /// Where the recording is.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Hands a batch over; waits while the disk is behind. A batch sent after a failure is
    /// dropped: [`Output::failure`] tells.
    pub(super) fn send(&self, rows: Vec<Record>) {
        if !rows.is_empty() {
            let _ = self.sender.send(Message::Rows(rows));
        }
    }

    /// Has what was sent survive the death of this process.
    pub(super) fn flush(&self) {
        let _ = self.sender.send(Message::Flush);
    }

    /// Has what was sent survive the death of the machine.
    pub(super) fn sync(&self) {
        let _ = self.sender.send(Message::Sync);
    }

    /// What was written so far.
    pub(super) fn stats(&self) -> Stats {
        self.lock().stats
    }

    /// The first failure to write, once.
    pub(super) fn take_failure(&self) -> Option<StoreError> {
        self.lock().failure.take()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shared> {
        // The guarded values are whole at every moment, also after a panic elsewhere.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a recording in which there is nothing of interest.
    pub(super) fn discard(self) {
        let _ = self.sender.send(Message::Discard);
        let _ = self.thread.join();
    }

    /// Closes the recording.
    pub(super) fn finish(self, info: RunInfo) -> Result<Stats, OutputError> {
        let _ = self.sender.send(Message::Finish(Box::new(info)));
        let stats = match self.thread.join() {
            Ok(outcome) => outcome?,
            Err(_) => return Err(OutputError::Died(self.dir)),
        };
        // One that came with the last batches, and that nobody has asked for.
        match self
            .shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .failure
            .take()
        {
            Some(failure) => Err(failure.into()),
            None => Ok(stats),
        }
    }
}

/// The thread: takes messages until it is told to finish. After a failure it goes on
/// taking them, so that nobody waits for it, and keeps what is on disk.
fn write_all(
    mut writer: Writer,
    receiver: &Receiver<Message>,
    shared: &Mutex<Shared>,
) -> Result<Stats, StoreError> {
    let mut has_failed = false;
    for message in receiver {
        let outcome = match message {
            // Rows are missing: it must not pass for whole. Unclosed it reads as far as it
            // goes, and says so.
            Message::Finish(_) if has_failed => return Ok(writer.stats()),
            Message::Finish(info) => return writer.finish(*info),
            Message::Discard => {
                let stats = writer.stats();
                writer.discard();
                return Ok(stats);
            }
            _ if has_failed => continue,
            Message::Rows(rows) => rows.iter().try_for_each(|row| writer.append(row)),
            Message::Flush => writer.flush(),
            Message::Sync => writer.sync(),
        };
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.stats = writer.stats();
        if let Err(error) = outcome {
            has_failed = true;
            shared.failure = Some(error);
        }
    }
    Ok(writer.stats())
}

/// Where a recording goes that was given no place: `memtrace-<host>-<UTC time>` here, made
/// unique by a number where two start in the same second.
pub(super) fn directory(asked: Option<&Path>, info: &RunInfo) -> PathBuf {
    if let Some(asked) = asked {
        return asked.to_owned();
    }
    let started = info.clocks.first().map_or(0, |clock| clock.wall_ns.0);
    let time = jiff::Timestamp::from_nanosecond(i128::from(started)).unwrap_or_default();
    // A host's name can hold anything; a file's name had better not.
    let host: String = info
        .hostname
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        })
        .collect();
    let name = format!("memtrace-{host}-{}", time.strftime("%Y%m%dT%H%M%SZ"));
    free_name(name, Path::exists)
}

/// The name, or the name with a number where it is taken.
fn free_name(name: String, is_taken: impl Fn(&Path) -> bool) -> PathBuf {
    let numbered = (2..100).map(|number| PathBuf::from(format!("{name}-{number}")));
    std::iter::once(PathBuf::from(&name))
        .chain(numbered)
        .find(|candidate| !is_taken(candidate))
        .unwrap_or_else(|| PathBuf::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_of_one_second_are_numbered() {
        let free = |taken: &[&str]| {
            let is_taken = |path: &Path| taken.iter().any(|name| path == Path::new(name));
            free_name("run".to_owned(), is_taken)
        };
        assert_eq!(free(&[]), Path::new("run"));
        assert_eq!(free(&["run"]), Path::new("run-2"));
        assert_eq!(free(&["run", "run-2"]), Path::new("run-3"));
    }
}
