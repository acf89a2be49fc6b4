//! Marks that have arrived and are not written yet, and the count of what did not.
//!
//! What a message says is what its sender claims. Here is refused what no process of this machine
//! can have done; what only its sender can't have done is for the collector, who knows it.

use super::asked::Asked;
use super::requests::{LeftOut, Requests};
use crate::stop::lock;
use crate::{Ceiling, Part, Share};
use memtrace_model::{
    BootNs, Bytes, DiagKind, MarkError, MarkKind, MarkMessage, MarkSource, RequestMessage,
    SelfReport, Tgid,
};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

/// Questions that may wait, each with a descriptor of ours.
pub(super) const ASKED_MAX: usize = 64;

/// No message is sent in less than this.
const SEND_NS: i64 = 100;

/// More versions than these are not reported.
pub(super) const UNCHECKED_MAX: usize = 16;

/// The attribute of a [`MarkKind::Peak`] that holds the high-water mark.
const HIWATER: &str = "hiwater_bytes";

/// Attributes by which a process says what it held.
const HELD: [&str; 6] = [
    HIWATER,
    "rss_bytes",
    "rss_anon_bytes",
    "begin_bytes",
    "end_bytes",
    "peak_bytes",
];

/// One mark and whose it is: of a message the kernel says so, of a line the line itself.
#[derive(Debug)]
pub(super) struct Received {
    /// The process that sent it, or that a line names.
    pub(super) tgid: Option<Tgid>,
    /// Whether that id is one inside of a container, as its lines have it.
    pub(super) is_inside: bool,
    /// Whose it is where `tgid` is no recorded process: the command, of its output.
    pub(super) writer: Option<Tgid>,
    pub(super) arrival: BootNs,
    /// When it was, as the sender says; of a line by our clock.
    pub(super) reported_at: BootNs,
    pub(super) kind: MarkKind,
    pub(super) name: String,
    pub(super) span: Option<i64>,
    /// As JSON: parsed it takes many times as much.
    pub(super) attributes: Option<String>,
    /// What the sender says its high-water mark was.
    pub(super) hiwater: Option<Bytes>,
    /// What it says that it held.
    pub(super) held: Option<SelfReport>,
    pub(super) is_of_recording: bool,
    pub(super) has_descendants: bool,
    pub(super) source: MarkSource,
}

impl Received {
    pub(super) fn new(
        message: MarkMessage,
        kind: MarkKind,
        source: MarkSource,
        arrival: BootNs,
    ) -> Self {
        let hiwater = || message.attrs.get(HIWATER)?.as_i64().map(Bytes);
        Self {
            tgid: None,
            is_inside: false,
            writer: None,
            arrival,
            reported_at: BootNs(message.boot_ns),
            kind,
            span: message.span,
            attributes: message.attributes().map(|mut text| {
                // It is counted by what it takes.
                text.shrink_to_fit();
                text
            }),
            held: (kind != MarkKind::Peak && source == MarkSource::Socket)
                .then(|| SelfReport::of(&message.attrs))
                .flatten(),
            hiwater: (kind == MarkKind::Peak).then(hiwater).flatten(),
            is_of_recording: message.is_of_recording,
            has_descendants: message.descendants,
            name: message.name,
            source,
        }
    }

    /// Whether it is the end of a phase, and was read in a log.
    pub(super) fn is_end_of_a_line(&self) -> bool {
        let is_line = matches!(self.source, MarkSource::Output | MarkSource::File);
        is_line && self.kind == MarkKind::End
    }

    fn bytes(&self) -> usize {
        let attributes = self.attributes.as_ref().map_or(0, String::capacity);
        size_of::<Waits>() + self.name.capacity() + attributes
    }
}

/// A mark with the room that it takes, for as long as it waits.
#[derive(Debug)]
pub(super) struct Waits {
    pub(super) mark: Received,
    pub(super) room: Share,
}

/// What came in since the last look.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) marks: Vec<Waits>,
    pub(super) requests: Requests,
    /// Marks for which there was no room.
    pub(super) overflow_count: u64,
    /// Marks that their senders could not deliver.
    pub(super) dropped_count: u64,
    /// The same since the beginning.
    claimed_drops: u64,
    /// Claims that can't be true of any process here.
    pub(super) impossible_count: u64,
    /// Datagrams that were no marks, and what was wrong with the first.
    pub(super) refused_count: u64,
    pub(super) first_refusal: Option<String>,
    /// Bytes of the command's output that were not looked at.
    pub(super) unread_bytes: u64,
    /// Versions of programs whose lines the rules were not checked with.
    pub(super) unchecked: BTreeSet<String>,
    /// What was asked. Behind the marks: a section ends before it is asked about.
    pub(super) asked: Vec<Asked>,
}

