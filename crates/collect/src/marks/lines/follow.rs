//! Log files as they grow: renamed and made anew, copied and truncated, or not there yet.
//!
//! The kernel tells when a file was written to (inotify), and a look every 100 ms finds the
//! rest: two calls for each file. Where inotify does not see the writer, as on a network file
//! system, that look is all, and a mark can be late by it.

use super::Lines;
use crate::stop::lock;
use memtrace_host::{Person, as_person, clock};
use memtrace_model::DurationNs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often files are looked for.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Between two reads of a file that is written all the time.
const PAUSE: Duration = Duration::from_millis(5);

/// How long a renamed file is still read: its writer goes on until it is reported.
const LINGER: DurationNs = DurationNs(5_000_000_000);

const CHUNK_BYTES: usize = 64 << 10;

/// So much of a file is read in one look: the others have their turn too.
const LOOK_BYTES: u64 = 16 << 20;

/// At the end, for how long what files have by then is read.
const PATIENCE: DurationNs = DurationNs(2_000_000_000);

/// After this a thread that was asked to end does not look any more: it hangs.
const STUCK: Duration = Duration::from_secs(3);

/// So much of what was read last is compared with what stands there now.
const KNOWN_BYTES: usize = 64;

/// Which of the files were there, for who asked for them.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    absent: Arc<Mutex<HashSet<PathBuf>>>,
}

impl Followed {
    /// Those that never appeared.
    pub fn absent(&self) -> Vec<PathBuf> {
        let absent = lock(&self.absent);
        let mut absent: Vec<PathBuf> = absent.iter().cloned().collect();
        absent.sort();
        absent
    }

    fn note(&self, path: &PathBuf, is_absent: bool) {
        let mut absent = lock(&self.absent);
        if is_absent {
            absent.insert(path.clone());
        } else {
            absent.remove(path);
        }
    }
}

/// The thread that follows the files.
pub(in crate::marks) struct Follower {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Opens the files that are there, at their ends, and follows them and the others, as the
    /// person who named them.
    pub(in crate::marks) fn start(
        files: Vec<(PathBuf, Lines)>,
        followed: Followed,
        person: Option<Person>,
    ) -> io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&is_over);
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let watch = inotify::init(flags).ok();
        let files = files.into_iter();
        let mut logs: Vec<Log> = files.map(|(path, lines)| Log::new(path, lines)).collect();
        as_person(person.as_ref(), || {
            for log in &mut logs {
                log.open_at_end(watch.as_ref());
                followed.note(&log.path, log.current.is_none());
            }
            Ok(())
        })?;
        let (tell, reported) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("memtrace-logs".to_owned())
            .stack_size(256 << 10)
            .spawn(move || {
                let became = person.map_or(Ok(()), |person| person.become_for_good());
                let is_ready = became.is_ok();
                let is_heard = tell.send(became).is_ok();
                if is_ready && is_heard {
                    follow(logs, watch.as_ref(), &followed, &theirs);
                }
            })?;
        reported
            .recv()
            .map_err(|_| io::Error::other("the thread that follows log files has ended"))??;
        Ok(Self {
            is_over,
            thread: Some(thread),
        })
    }

    /// Takes what the files have by now, then nothing more.
    pub(in crate::marks) fn stop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else {
            return;
        };
        let asked = Instant::now();
        while !thread.is_finished() {
            if asked.elapsed() > STUCK {
                // In a call that does not come back, to a file system that hangs. It owns
                // nothing that the recording needs, and ends with this process.
                tracing::warn!("a log file's file system does not answer");
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = thread.join();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop();
    }
}

fn follow(mut logs: Vec<Log>, watch: Option<&OwnedFd>, followed: &Followed, is_over: &AtomicBool) {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut deadline = None;
    loop {
        let is_last = is_over.load(Ordering::Acquire);
        for log in &mut logs {
            if log.look(watch, &mut chunk) {
                followed.note(&log.path, false);
            }
        }
        let is_behind = logs.iter().any(|log| log.behind() > 0);
        if is_last {
            let deadline = *deadline.get_or_insert_with(|| clock::boot() + PATIENCE);
            if !is_behind || clock::boot() >= deadline {
                break;
            }
        }
        if is_behind {
            continue;
        }
        std::thread::sleep(PAUSE);
        match watch {
            Some(watch) => {
                let mut fds = [PollFd::new(watch, PollFlags::IN)];
                // What was written to does not matter: all are looked at.
                if matches!(poll(&mut fds, Some(&LOOK)), Ok(1)) {
                    while matches!(rustix::io::read(watch, &mut chunk), Ok(length) if length > 0) {}
                }
            }
            None => std::thread::sleep(Duration::from_nanos(LOOK.tv_nsec.cast_unsigned())),
        }
    }
    for log in &mut logs {
        let unread = log.behind();
        if unread > 0 {
            log.lines.note_unread(unread);
            log.lines.skip();
        }
        log.lines.end(clock::boot());
    }
}

/// One file, by its path.
struct Log {
    path: PathBuf,
    lines: Lines,
    current: Option<Open>,
    /// What the path named before, and since when it does not.
    renamed: Option<(Open, i64)>,
}

