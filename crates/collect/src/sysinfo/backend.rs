//! Polls the platform's process list through the sysinfo crate.

use super::listed::{comm, is_alive, names, pid, tgid_of, title};
use super::member::{Member, enter};
use crate::{CollectError, Collector, Pass, Targets};
use ::sysinfo::{Pid, Process, ProcessRefreshKind, ProcessesToUpdate, System};
use memtrace_host::clock;
use memtrace_model::{BootNs, DiagKind, DurationNs, FirstSeenBy, Order, Tgid, TitleSource};
use std::collections::{BTreeMap, HashMap};

/// Names are read again this often: they cost more than the memory.
const NAMES_PERIOD: DurationNs = DurationNs(1_000_000_000);
/// Observes processes through the platform's process list. Knows RSS in all, not its
/// kinds; a process is distinguished from a later one of the same id by the second it started in.
/// Cgroups are unknown to it.
#[derive(Debug)]
pub struct SysinfoBackend {
    targets: Targets,
    interval: DurationNs,
    system: System,
    members: BTreeMap<Tgid, Member>,
    /// Those that do not belong, with the parent that they had when first seen.
    unrecorded: HashMap<Tgid, Unrecorded>,
    names_read_at: Option<BootNs>,
    is_first: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unrecorded {
    parent: Option<Tgid>,
    started_s: u64,
}

impl SysinfoBackend {
    /// A backend that polls once per `interval`.
    ///
    /// # Errors
    /// When the platform is not one that sysinfo knows.
    pub fn new(targets: Targets, interval: DurationNs) -> Result<Self, CollectError> {
        let system = System::new()
            .map_err(|error| CollectError::new("the platform's process list", error))?;
        Ok(Self {
            targets,
            interval,
            system,
            members: BTreeMap::new(),
            unrecorded: HashMap::new(),
            names_read_at: None,
            is_first: true,
        })
    }

    fn refresh(&mut self, now: BootNs) -> bool {
        let are_names_due = self
            .names_read_at
            .is_none_or(|read| now - read >= NAMES_PERIOD);
        let memory = ProcessRefreshKind::nothing().with_memory().without_tasks();
        self.system
            .refresh_processes_specifics(ProcessesToUpdate::All, true, memory);
        if are_names_due {
            self.names_read_at = Some(now);
            let members: Vec<Pid> = self.members.keys().map(|tgid| pid(*tgid)).collect();
            let whose = match self.targets {
                // Anyone can come to match.
                Targets::Match(_) => ProcessesToUpdate::All,
                _ => ProcessesToUpdate::Some(&members),
            };
            self.system
                .refresh_processes_specifics(whose, false, names());
        }
        are_names_due
    }

    /// Ends members that are no longer listed, or listed as another process or a zombie.
    fn bury_the_dead(&mut self, pass: &mut Pass<'_>) {
        let system = &self.system;
        self.members.retain(|tgid, member| {
            let lives = system.process(pid(*tgid)).is_some_and(|process| {
                is_alive(process) && process.start_time() == member.started_s
            });
            if !lives {
                member.end(pass);
            }
            lives
        });
    }

    /// Processes that have come to belong, parents before their children.
    fn find_started(&mut self) -> Vec<Tgid> {
        let own = tgid_of(Pid::from_u32(std::process::id()));
        let own_lineage = self.own_lineage();
        let mut started: Vec<Tgid> = Vec::new();
        let mut seen = HashMap::new();
        for (pid, process) in self.system.processes() {
            let tgid = tgid_of(*pid);
            if self.members.contains_key(&tgid) || !is_alive(process) {
                continue;
            }
            // Where a parent was known at first sight it is kept: later it may be who
            // adopted the process.
            let first_seen = Unrecorded {
                parent: process.parent().map(tgid_of),
                started_s: process.start_time(),
            };
            let known = self.unrecorded.get(&tgid);
            let unrecorded = match known {
                Some(known) if known.started_s == first_seen.started_s => *known,
                _ => first_seen,
            };
            seen.insert(tgid, unrecorded);
            let is_chosen = match &self.targets {
                // What has no memory is a kernel thread, or hidden from us.
                Targets::All => process.memory() > 0,
                Targets::Roots(_) => self.targets.is_root(tgid) && known.is_none(),
                Targets::Match(_) => {
                    !own_lineage.contains(&tgid)
                        && process.parent().map(tgid_of) != Some(own)
                        && self
                            .targets
                            .matches_name(&comm(process), title(process).as_deref())
                }
                Targets::Cgroup(_) => false,
            };
            if is_chosen {
                started.push(tgid);
            }
        }
        started.order_by_key(|tgid| seen.get(tgid).map(|new| (new.started_s, *tgid)));
        let mut is_new: HashMap<Tgid, u64> = HashMap::new();
        for tgid in &started {
            if let Some(unrecorded) = seen.remove(tgid) {
                is_new.insert(*tgid, unrecorded.started_s);
            }
        }
        self.unrecorded = seen;
        self.add_descendants(&mut started, &mut is_new);
        started
    }

