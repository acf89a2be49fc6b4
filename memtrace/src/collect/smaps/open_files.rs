//! What a process has open of shared memory, looked up within a budget.

use super::backings::Backings;
use super::budget::Budget;
use super::key::Open;
use super::mappings::{Backing, Device};
use super::objects::Objects;
use super::subject::Subject;
use crate::collect::stop::lock;
use crate::host::clock;
use crate::model::{BootNs, DurationNs};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A look that can't wait goes on for no longer than this.
const AT_ONCE_NS: i64 = 50_000_000;
/// What may be spent is saved up for so long: enough for some hundred processes at once.
const SAVED_NS: f64 = 30e9;

/// Looks at what processes have open.
#[derive(Debug)]
pub(super) struct OpenFiles {
    root: PathBuf,
    backings: Backings,
    budget: Budget,
    /// Until then the budget is used up.
    next: BootNs,
}

impl OpenFiles {
    /// `root` is where procfs is; `share` of one core is what looks may take.
    pub(super) fn new(root: &Path, share: f64) -> Self {
        Self {
            root: root.to_owned(),
            backings: Backings::new(root),
            budget: Budget::new(share, SAVED_NS, clock::boot()),
            next: BootNs(0),
        }
    }

    /// Whether the budget has something left.
    pub(super) fn may_look(&self, now: BootNs) -> bool {
        now >= self.next
    }

    /// Takes what was used since then from what may be.
    pub(super) fn spend(&mut self, before: DurationNs) {
        let cost = DurationNs(clock::thread_cpu().0 - before.0);
        let now = clock::boot();
        if let Some(rest) = self.budget.spend(cost, now) {
            self.next = now + rest;
        }
    }

    /// Looks at these now, since they can soon be gone.
    pub(super) fn look_at_once(&mut self, subjects: &[Subject], objects: &Mutex<Objects>) {
        let now = clock::boot();
        if subjects.is_empty() || !self.may_look(now) {
            return;
        }
        let before = clock::thread_cpu();
        lock(objects).list(now);
        for subject in subjects {
            let open = self.of(subject, now + DurationNs(AT_ONCE_NS));
            lock(objects).note_open(subject, &open);
        }
        self.spend(before);
    }

    /// What a process has open of shared memory, as far as it is known until then.
    pub(super) fn of(&mut self, subject: &Subject, until: BootNs) -> Open {
        let mut open = Open::new();
        let dir = self.root.join(format!("{}/fd", subject.tgid));
        for descriptor in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if clock::boot() >= until {
                break;
            }
            let way = descriptor.path();
            let Ok(target) = std::fs::read_link(&way) else {
                continue;
            };
            if !target.is_absolute() {
                continue;
            }
            // Of a file system that does not answer, what is known of the file will do.
            let flags = AtFlags::STATX_DONT_SYNC;
            let Ok(known) = rustix::fs::statx(CWD, &way, flags, StatxFlags::BASIC_STATS) else {
                continue;
            };
            let device = Device {
                major: known.stx_dev_major,
                minor: known.stx_dev_minor,
            };
            let path = target.to_string_lossy();
            if let Some(Backing::Tmpfs | Backing::KernelTmpfs) =
                self.backings.of_open_file(device, &way, &path)
            {
                open.insert((device, known.stx_ino), way);
            }
        }
        open
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{opener, subject};
    use super::*;
    use crate::model::Upid;

    #[test]
    fn a_file_of_a_tmpfs_that_is_only_written_to_is_seen_open() {
        let (proc, _file) = opener(7);
        let mut files = OpenFiles::new(proc.path(), 1.0);
        let open = files.of(&subject(7), BootNs(i64::MAX));
        let ways: Vec<_> = open.values().collect();
        assert_eq!(ways, [&proc.path().join("7/fd/3")]);
        let objects = Mutex::new(Objects::new(proc.path(), proc.path()));
        files.look_at_once(&[subject(7)], &objects);
        assert_eq!(lock(&objects).first_openers(), [Some(Upid(1))]);
    }

    #[test]
    fn nobody_is_looked_at_while_the_budget_is_spent() {
        let (proc, _file) = opener(7);
        let mut files = OpenFiles::new(proc.path(), 1e-9);
        let objects = Mutex::new(Objects::new(proc.path(), proc.path()));
        files.look_at_once(&[subject(8)], &objects);
        assert!(!files.may_look(clock::boot()));
        files.look_at_once(&[subject(7)], &objects);
        assert_eq!(lock(&objects).first_openers(), []);
    }
}
