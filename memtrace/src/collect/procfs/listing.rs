//! Every process id that /proc lists.

use crate::collect::fields::number;
use crate::model::Tgid;
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
}
