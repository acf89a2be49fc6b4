//! The copy of what is passed on, for who looks for marks in it.

use super::{close, ready, write};
use memtrace_collect::marks::FrameHeader;
use memtrace_host::clock;
use memtrace_model::BootNs;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// So long the copy is waited for after the last that belongs to it: its reader may be behind.
const COPY_PATIENCE: Duration = Duration::from_secs(2);

/// The copy: a pipe that is never waited for, but at its end.
pub(super) struct Copy {
    fd: RawFd,
    /// What a pipe took only the beginning of.
    rest: Vec<u8>,
    unread_bytes: u64,
    /// Nothing comes any more, and until when there may be room for the rest.
    last: Option<Instant>,
}

impl Copy {
    pub(super) fn new(fd: RawFd) -> Self {
        Self {
            fd,
            rest: Vec::new(),
            unread_bytes: 0,
            last: None,
        }
    }

    /// False when nobody wants it.
    pub(super) fn take(&mut self, chunk: &[u8], boot_ns: BootNs) -> bool {
        if self.last.is_some() {
            return true;
        }
        if !self.push_rest() {
            return false;
        }
        if !self.rest.is_empty() {
            self.unread_bytes += chunk.len() as u64;
            return true;
        }
        self.frame(chunk, boot_ns);
        self.push_rest()
    }

    fn frame(&mut self, chunk: &[u8], boot_ns: BootNs) {
        let header = FrameHeader {
            len: u32::try_from(chunk.len()).unwrap_or(0),
            unread_bytes: std::mem::take(&mut self.unread_bytes),
            boot_ns,
        };
        self.rest.extend_from_slice(&header.to_bytes());
        self.rest.extend_from_slice(chunk);
    }

    /// Nothing more is copied; what was left out is reported. False when nobody wants it.
    pub(super) fn end(&mut self, boot_ns: BootNs) -> bool {
        if self.last.is_none() {
            self.last = Some(Instant::now() + COPY_PATIENCE);
            if self.unread_bytes > 0 {
                self.frame(&[], boot_ns);
            }
        }
        self.push_rest()
    }

    /// Ends it, and waits for room.
    pub(super) fn finish(mut self) {
        while self.end(clock::boot()) && !self.is_over() {
            ready([(self.fd, libc::POLLOUT)], self.wait_ms());
        }
    }

    /// Whether all was handed over, or the time for that is over.
    pub(super) fn is_over(&self) -> bool {
        self.last
            .is_some_and(|last| self.rest.is_empty() || Instant::now() >= last)
    }

    /// For how long there can be room; less than zero is for ever.
    pub(super) fn wait_ms(&self) -> i32 {
        let Some(last) = self.last else {
            return -1;
        };
        let left = last.saturating_duration_since(Instant::now());
        i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX)
    }

    /// The descriptor, while room is waited for.
    pub(super) fn waiting(&self) -> RawFd {
        if self.rest.is_empty() { -1 } else { self.fd }
    }

    pub(super) fn push_rest(&mut self) -> bool {
        while !self.rest.is_empty() {
            match write(self.fd, &self.rest) {
                Ok(length) => drop(self.rest.drain(..length)),
                Err(libc::EINTR) => {}
                Err(libc::EAGAIN) => break,
                Err(_) => return false,
            }
        }
        true
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        close(self.fd);
    }
}

#[cfg(test)]
mod tests {
    use super::super::pipe;
    use super::*;
    use std::io::Read;
    use std::os::fd::{AsRawFd, IntoRawFd};

    /// A copy whose pipe is full, what is to be read from it, and how much was put in.
    fn behind() -> (Copy, std::fs::File, u64) {
        let (read_end, write_end) = pipe(4096).unwrap();
        // SAFETY: an open descriptor.
        unsafe { libc::fcntl(write_end.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        let mut copy = Copy::new(write_end.into_raw_fd());
        let mut put = 0;
        while copy.waiting() < 0 || copy.unread_bytes == 0 {
            assert!(copy.take(&[b'x'; 3000], BootNs(1)));
            put += 3000;
        }
        (copy, read_end.into(), put)
    }

    #[test]
    fn what_the_copy_leaves_out_at_its_end_is_reported() {
        let (copy, mut reader, put) = behind();
        let finish = std::thread::spawn(move || copy.finish());
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        finish.join().unwrap();
        let (mut taken, mut unread) = (0, 0);
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let header = FrameHeader::read(&mut rest).unwrap();
            rest = &rest[header.len as usize..];
            taken += u64::from(header.len);
            unread += header.unread_bytes;
        }
        assert!(unread > 0);
        assert_eq!(taken + unread, put);
    }

    #[test]
    fn a_copy_that_nobody_reads_is_not_waited_for_for_ever() {
        let (copy, reader, _) = behind();
        let started = Instant::now();
        copy.finish();
        let waited = started.elapsed();
        assert!(
            waited >= COPY_PATIENCE && waited < COPY_PATIENCE * 3,
            "{waited:?}"
        );
        drop(reader);
        let (copy, reader, _) = behind();
        drop(reader);
        copy.finish();
    }
}
