//! Regular expressions in files of rules.

use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// How much memory one may take once it is compiled.
const BYTES_MAX: usize = 1 << 20;

/// One, compiled while the file is read, so that what is wrong with it is reported with its line.
/// `\w` and its like are those of ASCII, and `.` is a byte, unless `(?u)` asks for Unicode: the built-in
/// rules would take 7 MiB more, and most of the time of a start.
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
            let way_out = match reason.contains("Unicode not allowed") {
                true => "; put (?u) before it",
                false => "",
            };
            let wrong = format!("{text:?} is not a regular expression: {reason}{way_out}");
            D::Error::custom(wrong)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pattern: &str) -> Result<Pattern, String> {
        #[derive(Deserialize)]
        struct File {
            title: Pattern,
        }
        let read: Result<File, _> = toml::from_str(&format!("title = '{pattern}'"));
        read.map(|file| file.title)
            .map_err(|error| error.message().to_owned())
    }

    #[test]
    fn letters_of_other_scripts_need_a_flag_and_the_error_says_so() {
        let matches = |pattern, text: &str| read(pattern).unwrap().0.is_match(text.as_bytes());
        assert!(matches(r"^Lauf \w+$", "Lauf x1"));
        assert!(!matches(r"^Lauf \w+$", "Lauf für"));
        assert!(matches(r"^Lauf (?u)\w+$", "Lauf für"));
        assert!(matches("^Läufer$", "Läufer"));
        let error = read("^[äöü]").unwrap_err();
        assert!(error.ends_with("put (?u) before it"), "{error}");
        assert!(read("(?u)^[äöü]").is_ok());
    }
}
