//! What is known of a recording for whoever puts something beside it.

use super::processes::ProcessTracks;
use crate::analyze::clock::RunClock;
use crate::analyze::process::Process;
use crate::analyze::process_table::ProcessTable;
use crate::model::{BootNs, Tgid, WallNs};
use crate::perfetto::Track;

/// A recording that was written into a trace.
pub(crate) struct Recorded<'a> {
    pub(super) table: &'a ProcessTable,
    pub(super) tracks: &'a ProcessTracks,
    pub(super) span: (BootNs, BootNs),
    pub(super) clock: RunClock,
}

impl Recorded<'_> {
    /// Its begin and its end.
    pub(crate) fn span(&self) -> (BootNs, BootNs) {
        self.span
    }

    /// When a wall time was; `None` where no clock was read.
    pub(crate) fn to_boot(&self, wall: WallNs) -> Option<BootNs> {
        self.clock.to_boot(wall)
    }

    /// The process that had an id at a time, by the id of the machine or that of its own pid
    /// namespace; `None` where it is not recorded, and where several had that one in namespaces.
    pub(crate) fn process(&self, pid: i64, at: BootNs) -> Option<(Tgid, Track)> {
        let lived = |process: &Process| {
            let is_over = process.exit_boot_ns().is_some_and(|exit| exit < at);
            process.start.boot_ns <= at && !is_over
        };
        let is = |tgid: Option<Tgid>| tgid.is_some_and(|tgid| i64::from(tgid.0) == pid);
        let processes = self.table.processes.iter().enumerate();
        let living = processes.filter(|(_, process)| lived(process));
        let mut own = living.clone().filter(|(_, process)| is(process.tgid));
        let mut inner = living.filter(|(_, process)| is(process.ns_tgid));
        let (place, process) = match own.next() {
            Some(found) => found,
            None => inner.next().filter(|_| inner.next().is_none())?,
        };
        Some((process.tgid?, self.tracks.get(place)?))
    }
}