struct Open {
    file: File,
    /// Device and inode.
    id: (u64, u64),
    offset: u64,
    /// What it had at the last look and is not read yet.
    behind: u64,
    /// The end of what was read, to know a file that was truncated and has grown since.
    known: Vec<u8>,
    /// When it was written to, as of the last look.
    written: (i64, i64),
}

impl Log {
    fn new(path: PathBuf, lines: Lines) -> Self {
        Self {
            path,
            lines,
            current: None,
            renamed: None,
        }
    }

    fn open(&self, watch: Option<&OwnedFd>) -> Option<Open> {
        // A FIFO would wait for its writer.
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let file = file.open(&self.path).ok()?;
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() {
            return None;
        }
        if let Some(watch) = watch {
            let _ = inotify::add_watch(watch, &self.path, inotify::WatchFlags::MODIFY);
        }
        Some(Open {
            file,
            id: (metadata.dev(), metadata.ino()),
            offset: 0,
            behind: 0,
            known: Vec::new(),
            written: (0, 0),
        })
    }

    fn open_at_end(&mut self, watch: Option<&OwnedFd>) {
        self.current = self.open(watch);
        if let Some(open) = &mut self.current {
            open.offset = open.file.seek(SeekFrom::End(0)).unwrap_or(0);
            let mut last = [b'\n'];
            if open.offset > 0 {
                let _ = open.file.read_exact_at(&mut last, open.offset - 1);
            }
            if last != [b'\n'] {
                // The end of a line that began before the recording.
                self.lines.skip();
            }
        }
    }

    /// Reads what is new. True when the file is there.
    fn look(&mut self, watch: Option<&OwnedFd>, chunk: &mut [u8]) -> bool {
        let now = clock::boot();
        if let Some((open, since)) = &mut self.renamed {
            open.read(&mut self.lines, chunk);
            if open.behind == 0 && now.0 - *since > LINGER.0 {
                self.renamed = None;
            }
        }
        if let Some(open) = &mut self.current {
            open.read(&mut self.lines, chunk);
        }
        let named = std::fs::metadata(&self.path).ok();
        let named = named.map(|metadata| (metadata.dev(), metadata.ino()));
        let current = self.current.as_ref().map(|open| open.id);
        let is_behind = self.current.as_ref().is_some_and(|open| open.behind > 0);
        if named.is_some() && named != current && !is_behind {
            // Between the read and the look it may have grown.
            if let Some(mut open) = self.current.take() {
                open.read(&mut self.lines, chunk);
                self.lines.end(now);
                self.renamed = Some((open, now.0));
            }
            self.current = self.open(watch);
            if let Some(open) = &mut self.current {
                open.read(&mut self.lines, chunk);
            }
        }
        self.current.is_some()
    }

    /// Bytes that were there at the last look and are not read yet.
    fn behind(&self) -> u64 {
        let renamed = self.renamed.as_ref().map(|(open, _)| open);
        let open = self.current.iter().chain(renamed);
        open.map(|open| open.behind).sum()
    }
}

