//! A trace in the making: each call writes a packet.

use super::fields;
use super::wire::Message;
use memtrace_model::{BootNs, Bytes, ClockReading, Tgid};
use std::io::{self, Write};

/// Values of `BuiltinClock`.
const REALTIME: u64 = 1;
const MONOTONIC: u64 = 3;
const BOOTTIME: u64 = 6;

/// Values of `TrackEvent.Type`.
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// A value of `CounterDescriptor.Unit`.
const SIZE_BYTES: u64 = 3;

/// All packets are of one writer, which begins anew with the first of them: events without both are
/// skipped.
const SEQUENCE: u64 = 1;
const INCREMENTAL_STATE_CLEARED: u64 = 1;

/// A track that was declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track(u64);

/// What is said of an event beside its name.
#[derive(Clone, Debug, PartialEq)]
pub enum Note<'a> {
    /// Yes or no.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A floating point number.
    Float(f64),
    /// A piece of text.
    Text(&'a str),
}

/// A trace that is being written. After a failure nothing more is, and [`Trace::finish`] tells of it.
pub struct Trace<'o> {
    out: &'o mut dyn Write,
    outcome: io::Result<()>,
    last_uuid: u64,
    is_begun: bool,
    packet: Message,
    inner: Message,
    head: Message,
}

impl<'o> Trace<'o> {
    /// An empty one.
    pub fn new(out: &'o mut dyn Write) -> Self {
        Self {
            out,
            outcome: Ok(()),
            last_uuid: 0,
            is_begun: false,
            packet: Message::default(),
            inner: Message::default(),
            head: Message::default(),
        }
    }

    /// How the clocks stood to each other. Every other time is on CLOCK_BOOTTIME.
    pub fn clocks(&mut self, reading: &ClockReading) {
        self.inner.clear();
        let clocks = [
            (BOOTTIME, reading.boot_ns.0),
            (REALTIME, reading.wall_ns.0),
            (MONOTONIC, reading.monotonic_ns),
        ];
        for (id, time) in clocks {
            let mut clock = Message::default();
            clock.number(fields::CLOCK_ID, id);
            clock.number(fields::CLOCK_TIMESTAMP, time.max(0).cast_unsigned());
            self.inner.message(fields::SNAPSHOT_CLOCK, &clock);
        }
        self.inner.number(fields::SNAPSHOT_PRIMARY, BOOTTIME);
        self.write(Some(reading.boot_ns), fields::PACKET_CLOCK_SNAPSHOT);
    }

    /// Declares a process, under which other tracks can stand. A process id that is used again is
    /// another process by its track.
    pub fn process(
        &mut self,
        tgid: Tgid,
        name: &str,
        cmdline: Option<&str>,
        start: BootNs,
    ) -> Track {
        let mut process = Message::default();
        process.number(fields::PROCESS_PID, tgid.0.into());
        if let Some(cmdline) = cmdline {
            process.text(fields::PROCESS_CMDLINE, cmdline);
        }
        process.text(fields::PROCESS_NAME, name);
        process.signed(fields::PROCESS_START, start.0);
        self.declare(None, |track| track.message(fields::TRACK_PROCESS, &process))
    }

    /// Declares a thread of a process.
    pub fn thread(&mut self, tgid: Tgid, tid: i64, name: &str) -> Track {
        let mut thread = Message::default();
        thread.number(fields::THREAD_PID, tgid.0.into());
        thread.signed(fields::THREAD_TID, tid);
        thread.text(fields::THREAD_NAME, name);
        self.declare(None, |track| track.message(fields::TRACK_THREAD, &thread))
    }

    /// Declares a track for slices and instants, or for others to stand under.
    pub fn track(&mut self, parent: Option<Track>, name: &str) -> Track {
        self.declare(parent, |track| track.text(fields::TRACK_NAME, name))
    }

    /// Declares a track of amounts of memory. Until its first value it has none.
    pub fn counter(
        &mut self,
        parent: Option<Track>,
        name: &str,
        description: Option<&str>,
    ) -> Track {
        let mut counter = Message::default();
        counter.number(fields::COUNTER_UNIT, SIZE_BYTES);
        self.declare(parent, |track| {
            track.text(fields::TRACK_NAME, name);
            if let Some(description) = description {
                track.text(fields::TRACK_DESCRIPTION, description);
            }
            track.message(fields::TRACK_COUNTER, &counter);
        })
    }

