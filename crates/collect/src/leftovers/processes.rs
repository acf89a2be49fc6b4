//! Processes that are alive when a recording ends: what they hold, and a hold on those that
//! may have to be ended, which no reuse of a process id can turn against another one.

use crate::procfs::{Now, identity, now, processes_below};
use crate::{ProcessTable, Targets, Tick};
use memtrace_model::{BootNs, Fate, Order, ProcessRow, SurvivorRow, Tgid, Upid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::cell::OnceCell;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Starts in /proc come in steps of this.
const START_STEP_NS: i64 = 10_000_000;

/// A process that is alive at the end of a recording.
#[derive(Debug)]
pub struct LeftRunning {
    /// What is known of it, as it is written.
    pub row: SurvivorRow,
    /// What to call it in a sentence.
    pub name: String,
    /// Refers to that process and to no other; none where that could not be made sure.
    hold: Option<OwnedFd>,
}

/// Every process of the recording that is alive, but this one and those that `is_known`; of a whole
/// machine those whose parent was killed or crashed.
/// `proc` is where procfs is mounted, `None` where its process ids are not those of the
/// recording.
pub fn survivors(
    proc: Option<&Path>,
    table: &ProcessTable,
    targets: &Targets,
    is_known: impl Fn(Upid) -> bool,
    tick: &Tick,
) -> Vec<LeftRunning> {
    let own = table.upid(Tgid(std::process::id()));
    let asked = Asked::new(proc, targets);
    let mut found: Vec<LeftRunning> = table
        .processes()
        .filter(|process| Some(process.row().upid) != own && !is_known(process.row().upid))
        .filter_map(|process| {
            let row = process.row();
            let has_outlived = match targets {
                Targets::All => table.is_left_by_crash(row),
                _ => table.has_root_ended(process) && !asked.has_another_root(table, row),
            };
            let is_wanted = has_outlived || !matches!(targets, Targets::All);
            is_wanted.then(|| LeftRunning::of(proc, row, has_outlived, tick))?
        })
        .collect();
    found.order_by_key(|survivor| survivor.row.upid);
    found
}

/// Who is asked for by himself: a root, whoever started it.
struct Asked<'a> {
    proc: Option<&'a Path>,
    targets: &'a Targets,
    /// Who is in the cgroup; none where that can't be known. Read when first needed.
    in_cgroup: OnceCell<Option<HashSet<Tgid>>>,
}

impl<'a> Asked<'a> {
    fn new(proc: Option<&'a Path>, targets: &'a Targets) -> Self {
        Self {
            proc,
            targets,
            in_cgroup: OnceCell::new(),
        }
    }

    /// Whether the process, or a living one from which it descends, was asked for by itself,
    /// below the root that has ended. Where that can't be known it counts as if: nobody is
    /// ended by a guess. What a failed server leaves has names like its own, and is no server.
    fn has_another_root(&self, table: &ProcessTable, process: &ProcessRow) -> bool {
        let is_left = match self.targets {
            Targets::Roots(roots) => roots.len() <= 1,
            _ => table.is_left_by_crash(process),
        };
        if is_left {
            return false;
        }
        let mut at = process;
        loop {
            if table.process(at.upid).is_some() && self.includes(at) {
                return true;
            }
            match at.parent_upid {
                None => return false,
                parent if parent == process.root_upid => return false,
                Some(parent) => match table.row(parent) {
                    Some(parent) => at = parent,
                    None => return true,
                },
            }
        }
    }

    fn includes(&self, process: &ProcessRow) -> bool {
        match self.targets {
            Targets::All => true,
            Targets::Roots(_) => self.targets.is_root(process.tgid),
            Targets::Match(_) => {
                let targets = self.targets;
                targets.matches_name(&process.comm, process.cmdline.as_deref())
                    || self.proc.is_some_and(|proc| {
                        // What it calls itself by now.
                        let now = identity(proc, process.tgid).ok().flatten();
                        now.is_some_and(|now| {
                            targets.matches_name(&now.comm, now.cmdline.as_deref())
                        })
                    })
            }
            Targets::Cgroup(directory) => {
                let in_cgroup = self.in_cgroup.get_or_init(|| {
                    self.proc?;
                    processes_below(directory).ok()
                });
                // Nobody is ended whose group is unknown.
                in_cgroup
                    .as_ref()
                    .is_none_or(|tgids| tgids.contains(&process.tgid))
            }
        }
    }
}

