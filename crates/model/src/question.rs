//! What a process may ask of its recorder, and the answer. The format is documented in
//! docs/marks.md and versioned.

use super::{Label, MARK_VERSION};
use crate::labels;
use serde::{Deserialize, Serialize};

/// What the path of the socket for questions ends in, after that of the socket for marks.
pub const QUESTION_SOCKET_SUFFIX: &str = ".ask";

/// Longest question, in bytes.
pub const QUESTION_BYTES_MAX: usize = 1024;

/// The only question so far.
const DESCENDANTS_PEAK: &str = "descendants_peak";

/// What did all descendants of the process that asks hold together, at most, in a section?
#[derive(Clone, Debug, Deserialize)]
pub struct DescendantsQuestion {
    v: u32,
    ask: String,
    /// The `span` of the section's begin.
    pub span: i64,
}

impl DescendantsQuestion {
    /// Reads a question; `None` when it is none of this version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let question: Self = serde_json::from_slice(bytes).ok()?;
        let is_known = question.v == MARK_VERSION && question.ask == DESCENDANTS_PEAK;
        is_known.then_some(question)
    }
}

labels! {
    /// How the recording knows what processes hold.
    pub enum DescendantsSource {
        /// The kernel tells when it changes: short peaks are in it.
        Events = "events",
        /// A look every now and then: what came and went in between is not in it.
        Poll = "poll",
    }
}

/// The answer to a question about descendants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DescendantsAnswer {
    v: u32,
    /// The highest sum of their RSS, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// The word of a [`DescendantsSource`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<&'static str>,
    /// Why it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
}

impl DescendantsAnswer {
    /// It is known.
    pub fn of(bytes: i64, source: DescendantsSource) -> Self {
        Self {
            v: MARK_VERSION,
            bytes: Some(bytes),
            source: Some(source.as_str()),
            reason: None,
        }
    }

    /// It is not known.
    pub fn unknown(reason: &'static str) -> Self {
        Self {
            v: MARK_VERSION,
            bytes: None,
            source: None,
            reason: Some(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_question_of_this_version_is_none() {
        let good = br#"{"v":1,"ask":"descendants_peak","span":7,"pid":1}"#;
        assert_eq!(DescendantsQuestion::parse(good).unwrap().span, 7);
        let bad = [
            &br#"{"v":2,"ask":"descendants_peak","span":7}"#[..],
            br#"{"v":1,"ask":"everything","span":7}"#,
            br#"{"v":1,"ask":"descendants_peak"}"#,
            b"\xff",
            b"",
        ];
        for bytes in bad {
            assert!(DescendantsQuestion::parse(bytes).is_none());
        }
    }

    #[test]
    fn an_answer_has_a_figure_or_a_reason() {
        let text = |answer| serde_json::to_string(&answer).unwrap();
        let known = DescendantsAnswer::of(5, DescendantsSource::Events);
        assert_eq!(text(known), r#"{"v":1,"bytes":5,"source":"events"}"#);
        let unknown = DescendantsAnswer::unknown("why");
        assert_eq!(text(unknown), r#"{"v":1,"reason":"why"}"#);
    }
}
