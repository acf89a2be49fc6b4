//! Perfetto's trace format, as far as memory over time needs it: tracks, what happens on them, and
//! how the clocks stand to each other. It knows no finding.
//!
//! A trace is a stream of packets, each of which stands for itself once its track is declared; so it
//! is written as it comes, and takes no memory. Numbers of fields are those of
//! `protos/perfetto/trace/perfetto_trace.proto` in Perfetto's sources.

pub mod fields;
mod nested;
mod trace;
pub mod wire;

pub use nested::{Nested, Slice};
pub use trace::{Note, Trace, Track};