impl Waiting {
    /// What was lost: how much, as which kind, and what it was.
    pub(super) fn losses(&self) -> [(u64, DiagKind, String); 4] {
        [
            (
                self.dropped_count,
                DiagKind::LostEvents,
                "marks that their senders could not deliver: the socket's queue was full"
                    .to_owned(),
            ),
            (
                self.overflow_count,
                DiagKind::LostEvents,
                "marks that arrived faster than they could be written".to_owned(),
            ),
            (
                self.refused_count,
                DiagKind::UndecodedEvents,
                format!(
                    "datagrams that are not marks; the first: {}",
                    self.first_refusal.as_deref().unwrap_or("unknown")
                ),
            ),
            (
                self.unread_bytes,
                DiagKind::LostEvents,
                "bytes of the command's output, or of log files, that came faster than they \
                 could be searched for marks"
                    .to_owned(),
            ),
        ]
    }
}

/// Between the threads that receive and the collector that writes.
#[derive(Debug)]
pub(super) struct Inbox {
    ceiling: Arc<Ceiling>,
    /// All the memory that this machine has; `None` where it is unknown.
    memory: Option<Bytes>,
    /// When the first message could be sent here.
    since: BootNs,
    cpus: u64,
    waiting: Mutex<Waiting>,
}

impl Inbox {
    pub(super) fn new(ceiling: Arc<Ceiling>, memory: Option<Bytes>, since: BootNs) -> Self {
        Self {
            ceiling,
            memory,
            since,
            cpus: online_cpus(),
            waiting: Mutex::default(),
        }
    }

    /// Puts a datagram in, or counts it.
    pub(super) fn receive(
        &self,
        tgid: Option<Tgid>,
        arrival: BootNs,
        parsed: Result<(MarkMessage, MarkKind), MarkError>,
    ) {
        match parsed {
            // Each recorded process could say that another was killed, by whom and why.
            Ok((_, MarkKind::Kill)) => self.refuse_datagram(&MarkError::Kill),
            Ok((mut message, kind)) => {
                let impossible = self.refuse(&mut message.attrs);
                let dropped = message.dropped;
                let mark = Received {
                    tgid,
                    ..Received::new(message, kind, MarkSource::Socket, arrival)
                };
                let mut waiting = self.lock();
                self.note_dropped(&mut waiting, arrival, dropped);
                waiting.impossible_count += impossible;
                self.put(&mut waiting, mark);
            }
            Err(error) => self.refuse_datagram(&error),
        }
    }

    fn refuse_datagram(&self, error: &MarkError) {
        let mut waiting = self.lock();
        waiting.refused_count += 1;
        waiting
            .first_refusal
            .get_or_insert_with(|| error.to_string());
    }

    /// Puts a request of a load experiment in, or counts it.
    pub(super) fn receive_request(&self, arrival: BootNs, request: RequestMessage) {
        let mut waiting = self.lock();
        self.note_dropped(&mut waiting, arrival, request.dropped);
        match waiting.requests.put(request, arrival, &self.ceiling) {
            Ok(()) => {}
            Err(LeftOut::Impossible) => waiting.impossible_count += 1,
            Err(LeftOut::Overflow) => waiting.overflow_count += 1,
        }
    }

    /// Counts what a sender says that it could not deliver, or that this can't be.
    fn note_dropped(&self, waiting: &mut Waiting, arrival: BootNs, dropped: u64) {
        let time = (arrival - self.since).0.max(0).cast_unsigned();
        let most = time / SEND_NS.cast_unsigned();
        let all = waiting.claimed_drops.saturating_add(dropped);
        // One sender can't have tried more often, and all together as often on each CPU.
        if dropped <= most && all <= most.saturating_mul(self.cpus) {
            waiting.claimed_drops = all;
            waiting.dropped_count += dropped;
        } else {
            waiting.impossible_count += 1;
        }
    }

    /// Takes out what is more than the machine has. Answers how many.
    fn refuse(&self, attrs: &mut Map<String, Value>) -> u64 {
        let Some(Bytes(memory)) = self.memory else {
            return 0;
        };
        let is_impossible = |value: &Value| value.as_f64().is_some_and(|held| held > memory as f64);
        let mut count = 0;
        for name in HELD {
            if attrs.get(name).is_some_and(is_impossible) {
                attrs.remove(name);
                count += 1;
            }
        }
        count
    }

    /// Puts a mark in, or counts it.
    pub(super) fn add(&self, mark: Received) {
        self.put(&mut self.lock(), mark);
    }