    fn add_descendants(&mut self, started: &mut Vec<Tgid>, is_new: &mut HashMap<Tgid, u64>) {
        loop {
            let is_child = |unrecorded: &Unrecorded| {
                unrecorded.parent.is_some_and(|parent| {
                    let member = self.members.get(&parent).map(|member| member.started_s);
                    let started = member.or_else(|| is_new.get(&parent).copied());
                    started.is_some_and(|started| started <= unrecorded.started_s)
                })
            };
            let mut children: Vec<(Tgid, u64)> = self
                .unrecorded
                .iter()
                .filter(|(_, unrecorded)| is_child(unrecorded))
                .map(|(tgid, unrecorded)| (*tgid, unrecorded.started_s))
                .collect();
            if children.is_empty() {
                return;
            }
            children.sort_unstable();
            for (tgid, started_s) in children {
                self.unrecorded.remove(&tgid);
                is_new.insert(tgid, started_s);
                started.push(tgid);
            }
        }
    }

    /// The recorder and its ancestors, in whose command lines the pattern stands. What the recorder
    /// has started for itself is left out too.
    fn own_lineage(&self) -> Vec<Tgid> {
        let mut lineage = Vec::new();
        let mut at = Some(Pid::from_u32(std::process::id()));
        while let Some(pid) = at
            && !lineage.contains(&tgid_of(pid))
        {
            lineage.push(tgid_of(pid));
            at = self.system.process(pid).and_then(Process::parent);
        }
        lineage
    }

    fn admit(&mut self, tgid: Tgid, pass: &mut Pass<'_>) {
        let whom = [pid(tgid)];
        let whom = ProcessesToUpdate::Some(&whom);
        self.system
            .refresh_processes_specifics(whom, false, names());
        let Some(process) = self.system.process(pid(tgid)) else {
            return;
        };
        let seen_by = if self.is_first {
            FirstSeenBy::Snapshot
        } else {
            FirstSeenBy::Poll
        };
        let upid = enter(tgid, process, seen_by, pass);
        let mut member = Member::new(upid, process);
        member.describe(process, pass.table);
        member.write_title(TitleSource::First, pass);
        member.observe(tgid, process, pass);
        self.members.insert(tgid, member);
    }

    fn announce_limits(&self, pass: &mut Pass<'_>) {
        let interval_ms = self.interval.0 / 1_000_000;
        pass.tell_degraded(
            DiagKind::PollingLimit,
            "sysinfo",
            None,
            format!(
                "polled every {interval_ms} ms through the platform's process list: a process \
                 that lives shorter is missing, with its children, and so is memory that comes \
                 and goes between two polls; start times are known to the second, exit codes \
                 and kinds of memory are not known"
            ),
        );
    }
}

impl Collector for SysinfoBackend {
    fn name(&self) -> &'static str {
        "sysinfo"
    }

    fn period(&self) -> DurationNs {
        self.interval
    }

    fn collect(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        let started = clock::thread_cpu();
        if self.is_first {
            self.announce_limits(pass);
        }
        let are_names_fresh = self.refresh(pass.tick.boot);
        self.bury_the_dead(pass);
        for (tgid, member) in &mut self.members {
            let Some(process) = self.system.process(pid(*tgid)) else {
                continue;
            };
            member.observe(*tgid, process, pass);
            if are_names_fresh {
                member.check_names(process, pass);
            }
        }
        for started in self.find_started() {
            self.admit(started, pass);
        }
        self.is_first = false;
        let cost = DurationNs(clock::thread_cpu().0 - started.0);
        pass.table.note_snapshot(pass.tick.boot, cost);
        Ok(())
    }
}
