//! What the command writes, as the process that passes it on hands it over: chunks, each with
//! its time, and with how much was not handed over before it because there was no room.
//!
//! The pipe between the two is the queue: its writer never waits.

use super::Lines;
use crate::host::clock;
use crate::model::BootNs;
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
    /// Its length.
    pub const BYTES: usize = 20;

    /// As it stands in the pipe. Both ends are one program.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.len.to_ne_bytes());
        bytes[4..12].copy_from_slice(&self.unread_bytes.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.boot_ns.0.to_ne_bytes());
        bytes
    }

    fn read(from: &mut impl Read) -> io::Result<Self> {
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
pub(in crate::collect::marks) struct OutputReader {
    wanted: Option<OwnedFd>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl OutputReader {
    pub(in crate::collect::marks) fn start(passed: Passed, lines: Lines) -> io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&is_over);
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
    pub(in crate::collect::marks) fn stop(&mut self) {
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
    let mut chunks = BufReader::with_capacity(256 << 10, chunks);
    let mut bytes = Vec::new();
    let mut deadline = None;
    loop {
        if chunks.buffer().is_empty() {
            let mut fds = [PollFd::new(chunks.get_ref(), PollFlags::IN)];
            let ready = poll(&mut fds, Some(&LOOK));
            if is_over.load(Ordering::Acquire) {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
                if Instant::now() >= deadline {
                    break;
                }
            }
            if !matches!(ready, Ok(1)) {
                continue;
            }
        }
        let Ok(header) = FrameHeader::read(&mut chunks) else {
            break;
        };
        bytes.resize(header.len as usize, 0);
        if chunks.read_exact(&mut bytes).is_err() {
            break;
        }
        if header.unread_bytes > 0 {
            lines.note_unread(header.unread_bytes);
            lines.skip();
        }
        lines.take(&bytes, header.boot_ns);
    }
    lines.end(clock::boot());
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
