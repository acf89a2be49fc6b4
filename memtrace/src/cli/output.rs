//! Text for the person: on stdout, whether it may be coloured, and what is said beside it.

use anyhow::Context;
use memtrace_report::{Style, visible};
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

/// Writes text to stdout. A reader that has seen enough and closed the pipe (`| head`) is
/// a success.
pub(super) fn print(text: &str) -> anyhow::Result<ExitCode> {
    is_heard(text).map(|_| ExitCode::SUCCESS)
}

/// Writes text to stdout. False where its reader has closed the pipe.
pub(super) fn is_heard(text: &str) -> anyhow::Result<bool> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    match written.and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).context("failed to write to stdout"),
    }
}

/// Says something on stderr.
pub fn say(text: &str) {
    // Nothing is left to tell it to when stderr is closed.
    let _ = writeln!(io::stderr(), "memtrace: {}", visible(text));
}

/// Colours on a terminal, unless NO_COLOR is set (no-color.org: to anything but nothing) or the
/// terminal is a dumb one.
pub(super) fn has_color() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

/// COLUMNS when set, else the width of the terminal. It is 100 in a file, so that a report there does not
/// depend on the window it came from; and no more in a pipe, whose other end (`less`, `head`) mostly writes
/// to the terminal.
pub(super) fn width() -> usize {
    let set = std::env::var("COLUMNS")
        .ok()
        .and_then(|set| set.parse().ok());
    let terminal = || {
        let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
        Some(usize::from(width.0))
    };
    let usual = Style::default().width;
    let behind_pipe = || {
        let (width, _) = terminal_size::terminal_size_of(io::stderr()).filter(|_| is_pipe())?;
        Some(usual.min(usize::from(width.0)))
    };
    set.filter(|&columns| columns > 0)
        .or_else(terminal)
        .or_else(behind_pipe)
        .unwrap_or(usual)
}

/// Whether standard output is a pipe.
fn is_pipe() -> bool {
    let out = rustix::fs::fstat(io::stdout());
    out.is_ok_and(|out| rustix::fs::FileType::from_raw_mode(out.st_mode).is_fifo())
}
