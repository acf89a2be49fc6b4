//! What the command writes, as the process that passes it on hands it over: chunks, each with
//! its time, and with how much was not handed over before it because there was no room.
//!
//! The pipe between the two is the queue: its writer never waits.

use super::Lines;
use memtrace_host::clock;
use memtrace_model::BootNs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What stands before each chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the chunk that follows.
    pub len: u32,
    /// Bytes that were passed on since the chunk before and are not handed over.
    pub unread_bytes: u64,
    /// When the chunk was read.
    pub boot_ns: BootNs,
}

impl FrameHeader {
    /// Its length in bytes.
    pub const BYTES: usize = 20;

    /// As it stands in the pipe. Both ends are one program.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.len.to_ne_bytes());
        bytes[4..12].copy_from_slice(&self.unread_bytes.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.boot_ns.0.to_ne_bytes());
        bytes
    }

    /// The next one.
    ///
    /// # Errors
    /// When there is none, or its end is missing.
    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let (mut len, mut unread_bytes, mut boot_ns) = ([0; 4], [0; 8], [0; 8]);
        from.read_exact(&mut len)?;
        from.read_exact(&mut unread_bytes)?;
        from.read_exact(&mut boot_ns)?;
        Ok(Self {
            len: u32::from_ne_bytes(len),
            unread_bytes: u64::from_ne_bytes(unread_bytes),
            boot_ns: BootNs(i64::from_ne_bytes(boot_ns)),
        })
    }
}

/// A stream of the command that is passed on.
#[derive(Debug)]
pub struct Passed {
    /// Chunks come here, until its writer has passed on what there was when the other went.
    pub chunks: OwnedFd,
    /// As long as this is open, chunks are wanted.
    pub wanted: OwnedFd,
}

/// At the end, how long for what was written before is waited: a reader of ours may have
/// stopped to read, and then its writer waits as well.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often the reader looks whether it is to end.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// The thread that reads one stream.
pub(in crate::marks) struct OutputReader {
    wanted: Option<OwnedFd>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl OutputReader {
    pub(in crate::marks) fn start(passed: Passed, lines: Lines) -> io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&is_over);
        rustix::io::ioctl_fionbio(&passed.chunks, true)?;
        let chunks = File::from(passed.chunks);
        let thread = std::thread::Builder::new()
            .name("memtrace-output".to_owned())
            .stack_size(256 << 10)
            .spawn(move || read(chunks, lines, &theirs))?;
        Ok(Self {
            wanted: Some(passed.wanted),
            is_over,
            thread: Some(thread),
        })
    }

    /// Takes what the command has written until now, then nothing more.
    pub(in crate::marks) fn stop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        drop(self.wanted.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for OutputReader {
    fn drop(&mut self) {
        self.stop();
    }
}

fn read(chunks: File, mut lines: Lines, is_over: &AtomicBool) {
    let patient = Patient {
        chunks,
        is_over,
        patience: PATIENCE,
        deadline: None,
    };
    let mut chunks = BufReader::with_capacity(256 << 10, patient);
    let mut bytes = Vec::new();
    while let Ok(header) = FrameHeader::read(&mut chunks) {
        if header.unread_bytes > 0 {
            lines.note_unread(header.unread_bytes);
            lines.skip();
        }
        bytes.clear();
        let len = u64::from(header.len);
        let _ = (&mut chunks).take(len).read_to_end(&mut bytes);
        lines.take(&bytes, header.boot_ns);
        let missing = len.saturating_sub(bytes.len() as u64);
        if missing > 0 {
            lines.note_unread(missing.max(chunks.get_ref().waiting_bytes()));
            lines.skip();
            return;
        }
    }
    // After the deadline; at the end there is nothing. Headers are counted as if written.
    let waiting = chunks.buffer().len() as u64 + chunks.get_ref().waiting_bytes();
    if waiting > 0 {
        lines.note_unread(waiting);
        lines.skip();
    }
    lines.end(clock::boot());
}

/// Waits for chunks until the reader is to end, and then a little: what comes later is
/// taken to be after the end.
struct Patient<'a> {
    /// Does not block.
    chunks: File,
    is_over: &'a AtomicBool,
    patience: Duration,
    deadline: Option<Instant>,
}

