//! From the number by which the kernel knows a cgroup to the path by which people do.

use memtrace_host::{MemoryHierarchy, clock};
use memtrace_model::{BootNs, DurationNs};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::sync::Arc;

/// The least time between two walks of the hierarchy.
const WALK_PERIOD: DurationNs = DurationNs(1_000_000_000);

/// Walking takes at most one part in so many of the time.
const WALK_SHARE: i64 = 100;

/// An id that a walk did not find is not looked for again for so long: groups get their id when
/// they are made, so it has gone, or lies where we can't see it.
const ABSENT_FOR: DurationNs = DurationNs(60_000_000_000);

/// Most groups that are remembered, those that are there included: some hundred bytes each.
const KNOWN_MAX: usize = 16 * 1024;

/// Resolves kernfs ids, which BPF reports as cgroup ids and which are the inode numbers
/// of the groups' directories (64 bits wide since 5.5).
#[derive(Debug)]
pub struct CgroupPaths {
    hierarchy: MemoryHierarchy,
    known: HashMap<u64, Known>,
    /// Ids that a walk did not find, and when that was.
    absent: HashMap<u64, BootNs>,
    walked_at: Option<BootNs>,
    /// What the last walk took, in CPU time.
    walk_cost: DurationNs,
}

#[derive(Debug)]
struct Known {
    path: Arc<str>,
    /// When it was last asked for or found.
    used_at: BootNs,
}

impl CgroupPaths {
    /// A resolver for the hierarchy that holds the memory controller.
    pub fn new(hierarchy: MemoryHierarchy) -> Self {
        Self {
            hierarchy,
            known: HashMap::new(),
            absent: HashMap::new(),
            walked_at: None,
            walk_cost: DurationNs(0),
        }
    }

    /// The path of a cgroup, as /proc/PID/cgroup writes it. An id that is not known walks
    /// the hierarchy, at most once a second, and less often where that takes long; `None` when
    /// the group is not there, or came and went between two walks. A path that was seen is
    /// kept for a while: rows about a group outlive it.
    pub fn resolve(&mut self, id: u64, now: BootNs) -> Option<Arc<str>> {
        if let Some(known) = self.known.get_mut(&id) {
            known.used_at = known.used_at.max(now);
            return Some(known.path.clone());
        }
        if self
            .absent
            .get(&id)
            .is_some_and(|at| now - *at < ABSENT_FOR)
            || !self.is_due(now)
        {
            return None;
        }
        self.walked_at = Some(now);
        let started = clock::thread_cpu();
        self.walk(now);
        self.walk_cost = DurationNs(clock::thread_cpu().0 - started.0);
        self.forget(now);
        if !self.known.contains_key(&id) {
            self.absent.insert(id, now);
        }
        self.known.get(&id).map(|known| known.path.clone())
    }

    fn is_due(&self, now: BootNs) -> bool {
        let pause = DurationNs(WALK_PERIOD.0.max(self.walk_cost.0 * WALK_SHARE));
        self.walked_at.is_none_or(|walked| now - walked >= pause)
    }

    /// Keeps what is remembered within bounds: what was not asked for the longest goes first.
    fn forget(&mut self, now: BootNs) {
        self.absent.retain(|_, at| now - *at < ABSENT_FOR);
        if self.known.len() > KNOWN_MAX {
            let mut uses: Vec<BootNs> = self.known.values().map(|known| known.used_at).collect();
            uses.sort_unstable();
            let oldest = uses.get(self.known.len() - KNOWN_MAX).copied();
            self.known
                .retain(|_, known| oldest.is_none_or(|oldest| known.used_at >= oldest));
        }
    }

