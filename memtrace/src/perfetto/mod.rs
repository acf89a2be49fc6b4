//! Perfetto's trace format, as far as memory over time needs it: tracks, what happens on them, and
//! how the clocks stand to each other. It knows no finding.
//!
//! A trace is a stream of packets, each of which stands for itself once its track is declared; so it
//! is written as it comes, and takes no memory. Numbers of fields are those of
//! `protos/perfetto/trace/perfetto_trace.proto` in Perfetto's sources.

#[cfg(test)]
mod decoded;
mod fields;
mod nested;
mod trace;
mod wire;

#[cfg(test)]
pub(crate) use decoded::{Decoded, DecodedEvent};
pub(crate) use nested::{Nested, Slice};
pub(crate) use trace::{Note, Trace, Track};
