//! Who has a GPU's device file open: candidates for memory that no list of processes
//! explains.
//!
//! A walk over the descriptors of every process: made only where memory is unexplained, and
//! rarely.

use crate::model::Tgid;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A process and the N of the /dev/nvidiaN that it has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Holder {
    pub(super) minor: u32,
    pub(super) tgid: Tgid,
}

/// Every such process that may be looked into, but this one.
pub(super) fn holders(proc: &Path) -> Vec<Holder> {
    let mut found = BTreeSet::new();
    let own = Tgid(std::process::id());
    for entry in std::fs::read_dir(proc).into_iter().flatten().flatten() {
        let Some(tgid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if Tgid(tgid) == own {
            continue;
        }
        let descriptors = std::fs::read_dir(entry.path().join("fd"));
        for descriptor in descriptors.into_iter().flatten().flatten() {
            let Ok(target) = std::fs::read_link(descriptor.path()) else {
                continue;
            };
            if let Some(minor) = minor(target.as_os_str().as_bytes()) {
                let tgid = Tgid(tgid);
                found.insert(Holder { minor, tgid });
            }
        }
    }
    found.into_iter().collect()
}

/// N of `/dev/nvidiaN`; none of `/dev/nvidiactl`, which every user of any GPU has open.
fn minor(target: &[u8]) -> Option<u32> {
    let digits = target.strip_prefix(b"/dev/nvidia")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn holders_are_found_by_their_descriptors() {
        let root = tempfile::tempdir().unwrap();
        let open = |tgid: u32, fd: u32, target: &str| {
            let dir = root.path().join(format!("{tgid}/fd"));
            std::fs::create_dir_all(&dir).unwrap();
            symlink(target, dir.join(fd.to_string())).unwrap();
        };
        open(10, 3, "/dev/nvidia0");
        open(10, 4, "/dev/nvidia0");
        open(10, 5, "/dev/nvidiactl");
        open(11, 3, "/dev/nvidia-uvm");
        open(12, 3, "/dev/nvidia7");
        open(13, 3, "/tmp/dev/nvidia0");
        std::fs::create_dir_all(root.path().join("self/fd")).unwrap();
        let found: Vec<_> = holders(root.path())
            .into_iter()
            .map(|holder| (holder.minor, holder.tgid.0))
            .collect();
        assert_eq!(found, [(0, 10), (7, 12)]);
    }
}
