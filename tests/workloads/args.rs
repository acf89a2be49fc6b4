//! Options of a workload: `--name value` pairs, sizes with K, M or G.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;

/// The options given, and which of them were asked for.
pub(crate) struct Args {
    given: BTreeMap<String, String>,
    used: RefCell<Vec<String>>,
}

impl Args {
    /// Takes the words after the workload's name.
    pub(crate) fn parse(mut words: impl Iterator<Item = OsString>) -> io::Result<Self> {
        let mut given = BTreeMap::new();
        while let Some(word) = words.next() {
            let word = word.to_string_lossy().into_owned();
            let name = word
                .strip_prefix("--")
                .ok_or_else(|| bad(format!("{word:?} is not an option")))?;
            let value = words
                .next()
                .ok_or_else(|| bad(format!("{word} needs a value")))?;
            given.insert(name.to_owned(), value.to_string_lossy().into_owned());
        }
        Ok(Self {
            given,
            used: RefCell::new(Vec::new()),
        })
    }

    /// A word, or its default.
    pub(crate) fn text(&self, name: &str, default: &str) -> String {
        self.used.borrow_mut().push(name.to_owned());
        self.given
            .get(name)
            .map_or_else(|| default.to_owned(), Clone::clone)
    }

    /// A number or a size, or its default.
    pub(crate) fn number(&self, name: &str, default: u64) -> io::Result<u64> {
        let text = self.text(name, &default.to_string());
        parse_size(&text).ok_or_else(|| bad(format!("--{name} {text:?} is not a number")))
    }

    /// A number that indexes memory of this process.
    pub(crate) fn size(&self, name: &str, default: usize) -> io::Result<usize> {
        let number = self.number(name, default as u64)?;
        usize::try_from(number).map_err(|_| bad(format!("--{name} is too large")))
    }

    /// An option that nothing asked for is a mistake of the caller.
    pub(crate) fn all_used(&self) -> io::Result<()> {
        let used = self.used.borrow();
        match self.given.keys().find(|name| !used.contains(name)) {
            Some(name) => Err(bad(format!("there is no option --{name}"))),
            None => Ok(()),
        }
    }
}

/// An error of the caller.
pub(crate) fn bad(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

fn parse_size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_shl(shift)
}
