//! `cow`: how much processes that share memory since a fork can have copied.

use crate::model::table::table;
use crate::model::{BootNs, Bytes, Upid, WallNs};

table! {
    /// Copy-on-write: a fork copies no page, whoever writes to one does, and no counter of RSS moves. What tells is page faults that add no memory: those on memory that was given back meanwhile are among them, and growth by huge pages or of mapped files, where a fault brings many pages, can hide some. A look twice a second, more seldom where the budget is small; a step of 1 MiB or more has a row.
    #[derive(Copy)]
    pub struct CowRow in "cow" {
        /// Wall-clock time (UTC).
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME.
        boot_ns: BootNs,
        /// The process, one of several that forks made of one program.
        upid: Upid,
        /// What it can have copied: its minor page faults times the page size, less what its RSS grew by between two looks; since its start where that was recorded, else since the first look. Counted of those that once held 16 MiB, while others can share with them. Counts up, from 0 again after an exec.
        copied_bytes: Bytes,
        /// The look before, or the process's start: by then it had not grown by 1 MiB since the last row.
        unchanged_until_boot_ns: BootNs,
    }
}
