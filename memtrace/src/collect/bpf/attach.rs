//! Who belongs: processes that are running when recording starts, and those that come to
//! belong later by a new name or inside a cgroup.

use super::apply::comm_text;
use super::backend::BpfBackend;
use super::load::LoadError;
use crate::collect::procfs::{self, Identity};
use crate::collect::{End, Process, Targets, Tick, World, exit_row};
use crate::model::{BootNs, FirstSeenBy, Record, Tgid, Upid};
use memtrace_abi::TaskSeen;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

impl BpfBackend {
    /// Enters every running process that belongs. Forks are already followed, so passes
    /// are repeated until one finds nobody new.
    pub(super) fn enter_running(
        &mut self,
        tick: &Tick,
        world: &mut World,
        out: &mut Vec<Record>,
    ) -> Result<(), LoadError> {
        match self.options.targets.clone() {
            Targets::Roots(roots) => {
                for root in roots {
                    self.enter(root)?;
                }
            }
            Targets::Cgroup(directory) => {
                self.enter_cgroup(&directory, world)?;
            }
            Targets::Match(_) | Targets::All => {}
        }
        self.complete(tick, world, out)
    }

    /// Lets the kernel complete whoever was entered by id, with all descendants.
    fn complete(
        &mut self,
        tick: &Tick,
        world: &mut World,
        out: &mut Vec<Record>,
    ) -> Result<(), LoadError> {
        loop {
            let mut seen = Vec::new();
            self.programs.visit_tasks(|task| seen.push(*task))?;
            // Parents first: a process is never older than the one that forked it.
            seen.sort_by_key(|task| task.start_boot_ns);
            let mut has_new = false;
            for task in &seen {
                if task.is_member != 0 {
                    has_new |= current(world, Tgid(task.tgid), task.start_boot_ns).is_none();
                    self.enter_seen(task, tick, world, out);
                } else if self.matches_stranger(task) {
                    self.enter(Tgid(task.tgid))?;
                    has_new = true;
                }
            }
            if !has_new {
                self.forget_vanished(world);
                return Ok(());
            }
        }
    }

    /// After a lost start or end the world is wrong until somebody looks: enters members
    /// that are not known, ends those that are not there any more.
    pub(super) fn reconcile(
        &mut self,
        tick: &Tick,
        world: &mut World,
        out: &mut Vec<Record>,
    ) -> Result<(), LoadError> {
        if !std::mem::take(&mut self.has_lost_lifecycle) {
            return Ok(());
        }
        self.complete(tick, world, out)?;
        let mut running = HashSet::new();
        self.programs.visit_tasks(|task| {
            running.insert((Tgid(task.tgid), BootNs(task.start_boot_ns.cast_signed())));
        })?;
        let gone: Vec<(Upid, Tgid, BootNs)> = world
            .processes()
            .map(Process::row)
            .filter(|row| !running.contains(&(row.tgid, row.start_boot_ns)))
            .map(|row| (row.upid, row.tgid, row.start_boot_ns))
            .collect();
        for (upid, tgid, start) in gone {
            self.apply.remember_end(tgid, start);
            out.push(Record::Mem(exit_row(upid, tick.boot, tick)));
            world.end(
                upid,
                End {
                    at: tick.boot,
                    wait_status: None,
                },
            );
        }
        Ok(())
    }

    fn enter(&mut self, tgid: Tgid) -> Result<(), LoadError> {
        self.programs.enter(tgid)?;
        self.entered.push(tgid);
        Ok(())
    }

    /// Takes back those who were entered by id but ended before the kernel found them:
    /// their ids may go to strangers.
    fn forget_vanished(&mut self, world: &World) {
        for tgid in self.entered.drain(..) {
            if world.upid(tgid).is_none() {
                self.programs.forget(tgid);
            }
        }
    }

    fn matches_stranger(&self, task: &TaskSeen) -> bool {
        let is_ours = self.own_lineage.contains(&Tgid(task.tgid));
        if is_ours || !matches!(self.options.targets, Targets::Match(_)) {
            return false;
        }
        let comm = comm_text(&task.comm);
        let title = identity(Tgid(task.tgid)).and_then(|found| found.cmdline);
        self.options.targets.matches_name(&comm, title.as_deref())
    }