impl LeftRunning {
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
        // One that can't be read is there as far as we know, and nobody to be ended.
        let seen = proc.and_then(|proc| now(proc, process.tgid).ok());
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
        let at = |amount: fn(&Now) -> Option<memtrace_model::Bytes>| seen.as_ref().and_then(amount);
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
            gpu_bytes: None,
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
    use crate::Birth;
    use memtrace_model::FirstSeenBy;
    use std::process::{Child, Command, Stdio};

    fn tick() -> Tick {
        Tick::at(BootNs(7))
    }

    /// A root that has ended, and its child, which lives: `start` is what was recorded.
    fn table(child: &Child, start: BootNs) -> ProcessTable {
        let mut table = ProcessTable::default();
        let birth = |tgid: u32, parent, start| Birth {
            tgid: Tgid(tgid),
            start,
            seen_by: FirstSeenBy::Fork,
            parent,
            comm: "x".to_owned(),
        };
        let root = table.enter(birth(4_000_000, None, BootNs(1)), BootNs(1));
        table.enter(birth(child.id(), Some(root), start), BootNs(2));
        table.end(root, BootNs(3), Some(0));
        table
    }

    fn sleeper() -> Child {
        let mut command = Command::new("sleep");
        let child = command.arg("60").stdin(Stdio::null()).spawn().unwrap();
        // Spawned is who closed what exec closes; the kernel writes its arguments after that.
        let cmdline = format!("/proc/{}/cmdline", child.id());
        while std::fs::read(&cmdline).is_ok_and(|cmdline| cmdline.is_empty()) {
            std::thread::yield_now();
        }
        child
    }

    fn start_of(child: &Child) -> BootNs {
        now(Path::new("/proc"), Tgid(child.id()))
            .unwrap()
            .unwrap()
            .start
    }

    fn asked_for(targets: &Targets, proc: Option<&Path>, table: &ProcessTable) -> Vec<LeftRunning> {
        survivors(proc, table, targets, |_| false, &tick())
    }

