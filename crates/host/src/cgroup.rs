//! Where the memory controller lives, and how a cgroup's path and its directory are reported
//! from each other.

use serde::Serialize;
use std::path::{Component, Path, PathBuf};

/// The version of a cgroup hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CgroupVersion {
    /// One hierarchy per controller.
    #[serde(rename = "v1")]
    V1,
    /// The unified hierarchy.
    #[serde(rename = "v2")]
    V2,
}

impl CgroupVersion {
    /// The number, as tables and people write it.
    pub fn number(self) -> i32 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }
}

/// The hierarchy that holds the memory controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryHierarchy {
    /// Version 1 also where a v2 hierarchy is mounted beside it without the controller
    /// (systemd's hybrid layout).
    pub version: CgroupVersion,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// The group that the mount shows as its top: "/" unless it is a bind mount, as some
    /// container engines make it on v1.
    pub root: String,
}

impl MemoryHierarchy {
    /// The directory of a group, given its path as /proc/PID/cgroup writes it; `None` when
    /// the mount does not show the group (it lies outside the bind mount, or outside the
    /// cgroup namespace, where the kernel writes `/..`).
    pub fn directory(&self, path: &str) -> Option<PathBuf> {
        let below = match self.root.as_str() {
            "/" => path,
            root => match path.strip_prefix(root)? {
                "" => "",
                rest if rest.starts_with('/') => rest,
                _ => return None,
            },
        };
        let below = Path::new(below.trim_start_matches('/'));
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        below
            .components()
            .all(is_plain)
            .then(|| self.mount_point.join(below))
    }

    /// The path of a group as /proc/PID/cgroup writes it, given its directory; `None` for
    /// a directory that is not below the mount point.
    pub fn path(&self, directory: &Path) -> Option<String> {
        let below = directory.strip_prefix(&self.mount_point).ok()?;
        let below = below.to_string_lossy();
        Some(match (self.root.as_str(), below.as_ref()) {
            ("/", below) => format!("/{below}"),
            (root, "") => root.to_owned(),
            (root, below) => format!("{root}/{below}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounted_at(root: &str) -> MemoryHierarchy {
        MemoryHierarchy {
            version: CgroupVersion::V1,
            mount_point: PathBuf::from("/sys/fs/cgroup/memory"),
            root: root.to_owned(),
        }
    }

    #[test]
    fn a_path_and_its_directory_come_back_to_each_other() {
        for (root, path, directory) in [
            ("/", "/", "/sys/fs/cgroup/memory"),
            ("/", "/a/b", "/sys/fs/cgroup/memory/a/b"),
            ("/docker/c1", "/docker/c1", "/sys/fs/cgroup/memory"),
            ("/docker/c1", "/docker/c1/x", "/sys/fs/cgroup/memory/x"),
        ] {
            let hierarchy = mounted_at(root);
            let found = hierarchy.directory(path);
            assert_eq!(
                found.as_deref(),
                Some(Path::new(directory)),
                "{root} {path}"
            );
            assert_eq!(hierarchy.path(Path::new(directory)).as_deref(), Some(path));
        }
    }

    #[test]
    fn a_group_that_the_mount_does_not_show_has_no_directory() {
        assert_eq!(mounted_at("/docker/c1").directory("/docker/c12"), None);
        assert_eq!(mounted_at("/docker/c1").directory("/other"), None);
        assert_eq!(mounted_at("/").directory("/../sibling"), None);
        assert_eq!(mounted_at("/").path(Path::new("/proc/1")), None);
    }
}
