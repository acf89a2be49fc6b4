//! The processes of a cgroup and of all groups below it.

use crate::fields::number;
use memtrace_model::Tgid;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

/// Reads cgroup.procs of a group and of every group below it. A group that vanishes
/// meanwhile is no error, nor is one that had vanished before; a process of another pid
/// namespace shows as 0 and is left out.
///
/// # Errors
/// When a list is there and can't be read.
pub fn below(group: &Path) -> io::Result<HashSet<Tgid>> {
    let mut found = HashSet::new();
    let mut groups = vec![group.to_owned()];
    while let Some(group) = groups.pop() {
        let Some(list) = unless_vanished(fs::read(group.join("cgroup.procs")))? else {
            continue;
        };
        let tgids = list.split(|byte| *byte == b'\n').filter_map(number);
        found.extend(tgids.filter(|tgid| *tgid != 0).map(Tgid));
        let Some(entries) = unless_vanished(fs::read_dir(&group))? else {
            continue;
        };
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                groups.push(entry.path());
            }
        }
    }
    Ok(found)
}

/// ENODEV: the group was removed after its file was opened (kernfs_fop_open() and
/// kernfs_seq_start()). EOPNOTSUPP: a threaded group has no list of processes.
fn unless_vanished<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EOPNOTSUPP)) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_below_are_included_and_a_missing_one_is_empty() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("pod/container");
        fs::create_dir_all(&inner).unwrap();
        fs::write(root.path().join("pod/cgroup.procs"), "0\n12\n").unwrap();
        fs::write(inner.join("cgroup.procs"), "7\n3\n7\n").unwrap();
        let found = below(&root.path().join("pod")).unwrap();
        assert_eq!(found, HashSet::from([Tgid(12), Tgid(3), Tgid(7)]));
        assert!(below(&root.path().join("gone")).unwrap().is_empty());
    }
}
