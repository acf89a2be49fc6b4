//! The namespaces that this process is in.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;

/// Inode numbers of the machine's own namespaces, fixed by include/linux/proc_ns.h
/// (PROC_CGROUP_INIT_INO, PROC_PID_INIT_INO, PROC_USER_INIT_INO) since 3.8, the first since 4.6.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(super) enum Initial {
    Cgroup = 4_026_531_835,
    Pid = 4_026_531_836,
    User = 4_026_531_837,
}

impl Initial {
    fn kind(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::Pid => "pid",
            Self::User => "user",
        }
    }

    /// Whether this process is in it; `root` is where the machine's /proc is below. `None` where
    /// that can't be reported.
    pub(super) fn is_own(self, root: &Path) -> Option<bool> {
        let kind = self.kind();
        // A link to `kind:[INODE]`.
        let link = fs::read_link(root.join(format!("proc/self/ns/{kind}"))).ok()?;
        let link = link.to_str()?;
        let number = link.strip_prefix(kind)?.strip_prefix(":[")?;
        Some(number.strip_suffix(']')?.parse::<u64>().ok()? == self as u64)
    }
}

/// Enters the machine's own cgroup namespace, where this process is among the machine's processes
/// and may do so (CAP_SYS_ADMIN). In a namespace of its own, as Kubernetes gives to containers, the
/// kernel writes the groups of others as `/../…`, for which there is no directory.
///
/// Only the calling thread enters, and threads that it starts after it.
pub fn enter_cgroup_namespace_of_the_machine() {
    let root = Path::new("/");
    if Initial::Cgroup.is_own(root) != Some(false) || Initial::Pid.is_own(root) != Some(true) {
        return;
    }
    // The kernel's own threads are in the machine's namespaces, and process 2 starts them all; process 1
    // may have rights that we lack, and then it can't be asked.
    if let Ok(namespace) = File::open("/proc/2/ns/cgroup") {
        let kind = Some(rustix::thread::LinkNameSpaceType::ControlGroup);
        // Refused, groups of others stay unknown, and what is reported of them says so.
        let _ = rustix::thread::move_into_link_name_space(namespace.as_fd(), kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_namespace_is_reported_by_its_inode() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Initial::Pid.is_own(root.path()), None);
        let dir = root.path().join("proc/self/ns");
        fs::create_dir_all(&dir).unwrap();
        symlink("pid:[4026531836]", dir.join("pid")).unwrap();
        symlink("user:[4026532001]", dir.join("user")).unwrap();
        symlink("net:[4026531835]", dir.join("cgroup")).unwrap();
        assert_eq!(Initial::Pid.is_own(root.path()), Some(true));
        assert_eq!(Initial::User.is_own(root.path()), Some(false));
        assert_eq!(Initial::Cgroup.is_own(root.path()), None);
    }
}
