//! What a process has open of shared memory, and a budget for looking.

use super::backings::Backings;
use super::budget::Budget;
use super::key::Open;
use super::mappings::{Backing, Device};
use super::objects::Objects;
use super::subject::Subject;
use crate::collect::stop::{Stop, lock};
use crate::host::clock;
use crate::model::{BootNs, DurationNs};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::Receiver;

/// A look at one process that can soon be gone takes no longer than this.
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

    /// Looks at everybody who is told of, each as soon as the budget allows, until nobody tells any more
    /// or the order to stop comes.
    pub(super) fn look_at_each(
        mut self,
        told: &Receiver<Subject>,
        objects: &Mutex<Objects>,
        stop: &Stop,
    ) {
        for subject in told {
            if stop.rest(self.next - clock::boot()).is_err() {
                return;
            }
            let before = clock::thread_cpu();
            let open = self.of(&subject, clock::boot() + DurationNs(AT_ONCE_NS));
            lock(objects).note_open(&subject, &open);
            self.spend(before);
        }
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
    use std::sync::mpsc::channel;

    #[test]
    fn a_file_of_a_tmpfs_that_is_only_written_to_is_seen_open() {
        let (proc, _file) = opener(7);
        let mut files = OpenFiles::new(proc.path(), 1.0);
        let open = files.of(&subject(7), BootNs(i64::MAX));
        let ways: Vec<_> = open.values().collect();
        assert_eq!(ways, [&proc.path().join("7/fd/3")]);
    }

    #[test]
    fn who_is_told_of_is_looked_at_also_after_the_budget_was_spent() {
        let (proc, _file) = opener(7);
        let mut files = OpenFiles::new(proc.path(), 1.0);
        let objects = Mutex::new(Objects::new(proc.path(), proc.path()));
        let (tell, told) = channel();
        tell.send(subject(8)).unwrap();
        tell.send(subject(7)).unwrap();
        drop(tell);
        let rest = DurationNs(20_000_000);
        let begin = clock::boot();
        files.next = begin + rest;
        files.look_at_each(&told, &objects, &Stop::default());
        assert_eq!(lock(&objects).first_openers(), [Some(Upid(1))]);
        assert!(clock::boot() - begin >= rest);
    }

    #[test]
    fn nobody_is_waited_for_at_the_end() {
        let (proc, _file) = opener(7);
        let mut files = OpenFiles::new(proc.path(), 1.0);
        let objects = Mutex::new(Objects::new(proc.path(), proc.path()));
        let (tell, told) = channel();
        tell.send(subject(7)).unwrap();
        files.next = BootNs(i64::MAX);
        let stop = Stop::default();
        stop.set();
        files.look_at_each(&told, &objects, &stop);
        assert_eq!(lock(&objects).first_openers(), []);
    }
}
