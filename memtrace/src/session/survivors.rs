//! What is left of the tree when a recording ends: looked at, told, and ended where the
//! person asked for that.

#[cfg(target_os = "linux")]
use super::record::Session;
#[cfg(target_os = "linux")]
use super::signals::{Request, Signals};
#[cfg(target_os = "linux")]
use crate::collect::leftovers::{SharedMemory, Survivor, survivors};
#[cfg(target_os = "linux")]
use crate::host::clock;
#[cfg(target_os = "linux")]
use crate::model::{BootNs, DurationNs, Fate, Record, Target, Upid};
use crate::model::{LeftObjectRow, SurvivorRow};
#[cfg(target_os = "linux")]
use rustix::process::Signal;
#[cfg(target_os = "linux")]
use std::collections::{HashMap, HashSet};
#[cfg(target_os = "linux")]
use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
use std::time::Duration;

/// Time for a process to end after SIGTERM: enough to remove its shared memory.
#[cfg(target_os = "linux")]
const TERMINATE_NS: DurationNs = DurationNs(3_000_000_000);
/// Time for the kernel to end a process after SIGKILL: large address spaces take a while.
#[cfg(target_os = "linux")]
const KILL_NS: DurationNs = DurationNs(5_000_000_000);
#[cfg(target_os = "linux")]
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A process that outlived its root.
#[derive(Clone, Debug)]
pub struct Outlived {
    /// What was recorded of it.
    pub row: SurvivorRow,
    /// The kernel's name for it.
    pub name: String,
}

/// What a recording left behind.
#[derive(Clone, Debug, Default)]
pub struct Leftovers {
    /// Processes that outlived the root of their tree, in the order in which they were met.
    pub outlived: Vec<Outlived>,
    /// Shared memory without an owner, the largest first.
    pub objects: Vec<LeftObjectRow>,
}

/// What has to be known from the start on.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(super) struct Watch {
    /// Where procfs is, if the recording's process ids and starts can be held against it.
    proc: Option<PathBuf>,
    shared: SharedMemory,
}

#[cfg(target_os = "linux")]
impl Watch {
    /// Notes what is there already. `has_exact_identities` says that the recording's process
    /// ids are those of this /proc, and its starts as exact.
    pub(super) fn start(has_exact_identities: bool) -> Self {
        let proc = Path::new("/proc");
        Self {
            proc: has_exact_identities.then(|| proc.to_owned()),
            shared: SharedMemory::list(proc, Path::new("/dev/shm")),
        }
    }

    /// Looks who is left of the tree, ends them where that was asked for, and then what
    /// shared memory is left: who ends in order takes some with him.
    pub(super) async fn look(
        &self,
        session: &mut Session,
        target: &Target,
        kills: bool,
        signals: &mut Signals,
    ) -> Leftovers {
        if matches!(target, Target::All) {
            return Leftovers::default();
        }
        session.drain();
        let tick = super::record::tick(false);
        let mut left = Left::default();
        left.meet(self.find(session));
        if kills {
            left.end(self, session, signals).await;
        }
        let objects = self.shared.left(&tick);
        let rows = left.found.values().map(|survivor| survivor.row.clone());
        session.put(rows.map(Record::Survivor));
        session.put(objects.iter().cloned().map(Record::LeftObject));
        let mut outlived: Vec<Outlived> = left
            .found
            .into_values()
            .filter(|survivor| survivor.row.has_root_ended)
            .map(|survivor| Outlived {
                row: survivor.row,
                name: survivor.name,
            })
            .collect();
        outlived.sort_by_key(|process| process.row.upid);
        Leftovers { outlived, objects }
    }

    fn find(&self, session: &Session) -> Vec<Survivor> {
        let tick = super::record::tick(false);
        survivors(self.proc.as_deref(), session.world(), &tick)
    }
}

/// Those that were met at the end; more can come while others are ended.
#[cfg(target_os = "linux")]
#[derive(Default)]
struct Left {
    found: HashMap<Upid, Survivor>,
}

#[cfg(target_os = "linux")]
impl Left {
    /// What each held when it was first met stays.
    fn meet(&mut self, survivors: Vec<Survivor>) {
        for survivor in survivors {
            self.found.entry(survivor.upid()).or_insert(survivor);
        }
    }

    /// SIGTERM to all that outlived their root, and SIGKILL to those that are there still:
    /// a process that is told to end removes its shared memory and lets its own children
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
        let mut told: HashSet<Upid> = HashSet::new();
        loop {
            let mut is_anyone_there = false;
            for survivor in self.found.values_mut().filter(|one| is_to_end(one)) {
                is_anyone_there = true;
                if told.insert(survivor.upid()) && survivor.send(signal) {
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
                request = signals.next() => if request != Request::Child {
                    return false;
                }
            }
            session.observe();
            self.meet(watch.find(session));
        }
    }
}

/// Whether it outlived its root, is there, and nothing stands against ending it.
#[cfg(target_os = "linux")]
fn is_to_end(survivor: &Survivor) -> bool {
    let row = &survivor.row;
    let is_beyond_us = matches!(row.fate, Some(Fate::Refused | Fate::Unsure));
    row.has_root_ended && !is_beyond_us && !survivor.has_ended()
}
