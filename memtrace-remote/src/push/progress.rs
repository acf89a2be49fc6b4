//! How much is carried: a line on a terminal, and what is said at the end.

use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};
use memtrace::cli::say;
use std::fmt;
use std::io::{self, IsTerminal};
use std::time::Duration;

const TICK: Duration = Duration::from_millis(250);

pub(super) struct Progress {
    bar: ProgressBar,
    is_quiet: bool,
}

/// What of a recording was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) parts: u64,
    pub(super) bytes: u64,
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = if self.parts == 1 { "part" } else { "parts" };
        write!(
            f,
            "{} {parts} sent, {}",
            self.parts,
            BinaryBytes(self.bytes)
        )
    }
}

impl Progress {
    pub(super) fn new(is_quiet: bool) -> Self {
        let bar = match !is_quiet && io::stderr().is_terminal() {
            true => ProgressBar::new(0),
            false => ProgressBar::hidden(),
        };
        let template = "memtrace: {msg} {wide_bar} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Self { bar, is_quiet }
    }

    /// So much more is to be sent, of this recording.
    pub(super) fn expect(&self, bytes: u64, recording: &str) {
        self.bar.inc_length(bytes);
        self.bar.set_message(recording.to_owned());
    }

    /// A part has arrived.
    pub(super) fn note(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Says something beside the line.
    pub(super) fn say(&self, text: &str) {
        self.bar.suspend(|| say(text));
    }

    /// The same, unless nothing but what goes wrong is to be said.
    pub(super) fn tell(&self, text: &str) {
        if !self.is_quiet {
            self.say(text);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
