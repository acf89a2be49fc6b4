//! A line of code that stacks are summed up by.

use super::frame::{StackFrame, named_after};
use super::resident::Stacks;
use memtrace_report::visible;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::iter;

/// Frames of the stack that is shown of a line.
const FRAMES_MAX: usize = 64;

/// What a line is called, and how it is reached.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CodeLine {
    /// The frame that the line is named after; null where no stack is known. A native function is one line,
    /// whatever the place in it, and has the source line of `stack`.
    pub frame: Option<StackFrame>,
    /// Of a native function, the two that called it: another caller is another line.
    pub callers: Vec<StackFrame>,
    /// The stack that most of its memory came by, innermost frame first; at most 64 frames.
    pub stack: Vec<StackFrame>,
}

impl CodeLine {
    /// `sched/output.py:118 update_from_output`; of a native function with those that called it:
    /// `grow (libfoo.so) < load < main`.
    pub(crate) fn place(&self) -> String {
        self.called(self.frame.as_ref().map(StackFrame::in_words))
    }

    /// The same without its line: lines move as a program is changed.
    pub(crate) fn function(&self) -> String {
        let without_line = |frame: &StackFrame| frame.without_line().in_words();
        self.called(self.frame.as_ref().map(without_line))
    }

    fn called(&self, name: Option<String>) -> String {
        let mut place = name.unwrap_or_else(|| "an unknown place".to_owned());
        for caller in self.callers.iter().map_while(StackFrame::short) {
            place.push_str(" < ");
            place.push_str(&caller);
        }
        visible(&place).into_owned()
    }
}

/// What stacks add up to by line, in the order in which lines are first met: the first stack is the
/// one that is shown of its line.
pub(crate) fn by_line<T, S: Default>(
    rows: impl Iterator<Item = (i64, T)>,
    stacks: &Stacks,
    mut add: impl FnMut(&mut S, T),
) -> Vec<(CodeLine, S)> {
    let mut lines: Vec<(CodeLine, S)> = Vec::new();
    let mut places: HashMap<Vec<StackFrame>, usize> = HashMap::new();
    for (stack_id, row) in rows {
        let frames = stacks.get(&stack_id).map_or(&[][..], Vec::as_slice);
        let named = named_after(frames).into_iter();
        let named = named.flat_map(|(frame, callers)| iter::once(frame).chain(callers));
        let shown = named.clone().next().map(StackFrame::shown);
        let named: Vec<StackFrame> = named.map(StackFrame::key).collect();
        let place = *places.entry(named).or_insert_with_key(|named| {
            let line = CodeLine {
                frame: shown,
                callers: named.iter().skip(1).cloned().collect(),
                stack: frames.iter().take(FRAMES_MAX).cloned().collect(),
            };
            lines.push((line, S::default()));
            lines.len() - 1
        });
        add(&mut lines[place].1, row);
    }
    lines
}
