//! OOM kills: the probe tells who and when, the kernel log tells which limit was hit.

use crate::Pass;
use crate::oom::{self, KmsgReader};
use memtrace_model::{BootNs, DurationNs, OomRow};

/// The log's lines stand around the probe's event within one call in the kernel; after
/// this long they are not going to come.
const PATIENCE: DurationNs = DurationNs(300_000_000);

/// Kills that the log has not completed yet.
pub(super) struct Kills {
    /// `None` when the log can't be read: limits stay unknown.
    log: Option<KmsgReader>,
    waiting: Vec<OomRow>,
    logged: Vec<(BootNs, OomRow)>,
}

impl Kills {
    pub(super) fn new() -> Self {
        Self {
            log: KmsgReader::open().ok(),
            waiting: Vec::new(),
            logged: Vec::new(),
        }
    }

    /// Whether the kernel log is read.
    pub(super) fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Takes a kill that the probe saw.
    pub(super) fn note(&mut self, kill: OomRow) {
        self.waiting.push(kill);
    }

    /// Writes the kills that the log has completed, and those it is too late for. A kill
    /// that only the log knows is written too: its event was lost, or the probe is not
    /// available.
    pub(super) fn write(&mut self, is_last: bool, pass: &mut Pass<'_>) {
        if let Some(log) = &mut self.log {
            match log.poll(pass.tick.boot) {
                Ok(kills) => self
                    .logged
                    .extend(kills.into_iter().map(|kill| (pass.tick.boot, kill))),
                // Without its details from here on.
                Err(_) => self.log = None,
            }
        }
        let has_log = self.log.is_some();
        let is_late = |since: BootNs| is_last || pass.tick.boot - since > PATIENCE;
        let logged = &mut self.logged;
        self.waiting.retain_mut(|row| {
            let found = logged
                .iter()
                .position(|(_, kill)| kill.victim_tgid == row.victim_tgid);
            if let Some(index) = found {
                let (_, kill) = logged.swap_remove(index);
                *row = oom::complete(std::mem::take(row), kill);
            }
            let is_done = found.is_some() || !has_log || is_late(row.boot_ns);
            if is_done {
                pass.write(row.clone());
            }
            !is_done
        });
        let (late, early) = logged.drain(..).partition(|(since, _)| is_late(*since));
        self.logged = early;
        let late: Vec<(BootNs, OomRow)> = late;
        for (_, kill) in late {
            let victim = pass.table.note_oom_kill(kill.victim_tgid, None);
            pass.write(oom::logged(kill, victim, pass.tick));
        }
    }
}