    /// An amount from a time on.
    pub fn value(&mut self, at: BootNs, track: Track, bytes: Bytes) {
        self.event(track, COUNTER);
        self.inner.signed(fields::EVENT_COUNTER_VALUE, bytes.0);
        self.write(Some(at), fields::PACKET_TRACK_EVENT);
    }

    /// A slice begins. Slices of a track are inside of each other, or apart.
    pub fn begin<'n>(
        &mut self,
        at: BootNs,
        track: Track,
        (category, name): (&str, &str),
        notes: impl IntoIterator<Item = (&'n str, Note<'n>)>,
    ) {
        self.named(SLICE_BEGIN, at, track, (category, name), notes);
    }

    /// The innermost slice of a track ends.
    pub fn end(&mut self, at: BootNs, track: Track) {
        self.event(track, SLICE_END);
        self.write(Some(at), fields::PACKET_TRACK_EVENT);
    }

    /// Something happens at an instant.
    pub fn instant<'n>(
        &mut self,
        at: BootNs,
        track: Track,
        (category, name): (&str, &str),
        notes: impl IntoIterator<Item = (&'n str, Note<'n>)>,
    ) {
        self.named(INSTANT, at, track, (category, name), notes);
    }

    /// Whether all was written so far.
    ///
    /// # Errors
    /// When something could not be.
    pub fn finish(self) -> io::Result<()> {
        self.outcome
    }

    fn declare(&mut self, parent: Option<Track>, say: impl FnOnce(&mut Message)) -> Track {
        self.last_uuid += 1;
        self.inner.clear();
        self.inner.number(fields::TRACK_UUID, self.last_uuid);
        if let Some(Track(parent)) = parent {
            self.inner.number(fields::TRACK_PARENT, parent);
        }
        say(&mut self.inner);
        self.write(None, fields::PACKET_TRACK_DESCRIPTOR);
        Track(self.last_uuid)
    }

    fn named<'n>(
        &mut self,
        kind: u64,
        at: BootNs,
        track: Track,
        (category, name): (&str, &str),
        notes: impl IntoIterator<Item = (&'n str, Note<'n>)>,
    ) {
        self.event(track, kind);
        self.inner.text(fields::EVENT_CATEGORY, category);
        self.inner.text(fields::EVENT_NAME, name);
        for (name, note) in notes {
            let mut annotation = Message::default();
            annotation.text(fields::ANNOTATION_NAME, name);
            match note {
                Note::Boolean(is_so) => {
                    annotation.number(fields::ANNOTATION_BOOLEAN, is_so.into());
                }
                Note::Integer(number) => annotation.signed(fields::ANNOTATION_INTEGER, number),
                Note::Float(number) => annotation.float(fields::ANNOTATION_FLOAT, number),
                Note::Text(text) => annotation.text(fields::ANNOTATION_TEXT, text),
            }
            self.inner.message(fields::EVENT_ANNOTATION, &annotation);
        }
        self.write(Some(at), fields::PACKET_TRACK_EVENT);
    }

    fn event(&mut self, track: Track, kind: u64) {
        self.inner.clear();
        self.inner.number(fields::EVENT_TYPE, kind);
        self.inner.number(fields::EVENT_TRACK, track.0);
    }

    /// Writes what `inner` holds as a packet.
    fn write(&mut self, at: Option<BootNs>, what: u32) {
        if self.outcome.is_err() {
            return;
        }
        self.packet.clear();
        if let Some(at) = at {
            let at = at.0.max(0).cast_unsigned();
            self.packet.number(fields::PACKET_TIMESTAMP, at);
        }
        self.packet.number(fields::PACKET_SEQUENCE, SEQUENCE);
        if !std::mem::replace(&mut self.is_begun, true) {
            let flags = INCREMENTAL_STATE_CLEARED;
            self.packet.number(fields::PACKET_SEQUENCE_FLAGS, flags);
        }
        self.packet.message(what, &self.inner);
        self.head.clear();
        self.head.message(fields::TRACE_PACKET, &self.packet);
        self.outcome = self.out.write_all(self.head.as_bytes());
    }
}