    fn put(&self, waiting: &mut Waiting, mark: Received) {
        match self.ceiling.take(Part::Marks, mark.bytes()) {
            Some(room) => waiting.marks.push(Waits { mark, room }),
            None => waiting.overflow_count += 1,
        }
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

    /// Keeps a version of a program whose lines the rules were not checked with.
    pub(super) fn note_unchecked(&self, version: String) {
        let mut waiting = self.lock();
        if waiting.unchecked.len() < UNCHECKED_MAX {
            waiting.unchecked.insert(version);
        }
    }

    /// Takes everything that waits.
    pub(super) fn take(&self) -> Waiting {
        let mut waiting = self.lock();
        let rest = Waiting {
            claimed_drops: waiting.claimed_drops,
            ..Waiting::default()
        };
        std::mem::replace(&mut *waiting, rest)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }
}

#[cfg(test)]
impl Default for Inbox {
    fn default() -> Self {
        Self::new(Arc::default(), Some(Bytes(1 << 40)), BootNs(0))
    }
}

/// Of the machine: senders may run where this program may not.
fn online_cpus() -> u64 {
    // SAFETY: it takes a number and no pointer.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u64::try_from(cpus).map_or(1, |cpus| cpus.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::DescendantsQuestion;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

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
    fn marks_that_wait_take_a_stated_number_of_bytes_however_large_each_is() {
        for length in [1, 30_000] {
            let inbox = Inbox::default();
            let mut message = MarkMessage::new(MarkKind::Instant, "a", BootNs(1));
            message
                .attrs
                .insert("x".to_owned(), "y".repeat(length).into());
            let more = 2 * Part::Marks.limit() / (length + size_of::<Waits>());
            for _ in 0..more {
                let parsed = Ok((message.clone(), MarkKind::Instant));
                inbox.receive(None, BootNs(2), parsed);
            }
            assert!(inbox.ceiling.taken(Part::Marks) <= Part::Marks.limit());
            let waiting = inbox.take();
            let kept = waiting.marks.len();
            assert!(kept > 0 && waiting.overflow_count > 0);
            assert_eq!(kept as u64 + waiting.overflow_count, more as u64);
            drop(waiting);
            assert_eq!(inbox.ceiling.taken(Part::Marks), 0);
        }
    }

    #[test]
    fn a_claim_that_no_process_of_this_machine_can_make_is_refused_and_counted() {
        let inbox = Inbox::default();
        let text = br#"{"v":1,"kind":"peak","name":"a","boot_ns":1,"dropped":18446744073709551615,
            "attrs":{"hiwater_bytes":4611686018427387904,"rss_bytes":1e300,"peak_bytes":-5,
                     "begin_bytes":4096,"file_bytes":4611686018427387904}}"#;
        inbox.receive(Some(Tgid(1)), BootNs(1_000), MarkMessage::parse(text));
        let waiting = inbox.take();
        assert_eq!((waiting.impossible_count, waiting.dropped_count), (3, 0));
        let mark = &waiting.marks[0].mark;
        assert_eq!(mark.hiwater, None);
        let kept = mark.attributes.as_deref().unwrap();
        assert!(!kept.contains("hiwater") && !kept.contains("rss"), "{kept}");
        assert!(
            kept.contains("file_bytes") && kept.contains("begin_bytes"),
            "{kept}"
        );

        let text = br#"{"v":1,"kind":"instant","name":"a","boot_ns":1,"dropped":10}"#;
        inbox.receive(Some(Tgid(1)), BootNs(1_000), MarkMessage::parse(text));
        assert_eq!(inbox.take().dropped_count, 10);
        // Nor can all of them together.
        let before = inbox.lock().claimed_drops;
        for _ in 0..10_000 {
            inbox.receive(Some(Tgid(1)), BootNs(1_000), MarkMessage::parse(text));
        }
        let waiting = inbox.take();
        assert!(waiting.impossible_count > 0 && waiting.dropped_count >= 10);
        assert_eq!(waiting.claimed_drops, before + waiting.dropped_count);
    }

    #[test]
    fn a_kill_that_a_process_sends_is_refused_and_counted() {
        let inbox = Inbox::default();
        let text = br#"{"v":1,"kind":"kill","name":"a","boot_ns":1,
            "attrs":{"killer":"the kernel","reason":"it leaked","killed_pid":7}}"#;
        inbox.receive(Some(Tgid(1)), BootNs(2), MarkMessage::parse(text));
        let waiting = inbox.take();
        assert_eq!((waiting.marks.len(), waiting.refused_count), (0, 1));
        let first = waiting.first_refusal.unwrap();
        assert!(first.contains("line of a log"), "{first}");
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
