//! Shows a recording that goes on, on a terminal: what `memtrace top` draws, and the keys that it
//! knows. Figures come from [`analyze`](memtrace_analyze), rows through [`Feed`].

mod app;
mod clock;
mod columns;
mod draw;
mod header;
mod help;
mod input;
mod lines;
mod once;
mod order;
mod screen;
#[cfg(test)]
mod tests;
mod view;

pub use clock::Age;
pub use once::once;
pub use screen::{Options, end_with_signals, is_to_end, is_to_end_within, run};
pub use view::View;

use memtrace_analyze::Live;
use memtrace_model::BootNs;
use std::fmt::Display;

/// Whether somebody writes to the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorder {
    /// A recorder writes to it.
    Recording,
    /// It has closed the recording.
    Closed,
    /// It is gone, and has not closed it.
    Gone,
}

/// Where the figures come from.
pub trait Feed {
    /// What can go wrong.
    type Error: Display;

    /// Takes what came since the last time. Answers whether there was anything.
    ///
    /// # Errors
    /// When the recording can't be read.
    fn refresh(&mut self) -> Result<bool, Self::Error>;

    /// The figures as they are now.
    fn live(&self) -> &Live;

    /// The same, to ask for what takes longer.
    fn live_mut(&mut self) -> &mut Live;

    /// What became of the recorder.
    fn recorder(&self) -> Recorder;

    /// The time on the boot clock.
    fn boot(&self) -> BootNs;

    /// Names this moment in the recording.
    ///
    /// # Errors
    /// When it can't be sent; the sentence says why.
    fn mark(&mut self, name: &str) -> Result<(), String>;
}
