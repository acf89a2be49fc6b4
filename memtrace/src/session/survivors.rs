//! What is left of the tree when a recording ends: looked at, reported, and ended where the person
//! asked for that. On Linux, where a process can be held.

use super::outcome::{Leftovers, Outlived};
use super::record::{Session, tick};
use super::signals::{Request, Signals};
use memtrace_collect::Targets;
use memtrace_collect::leftovers::{LeftRunning, SharedMemory, survivors};
use memtrace_host::clock;
use memtrace_model::{BootNs, DurationNs, Fate, Order, Record, Target, Upid};
use rustix::process::Signal;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time for a process to end after SIGTERM: enough to remove its shared memory.
const TERMINATE_NS: DurationNs = DurationNs(3_000_000_000);
/// Time for the kernel to end a process after SIGKILL: large address spaces take a while.
const KILL_NS: DurationNs = DurationNs(5_000_000_000);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What has to be known from the start on.
#[derive(Debug)]
pub(super) struct Watch {
    /// Where procfs is, if the recording's process ids and starts can be held against it.
    proc: Option<PathBuf>,
    targets: Targets,
    shared: SharedMemory,
}

impl Watch {
    /// Notes what is there already. `has_exact_identities` says that the recording's process
    /// ids are those of this /proc, and its starts as exact.
    pub(super) fn start(has_exact_identities: bool, targets: Targets) -> Self {
        let proc = Path::new("/proc");
        Self {
            proc: has_exact_identities.then(|| proc.to_owned()),
            targets,
            shared: SharedMemory::list(proc, Path::new("/dev/shm")),
        }
    }

    /// Looks who is left of the tree, ends them where that was asked for, and then what
    /// shared memory is left: who ends in order takes some along.
    pub(super) async fn look(
        &self,
        session: &mut Session,
        target: &Target,
        kills: bool,
        signals: &mut Signals,
    ) -> Leftovers {
        // The latest of what observes GPUs too.
        session.observe();
        let now = tick(false);
        let mut left = Left::default();
        left.meet(self, session);
        if kills {
            left.end(self, session, signals).await;
        }
        // Of a whole machine it is not known whose they are.
        let objects = match target {
            Target::All => Vec::new(),
            _ => self.shared.left(&now),
        };
        let rows = left.found.values().map(|survivor| survivor.row.clone());
        session.put(rows.map(Record::Survivor));
        session.put(objects.iter().cloned().map(Record::OrphanedShmObject));
        let mut outlived: Vec<Outlived> = left
            .found
            .into_values()
            .filter(|survivor| survivor.row.has_root_ended)
            .map(|survivor| Outlived {
                row: survivor.row,
                name: survivor.name,
            })
            .collect();
        outlived.order_by_key(|process| process.row.upid);
        Leftovers { outlived, objects }
    }
}

/// Those that were met at the end; more can come while others are ended.
#[derive(Default)]
struct Left {
    /// Boxed: a map has room for up to twice as many as it holds.
    found: HashMap<Upid, Box<LeftRunning>>,
}

impl Left {
    /// Adds those that are not known yet: what each held when it was first met stays.
    fn meet(&mut self, watch: &Watch, session: &Session) {
        let (proc, table) = (watch.proc.as_deref(), session.table());
        let is_known = |upid| self.found.contains_key(&upid);
        let new = survivors(proc, table, &watch.targets, is_known, &tick(false));
        for mut survivor in new {
            survivor.row.gpu_bytes = session.held_on_gpus(survivor.upid());
            self.found.insert(survivor.upid(), Box::new(survivor));
        }
    }

    /// SIGTERM to all that outlived their root, and SIGKILL to those that are there still:
    /// a process that is asked to end removes its shared memory and lets its own children
    /// go in order, and one that does not listen ends all the same.
    async fn end(&mut self, watch: &Watch, session: &mut Session, signals: &mut Signals) {
        let rounds = [
            (Signal::TERM, TERMINATE_NS, Fate::Terminated),
            (Signal::KILL, KILL_NS, Fate::Killed),
        ];
        for (signal, patience, fate) in rounds {
            let until = clock::boot() + patience;
            if self
                .round(watch, session, signals, (signal, until, fate))
                .await
            {
                return;
            }
        }
        for survivor in self.found.values_mut().filter(|one| is_to_end(one)) {
            survivor.row.fate = Some(Fate::Stuck);
        }
    }

    /// Sends one signal to everyone, those that are forked meanwhile too, and waits. Answers
    /// whether all have ended. Ctrl-C ends the wait.
    async fn round(
        &mut self,
        watch: &Watch,
        session: &mut Session,
        signals: &mut Signals,
        (signal, until, fate): (Signal, BootNs, Fate),
    ) -> bool {
        let mut reported: HashSet<Upid> = HashSet::new();
        loop {
            let mut is_anyone_there = false;
            for survivor in self.found.values_mut().filter(|one| is_to_end(one)) {
                is_anyone_there = true;
                if reported.insert(survivor.upid()) && survivor.send(signal) {
                    survivor.row.fate = Some(fate);
                }
            }
            if !is_anyone_there {
                return true;
            }
            if clock::boot() >= until {
                return false;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                request = signals.next() => if !matches!(request, Request::Child | Request::Resumed) {
                    return false;
                }
            }
            session.observe();
            self.meet(watch, session);
        }
    }
}

/// Whether it outlived its root, is there, and nothing stands against ending it.
fn is_to_end(survivor: &LeftRunning) -> bool {
    let row = &survivor.row;
    let is_beyond_us = matches!(row.fate, Some(Fate::Refused | Fate::Unsure));
    row.has_root_ended && !is_beyond_us && !survivor.has_ended()
}
