//! The kernel's own sums: /proc/PID/smaps.
//!
//! Read in small pieces: the kernel takes the mmap lock for each read(2) anew and walks the
//! few mappings that fit, where smaps_rollup walks all of them in one call.

use super::budget::{Meter, Stopped};
use super::mappings::{Backing, Header};
use super::totals::{MappingBytes, MappingTotals, ObjectKey};
use crate::fields::number;
use memtrace_host::clock;
use std::io::{self, Read};

/// The kernel makes the text in a buffer of one page (seq_read_iter() in fs/seq_file.c), so
/// a larger read is served by no more than that either.
const PIECE: usize = 4096;

/// Why there is no reading.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The recording ends.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The process ended, or executed another program, in the middle.
    #[error("the process is gone")]
    Gone,
    /// The kernel does not show it to this user.
    #[error("{file}: {source}")]
    Refused {
        file: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl ReadError {
    /// The error of a file of a process.
    pub(super) fn of(file: &'static str, source: io::Error) -> Self {
        let code = source.raw_os_error();
        if code == Some(libc::ENOENT) || code == Some(libc::ESRCH) {
            Self::Gone
        } else {
            Self::Refused { file, source }
        }
    }
}

/// A piece with less resident memory than this tells nothing of what walking it takes.
const TELLING: i64 = 16 << 20;

/// Reads the whole text, with rests in between. `backing` tells what lies on a device.
/// Answers also what the slowest walk took, in ns per MiB, if there was one to tell by.
pub(super) fn read(
    text: &mut impl Read,
    meter: &mut Meter<'_>,
    mut backing: impl FnMut(&Header<'_>) -> Backing,
) -> Result<(MappingTotals, Option<f64>), ReadError> {
    let mut lines = Lines::default();
    let mut sums = Sums::default();
    let mut slowest: Option<f64> = None;
    loop {
        let (before, resident) = (clock::thread_cpu(), sums.resident);
        let is_more = lines
            .fill(text)
            .map_err(|error| ReadError::of("smaps", error))?;
        let cost = clock::thread_cpu().0 - before.0;
        while let Some(line) = lines.next() {
            sums.line(line, &mut backing);
        }
        let walked = sums.resident - resident;
        if walked >= TELLING {
            let ns_per_mib = cost as f64 / (walked as f64 / f64::from(1 << 20));
            slowest = Some(slowest.unwrap_or(0.0).max(ns_per_mib));
        }
        if !is_more {
            return Ok((sums.finish(), slowest));
        }
        meter.pause()?;
    }
}

/// The lines of a text that comes in pieces.
#[derive(Debug)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    end: usize,
}

impl Default for Lines {
    fn default() -> Self {
        Self {
            bytes: vec![0; PIECE],
            start: 0,
            end: 0,
        }
    }
}

impl Lines {
    /// Reads a piece more. Answers whether there was one.
    pub(super) fn fill(&mut self, text: &mut impl Read) -> io::Result<bool> {
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.bytes.len() - self.end < PIECE {
            self.bytes.resize(self.end + PIECE, 0);
        }
        loop {
            let free = self.bytes.get_mut(self.end..).unwrap_or_default();
            match text.read(free) {
                Ok(length) => {
                    self.end += length;
                    return Ok(length > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The next whole line.
    pub(super) fn next(&mut self) -> Option<&[u8]> {
        let rest = self.bytes.get(self.start..self.end)?;
        let length = rest.iter().position(|byte| *byte == b'\n')?;
        let start = self.start;
        self.start += length + 1;
        self.bytes.get(start..start + length)
    }
}

/// One mapping as its lines come.
#[derive(Debug, Default)]
struct Sums {
    totals: MappingTotals,
    current: Option<(ObjectKey, Entry)>,
    /// Resident bytes of all mappings so far.
    resident: i64,
}

/// Amounts of one mapping, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    rss: i64,
    pss: i64,
    private: i64,
    anon: i64,
    swap: i64,
    huge: i64,
}

impl Sums {
    fn line(&mut self, line: &[u8], backing: &mut impl FnMut(&Header<'_>) -> Backing) {
        if let Some(header) = Header::parse(line) {
            self.close();
            let key = self.totals.enter(&header, backing(&header));
            self.current = Some((key, Entry::default()));
            return;
        }
        let Some((_, entry)) = &mut self.current else {
            return;
        };
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return;
        };
        let (key, value) = line.split_at(colon);
        let cell = match key {
            b"Rss" => &mut entry.rss,
            b"Pss" => &mut entry.pss,
            b"Private_Clean" | b"Private_Dirty" => &mut entry.private,
            b"Anonymous" => &mut entry.anon,
            b"SwapPss" => &mut entry.swap,
            b"AnonHugePages" | b"ShmemPmdMapped" | b"FilePmdMapped" => &mut entry.huge,
            _ => return,
        };
        let kib: Option<i64> = number(value.get(1..).unwrap_or_default().trim_ascii_start());
        *cell = cell.saturating_add(kib.unwrap_or(0).saturating_mul(1024));
    }

    fn close(&mut self) {
        if let Some((key, entry)) = self.current.take() {
            self.resident = self.resident.saturating_add(entry.rss);
            self.totals.add(key, &entry.amounts());
        }
    }

    fn finish(mut self) -> MappingTotals {
        self.close();
        self.totals
    }
}

impl Entry {
    fn amounts(&self) -> MappingBytes {
        let amount = |bytes: i64| bytes as f64;
        // The text has one PSS for anonymous pages and those of the file together. Private
        // pages are taken to be the anonymous ones first, as they are after a write.
        let anon_private = self.anon.min(self.private);
        let shared = self.rss - self.private;
        let shared_pss = (self.pss - self.private).max(0);
        let anon_shared = (self.anon - anon_private).min(shared.max(0));
        let anon_pss = match shared {
            1.. => amount(anon_private) + amount(anon_shared) / amount(shared) * amount(shared_pss),
            _ => amount(anon_private),
        };
        MappingBytes {
            rss: amount(self.rss),
            pss: Some(amount(self.pss)),
            private: amount(self.private),
            anon: amount(self.anon),
            anon_pss: Some(anon_pss.min(amount(self.pss))),
            swap: amount(self.swap),
            huge: amount(self.huge),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::Stop;
    use super::*;
    use memtrace_model::MappingKind;
    use proptest::prelude::*;

    const TEXT: &str = "\
5000-9000 rw-p 00000000 00:00 0                          [heap]
Size:                 16 kB
KernelPageSize:        4 kB
Rss:                  12 kB
Pss:                   8 kB
Pss_Dirty:             8 kB
Shared_Clean:          0 kB
Shared_Dirty:          8 kB
Private_Clean:         0 kB
Private_Dirty:         4 kB
Referenced:           12 kB
Anonymous:            12 kB
AnonHugePages:         0 kB
SwapPss:               3 kB
VmFlags: rd wr mr mw me ac
7f00-8000 r-xp 00000000 fd:01 33 /lib/strange: name
Rss:                 100 kB
Pss:                  25 kB
Private_Dirty:         4 kB
Anonymous:             4 kB
";

    /// A text that comes in pieces of any size.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.1.min(self.0.len()).min(buffer.len());
            buffer[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    fn read_pieces(text: &[u8], piece: usize) -> Result<MappingTotals, ReadError> {
        let stop = Stop::default();
        let mut meter = Meter::new(1.0, &stop);
        let read = read(&mut Pieces(text, piece), &mut meter, |_| Backing::Files);
        read.map(|(totals, _)| totals)
    }

    #[test]
    fn amounts_are_the_same_however_the_text_is_cut() {
        for piece in [1, 7, 4096] {
            let totals = read_pieces(TEXT.as_bytes(), piece).unwrap();
            let objects = totals.objects();
            let [(heap, heap_object), (_, file)] = objects.as_slice() else {
                panic!("{objects:?}");
            };
            assert_eq!(heap.kind, MappingKind::Heap);
            assert_eq!(heap_object.amounts.pss, Some(8192.0));
            assert_eq!(heap_object.amounts.swap, 3072.0);
            assert_eq!(file.path.as_deref(), Some("/lib/strange: name"));
            assert_eq!(file.amounts.rss, 102_400.0);
        }
    }

    #[test]
    fn what_was_written_to_in_a_file_mapping_is_anonymous() {
        let totals = read_pieces(TEXT.as_bytes(), 4096).unwrap();
        let [anon, file, shmem] = totals.pss_by_class();
        assert_eq!(anon, Some(8192.0 + 4096.0));
        assert_eq!(file, Some(25.0 * 1024.0 - 4096.0));
        assert_eq!(shmem, Some(0.0));
    }

    #[test]
    fn a_refusal_half_way_is_no_reading() {
        struct Refuses(bool);
        impl Read for Refuses {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                if std::mem::replace(&mut self.0, true) {
                    return Err(io::Error::from_raw_os_error(libc::EPERM));
                }
                buffer[..TEXT.len()].copy_from_slice(TEXT.as_bytes());
                Ok(TEXT.len())
            }
        }
        let stop = Stop::default();
        let mut meter = Meter::new(1.0, &stop);
        let error = read(&mut Refuses(false), &mut meter, |_| Backing::Files).unwrap_err();
        assert!(
            matches!(error, ReadError::Refused { file: "smaps", .. }),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            text in proptest::collection::vec(any::<u8>(), 0..500),
            piece in 1usize..100,
        ) {
            let _ = read_pieces(&text, piece);
        }
    }
}
