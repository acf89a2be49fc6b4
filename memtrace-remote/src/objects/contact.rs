//! What is known of the server that a store is asked of: who it is, when it last answered, and what was
//! wrong the last time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Contact(Mutex<Known>);

#[derive(Debug)]
struct Known {
    /// As a person names it; empty where nobody was asked yet.
    server: String,
    heard: Instant,
    wrong: Option<String>,
}

impl Contact {
    pub(super) fn new() -> Self {
        let server = String::new();
        let heard = Instant::now();
        let wrong = None;
        Self(Mutex::new(Known {
            server,
            heard,
            wrong,
        }))
    }

    /// This one is asked now.
    pub(super) fn asks(&self, server: String) {
        self.known().server = server;
    }

    /// It has answered, to the end and with no refusal.
    pub(super) fn heard(&self) {
        let mut known = self.known();
        known.heard = Instant::now();
        known.wrong = None;
    }

    /// A request of it failed, which may be tried again.
    pub(super) fn failed(&self, words: String) {
        self.known().wrong = Some(words);
    }

    pub(super) fn last_heard(&self) -> Instant {
        self.known().heard
    }

    /// The one that was asked last.
    pub(super) fn server(&self) -> Option<String> {
        Some(self.known().server.clone()).filter(|server| !server.is_empty())
    }

    /// What was wrong since it last answered.
    pub(super) fn wrong(&self) -> Option<String> {
        self.known().wrong.clone()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
