//! Where a recording stands below a root, beside those of other hosts and runs:
//! `ROOT/run=ID/host=NAME/rec=START`.

use super::units::DurationNs;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A run has no more hosts. A list of them can be a few bytes that stand for any number.
pub(super) const HOSTS_MAX: usize = 20_000;

/// A name in a root has no more bytes.
const NAME_BYTES_MAX: usize = 128;

/// The name of a run, a host or a recording: 1 to 128 of `A-Za-z0-9._-`, of which the first is
/// neither `.` nor `-`. So it is one component of a path, in a directory as in a bucket, and no
/// option.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PlaceName(String);

/// A text that can't be such a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid name: use 1 to 128 of A-Za-z0-9._-, not beginning with . or -")]
pub struct PlaceNameError(String);

impl PlaceName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name that is nearest to a text which may hold anything, as a host's name does.
    pub fn nearest(text: &str) -> Self {
        let mut name: String = text
            .chars()
            .map(|letter| match is_allowed(letter) {
                true => letter,
                false => '-',
            })
            .take(NAME_BYTES_MAX)
            .collect();
        if !name.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_') {
            name.insert(0, '_');
            name.truncate(NAME_BYTES_MAX);
        }
        Self(name)
    }
}

fn is_allowed(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-')
}

impl TryFrom<String> for PlaceName {
    type Error = PlaceNameError;

    fn try_from(text: String) -> Result<Self, PlaceNameError> {
        let is_short = (1..=NAME_BYTES_MAX).contains(&text.len());
        let is_name = is_short && !text.starts_with(['.', '-']) && text.chars().all(is_allowed);
        match is_name {
            true => Ok(Self(text)),
            false => Err(PlaceNameError(text.chars().take(NAME_BYTES_MAX).collect())),
        }
    }
}

impl FromStr for PlaceName {
    type Err = PlaceNameError;

    fn from_str(text: &str) -> Result<Self, PlaceNameError> {
        Self::try_from(text.to_owned())
    }
}

impl From<PlaceName> for String {
    fn from(name: PlaceName) -> Self {
        name.0
    }
}

impl fmt::Display for PlaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The place of a recording in a root: with [`Upid`](super::Upid) the key of a row among those of
/// all hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPlace {
    /// What the recordings of one job on all its hosts have in common.
    pub run: PlaceName,
    /// What reports call the host.
    pub host: PlaceName,
    /// The recording: when it was started, in UTC, and a number where that was taken.
    pub rec: PlaceName,
    /// Rows are in a part after so long at the latest, give or take what may come late.
    pub rotate_ns: DurationNs,
    /// The hosts that the run should have a recording of, where somebody reported.
    #[serde(default)]
    pub expected_hosts: Option<Vec<PlaceName>>,
}

impl RunPlace {
    /// The directory of the recording below the root.
    pub fn path(&self) -> PathBuf {
        let Self { run, host, rec, .. } = self;
        [
            format!("run={run}"),
            format!("host={host}"),
            format!("rec={rec}"),
        ]
        .iter()
        .collect()
    }

    /// The same with no more expected hosts than can be.
    pub fn bounded(mut self) -> Self {
        if let Some(hosts) = &mut self.expected_hosts {
            hosts.truncate(HOSTS_MAX);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_component_of_a_path_and_no_option() {
        let longest = "x".repeat(128);
        for name in ["4711", "node-1.example.org", "_", "A_b", longest.as_str()] {
            assert_eq!(name.parse::<PlaceName>().unwrap().as_str(), name);
        }
        let too_long = "x".repeat(129);
        for name in [
            "", ".", "..", ".hidden", "-o", "a/b", "a b", "a=b", "ä", "a\n", &too_long,
        ] {
            let error = name.parse::<PlaceName>().unwrap_err().to_string();
            assert!(error.contains("A-Za-z0-9._-"), "{error}");
            let json = serde_json::to_string(name).unwrap();
            assert!(serde_json::from_str::<PlaceName>(&json).is_err(), "{name}");
        }
    }

    #[test]
    fn every_text_has_a_nearest_name() {
        let long = "é".repeat(300);
        for (text, name) in [
            ("node1", "node1"),
            ("my host", "my-host"),
            ("", "_"),
            ("-x", "_-x"),
            (".x", "_.x"),
            ("../../etc", "_..-..-etc"),
            (long.as_str(), &format!("_{}", "-".repeat(127))),
        ] {
            assert_eq!(PlaceName::nearest(text), name.parse().unwrap());
        }
    }

    #[test]
    fn a_place_is_a_path_below_the_root() {
        let name = |text: &str| text.parse::<PlaceName>().unwrap();
        let place = RunPlace {
            run: name("4711"),
            host: name("node1"),
            rec: name("20261123T121913Z-2"),
            rotate_ns: DurationNs(60_000_000_000),
            expected_hosts: None,
        };
        let path = PathBuf::from("run=4711/host=node1/rec=20261123T121913Z-2");
        assert_eq!(place.path(), path);
        let json = serde_json::to_value(&place).unwrap();
        assert_eq!(json["run"], "4711");
        assert_eq!(json["rotate_ns"], 60_000_000_000_i64);
        assert!(json["expected_hosts"].is_null());
        assert_eq!(serde_json::from_value::<RunPlace>(json).unwrap(), place);
    }
}
