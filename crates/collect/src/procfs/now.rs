//! What a process holds at this moment, and whose child it is by now.

use super::dir::ProcDir;
use super::stat::Stat;
use super::status::Status;
use crate::kept::TextBuffer;
use memtrace_model::{BootNs, Bytes, Tgid};
use std::io;
use std::path::Path;

/// A process as /proc shows it at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Now {
    /// Start, in steps of 10 ms.
    pub start: BootNs,
    /// Its parent by now.
    pub parent: Tgid,
    /// That parent's name; `None` when it has gone.
    pub parent_comm: Option<String>,
    /// Whether it has ended, and only its exit code is left.
    pub has_ended: bool,
    /// Resident anonymous memory.
    pub rss_anon: Option<Bytes>,
    /// Resident pages of mapped files.
    pub rss_file: Option<Bytes>,
    /// Resident shared memory.
    pub rss_shmem: Option<Bytes>,
    /// Pages swapped out.
    pub swap: Option<Bytes>,
}

/// Looks at a process; `Ok(None)` when it is gone. `root` is where procfs is mounted.
///
/// # Errors
/// When it can't be read: whether it is gone is unknown then.
pub fn now(root: &Path, tgid: Tgid) -> io::Result<Option<Now>> {
    let mut buffer = TextBuffer::default();
    let Some(dir) = ProcDir::open(root, tgid)? else {
        return Ok(None);
    };
    let Some(stat) = dir.read("stat", &mut buffer)? else {
        return Ok(None);
    };
    let stat = Stat::parse(stat).ok_or(io::ErrorKind::InvalidData)?;
    let status = dir.read("status", &mut buffer).ok().flatten();
    let amounts = status.map(Status::parse).unwrap_or_default().amounts;
    Ok(Some(Now {
        start: stat.start(),
        parent: stat.ppid,
        parent_comm: comm(root, stat.ppid, &mut buffer),
        has_ended: stat.has_ended(),
        rss_anon: amounts.rss_anon,
        rss_file: amounts.rss_file,
        rss_shmem: amounts.rss_shmem,
        swap: amounts.swap,
    }))
}

fn comm(root: &Path, tgid: Tgid, buffer: &mut TextBuffer) -> Option<String> {
    let dir = ProcDir::open(root, tgid).ok()??;
    Some(Stat::parse(dir.read("stat", buffer).ok()??)?.comm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_cannot_be_read_is_not_gone() {
        let root = tempfile::tempdir().unwrap();
        assert!(now(root.path(), Tgid(7)).unwrap().is_none());
        std::fs::create_dir_all(root.path().join("7/stat")).unwrap();
        assert!(now(root.path(), Tgid(7)).is_err());
    }
}
