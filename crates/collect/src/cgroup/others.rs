//! The processes of a group that are not part of the recording: what they hold is in the
//! group's figures all the same.

use crate::fields::{kib, number, pairs};
use crate::kept::TextBuffer;
use memtrace_model::{Bytes, Tgid};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where a group has more processes than this that are not recorded, they are not looked at: 10 µs each,
/// every 10 s.
const OTHERS_MAX: i64 = 1_024;
/// More than this are not listed.
const LISTED_MAX: usize = 1 << 16;
/// More groups than this below one are not looked at either.
const GROUPS_MAX: usize = 256;

/// So many of them, in a group with so many processes, are few.
const FEW: i64 = 16;
const FEW_LISTED: usize = 1_024;

/// What they hold together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Others {
    pub(super) count: i64,
    /// RssAnon; `None` where one could not be read.
    pub(super) anon: Option<Bytes>,
    /// Whether they are few among few, and can be looked at every second.
    pub(super) are_few: bool,
}

impl Others {
    /// There is nobody.
    pub(super) const NONE: Self = Self {
        count: 0,
        anon: Some(Bytes(0)),
        are_few: false,
    };
}

/// Looks at the processes of a group and of the groups below it. `None` when they can't be
/// listed, or are too many. `proc` is where procfs is mounted, `recorded` whom to leave out.
pub(super) fn look(
    group: &Path,
    proc: &Path,
    recorded: &HashSet<Tgid>,
    buffer: &mut TextBuffer,
) -> Option<Others> {
    let mut others = Others::NONE;
    let mut listed = processes(group)?;
    // Parents come first, but where ids began anew.
    listed.sort_unstable();
    let mut new = HashSet::new();
    let are_few = listed.len() <= FEW_LISTED;
    for tgid in listed {
        if recorded.contains(&tgid) {
            continue;
        }
        let path = proc.join(format!("{tgid}/status"));
        let text = match buffer.read_once(&path) {
            Ok(text) => text,
            // It ended meanwhile.
            Err(_) if !proc.join(tgid.to_string()).exists() => continue,
            Err(_) => {
                others.count += 1;
                others.anon = None;
                continue;
            }
        };
        if others.count >= OTHERS_MAX {
            return None;
        }
        let field = |name: &[u8]| pairs(text).find(|(key, _)| *key == name);
        let parent = field(b"PPid").and_then(|(_, value)| number(value));
        // A child that the recording has yet to learn of, or a child of one. What memtrace itself started
        // is no part of the tree.
        let is_new_child = parent.map(Tgid).is_some_and(|parent| {
            parent.0 != std::process::id() && (recorded.contains(&parent) || new.contains(&parent))
        });
        if is_new_child {
            new.insert(tgid);
        }
        // A kernel thread, or one that has ended: it holds nothing.
        let Some((_, anon)) = field(b"RssAnon").filter(|_| !is_new_child) else {
            continue;
        };
        others.count += 1;
        others.anon = others.anon.zip(kib(anon)).map(|(all, one)| all + one);
    }
    others.are_few = are_few && (1..=FEW).contains(&others.count);
    Some(others)
}

fn processes(group: &Path) -> Option<Vec<Tgid>> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = vec![group.to_owned()];
    let mut seen = 0;
    while let Some(directory) = open.pop() {
        seen += 1;
        let Ok(text) = fs::read_to_string(directory.join("cgroup.procs")) else {
            // A group below can be removed at any time; the one that was asked for is there.
            if directory == group {
                return None;
            }
            continue;
        };
        for line in text.lines() {
            // 0 stands for a process that this pid namespace does not show.
            found.push(line.parse().ok().filter(|tgid| *tgid != 0).map(Tgid)?);
        }
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
        }
        if found.len() > LISTED_MAX || seen + open.len() > GROUPS_MAX {
            return None;
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(root: &Path, tgid: u32, ppid: u32, anon: Option<u64>) {
        let directory = root.join(tgid.to_string());
        fs::create_dir_all(&directory).unwrap();
        let anon = anon.map_or_else(String::new, |kib| format!("RssAnon:\t{kib} kB\n"));
        fs::write(directory.join("status"), format!("PPid:\t{ppid}\n{anon}")).unwrap();
    }

    #[test]
    fn strangers_in_the_group_and_below_are_added_up_and_the_trees_own_are_not() {
        let (proc, group) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(group.path().join("below")).unwrap();
        fs::write(group.path().join("cgroup.procs"), "1\n2\n3\n5\n6\n").unwrap();
        fs::write(group.path().join("below/cgroup.procs"), "4\n").unwrap();
        status(proc.path(), 2, 9, Some(100));
        status(proc.path(), 3, 1, Some(70_000));
        status(proc.path(), 4, 9, Some(20));
        status(proc.path(), 5, 2, None);
        let own = std::process::id();
        fs::write(group.path().join("below/cgroup.procs"), "4\n7\n").unwrap();
        status(proc.path(), 7, own, Some(3));
        let recorded = HashSet::from([Tgid(1), Tgid(own)]);
        let look = || {
            let mut buffer = TextBuffer::default();
            super::look(group.path(), proc.path(), &recorded, &mut buffer)
        };
        // 1 is recorded, 3 its new child, 5 a kernel thread, 6 has ended, and 7 is of the recorder.
        assert_eq!(
            look(),
            Some(Others {
                count: 3,
                anon: Some(Bytes(123 << 10)),
                are_few: true,
            })
        );
        fs::create_dir_all(proc.path().join("6")).unwrap();
        assert_eq!(
            look().map(|others| (others.count, others.anon)),
            Some((4, None))
        );
    }

    #[test]
    fn a_group_that_cannot_be_listed_is_unknown() {
        let (proc, group) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let look = || {
            let mut buffer = TextBuffer::default();
            super::look(group.path(), proc.path(), &HashSet::new(), &mut buffer)
        };
        assert_eq!(look(), None, "no such file");
        fs::write(group.path().join("cgroup.procs"), "0\n").unwrap();
        assert_eq!(look(), None, "processes of another pid namespace");
        let many: String = (1..=2_000).map(|tgid| format!("{tgid}\n")).collect();
        fs::write(group.path().join("cgroup.procs"), many).unwrap();
        (1..=2_000).for_each(|tgid| status(proc.path(), tgid, 0, Some(4)));
        assert_eq!(look(), None, "too many");
    }

    #[test]
    fn those_that_are_recorded_may_be_any_number() {
        let (proc, group) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let many: String = (1..=2_000).map(|tgid| format!("{tgid}\n")).collect();
        fs::write(group.path().join("cgroup.procs"), many).unwrap();
        status(proc.path(), 2_000, 0, Some(4));
        let recorded = (1..2_000).map(Tgid).collect();
        let others = super::look(
            group.path(),
            proc.path(),
            &recorded,
            &mut TextBuffer::default(),
        );
        assert_eq!(others.map(|others| others.count), Some(1));
    }
}
