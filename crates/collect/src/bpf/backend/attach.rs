//! Who belongs: processes that are running when recording starts, and those that come to
//! belong later by a new name or inside a cgroup.

use super::BpfBackend;
use crate::bpf::decode::comm_text;
use crate::bpf::error::LoadError;
use crate::bpf::known::{current, identity};
use crate::{Pass, Process, ProcessTable, Targets, exit_row};
use memtrace_abi::TaskSeen;
use memtrace_model::{BootNs, DurationNs, Order, Tgid, Upid};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// So often the running processes are looked through in one go.
const PASSES_MAX: usize = 4;
/// CPU time for looking up in /proc who was found running when the recording starts.
const NAMING_AT_START: DurationNs = DurationNs(250_000_000);

impl BpfBackend {
    /// Enters every running process that belongs.
    pub(super) fn enter_running(&mut self, pass: &mut Pass<'_>) -> Result<(), LoadError> {
        match self.options.targets.clone() {
            Targets::Roots(roots) => {
                for root in roots {
                    self.enter(root)?;
                }
            }
            Targets::Cgroup(directory) => {
                self.enter_cgroup(&directory, pass.table)?;
            }
            Targets::Match(_) | Targets::All => {}
        }
        self.complete(pass)?;
        self.apply.name_some(NAMING_AT_START, pass);
        Ok(())
    }

    /// Lets the kernel complete whoever was entered by id, with all descendants. Forks of
    /// members are followed already, so passes are repeated until one adopts nobody; not for
    /// ever, because processes that match can come faster than we look. Then the next turn goes
    /// on.
    fn complete(&mut self, pass: &mut Pass<'_>) -> Result<(), LoadError> {
        let mut unrecorded = HashSet::new();
        self.is_incomplete = true;
        for _ in 0..PASSES_MAX {
            let mut adopted = Vec::new();
            let mut others = Vec::new();
            self.programs.visit_tasks(|task| {
                if task.is_adopted != 0 {
                    adopted.push(*task);
                } else if task.is_member == 0 {
                    others.push(*task);
                }
            })?;
            let mut has_new = !adopted.is_empty();
            // Parents first: a process is never older than the one that forked it.
            adopted.order_by_key(|task| task.start_boot_ns);
            for task in &adopted {
                self.enter_seen(task, pass);
            }
            for task in &others {
                if unrecorded.insert((task.tgid, task.start_boot_ns))
                    && self.matches_unrecorded(task)
                {
                    self.enter(Tgid(task.tgid))?;
                    has_new = true;
                }
            }
            self.take_events(pass)?;
            if !has_new {
                self.is_incomplete = false;
                self.forget_vanished(pass.table);
                break;
            }
        }
        Ok(())
    }

    /// After a lost start or end the process table is wrong until somebody looks: enters members
    /// that are not known, ends those that are not there any more.
    pub(super) fn reconcile(&mut self, pass: &mut Pass<'_>) -> Result<(), LoadError> {
        if !self.has_lost_lifecycle || !self.late.is_empty() {
            return Ok(());
        }
        self.has_lost_lifecycle = false;
        self.complete(pass)?;
        let mut running = HashSet::new();
        let mut unknown = Vec::new();
        self.programs.visit_tasks(|task| {
            running.insert((Tgid(task.tgid), BootNs(task.start_boot_ns.cast_signed())));
            if task.is_member != 0 {
                unknown.push(*task);
            }
        })?;
        for task in &unknown {
            self.enter_seen(task, pass);
        }
        let gone: Vec<(Upid, Tgid, BootNs)> = pass
            .table
            .processes()
            .map(Process::row)
            .filter(|row| !running.contains(&(row.tgid, row.start_boot_ns)))
            .map(|row| (row.upid, row.tgid, row.start_boot_ns))
            .collect();
        for (upid, tgid, start) in gone {
            self.apply.remember_end(tgid, start);
            self.apply.cuda.end(upid, tgid, pass.tick.boot, pass);
            pass.write(exit_row(upid, pass.tick.boot, pass.tick));
            pass.table.end(upid, pass.tick.boot, None);
        }
        Ok(())
    }

    fn enter(&mut self, tgid: Tgid) -> Result<(), LoadError> {
        self.programs.enter(tgid)?;
        self.entered.push(tgid);
        Ok(())
    }

    /// Takes back those who were entered by id but ended before the kernel found them:
    /// their ids may go to others.
    fn forget_vanished(&mut self, table: &ProcessTable) {
        for tgid in self.entered.drain(..) {
            if table.upid(tgid).is_none() {
                self.programs.forget(tgid);
            }
        }
    }

    fn matches_unrecorded(&self, task: &TaskSeen) -> bool {
        let is_ours = self.own_processes.contains(&Tgid(task.tgid));
        if is_ours || !matches!(self.options.targets, Targets::Match(_)) {
            return false;
        }
        let comm = comm_text(&task.comm);
        let title = identity(Tgid(task.tgid)).and_then(|found| found.cmdline);
        self.options.targets.matches_name(&comm, title.as_deref())
    }

    pub(super) fn enter_seen(&mut self, task: &TaskSeen, pass: &mut Pass<'_>) {
        if current(pass.table, task.tgid, task.start_boot_ns).is_some() {
            return;
        }
        let held = self.options.held.as_ref();
        let held = held.filter(|held| held.tgid == Tgid(task.tgid));
        let cmdline = held.map(|held| held.cmdline.as_str());
        self.apply.seen(task, cmdline, pass);
    }

    /// Enters those who were found to match since the last call, and on cgroup targets
    /// those who were moved in.
    pub(super) fn adopt_strangers(&mut self, pass: &mut Pass<'_>) -> Result<(), LoadError> {
        let mut has_new = false;
        let adoption_requests = std::mem::take(&mut pass.table.news.adoption_requests);
        for tgid in self
            .apply
            .take_matches()
            .into_iter()
            .chain(adoption_requests)
        {
            if pass.table.upid(tgid).is_none() && !self.own_processes.contains(&tgid) {
                self.enter(tgid)?;
                has_new = true;
            }
        }
        if let Targets::Cgroup(directory) = &self.options.targets
            && self.cgroup_scan.is_due(pass.tick.boot)
        {
            let directory = directory.clone();
            has_new |= self.enter_cgroup(&directory, pass.table)?;
        }
        if has_new || self.is_incomplete {
            self.complete(pass)
        } else {
            Ok(())
        }
    }

    /// After names were lost: what the living are called now, and whether unrecorded processes match by it.
    pub(super) fn look_at_names(&mut self, pass: &mut Pass<'_>) -> Result<(), LoadError> {
        if !std::mem::take(&mut self.has_lost_titles) {
            return Ok(());
        }
        self.is_incomplete |= self.options.targets.can_adopt();
        let apply = &self.apply;
        // A member that this pass of the kernel makes one is new in no other.
        let mut unknown = Vec::new();
        let visited = self.programs.visit_tasks(|task| {
            match current(pass.table, task.tgid, task.start_boot_ns) {
                Some(upid) => apply.renamed(upid, task, pass),
                None if task.is_member != 0 => unknown.push(*task),
                None => {}
            }
        });
        for task in &unknown {
            self.enter_seen(task, pass);
        }
        visited
    }

    /// Enters the processes of a cgroup and of the groups below it, and has the kernel
    /// enter those that call exec there. A group that vanishes meanwhile is no error.
    /// Answers whether there was anybody new.
    fn enter_cgroup(&mut self, directory: &Path, table: &ProcessTable) -> Result<bool, LoadError> {
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
                if table.upid(tgid).is_none() {
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
}