impl Patient<'_> {
    fn is_late(&mut self) -> bool {
        if !self.is_over.load(Ordering::Acquire) {
            return false;
        }
        let patience = self.patience;
        let deadline = self
            .deadline
            .get_or_insert_with(|| Instant::now() + patience);
        Instant::now() >= *deadline
    }

    fn waiting_bytes(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.chunks).unwrap_or(0)
    }
}

impl Read for Patient<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.is_late() {
                return Ok(0);
            }
            match self.chunks.read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                answer => return answer,
            }
            let mut fds = [PollFd::new(&self.chunks, PollFlags::IN)];
            let _ = poll(&mut fds, Some(&LOOK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::inbox::Inbox;
    use crate::marks::lines::Rules;
    use memtrace_model::{MarkSource, mark_rules};
    use std::io::Write;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = FrameHeader {
            len: 7,
            unread_bytes: 1 << 40,
            boot_ns: BootNs(-3),
        };
        let bytes = header.to_bytes();
        assert_eq!(FrameHeader::read(&mut bytes.as_slice()).unwrap(), header);
        assert!(FrameHeader::read(&mut &bytes[1..]).is_err());
    }

    struct Fixture {
        inbox: Arc<Inbox>,
        reader: OutputReader,
        writer: File,
        /// The other end of what says that chunks are wanted.
        _until: OwnedFd,
    }

    fn reading() -> Fixture {
        let rules = "builtin = false\n[[rule]]\nname = \"n\"\nmatch = 'n=(?<n>\\d+)'";
        let rules = Rules::new(mark_rules("t", rules).unwrap()).unwrap();
        let inbox = Arc::new(Inbox::default());
        let lines = Lines::new(
            Arc::new(rules),
            MarkSource::Output,
            None,
            Arc::clone(&inbox),
        );
        let (chunks, writer) = rustix::pipe::pipe().unwrap();
        let (_until, wanted) = rustix::pipe::pipe().unwrap();
        let reader = OutputReader::start(Passed { chunks, wanted }, lines).unwrap();
        Fixture {
            inbox,
            reader,
            writer: writer.into(),
            _until,
        }
    }

    fn header(len: u32, unread_bytes: u64) -> [u8; FrameHeader::BYTES] {
        let boot_ns = BootNs(1);
        FrameHeader {
            len,
            unread_bytes,
            boot_ns,
        }
        .to_bytes()
    }

    #[test]
    fn a_frame_whose_end_does_not_come_is_not_waited_for_for_ever() {
        let mut it = reading();
        it.writer.write_all(&header(20, 0)).unwrap();
        it.writer.write_all(b"n=1\nn=2").unwrap();
        let started = Instant::now();
        it.reader.stop();
        assert!(started.elapsed() < PATIENCE * 3);
        let waiting = it.inbox.take();
        assert_eq!((waiting.marks.len(), waiting.unread_bytes), (1, 13));
    }

    #[test]
    fn what_the_last_frame_says_was_left_out_is_counted() {
        let mut it = reading();
        it.writer.write_all(&header(4, 0)).unwrap();
        it.writer.write_all(b"n=1\n").unwrap();
        it.writer.write_all(&header(0, 99)).unwrap();
        drop(it.writer);
        it.reader.stop();
        let waiting = it.inbox.take();
        assert_eq!((waiting.marks.len(), waiting.unread_bytes), (1, 99));
    }

    #[test]
    fn one_that_writes_without_a_pause_does_not_keep_the_reader() {
        let mut it = reading();
        let mut writer = it.writer;
        let firehose = std::thread::spawn(move || {
            let frame = [&header(4, 0)[..], b"y\ny\n"].concat().repeat(4096);
            while writer.write_all(&frame).is_ok() {}
        });
        let started = Instant::now();
        it.reader.stop();
        assert!(started.elapsed() < PATIENCE * 3);
        firehose.join().unwrap();
    }
}
