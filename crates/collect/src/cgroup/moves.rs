//! Processes that were moved to another group while they run. Only /proc tells: no event comes
//! with it but the tracepoint of a hierarchy that may be another one.

use crate::ProcessTable;
use crate::kept::TextBuffer;
use crate::procfs::{Stat, memory_cgroup, set_cgroup};
use memtrace_host::MemoryHierarchy;
use memtrace_model::{BootNs, DurationNs, Tgid, Upid};
use std::path::Path;

const PERIOD: DurationNs = DurationNs(1_000_000_000);
/// So many are looked at each time, 10 to 20 µs each,
const LEAST: usize = 16;
/// or one part in so many, where that is more,
const PART: usize = 32;
/// and so many at most: a fifth of a percent of a CPU.
const MOST: usize = 128;

/// Looks at the processes in turn.
#[derive(Debug, Default)]
pub(super) struct Moves {
    looked_at: Option<BootNs>,
    last: Upid,
}

impl Moves {
    /// Enters the group in which some processes are now. `proc` is where procfs is mounted.
    pub(super) fn follow(
        &mut self,
        now: BootNs,
        table: &mut ProcessTable,
        proc: &Path,
        hierarchy: &MemoryHierarchy,
        buffer: &mut TextBuffer,
    ) {
        if self.looked_at.is_some_and(|at| now - at < PERIOD) {
            return;
        }
        self.looked_at = Some(now);
        for (upid, tgid) in self.next(table) {
            if let Some(path) = group(tgid, proc, hierarchy, buffer)
                && let Some(process) = table.process_mut(upid)
                && process.row().cgroup.as_deref() != Some(path.as_str())
            {
                set_cgroup(process.row_mut(), &path);
            }
        }
    }

    fn next(&mut self, table: &ProcessTable) -> Vec<(Upid, Tgid)> {
        let mut alive: Vec<_> = table
            .processes()
            .map(|process| (process.row().upid, process.row().tgid))
            .collect();
        let count = (alive.len() / PART).clamp(LEAST, MOST);
        let had_turn = self.last;
        let order = |&(upid, _): &(Upid, Tgid)| (upid <= had_turn, upid);
        if count < alive.len() {
            alive.select_nth_unstable_by_key(count, order);
            alive.truncate(count);
        }
        if let Some(&(upid, _)) = alive.iter().max_by_key(|process| order(process)) {
            self.last = upid;
        }
        alive
    }
}

/// The group of a process, where /proc tells and the mount shows it.
fn group(
    tgid: Tgid,
    proc: &Path,
    hierarchy: &MemoryHierarchy,
    buffer: &mut TextBuffer,
) -> Option<String> {
    let text = buffer
        .read_once(&proc.join(format!("{tgid}/cgroup")))
        .ok()?;
    let path = memory_cgroup(text)?;
    // On v1 this stands for every group from the begin of exit on (proc_cgroup_show()). Whoever
    // does not exit when asked afterwards did not before.
    if path == "/" && !lives(tgid, proc, buffer) {
        return None;
    }
    // What the mount does not show was named in another way.
    hierarchy.directory(&path).is_some().then_some(path)
}

/// Whether a process is there, and its main thread not on its way out.
fn lives(tgid: Tgid, proc: &Path, buffer: &mut TextBuffer) -> bool {
    let text = buffer.read_once(&proc.join(format!("{tgid}/stat"))).ok();
    text.and_then(Stat::parse)
        .is_some_and(|stat| !stat.is_exiting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Birth;
    use memtrace_host::CgroupVersion;
    use memtrace_model::FirstSeenBy;
    use std::collections::HashSet;
    use std::fs;

    /// The group of a process that was in /a, after /proc says this of it while it sleeps.
    fn after(version: CgroupVersion, text: &str) -> Option<String> {
        after_with_flags(version, text, "S", 0)
    }

    fn after_with_flags(
        version: CgroupVersion,
        text: &str,
        state: &str,
        flags: u32,
    ) -> Option<String> {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join("7")).unwrap();
        fs::write(proc.path().join("7/cgroup"), text).unwrap();
        let stat = format!("7 (train) {state} 1 2 2 2 2 {flags}{}", " 2".repeat(43));
        fs::write(proc.path().join("7/stat"), stat).unwrap();
        let hierarchy = MemoryHierarchy {
            version,
            mount_point: "/sys/fs/cgroup".into(),
            root: "/".to_owned(),
        };
        let mut table = ProcessTable::default();
        let upid = enter(&mut table, 7);
        let mut buffer = TextBuffer::default();
        Moves::default().follow(BootNs(0), &mut table, proc.path(), &hierarchy, &mut buffer);
        table
            .row(upid)
            .unwrap()
            .cgroup
            .as_deref()
            .map(str::to_owned)
    }

    fn enter(table: &mut ProcessTable, tgid: u32) -> Upid {
        let birth = Birth {
            tgid: Tgid(tgid),
            start: BootNs(i64::from(tgid)),
            seen_by: FirstSeenBy::Poll,
            parent: None,
            comm: String::new(),
        };
        let upid = table.enter(birth, BootNs(0));
        let process = table.process_mut(upid).unwrap();
        set_cgroup(process.row_mut(), "/a");
        upid
    }

    #[test]
    fn a_process_that_was_moved_is_in_its_new_group() {
        let b = Some("/b".to_owned());
        assert_eq!(after(CgroupVersion::V1, "9:pids:/x\n4:memory:/b\n"), b);
        assert_eq!(after(CgroupVersion::V2, "0::/b\n"), b);
        assert_eq!(after(CgroupVersion::V2, "0::/\n").as_deref(), Some("/"));
        assert_eq!(
            after(CgroupVersion::V1, "4:memory:/\n").as_deref(),
            Some("/")
        );
    }

    #[test]
    fn what_says_nothing_of_the_group_changes_nothing() {
        let a = Some("/a".to_owned());
        assert_eq!(after(CgroupVersion::V2, "0::/../sibling\n"), a);
        assert_eq!(after(CgroupVersion::V2, "1:name=systemd:/x\n"), a);
    }

    #[test]
    fn a_process_that_exits_stays_in_its_group() {
        const PF_EXITING: u32 = 4;
        // Z: the main thread has ended, and others go on. R and D: the address space is torn
        // down, which takes long for a large one.
        for state in ["Z", "R", "D"] {
            let after = after_with_flags(CgroupVersion::V1, "4:memory:/\n", state, PF_EXITING);
            assert_eq!(after.as_deref(), Some("/a"), "{state}");
        }
    }

    #[test]
    fn everyone_has_a_turn_and_few_at_a_time() {
        let mut table = ProcessTable::default();
        for tgid in 1..=30 {
            enter(&mut table, tgid);
        }
        let mut moves = Moves::default();
        let turns = [moves.next(&table), moves.next(&table)];
        assert_eq!(turns.each_ref().map(Vec::len), [LEAST, LEAST]);
        let seen: HashSet<_> = turns.iter().flatten().collect();
        assert_eq!(seen.len(), 30);
    }
}