    fn found(proc: Option<&Path>, table: &ProcessTable) -> Vec<LeftRunning> {
        asked_for(&Targets::Roots(vec![Tgid(4_000_000)]), proc, table)
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
        let table = table(&child, start);
        assert!(table.has_outlived());
        let mut found = found(Some(Path::new("/proc")), &table);
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
            let table = table(&child, BootNs(start));
            let found = found(Some(Path::new("/proc")), &table);
            assert!(found.is_empty(), "{found:?}");
        }
        reap(child);
    }

    #[test]
    fn without_the_ids_of_the_recording_nobody_is_signalled() {
        let child = sleeper();
        let table = table(&child, start_of(&child));
        let mut found = found(None, &table);
        assert!(!found[0].send(Signal::KILL));
        assert_eq!(found[0].row.fate, Some(Fate::Unsure));
        assert_eq!(
            now(Path::new("/proc"), Tgid(child.id()))
                .unwrap()
                .map(|now| now.has_ended),
            Some(false)
        );
        reap(child);
    }

    #[test]
    fn one_that_has_ended_and_is_not_waited_for_is_no_survivor() {
        let mut child = sleeper();
        let table = table(&child, start_of(&child));
        child.kill().unwrap();
        let is_zombie = || {
            let now = now(Path::new("/proc"), Tgid(child.id())).unwrap();
            now.is_some_and(|now| now.has_ended)
        };
        while !is_zombie() {
            std::thread::yield_now();
        }
        assert!(found(Some(Path::new("/proc")), &table).is_empty());
        reap(child);
    }

    #[test]
    fn one_that_was_asked_for_by_itself_has_not_outlived_its_root() {
        let child = sleeper();
        let table = table(&child, start_of(&child));
        let proc = Some(Path::new("/proc"));
        let group = tempfile::tempdir().unwrap();
        let inner = group.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(group.path().join("cgroup.procs"), "").unwrap();
        std::fs::write(inner.join("cgroup.procs"), format!("{}\n", child.id())).unwrap();
        let pattern = |text: &str| Targets::Match(regex::Regex::new(text).unwrap());
        let cgroup = |path: &Path| Targets::Cgroup(path.to_owned());
        let cases = [
            // Its name as it was recorded, its command line as it is by now.
            (pattern("^x$"), false),
            (pattern("sleep 60"), false),
            (pattern("sleep 61"), true),
            (cgroup(group.path()), false),
            (cgroup(&group.path().join("other")), true),
            (Targets::Roots(vec![Tgid(4_000_000)]), true),
        ];
        for (targets, has_outlived) in cases {
            let found = asked_for(&targets, proc, &table);
            let shown: Vec<bool> = found.iter().map(|one| one.row.has_root_ended).collect();
            assert_eq!(shown, [has_outlived], "{targets:?}");
        }
        reap(child);
    }

    #[test]
    fn who_descends_from_one_that_was_asked_for_has_its_root_in_that_one() {
        let child = sleeper();
        let mut table = table(&child, start_of(&child));
        let asked = table.upid(Tgid(child.id())).unwrap();
        let birth = |tgid, parent| Birth {
            tgid: Tgid(tgid),
            start: BootNs(4),
            seen_by: FirstSeenBy::Fork,
            parent: Some(parent),
            comm: "y".to_owned(),
        };
        let between = table.enter(birth(4_000_001, asked), BootNs(4));
        let last = table.enter(birth(4_000_002, between), BootNs(4));
        table.end(between, BootNs(5), Some(0));
        let has_outlived = |table: &ProcessTable, text: &str| {
            let targets = Targets::Match(regex::Regex::new(text).unwrap());
            let found = asked_for(&targets, None, table);
            let last = found.iter().find(|one| one.upid() == last).unwrap();
            last.row.has_root_ended
        };
        assert!(!has_outlived(&table, "^x$"));
        assert!(has_outlived(&table, "^z$"));
        table.end(asked, BootNs(5), Some(0));
        assert!(has_outlived(&table, "^x$"), "that one has ended as well");
        reap(child);
    }

    #[test]
    fn what_a_killed_or_crashed_process_leaves_has_outlived_it_whatever_it_is_called() {
        let child = sleeper();
        let ended = |wait_status| {
            let mut table = ProcessTable::default();
            let birth = |tgid: u32, parent| Birth {
                tgid: Tgid(tgid),
                start: BootNs(i64::from(tgid)),
                seen_by: FirstSeenBy::Fork,
                parent,
                comm: "serve".to_owned(),
            };
            let server = table.enter(birth(4_000_000, None), BootNs(1));
            let engine = table.enter(birth(4_000_001, Some(server)), BootNs(2));
            table.enter(birth(4_000_002, Some(engine)), BootNs(3));
            let at = BootNs(4);
            table.end(server, at, wait_status);
            table
        };
        let shown = |targets: &Targets, wait_status| {
            let found = asked_for(targets, None, &ended(wait_status));
            let left = found.iter().filter(|one| one.row.has_root_ended);
            (found.len(), left.count())
        };
        let (killed, crashed, failed) = (Some(9), Some(11 | 0x80), Some(1 << 8));
        let named = Targets::Match(regex::Regex::new("serve").unwrap());
        for wait_status in [killed, crashed] {
            assert_eq!(shown(&named, wait_status), (2, 2), "{wait_status:?}");
            assert_eq!(shown(&Targets::All, wait_status), (2, 2));
        }
        // A launcher that is done, whose last command failed, that was asked to end, and one of
        // which nobody knows how it ended.
        for wait_status in [Some(0), failed, Some(1), Some(15), None] {
            assert_eq!(shown(&named, wait_status), (2, 0), "{wait_status:?}");
            assert_eq!(shown(&Targets::All, wait_status), (0, 0));
        }
        reap(child);
    }

    #[test]
    fn one_that_is_known_is_not_looked_at_again() {
        let child = sleeper();
        let table = table(&child, start_of(&child));
        let proc = Some(Path::new("/proc"));
        let known = found(proc, &table)[0].upid();
        let again = survivors(proc, &table, &Targets::All, |upid| upid == known, &tick());
        assert!(again.is_empty(), "{again:?}");
        reap(child);
    }
}
