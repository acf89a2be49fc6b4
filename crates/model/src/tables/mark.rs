//! `mark`: moments and phases that somebody named.

use crate::labels;
use crate::table::table;
use crate::{BootNs, Tgid, Upid, WallNs};

table! {
    /// A moment that was named, the start or end of a named phase, or a kill: by the traced program, by a person, or by a line of its output.
    pub struct MarkRow in "mark" {
        /// Wall-clock time (UTC).
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME: the sender's own where it reported one that can be true, else the arrival.
        boot_ns: BootNs,
        /// The process that the mark belongs to; null when it is not part of the recording, as the memtrace mark of a shell.
        upid: Option<Upid>,
        /// Process id of the sender; null when unknown.
        tgid: Option<Tgid>,
        /// The mark or phase.
        name: String,
        /// What it is.
        kind: Option<MarkKind>,
        /// Pairs an end with its start within one process; null when they go by name, the newest first.
        span: Option<i64>,
        /// Where it came from.
        source: Option<MarkSource>,
        /// Attributes, a JSON object; null when there are none.
        attributes: Option<String>,
    }
}

labels! {
    /// What a mark is.
    pub enum MarkKind {
        /// A moment, without a length.
        Instant = "instant",
        /// A phase begins.
        Begin = "begin",
        /// A phase ends.
        End = "end",
        /// The process is about to reset its high-water mark, which stood at `hiwater_bytes` of the attributes.
        Peak = "peak",
        /// A log line says that a process was killed, or will be at once; the attributes say by whom, why, and whom.
        Kill = "kill",
    }
}

labels! {
    /// Where a mark came from.
    pub enum MarkSource {
        /// A message to the recording's socket (MEMTRACE_SOCKET).
        Socket = "socket",
        /// A line that the command wrote to stdout or stderr (`--marks-from-output`).
        Output = "output",
        /// A line of a log file (`--marks-from`).
        File = "file",
        /// The file of a load generator (`memtrace import requests`).
        Import = "import",
    }
}
