//! One process of the recording: turns what the platform lists into rows.

use super::footprint::{Footprint, footprint};
use super::listed::{comm, tgid_of, title};
use crate::{Birth, Pass, Peak, ProcessTable, exit_row};
use ::sysinfo::Process;
use memtrace_model::{
    BootNs, Bytes, FirstSeenBy, MemRow, MemSource, PeakSource, Tgid, TitleRow, TitleSource, Upid,
    WallNs,
};
use std::path::Path;
use std::sync::Arc;

/// sysinfo gives start times in whole seconds, and on Linux counts them from a boot time
/// that it also knows in whole seconds only.
pub(super) const START_TOLERANCE_NS: i64 = 2_000_000_000;

/// A process of the recording that is alive.
#[derive(Debug)]
pub(super) struct Member {
    upid: Upid,
    pub(super) started_s: u64,
    comm: String,
    title: Option<String>,
    last: Option<PolledBytes>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PolledBytes {
    rss: Option<Bytes>,
    footprint: Option<Bytes>,
}

impl Member {
    /// Starts to observe a process that has been entered into the process table as `upid`.
    pub(super) fn new(upid: Upid, process: &Process) -> Self {
        Self {
            upid,
            started_s: process.start_time(),
            comm: comm(process),
            title: title(process),
            last: None,
        }
    }

    /// Ends it: nothing is held from now on.
    pub(super) fn end(&self, pass: &mut Pass<'_>) {
        if self.last.is_some() {
            pass.write(exit_row(self.upid, pass.tick.boot, pass.tick));
        }
        pass.table.end(self.upid, pass.tick.boot, None);
    }

    /// Writes what the platform tells about the program into the row of `process`.
    pub(super) fn describe(&self, process: &Process, table: &mut ProcessTable) {
        let Some(known) = table.process_mut(self.upid) else {
            return;
        };
        let row = known.row_mut();
        row.comm.clone_from(&self.comm);
        let exe = process.exe().map(Path::to_string_lossy);
        row.exe = exe.as_deref().map(Arc::from);
        row.cmdline = self.title.as_deref().map(Arc::from);
        #[cfg(unix)]
        {
            row.uid = process.user_id().map(|uid| i64::from(**uid));
        }
    }

    pub(super) fn observe(&mut self, tgid: Tgid, process: &Process, pass: &mut Pass<'_>) {
        let footprint = footprint(tgid);
        // 0 where the platform does not let us see it.
        let rss = Some(process.memory()).filter(|rss| *rss > 0);
        let amounts = PolledBytes {
            rss: rss.and_then(|rss| i64::try_from(rss).ok()).map(Bytes),
            footprint: footprint.map(|footprint| footprint.now),
        };
        if let Some(peak) = peak(amounts, footprint, pass.tick.boot) {
            pass.table.raise_peak(self.upid, peak);
        }
        let source = match self.last {
            None => MemSource::First,
            Some(last) if last != amounts => MemSource::Sysinfo,
            Some(_) if pass.tick.is_keyframe => MemSource::Keyframe,
            Some(_) => return,
        };
        self.last = Some(amounts);
        pass.write(MemRow {
            ts: pass.tick.wall().whole_ms(),
            boot_ns: pass.tick.boot,
            upid: self.upid,
            rss_bytes: amounts.rss,
            footprint_bytes: amounts.footprint,
            source: Some(source),
            ..MemRow::default()
        });
    }

    /// Notes names that were read again. A title that could not be read is no change. A
    /// title and the command line of another program can't be distinguished here.
    pub(super) fn check_names(&mut self, process: &Process, pass: &mut Pass<'_>) {
        let (comm, title) = (comm(process), title(process));
        if comm == self.comm && (title.is_none() || title == self.title) {
            return;
        }
        self.comm = comm;
        self.title = title.or(self.title.take());
        self.write_title(TitleSource::Poll, pass);
        self.describe(process, pass.table);
    }

    pub(super) fn write_title(&self, source: TitleSource, pass: &mut Pass<'_>) {
        pass.write(TitleRow {
            ts: pass.tick.wall(),
            boot_ns: pass.tick.boot,
            upid: self.upid,
            comm: self.comm.clone(),
            title: self.title.as_deref().map(Arc::from),
            role: None,
            source: Some(source),
        });
    }
}

/// The lifetime maximum of the footprint where the platform keeps one; else the highest
/// RSS that a poll saw.
fn peak(amounts: PolledBytes, footprint: Option<Footprint>, now: BootNs) -> Option<Peak> {
    Some(match footprint {
        Some(footprint) => Peak {
            bytes: footprint.highest,
            source: PeakSource::Footprint,
            error: None,
            at: None,
        },
        None => Peak {
            bytes: amounts.rss?,
            source: PeakSource::Poll,
            error: None,
            at: Some(now),
        },
    })
}

/// Gives a new process its identity, or finds the one that the session gave it.
pub(super) fn enter(
    tgid: Tgid,
    process: &Process,
    seen_by: FirstSeenBy,
    pass: &mut Pass<'_>,
) -> Upid {
    let started_ns = i64::try_from(process.start_time())
        .unwrap_or(0)
        .saturating_mul(1_000_000_000);
    let birth = Birth {
        tgid,
        start: pass.tick.clock.to_boot(WallNs(started_ns)),
        seen_by,
        parent: None,
        comm: comm(process),
    };
    let (parent, now) = (process.parent().map(tgid_of), pass.tick.boot);
    pass.table
        .enter_polled(birth, parent, START_TOLERANCE_NS, now)
}
