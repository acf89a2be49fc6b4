//! Every process id that /proc lists, and when it is worth asking.

use crate::fields::number;
use crate::kept::{KeptFile, TextBuffer};
use memtrace_model::{BootNs, DurationNs, Tgid};
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Bytes taken per system call; a listed process takes 24 to 32 of them.
const BUFFER_SIZE: usize = 32 * 1024;

/// /proc, kept open.
#[derive(Debug)]
pub(super) struct Listing {
    directory: OwnedFd,
    buffer: Vec<MaybeUninit<u8>>,
}

impl Listing {
    /// Opens the directory.
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            directory: rustix::fs::open(root, flags, Mode::empty())?,
            buffer: vec![MaybeUninit::uninit(); BUFFER_SIZE],
        })
    }

    /// Replaces `found` by the ids that are listed now.
    pub(super) fn read(&mut self, found: &mut Vec<Tgid>) -> io::Result<()> {
        found.clear();
        rustix::fs::seek(&self.directory, SeekFrom::Start(0))?;
        let mut entries = RawDir::new(&self.directory, &mut self.buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            found.extend(number(entry.file_name().to_bytes()).map(Tgid));
        }
        Ok(())
    }
}

/// Tells whether a process can have been born since the last listing, for 1 µs instead of
/// a listing of /proc (0.3 µs and more for each process in it).
///
/// The last word of /proc/loadavg is the process id that was given out last
/// (loadavg_proc_show()). It moves before the new process is listed, so one more listing
/// follows a move; a process whose id was chosen by its maker (clone3 with set_tid) does
/// not move it, so a listing is due from time to time in any case.
#[derive(Debug)]
pub(super) struct Births {
    loadavg: Option<KeptFile>,
    last_id: Vec<u8>,
    has_settled: bool,
    listed_at: BootNs,
}

/// A listing is due after this time, whatever the last id says.
const LISTING_PERIOD: DurationNs = DurationNs(1_000_000_000);

impl Births {
    /// Starts to watch; without the file every question is answered with yes.
    pub(super) fn watch(root: &Path) -> Self {
        Self {
            loadavg: KeptFile::open(&root.join("loadavg")).ok(),
            last_id: Vec::new(),
            has_settled: false,
            listed_at: BootNs(0),
        }
    }

    /// Whether a listing is due. To be asked before it is made.
    pub(super) fn are_possible(&mut self, now: BootNs, buffer: &mut TextBuffer) -> bool {
        let was_settled = self.has_settled;
        self.has_settled = self.is_as_before(buffer);
        let is_due = now - self.listed_at >= LISTING_PERIOD;
        let are_possible = is_due || !(was_settled && self.has_settled);
        if are_possible {
            self.listed_at = now;
        }
        are_possible
    }

    fn is_as_before(&mut self, buffer: &mut TextBuffer) -> bool {
        let text = match &self.loadavg {
            Some(file) => file.read(buffer).unwrap_or_default(),
            None => return false,
        };
        let last_id = text.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
        let is_same = !last_id.is_empty() && last_id == self.last_id;
        self.last_id.clear();
        self.last_id.extend_from_slice(last_id);
        is_same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_numbers_are_processes() {
        let root = tempfile::tempdir().unwrap();
        for name in ["1", "4242", "self", "sys", "99x"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
        }
        let mut listing = Listing::open(root.path()).unwrap();
        let mut found = Vec::new();
        for _ in 0..2 {
            listing.read(&mut found).unwrap();
            found.sort();
            assert_eq!(found, [Tgid(1), Tgid(4242)]);
        }
    }

    #[test]
    fn a_listing_is_due_after_a_birth_once_more_and_every_second() {
        let root = tempfile::tempdir().unwrap();
        let set = |last: u32| {
            let text = format!("0.00 0.00 0.00 1/80 {last}\n");
            std::fs::write(root.path().join("loadavg"), text).unwrap();
        };
        set(7);
        let mut births = Births::watch(root.path());
        let mut buffer = TextBuffer::default();
        let mut ask = |ms: i64| births.are_possible(BootNs(ms * 1_000_000), &mut buffer);
        assert!(ask(5000), "the first time");
        assert!(ask(5100), "once more");
        assert!(!ask(5200) && !ask(5300));
        set(8);
        assert!(ask(5400) && ask(5500) && !ask(5600));
        assert!(ask(6600), "a second after the last");
    }

    #[test]
    fn without_loadavg_every_poll_lists() {
        let root = tempfile::tempdir().unwrap();
        let mut births = Births::watch(root.path());
        let mut buffer = TextBuffer::default();
        assert!((0..5).all(|now| births.are_possible(BootNs(now), &mut buffer)));
    }
}
