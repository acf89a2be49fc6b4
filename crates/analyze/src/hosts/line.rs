//! A line of what `--reduce` writes: what a recording adds to the answer for its run, or why it can't
//! be read, so that its host is reported and does not vanish.

use super::merge::Unread;
use super::part::{HostPart, PartError, Place};
use serde::{Deserialize, Serialize};

const FORMAT: &str = "memtrace-host-unread";
const VERSION: u32 = 1;

/// What one line says.
#[derive(Clone, Debug)]
pub enum Line {
    /// What a recording adds.
    Part(Box<HostPart>),
    /// Why one could not be read.
    Unread(Unread),
}

/// A recording that could not be read, as it is written.
#[derive(Debug, Serialize, Deserialize)]
struct Reported {
    format: String,
    version: u32,
    #[serde(flatten)]
    place: Place,
    why: String,
}

impl Line {
    /// Reads one. What no recording can be is one that could not be read.
    ///
    /// # Errors
    /// When the text is something else, or of another version.
    pub fn parse(text: &str) -> Result<Self, PartError> {
        if let Ok(reported) = serde_json::from_str::<Reported>(text)
            && (reported.format.as_str(), reported.version) == (FORMAT, VERSION)
        {
            let Reported { place, why, .. } = reported;
            return Ok(Self::Unread(Unread { place, why }));
        }
        match HostPart::parse(text) {
            Ok(part) => Ok(Self::Part(Box::new(part))),
            Err(PartError::Bounds(what)) => Ok(Self::Unread(Unread {
                place: serde_json::from_str(text)?,
                why: PartError::Bounds(what).to_string(),
            })),
            Err(error) => Err(error),
        }
    }
}

impl Unread {
    /// What is written of it.
    pub fn line(&self) -> impl Serialize {
        Reported {
            format: FORMAT.to_owned(),
            version: VERSION,
            place: self.place.clone(),
            why: self.why.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_that_could_not_be_read_is_read_as_it_was_written() {
        let place = Place {
            run: "r".to_owned(),
            host: "n".to_owned(),
            rec: "x".to_owned(),
        };
        let why = "it is of schema 9.0".to_owned();
        let unread = Unread { place, why };
        let line = serde_json::to_string(&unread.line()).expect("JSON");
        let Ok(Line::Unread(read)) = Line::parse(&line) else {
            panic!("no such line: {line}");
        };
        assert_eq!((&read.place, &read.why), (&unread.place, &unread.why));
        let later = line.replace("\"version\":1", "\"version\":2");
        assert!(Line::parse(&later).is_err());
    }
}
