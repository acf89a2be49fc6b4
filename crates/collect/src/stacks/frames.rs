//! A frame of a stack, and how frames of Python and of machine code make one stack.

use super::python::PythonLine;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Frame {
    Python(PythonLine),
    Native(Code),
}

/// A place in machine code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Code {
    /// The file, by its place among all; none for code that no file is mapped for.
    pub(super) file: Option<usize>,
    /// The address as the file counts, or in memory where there is none.
    pub(super) address: u64,
    /// The function that a program has made as it runs, which begins there.
    pub(super) made: Option<Arc<str>>,
}

/// A frame of machine code, and what it is to the interpreter.
#[derive(Clone, Debug)]
pub(super) struct Native {
    pub(super) code: Code,
    pub(super) role: NativeRole,
}

/// What a frame of machine code is to the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NativeRole {
    /// The loop that runs frames of Python.
    Evaluates,
    /// Something else of the interpreter.
    OfInterpreter,
    Other,
}

/// A frame of Python, and whether the loop that runs it was entered with it.
#[derive(Clone, Debug)]
pub(super) struct Python {
    pub(super) line: Option<Arc<PythonLine>>,
    pub(super) is_entry: bool,
}

/// One stack of both, innermost first. Each frame of the interpreter's loop stands for the frames
/// of Python up to the one that it was entered with; what else the interpreter does between frames
/// of Python is left out. Where unwinding ended before the loop, the rest of Python follows. A loop none of
/// whose frames could be read, as of a process that has ended, stays: it shows that they are missing.
pub(super) fn mixed(native: &[Native], python: &[Python]) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut rest = python.iter();
    let mut has_python = false;
    let push_python = |one: &Python, frames: &mut Vec<Frame>| {
        if let Some(line) = &one.line {
            frames.push(Frame::Python((**line).clone()));
        }
    };
    for one in native {
        match one.role {
            NativeRole::Evaluates if rest.len() > 0 => {
                has_python = true;
                let before = frames.len();
                for frame in rest.by_ref() {
                    push_python(frame, &mut frames);
                    if frame.is_entry {
                        break;
                    }
                }
                if frames.len() == before {
                    frames.push(Frame::Native(one.code.clone()));
                }
            }
            NativeRole::OfInterpreter if has_python => {}
            _ => frames.push(Frame::Native(one.code.clone())),
        }
    }
    for frame in rest {
        push_python(frame, &mut frames);
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(address: u64, role: NativeRole) -> Native {
        let code = Code {
            file: Some(0),
            address,
            made: None,
        };
        Native { code, role }
    }

    fn python(line: u32, is_entry: bool) -> Python {
        let line = PythonLine {
            file: "a.py".into(),
            function: "f".into(),
            line,
        };
        Python {
            line: Some(Arc::new(line)),
            is_entry,
        }
    }

    fn reported(frames: &[Frame]) -> Vec<u64> {
        let number = |frame: &Frame| match frame {
            Frame::Python(line) => u64::from(line.line),
            Frame::Native(code) => code.address,
        };
        frames.iter().map(number).collect()
    }

    #[test]
    fn each_loop_of_the_interpreter_stands_for_the_frames_it_runs() {
        let native = [
            native(1_000, NativeRole::Other),
            native(1_001, NativeRole::OfInterpreter),
            native(1_002, NativeRole::Evaluates),
            native(1_003, NativeRole::OfInterpreter),
            native(1_004, NativeRole::Other),
            native(1_005, NativeRole::Evaluates),
            native(1_006, NativeRole::Other),
        ];
        let python = [python(1, false), python(2, true), python(3, true)];
        let frames = mixed(&native, &python);
        assert_eq!(reported(&frames), [1_000, 1_001, 1, 2, 1_004, 3, 1_006]);
    }

    #[test]
    fn a_loop_whose_frames_were_not_read_stays() {
        let native = [
            native(1_000, NativeRole::OfInterpreter),
            native(1_001, NativeRole::Evaluates),
            native(1_002, NativeRole::Evaluates),
        ];
        let unread = Python {
            line: None,
            is_entry: true,
        };
        let frames = mixed(&native, &[unread.clone(), unread.clone()]);
        assert_eq!(reported(&frames), [1_000, 1_001, 1_002]);
        let frames = mixed(&native, &[python(1, true), unread]);
        assert_eq!(reported(&frames), [1_000, 1, 1_002]);
    }

    #[test]
    fn where_unwinding_ended_early_python_follows() {
        let leaf = [native(1_000, NativeRole::Other)];
        let frames = mixed(&leaf, &[python(1, true), python(2, true)]);
        assert_eq!(reported(&frames), [1_000, 1, 2]);
        assert_eq!(reported(&mixed(&[], &[python(1, false)])), [1]);
        assert_eq!(reported(&mixed(&leaf, &[])), [1_000]);
    }
}
