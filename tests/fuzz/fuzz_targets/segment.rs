//! Arbitrary bytes as a spool segment of an unclosed recording.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "recording.rs"]
mod recording;

fuzz_target!(|bytes: &[u8]| recording::read_with("spool/mem-00001.arrows", bytes));
