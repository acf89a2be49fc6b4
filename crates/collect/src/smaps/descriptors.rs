//! Shared memory that no reading of a process's memory shows: who has it open without mapping it, and
//! files of /dev/shm that nobody maps. A process that writes to a file of a tmpfs grows by nothing, so
//! no reading of its memory is due when the file does.
//!
//! When the shared memory of the machine has moved, everybody's descriptors are looked at; and at
//! once those for whom somebody was killed. A writer can fill its group and be killed within a
//! second, so this waits for no reading of memory: it has a thread and a budget of its own. A
//! file system that does not answer holds up no reading of memory either.

use super::budget::Budget;
use super::objects::Objects;
use super::open_files::OpenFiles;
use super::subject::Subject;
use super::worker::{Found, Sender, WorkerOrders, moment};
use crate::stop::lock;
use memtrace_host::clock;
use memtrace_model::{BootNs, DurationNs};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A smaller move of the machine's shared memory fills no group.
const MOVED_BYTES: u64 = 16 << 20;
/// On a large machine so much comes and goes all the time, as a part of what there is.
const MOVED_PART: u64 = 32;
/// Time between two looks at whether it has moved, and at files that nobody maps; a longer one after it
/// stood still to the byte.
const PERIOD: DurationNs = DurationNs(100_000_000);
const QUIET_PERIOD: DurationNs = DurationNs(500_000_000);
const QUIET_AFTER: DurationNs = DurationNs(5_000_000_000);
/// A look at one process that can soon be gone takes no longer than this: the next one can be, too.
const AT_ONCE: DurationNs = DurationNs(50_000_000);
/// What may be spent is saved up for so long: enough for some hundred processes at once.
const SAVED_NS: f64 = 30e9;

/// Whose descriptors are to be looked at.
#[derive(Debug)]
pub(super) enum Whose {
    /// One for whom somebody was killed: it can be gone soon.
    One(Subject),
    /// Everybody, as it was asked for: who that is has just been reported.
    All,
}

/// What the thread looks at.
pub(super) struct Descriptors {
    orders: Arc<WorkerOrders>,
    teller: Sender,
    objects: Arc<Mutex<Objects>>,
    files: OpenFiles,
    /// For those for whom somebody was killed, and for all others.
    at_once: Allowance,
    in_turn: Allowance,
    /// The machine's shared memory when it was looked at last.
    seen_bytes: Option<u64>,
    /// The same to the byte, and since when.
    still: Option<(u64, BootNs)>,
    waiting: Vec<Subject>,
    next_glance: BootNs,
    /// What the last glance found and there was no room for.
    unsent: Option<Found>,
}

impl Descriptors {
    /// `root` is where procfs is; `share` of one core is what looks of each kind may take.
    pub(super) fn new(
        teller: Sender,
        objects: Arc<Mutex<Objects>>,
        root: &Path,
        share: f64,
    ) -> Self {
        Self {
            orders: Arc::clone(&teller.orders),
            teller,
            objects,
            files: OpenFiles::new(root),
            at_once: Allowance::new(share),
            in_turn: Allowance::new(share),
            seen_bytes: None,
            still: None,
            waiting: Vec::new(),
            next_glance: BootNs(0),
            unsent: None,
        }
    }

