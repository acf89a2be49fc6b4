//! JSON that somebody else wrote, while it is read: it ends with an error where it is too long or too deep,
//! or a text in it is too long. A parser keeps a text while it reads it, and a byte for each level.

use memchr::{memchr, memchr2};
use std::io::{self, Read};

/// What it may have.
#[derive(Clone, Copy, Debug)]
pub struct JsonBounds {
    /// Of a longer one the rest is not read.
    pub length_bytes: u64,
    /// The longest text in it.
    pub text_bytes: usize,
    /// Lists and objects within each other.
    pub depth: usize,
}

/// It, within its bounds.
#[derive(Debug)]
pub struct BoundedJson<R> {
    inner: R,
    bounds: JsonBounds,
    left: u64,
    depth: usize,
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

impl<R> BoundedJson<R> {
    /// Reads `inner` within bounds.
    pub fn new(inner: R, bounds: JsonBounds) -> Self {
        Self {
            inner,
            bounds,
            left: bounds.length_bytes,
            depth: 0,
            text: InText::No,
        }
    }

    /// Follows where texts start and end, and how deep it is there.
    fn follow(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let Some((_, after_first)) = bytes.split_first() {
            (self.text, bytes) = match self.text {
                InText::No => {
                    let place = memchr(b'"', bytes);
                    self.go_deeper(&bytes[..place.unwrap_or(bytes.len())])?;
                    match place {
                        Some(place) => (InText::Yes(0), &bytes[place + 1..]),
                        None => return Ok(()),
                    }
                }
                InText::Escaped(length) => (InText::Yes(length + 1), after_first),
                InText::Yes(length) => match memchr2(b'"', b'\\', bytes) {
                    Some(place) if bytes[place] == b'"' => (InText::No, &bytes[place + 1..]),
                    Some(place) => (InText::Escaped(length + place + 1), &bytes[place + 1..]),
                    None => (InText::Yes(length + bytes.len()), &[][..]),
                },
            };
            if let InText::Yes(length) | InText::Escaped(length) = self.text
                && length > self.bounds.text_bytes
            {
                let most = in_words(self.bounds.text_bytes as u64);
                return Err(refused(&format!("a text in it is longer than {most}")));
            }
        }
        Ok(())
    }

    /// Bytes between two texts. How deep it is within them does not matter: there are not many.
    fn go_deeper(&mut self, bytes: &[u8]) -> io::Result<()> {
        let count = |a, b| bytes.iter().filter(|&&byte| byte == a || byte == b).count();
        let within = self.depth + count(b'[', b'{');
        self.depth = within.saturating_sub(count(b']', b'}'));
        match self.depth > self.bounds.depth {
            true => {
                let most = self.bounds.depth;
                Err(refused(&format!("it is more than {most} levels deep")))
            }
            false => Ok(()),
        }
    }
}

/// Bounds are round numbers.
fn in_words(bytes: u64) -> String {
    match (bytes >> 30, bytes >> 20) {
        (0, 0) => format!("{bytes} bytes"),
        (0, mebibytes) => format!("{mebibytes} MiB"),
        (gibibytes, _) => format!("{gibibytes} GiB"),
    }
}

fn refused(words: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words)
}

impl<R: Read> Read for BoundedJson<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            let most = in_words(self.bounds.length_bytes);
            let words = format!("it is longer than {most}, unpacked, and the rest was not read");
            io::Error::new(io::ErrorKind::FileTooLarge, words)
        })?;
        self.follow(&buffer[..count])?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    const BOUNDS: JsonBounds = JsonBounds {
        length_bytes: u64::MAX,
        text_bytes: 1 << 20,
        depth: 64,
    };

    fn read(text: &str, chunk: usize, bounds: JsonBounds) -> io::Result<usize> {
        let chunks = BufReader::with_capacity(chunk, text.as_bytes());
        let mut bounded = BoundedJson::new(chunks, bounds);
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
        let most = BOUNDS.text_bytes;
        let long = format!(r#"{{"a": "{}"#, "x".repeat(most + 2));
        let escaped = format!(r#"{{"a": "{}"#, r#"\""#.repeat(most / 2 + 2));
        let short = r#"{"a\\": "b\"c", "d": "e"} "#.repeat(100_000);
        for chunk in [1, 7, 4_096] {
            let error = read(&long, chunk, BOUNDS).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(read(&escaped, chunk, BOUNDS).is_err());
            assert_eq!(read(&short, chunk, BOUNDS).unwrap(), short.len());
        }
    }

    #[test]
    fn what_is_too_long_ends_with_an_error() {
        let bounds = |length_bytes| JsonBounds {
            length_bytes,
            ..BOUNDS
        };
        assert_eq!(read("[1, 2, 3]", 2, bounds(9)).unwrap(), 9);
        let error = read("[1, 2, 3]", 2, bounds(8)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn what_is_too_deep_is_refused_and_brackets_in_a_text_are_none() {
        let deep = |levels| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        let objects = r#"{"a":"#.repeat(65);
        let texts = format!("[{}0]", r#""[[[[{{{{","#.repeat(100));
        for chunk in [1, 7, 4_096] {
            assert!(read(&deep(64), chunk, BOUNDS).is_ok());
            assert!(read(&objects, chunk, BOUNDS).is_err());
            assert!(read(&texts, chunk, BOUNDS).is_ok());
        }
        let error = read(&"[".repeat(100_000), 4_096, BOUNDS).unwrap_err();
        assert!(error.to_string().contains("64 levels"), "{error}");
    }
}
