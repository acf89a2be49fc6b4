//! Traces of torch's profiler (Kineto's Chrome JSON): read as a stream in bounded memory, summed up, and
//! the ranks of a job side by side. It knows no recording.

mod activity;
mod allocations;
mod document;
mod event;
mod files;
mod hints;
mod input;
mod json;
mod kernels;
mod memory;
mod merge;
mod names;
mod overview;
mod rank;
mod reported;
mod self_time;
mod skew;
mod summary;
mod sums;
mod times;

pub use files::{Found, find};
pub use merge::{Merger, Place};
pub use overview::Overview;
pub use summary::{TraceSummary, read};

#[cfg(test)]
mod tests;
