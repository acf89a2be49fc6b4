//! Deflates at build time what a program carries beside its code, and gives it back. Some 0.7 MiB of
//! memtrace are carried so; a sixth remains.

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use std::error::Error;
use std::io::{Read, Write};
use std::path::Path;

/// For a build script: packs files, one after the other, under a name for [`packed!`].
///
/// # Errors
///
/// When a file cannot be read or the result cannot be written.
#[allow(clippy::print_stdout, reason = "a build script talks to cargo")]
pub fn pack(name: &str, files: &[&str]) -> Result<(), Box<dyn Error>> {
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    for file in files {
        println!("cargo::rerun-if-changed={file}");
        let bytes = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
        encoder.write_all(&bytes)?;
    }
    Ok(std::fs::write(
        Path::new(&out).join(name),
        encoder.finish()?,
    )?)
}

/// The packed bytes of a name that the build script gave to [`pack`].
#[macro_export]
macro_rules! packed {
    ($name:literal) => {
        &include_bytes!(concat!(env!("OUT_DIR"), "/", $name))[..]
    };
}

/// What was packed.
pub fn unpacked(packed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    // It reads from memory what a build script wrote, and a test reads each.
    let _ = DeflateDecoder::new(packed).read_to_end(&mut bytes);
    bytes
}

/// The same, of text.
pub fn unpacked_text(packed: &[u8]) -> String {
    String::from_utf8_lossy(&unpacked(packed)).into_owned()
}
