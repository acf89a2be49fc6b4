//! The report for programs: one JSON object, versioned, described in docs/report-json.md.
//!
//! Bytes and nanoseconds are integers, unknown is null. It is the findings themselves.

mod safe;

use safe::Safe;
use serde::Serialize;
use std::io::{self, Write};

/// Writes an object for people and programs.
pub fn write_object(view: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    write_as(view, Safe::pretty(), out)
}

/// Writes an object as one line.
pub fn write_line(view: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    write_as(view, Safe::compact(), out)
}

fn write_as(view: &impl Serialize, formatter: Safe, out: &mut dyn Write) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, formatter);
    view.serialize(&mut serializer).map_err(io::Error::from)?;
    writeln!(out)
}
