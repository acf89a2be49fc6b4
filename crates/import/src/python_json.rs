//! JSON as Python writes it: with `NaN`, `Infinity` and `-Infinity`, which are no JSON. They are read
//! as null, which stands for a number that is unknown.

use super::file::Source;
use memtrace_model::{BoundedJson, JsonBounds};
use serde_json::Deserializer;
use serde_json::de::IoRead;
use std::io::{self, BufRead, BufReader, Read};

/// What stands for such a number.
const NULL: &[u8] = b"null";

/// A prompt of some million tokens is a text of it.
const BOUNDS: JsonBounds = JsonBounds {
    length_bytes: super::FILE_BYTES_MAX,
    text_bytes: 16 << 20,
    depth: 128,
};

/// The bytes of a file, within these bounds.
type Bounded<'a> = BufReader<BoundedJson<&'a mut dyn Source>>;

/// Reads JSON of a file.
pub(super) fn deserializer(
    file: &mut dyn Source,
) -> Deserializer<IoRead<BufReader<Strict<Bounded<'_>>>>> {
    let bounded = BoundedJson::new(file, BOUNDS);
    let strict = Strict {
        inner: BufReader::with_capacity(1 << 16, bounded),
        place: Place::Outside,
        ready: b"",
    };
    Deserializer::from_reader(BufReader::with_capacity(1 << 16, strict))
}

/// JSON without these numbers.
pub(super) struct Strict<R> {
    inner: R,
    place: Place,
    /// What is given next.
    ready: &'static [u8],
}

/// What the next byte is a part of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Outside,
    /// Behind a minus that was not given yet.
    Minus,
    /// A word that is left out.
    Word,
    Text,
    /// A text, behind a backslash.
    Escape,
}

/// What is given for a byte.
enum Becomes {
    Itself,
    Other(&'static [u8]),
}

impl Place {
    /// The place behind a byte, and what is given for it.
    fn next(self, byte: u8) -> (Self, Becomes) {
        let next = match (self, byte) {
            (Self::Word, _) if byte.is_ascii_alphabetic() => return (self, Becomes::Other(b"")),
            (Self::Text, b'\\') => Self::Escape,
            (Self::Text, b'"') => Self::Outside,
            (Self::Text | Self::Escape, _) => Self::Text,
            (_, b'"') => Self::Text,
            (_, b'-') => Self::Minus,
            // No other words of JSON begin so.
            (_, b'N' | b'I') => Self::Word,
            _ => Self::Outside,
        };
        let becomes = match next {
            Self::Word => Becomes::Other(NULL),
            // Two in a row are no JSON, and stay none.
            Self::Minus if self == Self::Minus => Becomes::Other(b"-"),
            Self::Minus => Becomes::Other(b""),
            _ => Becomes::Itself,
        };
        (next, becomes)
    }
}

impl<R: BufRead> Strict<R> {
    /// Fills some room from what the file has at hand, until something else is to be given. Answers
    /// how many bytes of the file that took, and how many there are in the room.
    fn fill(&mut self, room: &mut [u8]) -> io::Result<(usize, usize)> {
        let chunk = self.inner.fill_buf()?;
        if chunk.is_empty() && std::mem::take(&mut self.place) == Place::Minus {
            self.ready = b"-";
        }
        let (mut used, mut given) = (0, 0);
        for &byte in chunk {
            if given == room.len() || !self.ready.is_empty() {
                break;
            }
            // A minus that no such number follows is given before what does.
            if self.place == Place::Minus && !matches!(byte, b'I' | b'-') {
                self.place = Place::Outside;
                self.ready = b"-";
                break;
            }
            used += 1;
            let (place, becomes) = self.place.next(byte);
            self.place = place;
            match becomes {
                Becomes::Itself => {
                    room[given] = byte;
                    given += 1;
                }
                Becomes::Other(ready) => self.ready = ready,
            }
        }
        Ok((used, given))
    }
}

impl<R: BufRead> Read for Strict<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        while let Some(room) = out.get_mut(count..).filter(|room| !room.is_empty()) {
            if !self.ready.is_empty() {
                let given = self.ready.len().min(room.len());
                let (now, later) = self.ready.split_at(given);
                room[..given].copy_from_slice(now);
                self.ready = later;
                count += given;
                continue;
            }
            let (used, given) = self.fill(room)?;
            if used == 0 && self.ready.is_empty() {
                break;
            }
            self.inner.consume(used);
            count += given;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn strict(text: &str) -> String {
        let mut strict = Strict {
            inner: text.as_bytes(),
            place: Place::Outside,
            ready: b"",
        };
        let mut read = String::new();
        strict.read_to_string(&mut read).unwrap();
        read
    }

    #[test]
    fn numbers_that_are_none_are_null_and_texts_stay() {
        for (python, json) in [
            ("[NaN, -Infinity,Infinity]", "[null, null,null]"),
            (
                r#"{"NaN": "-Infinity \" Infinity", "a": NaN}"#,
                r#"{"NaN": "-Infinity \" Infinity", "a": null}"#,
            ),
            ("[-1, 2e-7, true, null]", "[-1, 2e-7, true, null]"),
            ("-", "-"),
            ("--1", "--1"),
        ] {
            assert_eq!(strict(python), json);
        }
    }

    proptest! {
        #[test]
        fn what_is_json_stays_as_it_is(numbers: Vec<i32>, texts: Vec<String>, real: f32) {
            let value = serde_json::json!({"a": numbers, "b": texts, "c": real});
            let text = value.to_string();
            prop_assert_eq!(strict(&text), text.clone());
            prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
        }
    }
}
