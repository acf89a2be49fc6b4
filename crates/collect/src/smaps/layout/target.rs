//! The memory of another process, read where a page is there.
//!
//! By /proc/PID/mem and not by process_vm_readv(2): that pins pages, and to pin a page that forks
//! share the kernel makes a copy of it (gup_must_unshare() in mm/gup.c, since 5.19). Reading must not
//! make memory.

use super::super::text::ReadError;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Entries of pagemap that are read at once: the kernel walks them under the process's lock.
const WINDOW: u64 = 512;
const ENTRY: u64 = 8;
const PRESENT: u64 = 1 << 63;
/// Set for pages of files and of shared memory.
const OF_FILE: u64 = 1 << 61;
/// Set for pages that only this process maps.
const EXCLUSIVE: u64 = 1 << 56;
const FRAME: u64 = (1 << 55) - 1;

/// What pagemap says of a page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Page(u64);

impl Page {
    pub(super) fn is_present(self) -> bool {
        self.0 & PRESENT != 0
    }

    pub(super) fn is_of_file(self) -> bool {
        self.0 & OF_FILE != 0
    }

    pub(super) fn is_private(self) -> bool {
        self.0 & EXCLUSIVE != 0
    }

    /// Its frame; 0 without the right to know.
    pub(super) fn frame(self) -> u64 {
        self.0 & FRAME
    }
}

/// A process that is looked at.
pub(super) struct Target {
    memory: File,
    pagemap: File,
    pub(super) page_size: u64,
    /// The first page of the window, and what is known of its pages.
    first: u64,
    window: Vec<u64>,
}

impl Target {
    /// `memory` is its /proc/PID/mem.
    pub(super) fn new(memory: File, pagemap: File, page_size: u64) -> Self {
        Self {
            memory,
            pagemap,
            page_size,
            first: u64::MAX,
            window: Vec::new(),
        }
    }

    /// Pages from `first` on, at most so many, fewer at the end of what there is.
    pub(super) fn pages(&mut self, first: u64, count: u64) -> Result<Vec<Page>, ReadError> {
        let mut bytes = vec![0u8; (count.min(WINDOW) * ENTRY) as usize];
        let length = loop {
            match self.pagemap.read_at(&mut bytes, first * ENTRY) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other.map_err(|error| ReadError::of("pagemap", error))?,
            }
        };
        let (entries, _) = bytes.get(..length).unwrap_or_default().as_chunks::<8>();
        let pages = entries.iter().map(|entry| Page(u64::from_ne_bytes(*entry)));
        Ok(pages.collect())
    }

    /// One page, of which its neighbours are asked too.
    pub(super) fn page(&mut self, page: u64) -> Page {
        let begin = page / WINDOW * WINDOW;
        if self.first != begin {
            self.first = begin;
            let pages = self.pages(begin, WINDOW).unwrap_or_default();
            self.window = pages.into_iter().map(|page| page.0).collect();
        }
        let entry = self.window.get((page - begin) as usize);
        Page(entry.copied().unwrap_or_default())
    }

    fn is_there(&mut self, address: u64, length: usize) -> bool {
        let last = address.saturating_add(length as u64).saturating_sub(1);
        (address / self.page_size..=last / self.page_size).all(|page| self.page(page).is_present())
    }

    /// Reads memory; `false` where a page of it is not there, or the process is gone.
    pub(super) fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        if bytes.is_empty() || !self.is_there(address, bytes.len()) {
            return false;
        }
        loop {
            match self.memory.read_at(bytes, address) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read.is_ok_and(|length| length == bytes.len()),
            }
        }
    }

    /// Little pieces of memory, of one length.
    pub(super) fn peek<const N: usize>(&mut self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.read(address, &mut bytes).then_some(bytes)
    }
}

/// A word at a place in bytes that were read.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(word.try_into().ok()?))
}

/// The same of half a word.
pub(super) fn half(bytes: &[u8], at: usize) -> Option<u32> {
    let half = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(half.try_into().ok()?))
}
