//! Marks that have arrived and are not written yet, and the count of what did not.

use super::questions::Asked;
use crate::model::{BootNs, MarkError, MarkKind, MarkMessage, MarkSource, Tgid};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Marks that may wait for the collector's next turn. At 32 bytes a name that is a few
/// MiB; whoever sends more in a tenth of a second is told in `diag`.
pub(super) const WAITING_MAX: usize = 32 * 1024;

/// Questions that may wait, each with a descriptor of ours.
pub(super) const ASKED_MAX: usize = 64;

/// One mark and whose it is: of a message the kernel says so, of a line the line itself.
#[derive(Debug)]
pub(super) struct Received {
    /// The process that sent it, or that a line names.
    pub(super) tgid: Option<Tgid>,
    /// Whose it is where `tgid` is no recorded process: the command, of its output.
    pub(super) writer: Option<Tgid>,
    pub(super) arrival: BootNs,
    pub(super) kind: MarkKind,
    pub(super) message: MarkMessage,
    pub(super) source: MarkSource,
}

/// What came in since the last look.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) marks: Vec<Received>,
    /// Marks for which there was no room.
    pub(super) overflow_count: u64,
    /// Marks that their senders could not deliver.
    pub(super) dropped_count: u64,
    /// Datagrams that were no marks, and what was wrong with the first.
    pub(super) refused_count: u64,
    pub(super) first_refusal: Option<String>,
    /// Bytes of the command's output that were not looked at.
    pub(super) unread_bytes: u64,
    /// What was asked. Behind the marks: a section ends before it is asked about.
    pub(super) asked: Vec<Asked>,
}

impl Waiting {
    fn add(&mut self, mark: Received) {
        if self.marks.len() < WAITING_MAX {
            self.marks.push(mark);
        } else {
            self.overflow_count += 1;
        }
    }
}

/// Between the threads that receive and the collector that writes.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
}

impl Inbox {
    /// Puts a datagram in, or counts it.
    pub(super) fn receive(
        &self,
        tgid: Option<Tgid>,
        arrival: BootNs,
        parsed: Result<(MarkMessage, MarkKind), MarkError>,
    ) {
        let mut waiting = self.lock();
        match parsed {
            Ok((message, kind)) => {
                waiting.dropped_count = waiting.dropped_count.saturating_add(message.dropped);
                waiting.add(Received {
                    tgid,
                    writer: None,
                    arrival,
                    kind,
                    message,
                    source: MarkSource::Socket,
                });
            }
            Err(error) => {
                waiting.refused_count += 1;
                waiting
                    .first_refusal
                    .get_or_insert_with(|| error.to_string());
            }
        }
    }

    /// Puts a mark in, or counts it.
    pub(super) fn add(&self, mark: Received) {
        self.lock().add(mark);
    }

    /// Puts a question in, where there is room, and else says that there is none.
    pub(super) fn ask(&self, asked: Asked) {
        let mut waiting = self.lock();
        if waiting.asked.len() < ASKED_MAX {
            waiting.asked.push(asked);
            return;
        }
        drop(waiting);
        asked.refuse();
    }

    /// Counts output that nobody looks at.
    pub(super) fn note_unread(&self, bytes: u64) {
        let mut waiting = self.lock();
        waiting.unread_bytes = waiting.unread_bytes.saturating_add(bytes);
    }

    /// Takes everything that waits.
    pub(super) fn take(&self) -> Waiting {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DescendantsQuestion;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    fn mark(name: &str) -> Result<(MarkMessage, MarkKind), MarkError> {
        let message = MarkMessage::new(MarkKind::Instant, name, BootNs(1));
        Ok((message, MarkKind::Instant))
    }

    #[test]
    fn a_question_for_which_there_is_no_room_is_answered_that_the_recorder_is_busy() {
        let inbox = Inbox::default();
        let question = br#"{"v":1,"ask":"descendants_peak","span":7}
"#;
        let mut askers = Vec::new();
        for _ in 0..=ASKED_MAX {
            let (asker, stream) = UnixStream::pair().unwrap();
            inbox.ask(Asked {
                tgid: Tgid(1),
                at: BootNs(1),
                question: DescendantsQuestion::parse(question).unwrap(),
                stream,
            });
            askers.push(asker);
        }
        let mut answer = String::new();
        askers.pop().unwrap().read_to_string(&mut answer).unwrap();
        assert!(answer.contains("the recorder is busy"), "{answer}");
        assert_eq!(inbox.take().asked.len(), ASKED_MAX);
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let inbox = Inbox::default();
        for _ in 0..WAITING_MAX + 3 {
            inbox.receive(None, BootNs(2), mark("a"));
        }
        let waiting = inbox.take();
        assert_eq!(waiting.marks.len(), WAITING_MAX);
        assert_eq!(waiting.overflow_count, 3);
        assert_eq!(inbox.take().marks.len(), 0);
    }

    #[test]
    fn what_is_no_mark_is_counted_and_the_first_explained() {
        let inbox = Inbox::default();
        inbox.receive(None, BootNs(2), MarkMessage::parse(b"one"));
        inbox.receive(None, BootNs(2), Err(MarkError::TooLong));
        let waiting = inbox.take();
        assert_eq!(waiting.refused_count, 2);
        let first = waiting.first_refusal.unwrap();
        assert!(first.starts_with("not a mark"), "{first}");
    }
}
