//! The bytes of a trace: unpacked where they are packed, and bounded, since a trace can come from
//! anywhere and a packed one can hold a thousand times its length.

use flate2::bufread::MultiGzDecoder;
use memchr::{memchr, memchr2};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

/// Of a longer trace the rest is not read: some 60 million events.
pub(super) const LENGTH_MAX: u64 = 16 << 30;
/// A parser keeps a text while it reads it. The longest that a profiler writes are stacks.
const TEXT_MAX: usize = 1 << 20;
const BUFFER: usize = 256 << 10;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Reads a file, packed or not.
pub(super) fn unpacked(file: File) -> io::Result<BufReader<Bounded<Box<dyn Read>>>> {
    let mut file = BufReader::with_capacity(BUFFER, file);
    let is_packed = file.fill_buf()?.starts_with(&GZIP);
    let bytes: Box<dyn Read> = match is_packed {
        true => Box::new(MultiGzDecoder::new(file)),
        false => Box::new(file),
    };
    let bounded = Bounded::new(bytes, LENGTH_MAX);
    Ok(BufReader::with_capacity(BUFFER, bounded))
}

/// A JSON text that ends with an error where it is too long, or a text in it is.
#[derive(Debug)]
pub(super) struct Bounded<R> {
    inner: R,
    left: u64,
    text: InText,
}

/// Whether the next byte is within a text.
#[derive(Clone, Copy, Debug)]
enum InText {
    No,
    /// So many bytes of it are past.
    Yes(usize),
    /// Within, behind a backslash.
    Escaped(usize),
}

impl<R> Bounded<R> {
    fn new(inner: R, most: u64) -> Self {
        Self {
            inner,
            left: most,
            text: InText::No,
        }
    }

    /// Follows where texts begin and end.
    fn follow(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let Some((_, after_first)) = bytes.split_first() {
            (self.text, bytes) = match self.text {
                InText::No => match memchr(b'"', bytes) {
                    Some(place) => (InText::Yes(0), &bytes[place + 1..]),
                    None => return Ok(()),
                },
                InText::Escaped(length) => (InText::Yes(length + 1), after_first),
                InText::Yes(length) => match memchr2(b'"', b'\\', bytes) {
                    Some(place) if bytes[place] == b'"' => (InText::No, &bytes[place + 1..]),
                    Some(place) => (InText::Escaped(length + place + 1), &bytes[place + 1..]),
                    None => (InText::Yes(length + bytes.len()), &[][..]),
                },
            };
            if let InText::Yes(length) | InText::Escaped(length) = self.text
                && length > TEXT_MAX
            {
                let words = format!("a text in it is longer than {TEXT_MAX} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, words));
            }
        }
        Ok(())
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            let words = "it is longer than 16 GiB, unpacked, and the rest was not read";
            io::Error::new(io::ErrorKind::FileTooLarge, words)
        })?;
        self.follow(&buffer[..count])?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, chunk: usize, most: u64) -> io::Result<usize> {
        let chunks = BufReader::with_capacity(chunk, text.as_bytes());
        let mut bounded = Bounded::new(chunks, most);
        let mut buffer = vec![0; chunk];
        let mut all = 0;
        loop {
            match bounded.read(&mut buffer)? {
                0 => return Ok(all),
                count => all += count,
            }
        }
    }

    #[test]
    fn a_text_without_end_is_refused_and_many_short_ones_are_not() {
        let long = format!(r#"{{"a": "{}"#, "x".repeat(TEXT_MAX + 2));
        let escaped = format!(r#"{{"a": "{}"#, r#"\""#.repeat(TEXT_MAX / 2 + 2));
        let short = r#"{"a\\": "b\"c", "d": "e"} "#.repeat(100_000);
        for chunk in [1, 7, 4_096] {
            assert_eq!(
                read(&long, chunk, u64::MAX).unwrap_err().kind(),
                io::ErrorKind::InvalidData
            );
            assert!(read(&escaped, chunk, u64::MAX).is_err());
            assert_eq!(read(&short, chunk, u64::MAX).unwrap(), short.len());
        }
    }

    #[test]
    fn what_is_too_long_ends_with_an_error() {
        assert_eq!(read("[1, 2, 3]", 2, 9).unwrap(), 9);
        let error = read("[1, 2, 3]", 2, 8).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
