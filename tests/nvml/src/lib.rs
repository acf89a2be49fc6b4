//! A stand-in for libnvidia-ml.so.1: the C functions that memtrace calls, answering what a
//! script tells. The file named by [`SCRIPT_VARIABLE`] is read again whenever it changes, so
//! that a test can let memory move, a call fail or a device vanish at a time of its choice.
//!
//! Symbols can't be taken away at run time; a test that wants a library without some of them
//! makes a copy in which their names are others.

#[cfg(unix)]
mod calls;
pub mod script;

/// Names the file with the [`script::Script`].
pub const SCRIPT_VARIABLE: &str = "MEMTRACE_FAKE_NVML";
