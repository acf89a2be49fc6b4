//! What marks say of themselves: their attributes, and among these what the program measured.

use super::pair::Span;
use crate::model::Bytes;
use serde_json::{Map, Value};
use std::sync::Arc;

/// RSS at a mark of `memtrace.instrument`.
const RSS: &str = "rss_bytes";

/// What a program measured of itself at the boundaries of a phase (`memtrace.peak`,
/// `memtrace.instrument`): its own RSS, where the recording has the last row before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) begin: Option<Bytes>,
    pub(super) end: Option<Bytes>,
    /// The kernel's own high-water mark of the section.
    pub(super) peak: Option<Bytes>,
}

impl Measured {
    /// Whether it measured what it held at its begin or at its end.
    pub(super) fn has_ends(&self) -> bool {
        self.begin.is_some() || self.end.is_some()
    }
}

/// The attributes of both marks; those of the end win.
pub(super) fn attributes(span: &Span) -> Map<String, Value> {
    let texts = [&span.begin_attributes, &span.end_attributes];
    let mut merged = Map::new();
    for text in texts.into_iter().flatten() {
        if let Ok(Value::Object(attributes)) = serde_json::from_str(text) {
            merged.extend(attributes);
        }
    }
    merged
}

pub(super) fn measured(span: &Span) -> Measured {
    // Most marks measure nothing, and there can be hundreds of thousands.
    let texts = [&span.begin_attributes, &span.end_attributes];
    if !texts
        .into_iter()
        .flatten()
        .any(|text| text.contains("_bytes"))
    {
        return Measured::default();
    }
    let read = |text: &Option<Arc<str>>| -> Value {
        let text = text.as_deref().unwrap_or_default();
        serde_json::from_str(text).unwrap_or_default()
    };
    let [begin, end] = texts.map(read);
    let bytes = |attributes: &Value, name: &str| {
        let bytes = attributes.get(name)?.as_i64()?;
        (bytes > 0).then_some(Bytes(bytes))
    };
    let is_of_the_section = end.get("peak_source").is_some_and(Value::is_string);
    Measured {
        begin: bytes(&begin, RSS).or_else(|| bytes(&end, "begin_bytes")),
        end: bytes(&end, RSS).or_else(|| bytes(&end, "end_bytes")),
        peak: bytes(&end, "peak_bytes").filter(|_| is_of_the_section),
    }
}
