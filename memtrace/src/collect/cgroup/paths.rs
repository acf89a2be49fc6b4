//! From the number by which the kernel knows a cgroup to the path by which people do.

use crate::host::MemoryHierarchy;
use crate::model::{BootNs, DurationNs};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};

/// The least time between two walks of the hierarchy.
const WALK_PERIOD: DurationNs = DurationNs(1_000_000_000);

/// Resolves kernfs ids, which BPF reports as cgroup ids and which are the inode numbers
/// of the groups' directories (64 bits wide since 5.5).
#[derive(Debug)]
pub struct CgroupPaths {
    hierarchy: MemoryHierarchy,
    known: HashMap<u64, String>,
    walked_at: Option<BootNs>,
}

impl CgroupPaths {
    /// A resolver for the hierarchy that holds the memory controller.
    pub fn new(hierarchy: MemoryHierarchy) -> Self {
        Self {
            hierarchy,
            known: HashMap::new(),
            walked_at: None,
        }
    }

    /// The path of a cgroup, as /proc/PID/cgroup writes it. An id that is not known walks
    /// the hierarchy, at most once a second; `None` when the group is not there, or came
    /// and went between two walks. A path that was seen once is kept: rows about a group
    /// outlive it.
    pub fn resolve(&mut self, id: u64, now: BootNs) -> Option<String> {
        if !self.known.contains_key(&id) {
            let is_due = self
                .walked_at
                .is_none_or(|walked| now - walked >= WALK_PERIOD);
            if is_due {
                self.walked_at = Some(now);
                self.walk();
            }
        }
        self.known.get(&id).cloned()
    }

    fn walk(&mut self) {
        let top = self.hierarchy.mount_point.clone();
        if let Ok(metadata) = fs::metadata(&top) {
            self.learn(metadata.ino(), &top);
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
                    self.learn(entry.ino(), &path);
                    directories.push(path);
                }
            }
        }
    }

    fn learn(&mut self, id: u64, directory: &std::path::Path) {
        if let Some(path) = self.hierarchy.path(directory) {
            self.known.insert(id, path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::CgroupVersion;

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
