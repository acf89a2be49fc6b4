//! What is known of a recording for whoever puts something beside it.

use super::processes::ProcessTracks;
use crate::process::Process;
use crate::process_table::ProcessTable;
use memtrace_model::clocks::Found;
use memtrace_model::{BootNs, Clock, Clocks, Tgid, WallNs};
use memtrace_perfetto::Track;

/// A recording that was written into a trace.
pub struct Recorded<'a> {
    pub(super) table: &'a ProcessTable,
    pub(super) tracks: &'a ProcessTracks,
    pub(super) span: (BootNs, BootNs),
    pub(super) clocks: Clocks,
}

impl Recorded<'_> {
    /// Its start and its end.
    pub fn span(&self) -> (BootNs, BootNs) {
        self.span
    }

    /// When a wall time was; `None` where no clock was read.
    pub fn find(&self, wall: WallNs) -> Option<Found> {
        self.clocks.find(Clock::Wall, wall.0)
    }

    /// The process that had an id at a time, by the id of the machine or that of its own pid
    /// namespace.
    ///
    /// # Errors
    /// Why it is not known which that is: a trace does not tell whose id it has.
    pub fn process(&self, pid: i64, at: BootNs) -> Result<(Tgid, Track), &'static str> {
        let lived = |process: &Process| {
            let is_over = process.exit_boot_ns().is_some_and(|exit| exit < at);
            process.start.boot_ns <= at && !is_over
        };
        let is = |tgid: Option<Tgid>| tgid.is_some_and(|tgid| i64::from(tgid.0) == pid);
        let processes = self.table.processes.iter().enumerate();
        let mut living = processes
            .filter(|(_, process)| lived(process) && (is(process.tgid) || is(process.ns_tgid)));
        let unknown = "its process is not recorded";
        let (place, process) = living.next().ok_or(unknown)?;
        if living.next().is_some() {
            return Err("several processes had its process id, in containers or outside");
        }
        let found = process.tgid.zip(self.tracks.get(place));
        found.ok_or(unknown)
    }
}
