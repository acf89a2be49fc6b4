//! One process as far as it is known: its row, its peak, and how it ended.

use super::images::Image;
use crate::Share;
use memtrace_model::{BootNs, Bytes, PeakSource, ProcessRow, Record};
use std::sync::Arc;

/// A peak of RSS and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// The peak, in bytes.
    pub bytes: Bytes,
    /// Where it comes from.
    pub source: PeakSource,
    /// Bound on its error; `None` when there is no bound.
    pub error: Option<Bytes>,
    /// When it was reached; `None` when only a high-water mark knows.
    pub at: Option<BootNs>,
}

/// A process that is alive, or whose end has not been written yet.
#[derive(Debug)]
pub struct Process {
    pub(super) row: ProcessRow,
    /// Changed since it was written.
    pub(super) is_dirty: bool,
    /// The peak rose since it was written; alone it waits until peaks are due.
    pub(super) has_new_peak: bool,
    /// On the list of processes to look at when changes are written.
    pub(super) is_listed: bool,
    pub(super) image: Image,
    /// Living processes that it forked.
    pub(super) child_count: usize,
    /// How many execs of it are noted.
    pub(super) execs: Option<u32>,
    /// What its names take, and whether they were cut for that since it was written.
    pub(super) names: Share,
    pub(super) were_names_cut: bool,
}

/// So much of a name is kept where there is no room for more.
pub const NAME_BYTES_KEPT: usize = 256;

impl Process {
    /// The row as it stands.
    pub fn row(&self) -> &ProcessRow {
        &self.row
    }

    /// The row, to be changed; it will be written again.
    pub fn row_mut(&mut self) -> &mut ProcessRow {
        self.is_dirty = true;
        &mut self.row
    }

    /// The program image it runs: another one after exec, the parent's after fork.
    pub fn image(&self) -> u64 {
        self.image.id
    }

    /// How many execs of it are noted; `None` where it was found running a program, and the
    /// number of that is not known.
    pub fn execs(&self) -> Option<u32> {
        self.execs
    }

    /// What is known of it is of after so many execs.
    pub fn set_execs(&mut self, execs: u32) {
        self.execs = Some(execs);
    }

    /// Takes room for its names, and cuts them where there is none: at the latest before they
    /// are written, and at once by whoever copies them.
    pub fn keep_names(&mut self) {
        let ProcessRow { cmdline, exe, .. } = &mut self.row;
        let taken = |name: &Option<Arc<str>>| name.as_ref().map_or(0, |name| name.len());
        if self.names.resize(taken(cmdline) + taken(exe)) {
            return;
        }
        self.were_names_cut |= [cut(cmdline), cut(exe)].contains(&true);
        self.names.force(taken(cmdline) + taken(exe));
    }

    pub(super) fn write(&mut self, out: &mut Vec<Record>) {
        self.is_dirty = false;
        self.has_new_peak = false;
        out.push(self.row.clone().into());
    }

    /// Raises the peak to `peak` where that is higher, or equally high and better known.
    /// Written when peaks are due, or with the process's end: peaks rise often.
    pub fn raise_peak(&mut self, peak: Peak) {
        let known = self.row.peak_rss_bytes;
        let is_better = match known {
            None => true,
            Some(bytes) if peak.bytes != bytes => peak.bytes > bytes,
            Some(_) => {
                (self.row.peak_rss_boot_ns.is_none() && peak.at.is_some())
                    || (self.row.peak_error_bytes.is_none() && peak.error.is_some())
            }
        };
        if is_better {
            self.set_peak(peak);
        }
    }

    /// It leaves the address space that fork gave it for one of its own. Of what that held
    /// counts only what it grew by since the fork: the rest are its parent's pages.
    pub(super) fn leave_copy(&mut self) {
        self.row.inherited_anon_bytes = Some(Bytes(0));
        let inherited = self.row.inherited_rss_bytes.replace(Bytes(0));
        let Some((peak, inherited)) = self.row.peak_rss_bytes.zip(inherited) else {
            return;
        };
        self.row.peak_rss_bytes = Some((peak - inherited).max(Bytes(0)));
        self.is_dirty = true;
    }

    pub(super) fn set_peak(&mut self, peak: Peak) {
        self.has_new_peak = true;
        self.row.peak_rss_bytes = Some(peak.bytes);
        self.row.peak_rss_source = Some(peak.source);
        self.row.peak_error_bytes = peak.error;
        self.row.peak_rss_boot_ns = peak.at;
    }
}

/// Cuts a name between characters. Answers whether it was longer.
fn cut(name: &mut Option<Arc<str>>) -> bool {
    let Some(long) = name.as_ref().filter(|name| name.len() > NAME_BYTES_KEPT) else {
        return false;
    };
    let mut end = NAME_BYTES_KEPT;
    while !long.is_char_boundary(end) {
        end -= 1;
    }
    *name = long.get(..end).map(Arc::from);
    true
}

/// SIGKILL, on every system that memtrace runs on.
const SIGKILL: i32 = 9;

/// Whether the OOM killer may have ended it: its means is SIGKILL. One that it chose while
/// it was ending by itself did not end by it.
pub(super) fn may_be_oom_killed(row: &ProcessRow) -> bool {
    row.exit_code.is_none() && row.exit_signal.is_none_or(|signal| signal == SIGKILL)
}

/// Takes a wait status apart.
pub(super) fn note_status(row: &mut ProcessRow, status: i32) {
    let signal = status & 0x7f;
    if signal == 0 {
        row.exit_code = Some((status >> 8) & 0xff);
    } else {
        row.exit_signal = Some(signal);
    }
    if !may_be_oom_killed(row) {
        row.oom_killed = row.oom_killed.map(|_| false);
    }
}
