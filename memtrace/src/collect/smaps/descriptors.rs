//! Who has shared memory open without mapping it: a process that writes to a file of a tmpfs
//! grows by nothing, so no reading of its memory is due when the file does.
//!
//! When the shared memory of the machine has moved, everybody's descriptors are looked at, some
//! at a time. A writer can fill its group and be killed within a second, so this waits for no
//! reading of memory: it has a small budget of its own.

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

/// A smaller move of the machine's shared memory fills no group.
const MOVED_BYTES: u64 = 16 << 20;
/// On a large machine so much comes and goes all the time, as a part of what there is.
const MOVED_PART: u64 = 32;
/// One look goes on for no longer than this.
const LOOK_NS: i64 = 5_000_000;
/// One that can't wait, for no longer than this.
const AT_ONCE_NS: i64 = 50_000_000;
/// What may be spent is saved up for so long: enough for some hundred processes at once.
const SAVED_NS: f64 = 30e9;

/// What was looked at.
#[derive(Debug)]
pub(super) struct Descriptors {
    root: PathBuf,
    /// The machine's shared memory at the last look.
    seen_bytes: Option<u64>,
    waiting: Vec<Subject>,
    backings: Backings,
    budget: Budget,
    /// Until then the budget is used up.
    next: BootNs,
}

impl Descriptors {
    /// `root` is where procfs is; `share` of one core is what looks may take.
    pub(super) fn new(root: &Path, share: f64) -> Self {
        Self {
            root: root.to_owned(),
            seen_bytes: None,
            waiting: Vec::new(),
            backings: Backings::new(root),
            budget: Budget::new(share, SAVED_NS, clock::boot()),
            next: BootNs(0),
        }
    }

    /// Looks whether these have shared memory open before it is their turn: somebody was killed
    /// since one of them asked for memory, and it can be what a file of a tmpfs takes. What that
    /// costs, later looks save.
    pub(super) fn look_at_once(&mut self, subjects: &[Subject], objects: &Mutex<Objects>) {
        if subjects.is_empty() {
            return;
        }
        let before = clock::thread_cpu();
        let now = clock::boot();
        lock(objects).list(now);
        for subject in subjects {
            let open = self.open_of(subject, now + DurationNs(AT_ONCE_NS));
            lock(objects).note_open(subject, &open);
        }
        self.spend(before);
    }

    /// Looks who has shared memory open, if there is reason to.
    pub(super) fn look(&mut self, subjects: &[Subject], objects: &Mutex<Objects>) {
        let now = clock::boot();
        if now < self.next {
            return;
        }
        let before = clock::thread_cpu();
        if self.waiting.is_empty() && self.has_moved() {
            lock(objects).list(now);
            self.waiting = subjects.to_vec();
        }
        let until = now + DurationNs(LOOK_NS);
        while clock::boot() < until
            && let Some(subject) = self.waiting.pop()
        {
            let open = self.open_of(&subject, BootNs(i64::MAX));
            lock(objects).note_open(&subject, &open);
        }
        self.spend(before);
    }

    /// Takes what was used since then from what may be.
    fn spend(&mut self, before: DurationNs) {
        let cost = DurationNs(clock::thread_cpu().0 - before.0);
        let now = clock::boot();
        if let Some(rest) = self.budget.spend(cost, now) {
            self.next = now + rest;
        }
    }

    fn has_moved(&mut self) -> bool {
        let now = shared_bytes();
        let Some(seen) = self.seen_bytes else {
            // What is open by now shows at the first reading of each process.
            self.seen_bytes = Some(now);
            return false;
        };
        let has_moved = now.abs_diff(seen) >= MOVED_BYTES.max(seen / MOVED_PART);
        if has_moved {
            self.seen_bytes = Some(now);
        }
        has_moved
    }

    /// What a process has open, as far as it is known until then.
    fn open_of(&mut self, subject: &Subject, until: BootNs) -> Open {
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

/// Shared memory of the whole machine: tmpfs, memfd, System V, shared anonymous.
fn shared_bytes() -> u64 {
    let told = rustix::system::sysinfo();
    #[allow(clippy::unnecessary_cast)]
    let bytes = told.sharedram as u64 * u64::from(told.mem_unit);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Tgid, Upid};
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_of_a_tmpfs_that_is_only_written_to_is_seen_open() {
        let proc = tempfile::tempdir().unwrap();
        let dir = proc.path().join("7/fd");
        std::fs::create_dir_all(&dir).unwrap();
        let memfd = rustix::fs::memfd_create("grows", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(memfd);
        file.write_all(&vec![1; 2 << 20]).unwrap();
        let own = std::os::fd::AsRawFd::as_raw_fd(&file);
        symlink(format!("/proc/self/fd/{own}"), dir.join("3")).unwrap();
        symlink("/etc/passwd", dir.join("4")).unwrap();
        symlink("pipe:[17]", dir.join("5")).unwrap();
        let mut descriptors = Descriptors::new(proc.path(), 1.0);
        let subject = Subject {
            upid: Upid(7),
            tgid: Tgid(7),
            image: 1,
            image_count: 1,
            is_unshared: false,
        };
        let open = descriptors.open_of(&subject, BootNs(i64::MAX));
        let ways: Vec<_> = open.values().collect();
        assert_eq!(ways, [&dir.join("3")]);
        let objects = Mutex::new(Objects::new(proc.path(), proc.path()));
        descriptors.waiting = vec![subject];
        descriptors.look(&[], &objects);
        assert_eq!(lock(&objects).first_openers(), [Some(Upid(7))]);
        // Nothing has moved, and the budget is spent.
        let objects = Mutex::new(Objects::new(proc.path(), proc.path()));
        descriptors.next = BootNs(i64::MAX);
        descriptors.look(&[subject], &objects);
        assert_eq!(lock(&objects).first_openers(), []);
        descriptors.look_at_once(&[subject], &objects);
        assert_eq!(lock(&objects).first_openers(), [Some(Upid(7))]);
    }
}
