//! `cow`: how much processes that share memory since a fork can have copied.

use crate::model::table::table;
use crate::model::{BootNs, Bytes, Upid, WallNs};

table! {
    /// Copy-on-write: a fork copies no page, whoever writes to one does, and no counter of RSS moves. What tells is page faults that add no memory: an upper bound, since those on memory that was given back meanwhile are among them. A look twice a second; a step of 1 MiB or more has a row.
    #[derive(Copy)]
    pub struct CowRow in "cow" {
        /// Wall-clock time (UTC).
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME.
        boot_ns: BootNs,
        /// One of those that can share anonymous pages: the copies that forks made of one program.
        upid: Upid,
        /// What all of them can have copied so far: their minor page faults while each held 16 MiB or more, times the page size, less what their RSS grew by between two looks. Counts up.
        copied_bytes: Bytes,
        /// The look before: by then it had not grown by 1 MiB since the last row.
        unchanged_until_boot_ns: BootNs,
    }
}
