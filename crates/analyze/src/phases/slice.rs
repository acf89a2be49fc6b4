//! A phase or a moment by itself, without its memory: for who draws it.

use super::attributes::attributes;
use super::pair::Span;
use super::{PhaseEnd, PhaseForm};
use memtrace_model::BootNs;
use serde_json::{Map, Value};

/// What was named, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice<'a> {
    pub(crate) name: &'a str,
    /// Whose it is, by position.
    pub(crate) process: Option<usize>,
    /// `None` for a moment, and for what began before the recording or unmarked.
    pub(crate) begin: Option<BootNs>,
    /// `None` for what was still open when the recording ended, or ended unseen.
    pub(crate) end: Option<BootNs>,
    pub(crate) is_moment: bool,
    span: &'a Span,
}

impl<'a> Slice<'a> {
    pub(super) fn of(span: &'a Span) -> Self {
        let is_moment = span.form == PhaseForm::Moment;
        Self {
            name: &span.name,
            process: span.process,
            begin: span.begin.filter(|_| !is_moment),
            end: span
                .known_end()
                .filter(|_| span.ended_by != PhaseEnd::Recording),
            is_moment,
            span,
        }
    }

    /// The attributes of its marks; those of the end win.
    pub(crate) fn attributes(&self) -> Map<String, Value> {
        attributes(self.span)
    }
}