impl Open {
    fn read(&mut self, lines: &mut Lines, chunk: &mut [u8]) {
        self.behind = 0;
        let Ok(metadata) = self.file.metadata() else {
            return;
        };
        let written = (metadata.mtime(), metadata.mtime_nsec());
        if metadata.len() == self.offset && written == self.written {
            return;
        }
        self.written = written;
        if metadata.len() < self.offset || !self.is_as_known() {
            // Copied and truncated: it begins anew.
            lines.begin_anew();
            self.offset = 0;
            self.known.clear();
            let _ = self.file.seek(SeekFrom::Start(0));
        }
        // What is written meanwhile is for the next look: its writer may not pause.
        let end = metadata.len().min(self.offset + LOOK_BYTES);
        while self.offset < end {
            let room = usize::try_from(end - self.offset).unwrap_or(usize::MAX);
            let room = room.min(chunk.len());
            match self.file.read(&mut chunk[..room]) {
                Ok(0) => return,
                Ok(length) => {
                    self.offset += length as u64;
                    self.known.extend_from_slice(&chunk[..length]);
                    let old = self.known.len().saturating_sub(KNOWN_BYTES);
                    self.known.drain(..old);
                    lines.take(&chunk[..length], clock::boot());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
        self.behind = metadata.len() - end;
    }
}

impl Open {
    /// Whether what was read last still stands where it did.
    fn is_as_known(&self) -> bool {
        let mut there = [0; KNOWN_BYTES];
        let there = &mut there[..self.known.len()];
        let from = self.offset - self.known.len() as u64;
        self.file.read_exact_at(there, from).is_ok() && there == self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::inbox::Inbox;
    use crate::marks::lines::Rules;
    use memtrace_model::{MarkSource, mark_rules};
    use std::fs;
    use std::io::Write;
    use std::path::Path;

    struct Fixture {
        dir: tempfile::TempDir,
        inbox: Arc<Inbox>,
    }

    impl Fixture {
        fn new() -> Self {
            Self {
                dir: tempfile::tempdir().unwrap(),
                inbox: Arc::new(Inbox::default()),
            }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("log")
        }

        fn log(&self) -> Log {
            let rules = "builtin = false\n[[rule]]\nname = \"n\"\nmatch = 'n=(?<n>\\d+)'";
            let rules = Rules::new(mark_rules("t", rules).unwrap()).unwrap();
            let inbox = Arc::clone(&self.inbox);
            let lines = Lines::new(Arc::new(rules), MarkSource::File, None, inbox);
            Log::new(self.path(), lines)
        }

        fn numbers(&self) -> Vec<i64> {
            let marks = self.inbox.take().marks.into_iter();
            let number = |text: &str| -> Option<i64> {
                let attributes: serde_json::Value = serde_json::from_str(text).ok()?;
                attributes["n"].as_i64()
            };
            marks
                .filter_map(|waits| number(waits.mark.attributes.as_deref()?))
                .collect()
        }
    }

    fn append(path: &Path, text: &str) {
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn a_file_that_is_there_is_read_from_its_end_and_one_that_comes_from_its_beginning() {
        let here = Fixture::new();
        append(&here.path(), "n=1\nn=2");
        let (mut log, mut chunk) = (here.log(), [0; 16]);
        log.open_at_end(None);
        append(&here.path(), "3\nn=4\n");
        assert!(log.look(None, &mut chunk));
        assert_eq!(here.numbers(), [4], "n=23 began before");

        let later = Fixture::new();
        let mut log = later.log();
        log.open_at_end(None);
        assert!(!log.look(None, &mut chunk));
        append(&later.path(), "n=1\nn=2\nn=");
        assert!(log.look(None, &mut chunk));
        append(&later.path(), "3\n");
        log.look(None, &mut chunk);
        assert_eq!(later.numbers(), [1, 2, 3]);
    }

    #[test]
    fn a_renamed_file_is_read_to_its_end_and_beyond_and_the_new_one_from_its_beginning() {
        let here = Fixture::new();
        append(&here.path(), "");
        let (mut log, mut chunk) = (here.log(), [0; 16]);
        log.open_at_end(None);
        append(&here.path(), "n=1\n");
        let aside = here.dir.path().join("log.1");
        fs::rename(here.path(), &aside).unwrap();
        assert!(
            log.look(None, &mut chunk),
            "between the two it is still open"
        );
        append(&aside, "n=2\n");
        append(&here.path(), "n=3\n");
        log.look(None, &mut chunk);
        append(&aside, "n=4\n");
        append(&here.path(), "n=5\n");
        log.look(None, &mut chunk);
        assert_eq!(here.numbers(), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_truncated_file_is_read_from_its_beginning() {
        let here = Fixture::new();
        let (mut log, mut chunk) = (here.log(), [0; 16]);
        append(&here.path(), "n=1\nand what is cut off n=");
        log.look(None, &mut chunk);
        fs::copy(here.path(), here.dir.path().join("log.1")).unwrap();
        File::create(here.path()).unwrap();
        append(&here.path(), "n=2\n");
        log.look(None, &mut chunk);
        assert_eq!(here.numbers(), [1, 2]);
        // As long as it was, and longer.
        fs::write(here.path(), "n=3\n").unwrap();
        log.look(None, &mut chunk);
        fs::write(here.path(), "n=4\nn=5\n").unwrap();
        log.look(None, &mut chunk);
        assert_eq!(here.numbers(), [3, 4, 5]);
    }

    #[test]
    fn a_file_is_read_in_looks_of_a_bounded_length() {
        let here = Fixture::new();
        let (mut log, mut chunk) = (here.log(), vec![0; CHUNK_BYTES]);
        let line = format!("{}\n", "x".repeat(1023));
        let text = line.repeat(usize::try_from(LOOK_BYTES / 1024).unwrap());
        fs::write(here.path(), text + "n=1\n").unwrap();
        log.look(None, &mut chunk);
        assert_eq!((log.behind(), here.numbers().len()), (4, 0));
        fs::rename(here.path(), here.dir.path().join("log.1")).unwrap();
        append(&here.path(), "n=2\n");
        log.look(None, &mut chunk);
        assert_eq!((log.behind(), here.numbers()), (0, vec![1, 2]));
    }

    #[test]
    fn what_is_no_file_is_not_followed() {
        let here = Fixture::new();
        fs::create_dir(here.path()).unwrap();
        let (mut log, mut chunk) = (here.log(), [0; 16]);
        log.open_at_end(None);
        assert!(!log.look(None, &mut chunk));
    }

    #[test]
    fn the_thread_tells_what_never_appeared() {
        let here = Fixture::new();
        let followed = Followed::default();
        let other = (here.dir.path().join("other"), here.log().lines);
        let own = (here.path(), here.log().lines);
        let mut follower = Follower::start(vec![own, other], followed.clone(), None).unwrap();
        assert_eq!(followed.absent().len(), 2);
        append(&here.path(), "n=1\nn=2");
        follower.stop();
        assert_eq!(followed.absent(), [here.dir.path().join("other")]);
        assert_eq!(here.numbers(), [1, 2]);
    }
}
