//! Calls of tools that are not answered yet, so that a client can take one back.

use serde_json::Value;
use std::io;
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The calls that wait or are under way.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<Vec<Open>>);

#[derive(Debug)]
struct Open {
    id: Value,
    /// What works on it.
    child: Option<Child>,
    is_cancelled: bool,
}

impl Calls {
    fn all(&self) -> MutexGuard<'_, Vec<Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call came.
    pub(super) fn came(&self, id: Value) {
        self.all().push(Open {
            id,
            child: None,
            is_cancelled: false,
        });
    }

    /// A call is not wanted any more.
    pub(super) fn cancel(&self, id: &Value) {
        let mut calls = self.all();
        if let Some(call) = calls.iter_mut().find(|call| call.id == *id) {
            call.is_cancelled = true;
            call.end();
        }
    }

    /// No call is wanted any more.
    pub(super) fn cancel_all(&self) {
        for call in self.all().iter_mut() {
            call.is_cancelled = true;
            call.end();
        }
    }

    /// Somebody works on a call.
    pub(super) fn begin(&self, id: &Value, child: Child) {
        let mut calls = self.all();
        if let Some(call) = calls.iter_mut().find(|call| call.id == *id) {
            call.child = Some(child);
            if call.is_cancelled {
                call.end();
            }
        }
    }

    /// Waits for who works on a call, and has closed its output.
    pub(super) fn end(&self, id: &Value) -> io::Result<ExitStatus> {
        let child = {
            let mut calls = self.all();
            let call = calls.iter_mut().find(|call| call.id == *id);
            call.and_then(|call| call.child.take())
        };
        let gone = || io::Error::other("nobody works on that call");
        child.ok_or_else(gone)?.wait()
    }

    pub(super) fn is_cancelled(&self, id: &Value) -> bool {
        let calls = self.all();
        calls.iter().any(|call| call.id == *id && call.is_cancelled)
    }

    /// A call is done. Answers whether its answer is wanted.
    pub(super) fn done(&self, id: &Value) -> bool {
        let mut calls = self.all();
        let place = calls.iter().position(|call| call.id == *id);
        place.is_some_and(|place| !calls.remove(place).is_cancelled)
    }
}

impl Open {
    fn end(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself.
            let _ = child.kill();
        }
    }
}