    fn walk(&mut self, now: BootNs) {
        let top = self.hierarchy.mount_point.clone();
        if let Ok(metadata) = fs::metadata(&top) {
            self.learn(metadata.ino(), &top, now);
        }
        let mut directories = vec![top];
        while let Some(directory) = directories.pop() {
            // Gone meanwhile, or closed to us: what lies below stays unknown.
            let Ok(entries) = fs::read_dir(&directory) else {
                continue;
            };
            for entry in entries.flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let path = entry.path();
                    self.learn(entry.ino(), &path, now);
                    directories.push(path);
                }
            }
        }
    }

    fn learn(&mut self, id: u64, directory: &std::path::Path, now: BootNs) {
        if let Some(path) = self.hierarchy.path(directory) {
            // When it was last asked for is what counts, but for one that is new.
            let used_at = self.known.get(&id).map_or(now, |known| known.used_at);
            let path = Arc::from(path);
            self.known.insert(id, Known { path, used_at });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_host::CgroupVersion;

    fn paths_below(mount: &std::path::Path) -> CgroupPaths {
        CgroupPaths::new(MemoryHierarchy {
            version: CgroupVersion::V2,
            mount_point: mount.to_owned(),
            root: "/".to_owned(),
        })
    }

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn an_id_that_came_and_went_walks_the_hierarchy_once() {
        let mount = tempfile::tempdir().unwrap();
        let mut paths = paths_below(mount.path());
        for second in 0..59 {
            assert_eq!(paths.resolve(1, BootNs(second * SECOND)), None);
            assert_eq!(paths.walked_at, Some(BootNs(0)), "second {second}");
        }
        assert_eq!(paths.resolve(1, BootNs(60 * SECOND)), None);
        assert_eq!(paths.walked_at, Some(BootNs(60 * SECOND)), "asked again");
    }

    #[test]
    fn a_walk_that_took_long_is_not_repeated_soon() {
        let mount = tempfile::tempdir().unwrap();
        let mut paths = paths_below(mount.path());
        assert!(paths.is_due(BootNs(0)));
        (paths.walked_at, paths.walk_cost) = (Some(BootNs(0)), DurationNs(SECOND / 10));
        assert!(!paths.is_due(BootNs(9 * SECOND)));
        assert!(paths.is_due(BootNs(10 * SECOND)));
    }

    #[test]
    fn what_is_remembered_of_groups_is_bounded() {
        let mount = tempfile::tempdir().unwrap();
        let mut paths = paths_below(mount.path());
        for id in 0..2 * KNOWN_MAX as u64 {
            let path = format!("/gone/{id}").into();
            let used_at = BootNs(id.cast_signed());
            paths.known.insert(id, Known { path, used_at });
            paths.absent.insert(id, BootNs(0));
        }
        paths.forget(BootNs(61 * SECOND));
        assert_eq!(paths.known.len(), KNOWN_MAX);
        assert!(
            paths.known.contains_key(&(2 * KNOWN_MAX as u64 - 1)),
            "the latest stays"
        );
        assert!(paths.absent.is_empty());
    }

    #[test]
    fn an_id_is_resolved_once_its_group_is_there_and_after_it_is_gone() {
        let mount = tempfile::tempdir().unwrap();
        let mut paths = CgroupPaths::new(MemoryHierarchy {
            version: CgroupVersion::V2,
            mount_point: mount.path().to_owned(),
            root: "/".to_owned(),
        });
        let group = mount.path().join("user.slice/job");
        assert_eq!(paths.resolve(1, BootNs(0)), None);
        fs::create_dir_all(&group).unwrap();
        let id = fs::metadata(&group).unwrap().ino();
        assert_eq!(
            paths.resolve(id, BootNs(500_000_000)),
            None,
            "no walk is due"
        );
        let found = paths.resolve(id, BootNs(1_000_000_000));
        assert_eq!(found.as_deref(), Some("/user.slice/job"));
        fs::remove_dir(&group).unwrap();
        let found = paths.resolve(id, BootNs(9_000_000_000));
        assert_eq!(found.as_deref(), Some("/user.slice/job"));
        let top = fs::metadata(mount.path()).unwrap().ino();
        assert_eq!(
            paths.resolve(top, BootNs(9_000_000_000)).as_deref(),
            Some("/")
        );
    }
}
