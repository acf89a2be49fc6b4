//! Arbitrary bytes as an event from the ring.

#![no_main]

use libfuzzer_sys::fuzz_target;
use memtrace::collect::bpf::decode;

fuzz_target!(|bytes: &[u8]| {
    let _ = decode(bytes);
});
