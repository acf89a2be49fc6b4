//! What an answer that is an error says.

use serde_json::Value;

/// So many characters of an error are reported.
pub(super) const ERROR_CHARS: usize = 300;

/// Its words, however the server writes them.
pub(super) fn message_of(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    match serde_json::from_str::<Value>(text) {
        Ok(value) => words_of(value.get("error").unwrap_or(&value)),
        Err(_) if text.starts_with('<') => "a page of HTML".to_owned(),
        Err(_) if text.is_empty() => "without a word".to_owned(),
        Err(_) => cut(text),
    }
}

fn words_of(error: &Value) -> String {
    let named = ["message", "detail"]
        .iter()
        .find_map(|name| error.get(name));
    match named.unwrap_or(error) {
        Value::String(text) => cut(text),
        other => cut(&other.to_string()),
    }
}

/// The beginning of a text.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(ERROR_CHARS).collect()
}
