//! `stack`: the frames of stacks that growth was sampled at, or that torch allocated at.

use crate::labels;
use crate::table::table;
use crate::{BootNs, WallNs};

table! {
    /// A frame of a stack that memory was touched at (`record --stacks`) or that torch allocated at (`memtrace import torch`). The rows of one stack have the same `stack_id`, and are written when it is first seen. Frames of Python stand where the interpreter's own frames are.
    #[derive(Eq, Hash)]
    pub struct StackRow in "stack" {
        /// Wall-clock time (UTC) when the stack was first seen.
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME when the stack was first seen.
        boot_ns: BootNs,
        /// Which stack: unique in this recording.
        stack_id: i64,
        /// Place of the frame: 0 is the innermost.
        depth: i64,
        /// What the frame is of.
        kind: Option<FrameKind>,
        /// The function: Python's qualified name, or the symbol. Null where no symbol is known.
        function: Option<String>,
        /// The source file of Python, or the library or program. Null for code that no file is mapped for.
        file: Option<String>,
        /// Line in the source file. Null when unknown, and for sampled native frames.
        line: Option<i64>,
        /// Build id of the library or program in hexadecimal digits; null without one.
        build_id: Option<String>,
        /// Of a native frame the address as the library or program itself counts (with `build_id` enough to name it elsewhere); the address in memory where no file is mapped.
        address: Option<i64>,
    }
}

labels! {
    /// What a frame is of.
    pub enum FrameKind {
        /// A function of Python.
        Python = "python",
        /// Machine code of a program or a library.
        Native = "native",
    }
}
