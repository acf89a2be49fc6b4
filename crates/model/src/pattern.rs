//! Regular expressions in files of rules.

use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// How much memory one may take once it is compiled.
const BYTES_MAX: usize = 1 << 20;

/// One, compiled while the file is read, so that what is wrong with it is reported with its line.
/// `\w` and its like are those of ASCII, unless `(?u)` asks for Unicode's: those of the built-in rules
/// would take 7 MiB more, and most of the time of a start.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(pub(crate) Regex);

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let built = RegexBuilder::new(&text)
            .unicode(false)
            .size_limit(BYTES_MAX)
            .build();
        built.map(Self).map_err(|error| {
            // Its own words are a drawing of several lines, and the last one says it.
            let words = error.to_string();
            let last = words.lines().last().unwrap_or_default();
            let reason = last.trim_start_matches("error: ");
            D::Error::custom(format!("{text:?} is not a regular expression: {reason}"))
        })
    }
}