    fn enter_seen(
        &mut self,
        task: &TaskSeen,
        tick: &Tick,
        world: &mut World,
        out: &mut Vec<Record>,
    ) {
        let tgid = Tgid(task.tgid);
        if current(world, tgid, task.start_boot_ns).is_some() {
            return;
        }
        // What the kernel does not keep at hand: the file, the command line. Refused or
        // vanished reads leave them unknown.
        let mut identity = identity(tgid);
        let held = self.options.held.as_ref().filter(|held| held.tgid == tgid);
        if let (Some(held), Some(identity)) = (held, &mut identity) {
            identity.exe = None;
            identity.cmdline = Some(held.cmdline.clone());
        }
        let seen_by = if held.is_some() {
            FirstSeenBy::Command
        } else {
            FirstSeenBy::Snapshot
        };
        self.apply.seen(task, seen_by, identity, tick, world, out);
    }

    /// Enters those who were found to match since the last call, and on cgroup targets
    /// those who were moved in.
    pub(super) fn adopt_strangers(
        &mut self,
        tick: &Tick,
        world: &mut World,
        out: &mut Vec<Record>,
    ) -> Result<(), LoadError> {
        let mut has_new = false;
        let invited = world.take_invited();
        for tgid in self.apply.take_matches().into_iter().chain(invited) {
            if world.upid(tgid).is_none() && !self.own_lineage.contains(&tgid) {
                self.enter(tgid)?;
                has_new = true;
            }
        }
        if let Targets::Cgroup(directory) = &self.options.targets
            && self.cgroup_scan.is_due(tick.boot)
        {
            let directory = directory.clone();
            has_new |= self.enter_cgroup(&directory, world)?;
        }
        if has_new {
            self.complete(tick, world, out)
        } else {
            Ok(())
        }
    }

    /// Enters the processes of a cgroup and of the groups below it, and has the kernel
    /// enter those that call exec there. A group that vanishes meanwhile is no error.
    /// Answers whether there was anybody new.
    fn enter_cgroup(&mut self, directory: &Path, world: &World) -> Result<bool, LoadError> {
        let mut has_new = false;
        let mut pending: Vec<PathBuf> = vec![directory.to_owned()];
        while let Some(group) = pending.pop() {
            if let Ok(metadata) = std::fs::metadata(&group) {
                use std::os::unix::fs::MetadataExt;
                // On 64-bit kernels the inode number of a group is its kernfs id.
                self.programs.add_target_cgroup(metadata.ino())?;
            }
            let members = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            for tgid in members
                .lines()
                .filter_map(|line| line.parse().ok().map(Tgid))
            {
                if world.upid(tgid).is_none() {
                    self.enter(tgid)?;
                    has_new = true;
                }
            }
            let children = std::fs::read_dir(&group).into_iter().flatten().flatten();
            pending.extend(
                children
                    .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                    .map(|entry| entry.path()),
            );
        }
        Ok(has_new)
    }
}

/// What only /proc knows of a process; nothing where it has gone or reads are refused.
pub(super) fn identity(tgid: Tgid) -> Option<Identity> {
    procfs::identity(Path::new("/proc"), tgid).ok().flatten()
}

/// The process with this id, if it is the one that started then.
pub(super) fn current(world: &World, tgid: Tgid, start_boot_ns: u64) -> Option<Upid> {
    let upid = world.upid(tgid)?;
    let start = world.process(upid)?.row().start_boot_ns;
    (start == BootNs(start_boot_ns.cast_signed())).then_some(upid)
}

/// How often a cgroup is looked through for processes that were moved in.
#[derive(Default)]
pub(super) struct CgroupScan {
    last: Option<BootNs>,
}

impl CgroupScan {
    const PERIOD_NS: i64 = 1_000_000_000;

    fn is_due(&mut self, now: BootNs) -> bool {
        let is_due = self
            .last
            .is_none_or(|last| (now - last).0 >= Self::PERIOD_NS);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::Birth;

    #[test]
    fn a_cgroup_is_looked_through_once_a_second() {
        let mut scan = CgroupScan::default();
        let times = [
            0,
            1,
            999_999_999,
            1_000_000_000,
            1_999_999_999,
            2_000_000_000,
        ];
        let due = times.map(|at| scan.is_due(BootNs(at)));
        assert_eq!(due, [true, false, false, true, false, true]);
    }

    #[test]
    fn a_process_is_known_by_its_id_and_its_start() {
        let mut world = World::default();
        let birth = Birth {
            tgid: Tgid(7),
            start: BootNs(10),
            seen_by: FirstSeenBy::Fork,
            parent: None,
            comm: String::new(),
        };
        let upid = world.enter(birth, BootNs(11));
        assert_eq!(current(&world, Tgid(7), 10), Some(upid));
        assert_eq!(current(&world, Tgid(7), 11), None);
        assert_eq!(current(&world, Tgid(8), 10), None);
    }
}
