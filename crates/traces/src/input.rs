//! The bytes of a trace: unpacked where they are packed, and bounded, since a trace can come from
//! anywhere and a packed one can hold a thousand times its length.

use flate2::bufread::MultiGzDecoder;
use memtrace_model::{BoundedJson, JsonBounds};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

/// Some 60 million events; the longest texts that a profiler writes are stacks.
const BOUNDS: JsonBounds = JsonBounds {
    length_bytes: 16 << 30,
    text_bytes: 1 << 20,
    depth: 64,
};
const BUFFER: usize = 256 << 10;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Reads a file, packed or not.
pub(super) fn unpacked(file: File) -> io::Result<BufReader<BoundedJson<Box<dyn Read>>>> {
    let mut file = BufReader::with_capacity(BUFFER, file);
    let is_packed = file.fill_buf()?.starts_with(&GZIP);
    let bytes: Box<dyn Read> = match is_packed {
        true => Box::new(MultiGzDecoder::new(file)),
        false => Box::new(file),
    };
    let bounded = BoundedJson::new(bytes, BOUNDS);
    Ok(BufReader::with_capacity(BUFFER, bounded))
}
