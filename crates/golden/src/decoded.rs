//! A trace read back, for tests: what was declared, and what happened on which track.

use memtrace_perfetto::fields;
use std::collections::BTreeMap;

/// A field's value.
#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in order.
fn fields_of(mut bytes: &[u8]) -> Vec<(u32, Value<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut bytes)),
            1 => {
                let (fixed, rest) = bytes.split_at(8);
                bytes = rest;
                Value::Bytes(fixed)
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (text, rest) = bytes.split_at(length);
                bytes = rest;
                Value::Bytes(text)
            }
            other => panic!("wire type {other}"),
        };
        fields.push(((tag >> 3) as u32, value));
    }
    fields
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for place in 0.. {
        let (first, rest) = bytes.split_first().expect("a byte");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << (7 * place);
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}

fn number(fields: &[(u32, Value<'_>)], field: u32) -> Option<u64> {
    fields.iter().find_map(|(one, value)| match value {
        Value::Number(number) if *one == field => Some(*number),
        _ => None,
    })
}

fn bytes<'a>(fields: &[(u32, Value<'a>)], field: u32) -> Option<&'a [u8]> {
    fields.iter().find_map(|(one, value)| match value {
        Value::Bytes(bytes) if *one == field => Some(*bytes),
        _ => None,
    })
}

fn text(fields: &[(u32, Value<'_>)], field: u32) -> Option<String> {
    bytes(fields, field).map(|bytes| String::from_utf8(bytes.to_vec()).expect("UTF-8"))
}

/// What was declared of a track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedTrack {
    /// The name of the track.
    pub name: String,
    /// The track that it belongs to.
    pub parent: Option<u64>,
    /// The process, of a track of one.
    pub pid: Option<u64>,
    /// The command line, of a process.
    pub cmdline: Option<String>,
    /// Whether it has values and no slices.
    pub is_counter: bool,
}

/// Something on a track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodedEvent {
    /// A slice begins.
    Begin(String),
    /// The last slice that began ends.
    End,
    /// Something happens at an instant.
    Instant(String),
    /// What a counter shows.
    Value(i64),
}

/// All of a trace.
#[derive(Debug, Default)]
pub struct Decoded {
    /// The tracks, by their number in the file.
    pub tracks: BTreeMap<u64, DecodedTrack>,
    /// In the order of the file: track, time, what.
    pub events: Vec<(u64, i64, DecodedEvent)>,
    /// How many snapshots of clocks there are.
    pub clock_count: usize,
}

impl Decoded {
    /// Reads a trace. Every event has to be of a track that was declared before it.
    pub fn of(trace: &[u8]) -> Self {
        let mut decoded = Self::default();
        for (place, (field, packet)) in fields_of(trace).into_iter().enumerate() {
            let Value::Bytes(packet) = packet else {
                panic!("a packet is a message");
            };
            assert_eq!(field, fields::TRACE_PACKET);
            let packet = fields_of(packet);
            let flags = number(&packet, fields::PACKET_SEQUENCE_FLAGS);
            assert_eq!(flags.is_some(), place == 0, "the first begins anew");
            assert!(number(&packet, fields::PACKET_SEQUENCE).is_some());
            decoded.take(&packet);
        }
        decoded
    }

    fn take(&mut self, packet: &[(u32, Value<'_>)]) {
        if let Some(descriptor) = bytes(packet, fields::PACKET_TRACK_DESCRIPTOR) {
            let descriptor = fields_of(descriptor);
            let process = bytes(&descriptor, fields::TRACK_PROCESS).map(fields_of);
            let process = process.unwrap_or_default();
            let name = text(&descriptor, fields::TRACK_NAME);
            let name = name.or_else(|| text(&process, fields::PROCESS_NAME));
            let thread = bytes(&descriptor, fields::TRACK_THREAD).map(fields_of);
            let thread = thread.unwrap_or_default();
            let name = name.or_else(|| text(&thread, fields::THREAD_NAME));
            let parent = number(&descriptor, fields::TRACK_PARENT);
            assert!(parent.is_none_or(|parent| self.tracks.contains_key(&parent)));
            let track = DecodedTrack {
                name: name.expect("a name"),
                parent,
                pid: number(&process, fields::PROCESS_PID),
                cmdline: text(&process, fields::PROCESS_CMDLINE),
                is_counter: bytes(&descriptor, fields::TRACK_COUNTER).is_some(),
            };
            let uuid = number(&descriptor, fields::TRACK_UUID).expect("an id");
            assert_eq!(self.tracks.insert(uuid, track), None, "declared twice");
        } else if let Some(event) = bytes(packet, fields::PACKET_TRACK_EVENT) {
            let event = fields_of(event);
            let track = number(&event, fields::EVENT_TRACK).expect("a track");
            let name = || text(&event, fields::EVENT_NAME).expect("a name");
            let what = match number(&event, fields::EVENT_TYPE) {
                Some(1) => DecodedEvent::Begin(name()),
                Some(2) => DecodedEvent::End,
                Some(3) => DecodedEvent::Instant(name()),
                Some(4) => {
                    let value = number(&event, fields::EVENT_COUNTER_VALUE);
                    DecodedEvent::Value(value.expect("a value").cast_signed())
                }
                other => panic!("type {other:?}"),
            };
            let declared = self.tracks.get(&track).expect("a declared track");
            let is_value = matches!(what, DecodedEvent::Value(_));
            assert_eq!(declared.is_counter, is_value, "{declared:?}");
            let at = number(packet, fields::PACKET_TIMESTAMP).expect("a time");
            self.events.push((track, at.cast_signed(), what));
        } else {
            assert!(bytes(packet, fields::PACKET_CLOCK_SNAPSHOT).is_some());
            self.clock_count += 1;
        }
    }

    /// The tracks of that name, with the name of what they stand under.
    pub fn named(&self, name: &str) -> Vec<(u64, Option<&str>)> {
        let tracks = self.tracks.iter().filter(|(_, track)| track.name == name);
        let parent = |track: &DecodedTrack| {
            let parent = self.tracks.get(&track.parent?)?;
            Some(parent.name.as_str())
        };
        tracks.map(|(uuid, track)| (*uuid, parent(track))).collect()
    }

    /// What happened on a track, in the order of the file.
    pub fn on(&self, track: u64) -> Vec<(i64, &DecodedEvent)> {
        let events = self.events.iter().filter(|(on, ..)| *on == track);
        events.map(|(_, at, what)| (*at, what)).collect()
    }
}
