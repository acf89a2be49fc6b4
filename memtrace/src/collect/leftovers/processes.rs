//! Processes that are alive when a recording ends: what they hold, and a hold on those that
//! may have to be ended, which no reuse of a process id can turn against another one.

use crate::collect::procfs::{Now, now};
use crate::collect::{Tick, World};
use crate::model::{BootNs, Fate, ProcessRow, SurvivorRow, Upid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Starts in /proc come in steps of this.
const START_STEP_NS: i64 = 10_000_000;

/// A process that is alive at the end of a recording.
#[derive(Debug)]
pub struct Survivor {
    /// What is known of it, as it is written.
    pub row: SurvivorRow,
    /// What to call it in a sentence.
    pub name: String,
    /// Refers to that process and to no other; none where that could not be made sure.
    hold: Option<OwnedFd>,
}

/// Every process of the recording that is alive, but this one. `proc` is where procfs is
/// mounted, `None` where its process ids are not those of the recording.
pub fn survivors(proc: Option<&Path>, world: &World, tick: &Tick) -> Vec<Survivor> {
    let own = world.upid(crate::model::Tgid(std::process::id()));
    let mut found: Vec<Survivor> = world
        .processes()
        .filter(|process| Some(process.row().upid) != own)
        .filter_map(|process| {
            let has_root_ended = world.has_root_ended(process);
            Survivor::of(proc, process.row(), has_root_ended, tick)
        })
        .collect();
    found.sort_by_key(|survivor| survivor.row.upid);
    found
}

impl Survivor {
    /// `None` for one that has ended after all.
    fn of(
        proc: Option<&Path>,
        process: &ProcessRow,
        has_root_ended: bool,
        tick: &Tick,
    ) -> Option<Self> {
        // First the hold, then the look: where the look finds the process that was recorded,
        // it has had its id all the while, and the hold is on it.
        let hold = proc.and_then(|_| hold(process));
        let seen = proc.map(|proc| now(proc, process.tgid));
        if matches!(&seen, Some(None)) || seen.iter().flatten().any(|now| now.has_ended) {
            return None;
        }
        let seen = seen.flatten();
        let is_same = seen
            .as_ref()
            .is_some_and(|now| is_same(process.start_boot_ns, now));
        if seen.is_some() && !is_same {
            // Its id is another's by now.
            return None;
        }
        let at = |amount: fn(&Now) -> Option<crate::model::Bytes>| seen.as_ref().and_then(amount);
        let row = SurvivorRow {
            ts: tick.wall(),
            boot_ns: tick.boot,
            upid: process.upid,
            tgid: process.tgid,
            has_root_ended,
            parent_tgid: seen.as_ref().map(|now| now.parent),
            parent_comm: seen.as_ref().and_then(|now| now.parent_comm.clone()),
            rss_anon_bytes: at(|now| now.rss_anon),
            rss_file_bytes: at(|now| now.rss_file),
            rss_shmem_bytes: at(|now| now.rss_shmem),
            swap_bytes: at(|now| now.swap),
            fate: Some(Fate::Left),
        };
        Some(Self {
            row,
            name: process.comm.clone(),
            hold: hold.filter(|_| is_same),
        })
    }

    /// Who it is.
    pub fn upid(&self) -> Upid {
        self.row.upid
    }

    /// Whether it has ended. One that could not be held is asked for by its id.
    pub fn has_ended(&self) -> bool {
        let Some(hold) = &self.hold else {
            return false;
        };
        let mut readable = [PollFd::new(hold, PollFlags::IN)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut readable, Some(&at_once)).is_ok_and(|count| count > 0)
    }

    /// Sends it a signal, through the hold on it and never by its id. Answers whether that
    /// could be done; where not, its fate says why.
    pub fn send(&mut self, signal: Signal) -> bool {
        let Some(hold) = &self.hold else {
            self.row.fate = Some(Fate::Unsure);
            return false;
        };
        match pidfd_send_signal(hold, signal) {
            // It has ended.
            Ok(()) | Err(Errno::SRCH) => true,
            Err(_) => {
                self.row.fate = Some(Fate::Refused);
                false
            }
        }
    }
}

fn hold(process: &ProcessRow) -> Option<OwnedFd> {
    let pid = Pid::from_raw(process.tgid.0.cast_signed())?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Whether what /proc shows can be the process that started then: BPF knows the start to the
/// nanosecond, /proc rounds it down.
fn is_same(start: BootNs, now: &Now) -> bool {
    let step = |at: BootNs| at.0.div_euclid(START_STEP_NS);
    step(start) == step(now.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::{Birth, End};
    use crate::model::{ClockOffset, ClockReading, FirstSeenBy, Tgid, WallNs};
    use std::process::{Child, Command, Stdio};

    fn tick() -> Tick {
        Tick {
            boot: BootNs(7),
            clock: ClockOffset::at(ClockReading {
                boot_ns: BootNs(0),
                monotonic_ns: 0,
                wall_ns: WallNs(0),
            }),
            is_keyframe: false,
        }
    }

    /// A root that has ended, and its child, which lives: `start` is what was recorded.
    fn world(child: &Child, start: BootNs) -> World {
        let mut world = World::default();
        let birth = |tgid: u32, parent, start| Birth {
            tgid: Tgid(tgid),
            start,
            seen_by: FirstSeenBy::Fork,
            parent,
            comm: "x".to_owned(),
        };
        let root = world.enter(birth(4_000_000, None, BootNs(1)), BootNs(1));
        world.enter(birth(child.id(), Some(root), start), BootNs(2));
        let end = End {
            at: BootNs(3),
            wait_status: Some(0),
        };
        world.end(root, end);
        world
    }

    fn sleeper() -> Child {
        let mut command = Command::new("sleep");
        command.arg("60").stdin(Stdio::null()).spawn().unwrap()
    }

    fn start_of(child: &Child) -> BootNs {
        now(Path::new("/proc"), Tgid(child.id())).unwrap().start
    }

    fn reap(mut child: Child) {
        let _ = child.kill();
        child.wait().unwrap();
    }

    #[test]
    fn one_that_outlived_its_root_is_found_held_and_ended() {
        let child = sleeper();
        // To the nanosecond, as BPF tells it.
        let start = BootNs(start_of(&child).0 + 1_234_567);
        let world = world(&child, start);
        assert!(world.has_outlived());
        let mut found = survivors(Some(Path::new("/proc")), &world, &tick());
        let [survivor] = found.as_mut_slice() else {
            panic!("{found:?}");
        };
        assert!(survivor.row.has_root_ended && !survivor.has_ended());
        assert_eq!(survivor.row.parent_tgid, Some(Tgid(std::process::id())));
        assert!(survivor.row.rss_anon_bytes.is_some());
        assert!(survivor.send(Signal::TERM));
        while !survivor.has_ended() {
            std::thread::yield_now();
        }
        assert!(survivor.send(Signal::KILL), "ended is no refusal");
        reap(child);
    }

    #[test]
    fn another_process_of_the_same_id_is_nobody_of_the_tree() {
        let child = sleeper();
        let start = start_of(&child);
        for start in [start.0 - START_STEP_NS, start.0 + START_STEP_NS] {
            let world = world(&child, BootNs(start));
            let found = survivors(Some(Path::new("/proc")), &world, &tick());
            assert!(found.is_empty(), "{found:?}");
        }
        reap(child);
    }

    #[test]
    fn without_the_ids_of_the_recording_nobody_is_signalled() {
        let child = sleeper();
        let world = world(&child, start_of(&child));
        let mut found = survivors(None, &world, &tick());
        assert!(!found[0].send(Signal::KILL));
        assert_eq!(found[0].row.fate, Some(Fate::Unsure));
        assert_eq!(
            now(Path::new("/proc"), Tgid(child.id())).map(|now| now.has_ended),
            Some(false)
        );
        reap(child);
    }

    #[test]
    fn one_that_has_ended_and_is_not_waited_for_is_no_survivor() {
        let mut child = sleeper();
        let world = world(&child, start_of(&child));
        child.kill().unwrap();
        let is_zombie = || {
            let now = now(Path::new("/proc"), Tgid(child.id()));
            now.is_some_and(|now| now.has_ended)
        };
        while !is_zombie() {
            std::thread::yield_now();
        }
        assert!(survivors(Some(Path::new("/proc")), &world, &tick()).is_empty());
        reap(child);
    }
}
