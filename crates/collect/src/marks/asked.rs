//! A question that has arrived.

use memtrace_model::{BootNs, DescendantsAnswer, DescendantsQuestion, Tgid};
use rustix::net::{SendFlags, send};
use std::os::unix::net::UnixStream;

/// A question and who waits for the answer.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) tgid: Tgid,
    pub(super) at: BootNs,
    pub(super) question: DescendantsQuestion,
    pub(super) stream: UnixStream,
}

impl Asked {
    /// Says that there is no room for it.
    pub(super) fn refuse(&self) {
        let answer = DescendantsAnswer::unknown("the recorder is busy: too many questions wait");
        Self::reply(&self.stream, &answer);
    }

    /// Answers without waiting: who does not read has no room for the answer, and has none.
    pub(super) fn reply(stream: &UnixStream, answer: &DescendantsAnswer) {
        if let Ok(mut line) = serde_json::to_vec(answer) {
            line.push(b'\n');
            // Who asked may be gone by now.
            let _ = send(stream, &line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}
