//! How much of a file is in the page cache: cachestat(2) where the kernel has it (6.5),
//! else mincore(2) on a mapping of our own.

use super::budget::{Meter, Stopped};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// So much of a file is asked for at once: the kernel walks its cache page by page.
const PIECE: u64 = 256 << 20;
/// Of file systems that keep the pages elsewhere (the layer below): asking their files says
/// that nothing is cached.
const OVERLAYFS: i64 = 0x794c_7630;
/// The number is the same on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;

/// What is cached, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cached {
    pub(super) bytes: i64,
    /// `None` from mincore.
    pub(super) dirty: Option<i64>,
}

/// `struct cachestat_range` of linux/mman.h.
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// `struct cachestat` of linux/mman.h, in pages.
#[repr(C)]
#[derive(Default)]
struct Stat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Asks piece by piece. `None` when it can't be reported.
pub(super) fn cached(
    file: &File,
    size: u64,
    meter: &mut Meter<'_>,
) -> Result<Option<Cached>, Stopped> {
    let kind = rustix::fs::fstatfs(file).map(|fs| fs.f_type);
    #[allow(clippy::unnecessary_cast)]
    if kind.is_ok_and(|kind| kind as i64 == OVERLAYFS) {
        return Ok(None);
    }
    match pieces(size, meter, |offset, length| {
        cachestat(file, offset, length)
    })? {
        Ok(cached) => Ok(Some(cached)),
        // A filter of system calls that does not know this one refuses it (EPERM).
        Err(error) if !matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => Ok(None),
        // mincore would call a file that is not ours wholly cached (can_do_mincore, 5.2), which is worse
        // than not knowing.
        Err(_) if !may_ask_mincore(file) => Ok(None),
        Err(_) => Ok(pieces(size, meter, |offset, length| mincore(file, offset, length))?.ok()),
    }
}

/// Whether mincore tells the truth about a file: only to who owns it or may write it, which
/// an open for writing shows; or to root.
fn may_ask_mincore(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let us = rustix::process::geteuid().as_raw();
    us == 0 || file.metadata().is_ok_and(|metadata| metadata.uid() == us)
}

fn pieces(
    size: u64,
    meter: &mut Meter<'_>,
    mut ask: impl FnMut(u64, u64) -> io::Result<Cached>,
) -> Result<io::Result<Cached>, Stopped> {
    let mut all = Cached {
        bytes: 0,
        dirty: Some(0),
    };
    let mut offset = 0;
    while offset < size {
        let length = PIECE.min(size - offset);
        match ask(offset, length) {
            Ok(piece) => {
                all.bytes += piece.bytes;
                all.dirty = all.dirty.zip(piece.dirty).map(|(all, piece)| all + piece);
            }
            Err(error) => return Ok(Err(error)),
        }
        offset += length;
        meter.pause()?;
    }
    Ok(Ok(all))
}

fn cachestat(file: &File, offset: u64, length: u64) -> io::Result<Cached> {
    let range = Range { offset, length };
    let mut stat = Stat::default();
    // SAFETY: both structs are live and laid out as the kernel's; it reads the one and
    // writes the other.
    let answer = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut stat,
            0,
        )
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    let page = rustix::param::page_size() as u64;
    let amount = |pages: u64| i64::try_from(pages.saturating_mul(page)).unwrap_or(i64::MAX);
    Ok(Cached {
        bytes: amount(stat.cached),
        dirty: Some(amount(stat.dirty)),
    })
}

fn mincore(file: &File, offset: u64, length: u64) -> io::Result<Cached> {
    let page = rustix::param::page_size();
    let length = usize::try_from(length).map_err(io::Error::other)?;
    let mut resident = vec![0u8; length.div_ceil(page)];
    // SAFETY: a new mapping at an address of the kernel's choice; it is never read or
    // written through, and unmapped below.
    let start = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            length,
            rustix::mm::ProtFlags::READ,
            rustix::mm::MapFlags::SHARED,
            file,
            offset,
        )
    }?;
    // SAFETY: the range is the mapping made above, and the vector has a byte for each page.
    let answer = unsafe { libc::mincore(start, length, resident.as_mut_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: the mapping made above, to which nothing refers.
    unsafe { rustix::mm::munmap(start, length) }?;
    if answer != 0 {
        return Err(error);
    }
    let pages = resident.iter().filter(|page| **page & 1 != 0).count();
    Ok(Cached {
        bytes: i64::try_from(pages * page).unwrap_or(i64::MAX),
        dirty: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::budget::Stop;
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_that_was_just_written_is_cached_and_both_calls_say_so() {
        let mut file = tempfile::tempfile().unwrap();
        let size = 3 << 20;
        file.write_all(&vec![7; size]).unwrap();
        let size = size as u64;
        let found = mincore(&file, 0, size).unwrap();
        assert_eq!(found.bytes, 3 << 20);
        match cachestat(&file, 0, size) {
            Ok(stat) => assert_eq!(stat.bytes, found.bytes),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOSYS), "{error}"),
        }
        let stop = Stop::default();
        let mut meter = Meter::new(1.0, &stop);
        // A sparse tail is part of the file and not of the cache.
        file.set_len(size + PIECE).unwrap();
        let all = cached(&file, size + PIECE, &mut meter).unwrap().unwrap();
        assert_eq!(all.bytes, 3 << 20);
    }
}
