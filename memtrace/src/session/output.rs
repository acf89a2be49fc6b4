//! Where rows go: a thread of its own owns the store's writer, so that a slow disk never
//! stops the collectors until what waits takes all the room that there is for it; then they wait
//! and the kernel counts what is lost. Nobody waits for the disk in a way that no signal ends: it
//! can hang for ever.

use super::redaction::{Redacting, redacted};
use super::sink::Sink;
use memtrace_collect::{Ceiling, Part, Share};
use memtrace_host::clock;
use memtrace_model::{BootNs, DurationNs, Record, RunInfo, WallNs};
use memtrace_store::{Stats, StoreError, Writer};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A disk that takes nothing for so long is reported.
const REPORTED_AFTER: DurationNs = DurationNs(1_000_000_000);
/// Who was asked to end does not wait for a disk that has taken nothing for longer than this.
/// Until then it may be one that is only slow.
const GIVEN_UP_AFTER: DurationNs = DurationNs(5_000_000_000);
/// How often a recording that ends looks whether all is written.
const LOOK: Duration = Duration::from_millis(2);

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
    /// Rows, and the room that they take until they are written.
    Rows(Vec<Record>, Share),
    Flush,
    Sync,
    Update(Box<RunInfo>),
    Finish(Box<RunInfo>),
    Discard,
}

/// What the writing thread tells back.
#[derive(Default)]
struct Shared {
    stats: Stats,
    failure: Option<StoreError>,
    /// Since when it is at what it does, other than closing the recording, which takes its time.
    busy_since: Option<BootNs>,
}

/// The sending side.
pub(super) struct Output {
    dir: PathBuf,
    ceiling: Arc<Ceiling>,
    sender: Sender<Message>,
    shared: Arc<Mutex<Shared>>,
    thread: JoinHandle<Result<Stats, StoreError>>,
    is_stall_reported: Cell<bool>,
}

impl Output {
    /// Creates the recording and starts the thread that writes it. `owner` is the user and
    /// group whose files they should be; with `rotate` its rows become parts after that time, and
    /// with `redacts` no secret of a command line is in them.
    pub(super) fn create(
        dir: &Path,
        info: &RunInfo,
        owner: Option<(u32, u32)>,
        rotate: Option<DurationNs>,
        redacts: bool,
        ceiling: &Arc<Ceiling>,
    ) -> Result<Self, OutputError> {
        let writer = match redacts {
            true => Writer::create_for(dir, &redacted(info.clone()), owner)?,
            false => Writer::create_for(dir, info, owner)?,
        };
        let writer = match rotate {
            Some(every) => writer.rotating(every),
            None => writer,
        };
        // A file system without owners is no reason not to record.
        if !writer.is_given() {
            tracing::warn!("the recording's directory can't be given to you");
        }
        match redacts {
            true => Self::start(dir, Redacting(writer), ceiling),
            false => Self::start(dir, writer, ceiling),
        }
    }

    fn start(
        dir: &Path,
        sink: impl Sink + Send + 'static,
        ceiling: &Arc<Ceiling>,
    ) -> Result<Self, OutputError> {
        // Bounded by the bytes of what is in it: see `has_room`.
        let (sender, receiver) = channel();
        let shared = Arc::new(Mutex::new(Shared::default()));
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("memtrace-writer".to_owned())
            // Parquet and zstd need more than the loop; ONFAULT locking charges only
            // what is touched.
            .stack_size(1 << 20)
            .spawn(move || write_all(sink, &receiver, &theirs))
            .map_err(OutputError::Thread)?;
        Ok(Self {
            dir: dir.to_owned(),
            ceiling: Arc::clone(ceiling),
            sender,
            shared,
            thread,
            is_stall_reported: Cell::new(false),
        })
    }

