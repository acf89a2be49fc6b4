//! What became of a request, by the words that the HTTP clients of Python have for it. Generators
//! tell these words and no more.

use crate::model::{ERROR_BYTES_MAX, RequestOutcome};

/// Names of exceptions, of aiohttp, httpx and Python itself; the first that is found counts.
const EXCEPTIONS: &[(&str, RequestOutcome)] = &[
    ("ClientConnector", RequestOutcome::NotConnected),
    ("ConnectError", RequestOutcome::NotConnected),
    ("ConnectionRefused", RequestOutcome::NotConnected),
    ("Cannot connect to host", RequestOutcome::NotConnected),
    ("Timeout", RequestOutcome::TimedOut),
    ("Cancelled", RequestOutcome::Interrupted),
    ("cancelled", RequestOutcome::Interrupted),
    ("ServerDisconnected", RequestOutcome::Broken),
    ("ClientPayloadError", RequestOutcome::Broken),
    ("RemoteProtocolError", RequestOutcome::Broken),
    ("ReadError", RequestOutcome::Broken),
    ("ConnectionReset", RequestOutcome::Broken),
    ("ClientOSError", RequestOutcome::Broken),
    ("JSONDecodeError", RequestOutcome::Malformed),
    ("ClientResponseError", RequestOutcome::Refused),
    ("HTTPStatusError", RequestOutcome::Refused),
];

/// What a text about a failure tells, with the part of it that is kept: of a traceback the last
/// line, which names the exception.
pub(super) fn failure(text: &str) -> (RequestOutcome, String) {
    let kept = kept(text);
    let known = EXCEPTIONS.iter().find(|(name, _)| kept.contains(name));
    let outcome = known.map_or(RequestOutcome::Failed, |(_, outcome)| *outcome);
    (outcome, kept)
}

/// That part: the begin of the last line.
pub(super) fn kept(text: &str) -> String {
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    let last = last.unwrap_or_default().trim();
    let mut end = ERROR_BYTES_MAX.min(last.len());
    while !last.is_char_boundary(end) {
        end -= 1;
    }
    last[..end].to_owned()
}

/// The same of one with an HTTP status, which tells more.
pub(super) fn failure_with(status: Option<i32>, text: &str) -> (RequestOutcome, String) {
    let (outcome, kept) = failure(text);
    match status {
        Some(status) if status != 200 => (RequestOutcome::Refused, kept),
        _ => (outcome, kept),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_traceback_the_exception_is_kept() {
        let text = "Traceback (most recent call last):\n  File \"x.py\", line 1\n\
            aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected\n";
        let (outcome, kept) = failure(text);
        assert_eq!(outcome, RequestOutcome::Broken);
        assert_eq!(
            kept,
            "aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected"
        );
        assert_eq!(failure("Internal Server Error").0, RequestOutcome::Failed);
        assert_eq!(failure_with(Some(503), "x").0, RequestOutcome::Refused);
        assert_eq!(failure(&"ü".repeat(900)).1.len(), ERROR_BYTES_MAX);
    }
}
