//! Text for the person, on stdout.

use anyhow::Context;
use std::io::{self, Write};
use std::process::ExitCode;

/// Writes text to stdout. A reader that has seen enough and closed the pipe (`| head`) is
/// a success.
pub(super) fn print(text: &str) -> anyhow::Result<ExitCode> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("failed to write to stdout")
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