    /// Where the recording is.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Hands a batch over, and never waits. Who sees that there is no room makes no more. A
    /// batch sent after a failure is dropped: [`Output::failure`] tells.
    pub(super) fn send(&self, rows: Vec<Record>) {
        if !rows.is_empty() {
            let texts: usize = rows.iter().map(Record::heap_bytes).sum();
            let bytes = rows.capacity() * size_of::<Record>() + texts;
            let room = self.ceiling.charge(Part::Rows, bytes);
            let _ = self.sender.send(Message::Rows(rows, room));
        }
    }

    /// Whether more rows can wait for the disk.
    pub(super) fn has_room(&self) -> bool {
        !self.ceiling.is_full(Part::Rows)
    }

    /// Waits until more rows can wait. Cancel-safe.
    pub(super) async fn room(&self) {
        self.ceiling.room(Part::Rows).await;
    }

    /// Has what was sent survive the death of this process.
    pub(super) fn flush(&self) {
        let _ = self.sender.send(Message::Flush);
    }

    /// Writes `run.json` anew.
    pub(super) fn update(&self, info: RunInfo) {
        let _ = self.sender.send(Message::Update(Box::new(info)));
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

    /// For how long the disk has taken nothing of what it is to take; 0 while it does.
    fn stalled(&self) -> DurationNs {
        let since = self.lock().busy_since;
        since.map_or(DurationNs(0), |since| clock::boot() - since)
    }

    /// Says, once, that the disk takes nothing.
    pub(super) fn tell_stall(&self) {
        if self.stalled() >= REPORTED_AFTER && !self.is_stall_reported.replace(true) {
            tracing::warn!(
                "{}: the disk accepts no data; nothing more is recorded until it does",
                self.dir.display()
            );
        }
    }

    /// Closes the recording. `is_asked`: somebody waits for our end, and so we don't wait for a
    /// disk that hangs. The thread that does is left behind.
    pub(super) async fn finish(self, info: RunInfo, is_asked: bool) -> Result<Stats, OutputError> {
        let given_up_after = is_asked.then_some(GIVEN_UP_AFTER);
        self.finish_within(info, given_up_after).await
    }

    async fn finish_within(
        self,
        info: RunInfo,
        given_up_after: Option<DurationNs>,
    ) -> Result<Stats, OutputError> {
        let _ = self.sender.send(Message::Finish(Box::new(info)));
        while !self.thread.is_finished() {
            let stalled = self.stalled();
            if given_up_after.is_some_and(|longest| stalled >= longest) {
                return Err(OutputError::Store(StoreError::Stalled {
                    dir: self.dir,
                    seconds: stalled.0 / 1_000_000_000,
                    waiting_bytes: self.ceiling.taken(Part::Rows),
                }));
            }
            self.tell_stall();
            tokio::time::sleep(LOOK).await;
        }
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

/// The thread: takes messages until it is asked to finish. After a failure it goes on
/// taking them, so that nobody waits for it, and keeps what is on disk.
fn write_all(
    mut writer: impl Sink,
    receiver: &Receiver<Message>,
    shared: &Mutex<Shared>,
) -> Result<Stats, StoreError> {
    let mut has_failed = false;
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    for message in receiver {
        let is_last = matches!(message, Message::Finish(_));
        lock().busy_since = (!is_last).then(clock::boot);
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
            _ if has_failed => Ok(()),
            Message::Rows(rows, _room) => rows.iter().try_for_each(|row| writer.append(row)),
            Message::Flush => writer.flush().and_then(|()| writer.rotate(clock::boot())),
            Message::Sync => writer.sync(),
            Message::Update(info) => writer.update(*info),
        };
        let mut shared = lock();
        shared.busy_since = None;
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
    let name = format!("memtrace-{host}-{}", name_by_start(WallNs(started)));
    free_name(name, Path::exists)
}

/// The time as names of recordings have it: `20261123T121913Z`.
pub fn name_by_start(started: WallNs) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(started.0)).unwrap_or_default();
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
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
    use crate::session::record::tick;
    use memtrace_model::{Bytes, DiagKind, RunState, SCHEMA_VERSION, Severity, Target};
    use std::time::Instant;

    /// A disk that takes nothing until it is let go.
    struct Hung {
        go: Receiver<()>,
        stats: Stats,
    }

    impl Sink for Hung {
        fn append(&mut self, _: &Record) -> Result<(), StoreError> {
            if self.stats.row_count == 0 {
                let _ = self.go.recv();
            }
            self.stats.row_count += 1;
            Ok(())
        }
        fn flush(&mut self) -> Result<(), StoreError> {
            Ok(())
        }
        fn sync(&mut self) -> Result<(), StoreError> {
            Ok(())
        }
        fn finish(self, _: RunInfo) -> Result<Stats, StoreError> {
            Ok(self.stats)
        }
        fn stats(&self) -> Stats {
            self.stats
        }
    }

    fn hung() -> (Output, Sender<()>) {
        let (go, held) = channel();
        let sink = Hung {
            go: held,
            stats: Stats::default(),
        };
        let output = Output::start(Path::new("there"), sink, &Arc::default());
        (output.expect("a thread"), go)
    }

    fn row() -> Record {
        let detail = "x".repeat(1 << 20);
        tick(false).diag(Severity::Info, DiagKind::Backend, "", None, detail)
    }

    fn info() -> RunInfo {
        RunInfo {
            schema_version: SCHEMA_VERSION,
            memtrace_version: String::new(),
            id: None,
            state: RunState::Recording,
            hostname: String::new(),
            kernel: String::new(),
            arch: String::new(),
            page_size_bytes: Bytes(4096),
            cpu_count: 1,
            mem_total_bytes: None,
            target: Target::All,
            root_tgid: None,
            backend: String::new(),
            backend_reason: String::new(),
            interval_ns: DurationNs(1),
            clocks: Vec::new(),
            command_exit_code: None,
            mark_socket: None,
            gpus: Vec::new(),
            gpu_note: None,
            downsampled: None,
            place: None,
            host: serde_json::Value::Null,
            plan: serde_json::Value::Null,
        }
    }

    fn on_a_runtime<T>(work: impl Future<Output = T>) -> T {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().expect("a runtime");
        runtime.block_on(work)
    }

    #[test]
    fn what_waits_for_a_disk_that_hangs_takes_a_stated_number_of_bytes_and_nobody_waits() {
        let (output, go) = hung();
        let started = Instant::now();
        let mut sent = 0;
        while output.has_room() {
            output.send(vec![row()]);
            sent += 1;
        }
        assert!(started.elapsed() < Duration::from_secs(1));
        assert_eq!(sent, Part::Rows.limit() >> 20);
        on_a_runtime(async {
            let wait = Duration::from_millis(20);
            assert!(tokio::time::timeout(wait, output.room()).await.is_err());
            let long = Duration::from_secs(30);
            let (room, ()) = tokio::join!(tokio::time::timeout(long, output.room()), async {
                go.send(()).expect("it hangs there");
            });
            room.expect("the disk takes it again");
            let stats = output.finish(info(), true).await.expect("closed");
            assert_eq!(stats.row_count, i64::try_from(sent).expect("few"));
        });
    }

    #[test]
    fn who_is_asked_to_end_gives_up_a_disk_that_hangs_and_says_what_is_missing() {
        let (output, go) = hung();
        output.send(vec![row()]);
        let longest = DurationNs(50_000_000);
        let started = Instant::now();
        let outcome = on_a_runtime(output.finish_within(info(), Some(longest)));
        assert!(started.elapsed() < Duration::from_secs(1));
        let error = outcome.expect_err("it hangs").to_string();
        assert!(
            error.contains("there: the disk has accepted nothing"),
            "{error}"
        );
        let numbers = error.split(|c: char| !c.is_ascii_digit());
        let largest = numbers
            .filter_map(|digits| digits.parse::<usize>().ok())
            .max();
        assert!(largest.is_some_and(|bytes| bytes > 1 << 20), "{error}");
        drop(go);
    }

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
