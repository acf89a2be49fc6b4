//! What marks say of themselves: their attributes, and among these what the kernel keeps for the
//! program. What the program measured is rows of memory.

use super::pair::Span;
use memtrace_model::Bytes;
use serde_json::{Map, Value};
use std::sync::Arc;

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

/// The kernel's own high-water mark of the section (`memtrace.peak`).
pub(super) fn exact_peak(span: &Span) -> Option<Bytes> {
    let end = read(&span.end_attributes);
    end.get("peak_source")?.as_str()?;
    bytes(&end, "peak_bytes")
}

fn read(text: &Option<Arc<str>>) -> Value {
    // Most marks measure nothing, and there can be hundreds of thousands.
    let text = text.as_deref().filter(|text| text.contains("_bytes"));
    serde_json::from_str(text.unwrap_or_default()).unwrap_or_default()
}

fn bytes(attributes: &Value, name: &str) -> Option<Bytes> {
    let bytes = attributes.get(name)?.as_i64()?;
    (bytes > 0).then_some(Bytes(bytes))
}
