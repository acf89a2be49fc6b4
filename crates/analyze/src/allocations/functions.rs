//! What a process holds by function, whatever the line, for comparisons; and what may be of any function,
//! because its stack does not tell.

use super::frame::StackFrame;
use super::line::by_line;
use super::moments::Moments;
use super::resident::Stacks;
use memtrace_model::FrameKind;
use std::collections::BTreeMap;

/// The loop of CPython that runs frames of Python, and parts of it that compilers place elsewhere.
const EVALUATES: &str = "_PyEval_EvalFrameDefault";

/// What a process holds by function.
#[derive(Clone, Debug, Default)]
pub(crate) struct Functions {
    /// By the function that is named.
    pub(crate) named: BTreeMap<String, Function>,
    /// Of stacks in which Python runs, but whose frames of Python were not read: it was not known yet, as in
    /// the first moments of a process. By the native function that they would be named after.
    pub(crate) unread: BTreeMap<String, Function>,
    /// What has no stack at all: of any function.
    pub(crate) unnamed: Moments,
}

/// What one function holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Function {
    /// Whether it is one of Python.
    pub(crate) is_python: bool,
    pub(crate) held: Moments,
}

impl Functions {
    /// Of what was held by stack.
    pub(super) fn of(held: BTreeMap<i64, Moments>, stacks: &Stacks) -> Self {
        let mut all = Self::default();
        let parted = held.into_iter().map(|(stack_id, held)| {
            let frames = stacks.get(&stack_id).map_or(&[][..], Vec::as_slice);
            (stack_id, (is_unread(frames), held))
        });
        // A native function can be reached from a frame of Python and otherwise.
        let lines = by_line(parted, stacks, |sums: &mut [Option<Moments>; 2], row| {
            let (is_unread, held) = row;
            sums[usize::from(is_unread)]
                .get_or_insert_default()
                .add(&held);
        });
        for (line, [read, unread]) in lines {
            let Some(frame) = &line.frame else {
                all.unnamed.add(&read.unwrap_or_default());
                continue;
            };
            let is_python = frame.is_python();
            for (held, functions) in [(read, &mut all.named), (unread, &mut all.unread)] {
                if let Some(held) = held {
                    let function = functions.entry(line.function()).or_default();
                    function.is_python = is_python;
                    function.held.add(&held);
                }
            }
        }
        all
    }

    /// Whether any frame of Python was read.
    pub(crate) fn has_python(&self) -> bool {
        self.named.values().any(|function| function.is_python)
    }

    /// What may be of any function of Python.
    pub(crate) fn unread(&self) -> Moments {
        let mut all = Moments::default();
        for function in self.unread.values() {
            all.add(&function.held);
        }
        all
    }
}

/// Whether Python runs in a stack and none of its frames are there.
fn is_unread(frames: &[StackFrame]) -> bool {
    let evaluates = |frame: &StackFrame| {
        let name = frame.row.function.as_deref();
        let is_native = frame.row.kind == Some(FrameKind::Native);
        is_native && name.is_some_and(|name| name.starts_with(EVALUATES))
    };
    !frames.iter().any(StackFrame::is_python) && frames.iter().any(evaluates)
}
