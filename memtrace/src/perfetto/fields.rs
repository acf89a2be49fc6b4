//! The fields that are used, by message. A number that is not here is not written.

/// `Trace`.
pub(super) const TRACE_PACKET: u32 = 1;

/// `TracePacket`.
pub(super) const PACKET_CLOCK_SNAPSHOT: u32 = 6;
pub(super) const PACKET_TIMESTAMP: u32 = 8;
pub(super) const PACKET_SEQUENCE: u32 = 10;
pub(super) const PACKET_TRACK_EVENT: u32 = 11;
pub(super) const PACKET_SEQUENCE_FLAGS: u32 = 13;
pub(super) const PACKET_TRACK_DESCRIPTOR: u32 = 60;

/// `ClockSnapshot` and its `Clock`.
pub(super) const SNAPSHOT_CLOCK: u32 = 1;
pub(super) const SNAPSHOT_PRIMARY: u32 = 2;
pub(super) const CLOCK_ID: u32 = 1;
pub(super) const CLOCK_TIMESTAMP: u32 = 2;

/// `TrackDescriptor`.
pub(super) const TRACK_UUID: u32 = 1;
pub(super) const TRACK_NAME: u32 = 2;
pub(super) const TRACK_PROCESS: u32 = 3;
pub(super) const TRACK_THREAD: u32 = 4;
pub(super) const TRACK_PARENT: u32 = 5;
pub(super) const TRACK_COUNTER: u32 = 8;
pub(super) const TRACK_DESCRIPTION: u32 = 14;

/// `ProcessDescriptor`.
pub(super) const PROCESS_PID: u32 = 1;
pub(super) const PROCESS_CMDLINE: u32 = 2;
pub(super) const PROCESS_NAME: u32 = 6;
pub(super) const PROCESS_START: u32 = 7;

/// `ThreadDescriptor`.
pub(super) const THREAD_PID: u32 = 1;
pub(super) const THREAD_TID: u32 = 2;
pub(super) const THREAD_NAME: u32 = 5;

/// `CounterDescriptor`.
pub(super) const COUNTER_UNIT: u32 = 3;

/// `TrackEvent`.
pub(super) const EVENT_ANNOTATION: u32 = 4;
pub(super) const EVENT_TYPE: u32 = 9;
pub(super) const EVENT_TRACK: u32 = 11;
pub(super) const EVENT_CATEGORY: u32 = 22;
pub(super) const EVENT_NAME: u32 = 23;
pub(super) const EVENT_COUNTER_VALUE: u32 = 30;

/// `DebugAnnotation`.
pub(super) const ANNOTATION_BOOLEAN: u32 = 2;
pub(super) const ANNOTATION_INTEGER: u32 = 4;
pub(super) const ANNOTATION_FLOAT: u32 = 5;
pub(super) const ANNOTATION_TEXT: u32 = 6;
pub(super) const ANNOTATION_NAME: u32 = 10;