    /// Looks until nobody tells any more or the order to stop comes.
    pub(super) fn run(mut self, reported: &Receiver<Whose>) {
        loop {
            self.glance();
            let rest = match self.waiting.is_empty() {
                true => self.period(shared_bytes(), clock::boot()),
                false => self.in_turn.rest().min(PERIOD),
            };
            let rest = Duration::from_nanos(rest.0.cast_unsigned());
            match reported.recv_timeout(rest) {
                Ok(Whose::One(subject)) => {
                    while self.at_once.rest().0 > 0 {
                        let rest = self.at_once.rest().min(PERIOD);
                        if self.orders.stop.rest(rest).is_err() {
                            return;
                        }
                        self.glance();
                    }
                    let until = clock::boot() + AT_ONCE;
                    self.at_once
                        .spend(|| look(&mut self.files, &subject, until, &self.objects));
                }
                Ok(Whose::All) => self.waiting = self.orders.subjects().to_vec(),
                Err(RecvTimeoutError::Timeout) => self.go_on(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Looks at files that nobody maps, where it is time: little, for it waits for no allowance.
    fn glance(&mut self) {
        if clock::boot() < self.next_glance {
            return;
        }
        self.next_glance = clock::boot() + PERIOD;
        // The session takes nothing while the disk hangs.
        let found = self.unsent.take().or_else(|| {
            let mut rows = Vec::new();
            let mut objects = lock(&self.objects);
            let (now, clock) = moment();
            objects.glance(now, clock, &mut rows);
            (!rows.is_empty()).then_some(Found::Shared(rows))
        });
        self.unsent = found.and_then(|found| self.teller.offer(found).err());
    }

    /// Time until the next look, with so much shared memory on the machine now.
    fn period(&mut self, shared: u64, now: BootNs) -> DurationNs {
        let (last, since) = self.still.get_or_insert((shared, now));
        if *last != shared {
            (*last, *since) = (shared, now);
        }
        match now - *since >= QUIET_AFTER {
            true => QUIET_PERIOD,
            false => PERIOD,
        }
    }

    /// Looks at the next one who waits, or whether there is reason to look at all of them.
    fn go_on(&mut self) {
        if self.in_turn.rest().0 > 0 {
            return;
        }
        if let Some(subject) = self.waiting.pop() {
            let until = BootNs(i64::MAX);
            self.in_turn
                .spend(|| look(&mut self.files, &subject, until, &self.objects));
        } else if self.has_moved(shared_bytes()) {
            self.in_turn
                .spend(|| lock(&self.objects).list(clock::boot()));
            self.orders.wants_all.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the machine's shared memory has moved since it was looked at last.
    fn has_moved(&mut self, now: u64) -> bool {
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

fn look(files: &mut OpenFiles, subject: &Subject, until: BootNs, objects: &Mutex<Objects>) {
    let open = files.of(subject, until);
    lock(objects).note_open(subject, &open);
}

/// The CPU time that looks may take.
#[derive(Debug)]
struct Allowance {
    budget: Budget,
    /// Until then it is used up.
    next: BootNs,
}

impl Allowance {
    fn new(share: f64) -> Self {
        Self {
            budget: Budget::new(share, SAVED_NS, clock::boot()),
            next: BootNs(0),
        }
    }

    /// Time until there is something left of it.
    fn rest(&self) -> DurationNs {
        (self.next - clock::boot()).max(DurationNs(0))
    }

    /// Does something and takes what it cost.
    fn spend(&mut self, work: impl FnOnce()) {
        let before = clock::thread_cpu();
        work();
        let cost = DurationNs(clock::thread_cpu().0 - before.0);
        let now = clock::boot();
        if let Some(rest) = self.budget.spend(cost, now) {
            self.next = now + rest;
        }
    }
}

/// Shared memory of the whole machine: tmpfs, memfd, System V, shared anonymous.
fn shared_bytes() -> u64 {
    let reported = rustix::system::sysinfo();
    #[allow(clippy::unnecessary_cast)]
    let bytes = reported.sharedram as u64 * u64::from(reported.mem_unit);
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::tests::{opener, subject};
    use super::*;
    use memtrace_model::Upid;
    use std::sync::mpsc::{channel, sync_channel};

    /// A process has a file of shared memory open, and the thread has not begun.
    fn watch() -> (Descriptors, (tempfile::TempDir, std::fs::File)) {
        let opener = opener(7);
        let root = opener.0.path();
        let objects = Arc::new(Mutex::new(Objects::new(root, root)));
        let (tell, _found) = sync_channel(1);
        let sender = Sender {
            orders: Arc::default(),
            tell,
            ceiling: Arc::default(),
        };
        (Descriptors::new(sender, objects, root, 1.0), opener)
    }

    /// For these somebody was killed, and nobody else comes.
    fn reported(pids: &[u32]) -> Receiver<Whose> {
        let (tell, text) = channel();
        for pid in pids {
            tell.send(Whose::One(subject(*pid))).unwrap();
        }
        text
    }

    fn first_openers(descriptors: &Descriptors) -> Vec<Option<Upid>> {
        lock(&descriptors.objects).first_openers()
    }

    #[test]
    fn everybody_is_asked_for_when_the_shared_memory_has_moved() {
        let (mut descriptors, _opener) = watch();
        let wants_all =
            |descriptors: &Descriptors| descriptors.orders.wants_all.swap(false, Ordering::Relaxed);
        descriptors.go_on();
        assert!(!wants_all(&descriptors), "nothing to compare with");
        descriptors.seen_bytes = Some(u64::MAX);
        descriptors.go_on();
        assert!(wants_all(&descriptors));
    }

    #[test]
    fn a_large_machine_moves_by_more() {
        let (mut descriptors, _opener) = watch();
        let steps = [(1_u64 << 40, false), ((1 << 40) + (16 << 20), false)];
        for (bytes, has_moved) in steps.into_iter().chain([((1 << 40) + (32 << 30), true)]) {
            assert_eq!(descriptors.has_moved(bytes), has_moved, "{bytes}");
        }
    }

    #[test]
    fn where_the_shared_memory_stands_still_looks_are_fewer_until_it_moves() {
        let (mut descriptors, _opener) = watch();
        let mut period = |shared, second: i64| {
            let now = BootNs(second * 1_000_000_000);
            descriptors.period(shared, now)
        };
        assert_eq!(period(1 << 20, 10), PERIOD);
        assert_eq!(period(1 << 20, 14), PERIOD);
        assert_eq!(period(1 << 20, 15), QUIET_PERIOD);
        assert_eq!(period((1 << 20) + 4_096, 16), PERIOD);
        assert_eq!(period(1 << 20, 17), PERIOD);
    }

    #[test]
    fn who_waits_is_looked_at() {
        let (mut descriptors, _opener) = watch();
        descriptors.waiting = vec![subject(7)];
        descriptors.go_on();
        assert_eq!(first_openers(&descriptors), [Some(Upid(1))]);
    }

    #[test]
    fn who_is_asked_about_is_looked_at_also_after_the_allowance_was_spent() {
        let (mut descriptors, _opener) = watch();
        let objects = Arc::clone(&descriptors.objects);
        let rest = DurationNs(20_000_000);
        let begin = clock::boot();
        descriptors.at_once.next = begin + rest;
        descriptors.run(&reported(&[8, 7]));
        assert_eq!(lock(&objects).first_openers(), [Some(Upid(1))]);
        assert!(clock::boot() - begin >= rest);
    }

    #[test]
    fn nobody_is_waited_for_at_the_end() {
        let (mut descriptors, _opener) = watch();
        let objects = Arc::clone(&descriptors.objects);
        descriptors.at_once.next = BootNs(i64::MAX);
        descriptors.orders.stop.set();
        descriptors.run(&reported(&[7]));
        assert_eq!(lock(&objects).first_openers(), []);
    }
}
