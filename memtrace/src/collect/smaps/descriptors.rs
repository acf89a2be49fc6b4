//! Who has shared memory open without mapping it: a process that writes to a file of a tmpfs
//! grows by nothing, so no reading of its memory is due when the file does.
//!
//! When the shared memory of the machine has moved, everybody's descriptors are looked at, some
//! at a time. A writer can fill its group and be killed within a second, so this waits for no
//! reading of memory: it has a small budget of its own.

use super::objects::Objects;
use super::open_files::OpenFiles;
use super::subject::Subject;
use crate::collect::stop::lock;
use crate::host::clock;
use crate::model::{BootNs, DurationNs};
use std::path::Path;
use std::sync::Mutex;

/// A smaller move of the machine's shared memory fills no group.
const MOVED_BYTES: u64 = 16 << 20;
/// On a large machine so much comes and goes all the time, as a part of what there is.
const MOVED_PART: u64 = 32;
/// One look goes on for no longer than this.
const LOOK_NS: i64 = 5_000_000;

/// What was looked at.
#[derive(Debug)]
pub(super) struct Descriptors {
    files: OpenFiles,
    /// The machine's shared memory at the last look.
    seen_bytes: Option<u64>,
    waiting: Vec<Subject>,
}

impl Descriptors {
    /// `root` is where procfs is; `share` of one core is what looks may take.
    pub(super) fn new(root: &Path, share: f64) -> Self {
        Self {
            files: OpenFiles::new(root, share),
            seen_bytes: None,
            waiting: Vec::new(),
        }
    }

    /// Looks who has shared memory open, if there is reason to.
    pub(super) fn look(&mut self, subjects: &[Subject], objects: &Mutex<Objects>) {
        let now = clock::boot();
        if !self.files.may_look(now) {
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
            let open = self.files.of(&subject, BootNs(i64::MAX));
            lock(objects).note_open(&subject, &open);
        }
        self.files.spend(before);
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
    use super::super::tests::{opener, subject};
    use super::*;
    use crate::model::Upid;

    #[test]
    fn who_waits_is_looked_at_and_nobody_at_the_first_look() {
        let (proc, _file) = opener(7);
        let mut descriptors = Descriptors::new(proc.path(), 1.0);
        let objects = Mutex::new(Objects::new(proc.path(), proc.path()));
        descriptors.look(&[subject(7)], &objects);
        assert_eq!(lock(&objects).first_openers(), []);
        descriptors.waiting = vec![subject(7)];
        descriptors.look(&[], &objects);
        assert_eq!(lock(&objects).first_openers(), [Some(Upid(1))]);
    }
}
