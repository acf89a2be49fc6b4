//! `title`: names of processes over time.

use crate::labels;
use crate::table::table;
use crate::{BootNs, Upid, WallNs};
use std::sync::Arc;

table! {
    /// A name or title that a process took. Holds until the next row of the same upid.
    pub struct TitleRow in "title" {
        /// Wall-clock time (UTC).
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME.
        boot_ns: BootNs,
        /// The process that took it.
        upid: Upid,
        /// The kernel's name for it, cut at 15 bytes.
        comm: String,
        /// The argument area at that moment: the command line, or the title that the program wrote over it (setproctitle). Null when it could not be read.
        title: Option<Arc<str>>,
        /// What the process is from here on, as `process.role` in its words; a title that says less keeps the role that the process had. Null when no rule knows it.
        role: Option<String>,
        /// What caused the row.
        source: Option<TitleSource>,
    }
}

labels! {
    /// What showed a name.
    pub enum TitleSource {
        /// The first sight of the process.
        First = "first",
        /// exec of a new program.
        Exec = "exec",
        /// A change of comm (prctl PR_SET_NAME, or a write to /proc/PID/comm).
        Rename = "rename",
        /// A poll found it changed.
        Poll = "poll",
    }
}

/// A title without what pads it: a rewritten argument area ends in NULs, or in spaces by
/// setproctitle.
pub fn trim_title(title: &str) -> &str {
    title.trim_matches(|c: char| c == '\0' || c.is_whitespace())
}
