//! What memtrace carries beside its code, which build.rs deflates.

use flate2::read::DeflateDecoder;
use std::io::Read;

/// The packed bytes of a name in build.rs.
macro_rules! packed {
    ($name:literal) => {
        &include_bytes!(concat!(env!("OUT_DIR"), "/", $name))[..]
    };
}
pub(crate) use packed;

/// What was packed.
pub(crate) fn unpacked(packed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    // It reads from memory what build.rs wrote, and a test reads each.
    let _ = DeflateDecoder::new(packed).read_to_end(&mut bytes);
    bytes
}

/// The same, of text.
pub(crate) fn unpacked_text(packed: &[u8]) -> String {
    String::from_utf8_lossy(&unpacked(packed)).into_owned()
}
