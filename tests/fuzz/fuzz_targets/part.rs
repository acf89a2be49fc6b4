//! Arbitrary bytes as a Parquet part.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "recording.rs"]
mod recording;

fuzz_target!(|bytes: &[u8]| recording::read_with("mem/part-00001.parquet", bytes));
