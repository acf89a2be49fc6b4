//! The fields that are used, by message. A number that is not here is not written.

#![allow(missing_docs, reason = "a constant has the name of its field")]

/// Fields of `Trace`.
pub const TRACE_PACKET: u32 = 1;

/// Fields of `TracePacket`.
pub const PACKET_CLOCK_SNAPSHOT: u32 = 6;
pub const PACKET_TIMESTAMP: u32 = 8;
pub const PACKET_SEQUENCE: u32 = 10;
pub const PACKET_TRACK_EVENT: u32 = 11;
pub const PACKET_SEQUENCE_FLAGS: u32 = 13;
pub const PACKET_TRACK_DESCRIPTOR: u32 = 60;

/// `ClockSnapshot` and its `Clock`.
pub const SNAPSHOT_CLOCK: u32 = 1;
pub const SNAPSHOT_PRIMARY: u32 = 2;
pub const CLOCK_ID: u32 = 1;
pub const CLOCK_TIMESTAMP: u32 = 2;

/// Fields of `TrackDescriptor`.
pub const TRACK_UUID: u32 = 1;
pub const TRACK_NAME: u32 = 2;
pub const TRACK_PROCESS: u32 = 3;
pub const TRACK_THREAD: u32 = 4;
pub const TRACK_PARENT: u32 = 5;
pub const TRACK_COUNTER: u32 = 8;
pub const TRACK_DESCRIPTION: u32 = 14;

/// Fields of `ProcessDescriptor`.
pub const PROCESS_PID: u32 = 1;
pub const PROCESS_CMDLINE: u32 = 2;
pub const PROCESS_NAME: u32 = 6;
pub const PROCESS_START: u32 = 7;

/// Fields of `ThreadDescriptor`.
pub const THREAD_PID: u32 = 1;
pub const THREAD_TID: u32 = 2;
pub const THREAD_NAME: u32 = 5;

/// Fields of `CounterDescriptor`.
pub const COUNTER_UNIT: u32 = 3;

/// Fields of `TrackEvent`.
pub const EVENT_ANNOTATION: u32 = 4;
pub const EVENT_TYPE: u32 = 9;
pub const EVENT_TRACK: u32 = 11;
pub const EVENT_CATEGORY: u32 = 22;
pub const EVENT_NAME: u32 = 23;
pub const EVENT_COUNTER_VALUE: u32 = 30;

/// Fields of `DebugAnnotation`.
pub const ANNOTATION_BOOLEAN: u32 = 2;
pub const ANNOTATION_INTEGER: u32 = 4;
pub const ANNOTATION_FLOAT: u32 = 5;
pub const ANNOTATION_TEXT: u32 = 6;
pub const ANNOTATION_NAME: u32 = 10;
