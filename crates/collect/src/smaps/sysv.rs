//! System V segments, as the kernel lists them.

use crate::fields::number;
use memtrace_model::{Bytes, Tgid};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// A System V segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Its key as the program chose it; 0 (IPC_PRIVATE) for one without.
    pub(crate) key: i32,
    pub(crate) size: Option<Bytes>,
    pub(crate) resident: Bytes,
    pub(crate) swapped: Bytes,
    /// Who made it.
    pub(crate) creator: Option<Tgid>,
    pub(crate) uid: Option<i64>,
    /// How often it is attached.
    pub(crate) attached: Option<i64>,
}

/// The segments of this ipc namespace by their ids, which are their inodes too. `root` is
/// where procfs is.
pub(crate) fn segments(root: &Path) -> HashMap<u64, Segment> {
    let text = fs::read(root.join("sysvipc/shm")).unwrap_or_default();
    parse(&text)
}

/// `key shmid perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap`
/// (sysvipc_shm_proc_show() in ipc/shm.c).
fn parse(text: &[u8]) -> HashMap<u64, Segment> {
    let lines = text.split(|byte| *byte == b'\n').skip(1);
    let segment = |line: &[u8]| {
        let words: Vec<&[u8]> = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty())
            .collect();
        let at = |place: usize| words.get(place).and_then(|word| number::<i64>(word));
        let segment = Segment {
            key: i32::try_from(at(0)?).ok()?,
            size: at(3).map(Bytes),
            resident: Bytes(at(14)?),
            swapped: Bytes(at(15)?),
            creator: at(4).and_then(|tgid| u32::try_from(tgid).ok()).map(Tgid),
            uid: at(7),
            attached: at(6),
        };
        Some((u64::try_from(at(1)?).ok()?, segment))
    };
    lines.filter_map(segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_read_by_their_ids() {
        let text = b"       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n         7         65  1600               1048576  4242  4243      1     3     0     0     0 1763 0 1763                 40960                  4096\n";
        let segments = parse(text);
        assert_eq!(
            segments.get(&65),
            Some(&Segment {
                key: 7,
                size: Some(Bytes(1 << 20)),
                resident: Bytes(40960),
                swapped: Bytes(4096),
                creator: Some(Tgid(4242)),
                uid: Some(3),
                attached: Some(1),
            })
        );
        assert!(parse(b"").is_empty());
    }
}
