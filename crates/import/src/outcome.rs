//! What became of a request, by the words that the HTTP clients of Python have for it. Generators
//! tell these words and no more.

use memtrace_model::{ERROR_BYTES_MAX, RequestOutcome};
use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    /// How it failed.
    pub outcome: RequestOutcome,
    /// The words for it that are kept.
    pub words: String,
    /// The HTTP status.
    pub http_status: Option<i32>,
}

/// Of so many failures with different words the words are kept; of more, the name of the exception.
const FAILURES_MAX: usize = 1 << 14;

thread_local! {
    /// Each once: many requests fail in the same way.
    static FAILURES: RefCell<HashSet<Rc<Failure>>> = RefCell::default();
}

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

impl Failure {
    /// What a text about a failure tells, with the part of it that is kept: of a traceback the last
    /// line, which names the exception. An HTTP status tells more, and else `otherwise` is how it failed.
    pub(super) fn of(
        text: &str,
        http_status: Option<i32>,
        otherwise: RequestOutcome,
    ) -> Rc<Failure> {
        let words = kept(text);
        let known = exception(&words);
        let outcome = match http_status {
            Some(status) if status != 200 => RequestOutcome::Refused,
            _ => known.map_or(otherwise, |(_, outcome)| *outcome),
        };
        let failure = Self {
            outcome,
            words,
            http_status,
        };
        failure.shared()
    }

    /// It, as all who failed so have it.
    pub(super) fn shared(mut self) -> Rc<Failure> {
        FAILURES.with_borrow_mut(|failures| {
            if failures.len() >= FAILURES_MAX && !failures.contains(&self) {
                self.words = exception(&self.words)
                    .map_or("", |(name, _)| name)
                    .to_owned();
            }
            let failure = failures.get(&self).cloned();
            failure.unwrap_or_else(|| {
                let failure = Rc::new(self);
                failures.insert(Rc::clone(&failure));
                failure
            })
        })
    }
}

/// Another file is read from here on: its failures are counted from none.
pub(super) fn forget_failures() {
    FAILURES.take();
}

fn exception(words: &str) -> Option<&'static (&'static str, RequestOutcome)> {
    EXCEPTIONS.iter().find(|(name, _)| words.contains(name))
}

/// The part of a text about a failure that is kept: the start of its last line.
pub(super) fn kept(text: &str) -> String {
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    let last = last.unwrap_or_default().trim();
    let mut end = ERROR_BYTES_MAX.min(last.len());
    while !last.is_char_boundary(end) {
        end -= 1;
    }
    last[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_traceback_the_exception_is_kept() {
        let text = "Traceback (most recent call last):\n  File \"x.py\", line 1\n\
            aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected\n";
        let failure = |text: &str| Failure::of(text, None, RequestOutcome::Failed);
        let broken = failure(text);
        assert_eq!(broken.outcome, RequestOutcome::Broken);
        assert_eq!(
            broken.words,
            "aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected"
        );
        assert!(Rc::ptr_eq(&broken, &failure(text)));
        let internal = failure("Internal Server Error");
        assert_eq!(internal.outcome, RequestOutcome::Failed);
        let refused = Failure::of("x", Some(503), RequestOutcome::Failed);
        assert_eq!(refused.outcome, RequestOutcome::Refused);
        assert_eq!(failure(&"ü".repeat(900)).words.len(), ERROR_BYTES_MAX);
    }

    #[test]
    fn of_failures_that_all_have_other_words_the_first_keep_them() {
        let failures: Vec<_> = (0..FAILURES_MAX + 9)
            .map(|at| Failure::of(&format!("Timeout {at}"), None, RequestOutcome::Failed))
            .collect();
        assert_eq!(failures[9].words, "Timeout 9");
        let last = failures.last().unwrap();
        assert_eq!(
            (last.words.as_str(), last.outcome),
            ("Timeout", RequestOutcome::TimedOut)
        );
        assert!(Rc::ptr_eq(last, &failures[FAILURES_MAX + 1]));
        forget_failures();
        let of_next = Failure::of("Timeout x", None, RequestOutcome::Failed);
        assert_eq!(of_next.words, "Timeout x");
    }
}
