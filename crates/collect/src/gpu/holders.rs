//! Who has a GPU's device file open: candidates for memory that no list of processes
//! explains.
//!
//! A walk over the descriptors of every process: made only where memory is unexplained, and
//! rarely.

use super::pace::Pace;
use memtrace_host::clock;
use memtrace_model::{BootNs, DurationNs, Tgid};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Walks are this far apart at least.
const PERIOD: DurationNs = DurationNs(30_000_000_000);
/// Of all time, walks may take so much.
const SHARE: f64 = 0.002;
const SLOWEST: DurationNs = DurationNs(600_000_000_000);

/// A process and the N of the /dev/nvidiaN that it has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Holder {
    pub(super) minor: u32,
    pub(super) tgid: Tgid,
}

/// The latest walk, which tells of all devices that are asked about in one round.
#[derive(Debug)]
pub(super) struct Walk {
    proc: PathBuf,
    pace: Pace,
    at: Option<BootNs>,
    found: Vec<Holder>,
}

impl Walk {
    /// None was made yet. `proc` is where procfs is mounted.
    pub(super) fn new(proc: &Path) -> Self {
        Self {
            proc: proc.to_owned(),
            pace: Pace::new(PERIOD, SLOWEST, SHARE),
            at: None,
            found: Vec::new(),
        }
    }

    /// Who has a device open in the round that began at `round`; `None` where it is too early
    /// for another walk.
    pub(super) fn of(&mut self, minor: u32, round: BootNs) -> Option<impl Iterator<Item = Tgid>> {
        if self.at != Some(round) {
            if self.at.is_some_and(|at| round - at < self.pace.interval()) {
                return None;
            }
            let before = clock::boot();
            self.found = holders(&self.proc);
            self.pace.note(clock::boot() - before);
            self.at = Some(round);
        }
        let found = self.found.iter();
        Some(
            found
                .filter(move |holder| holder.minor == minor)
                .map(|holder| holder.tgid),
        )
    }
}

/// Every such process that may be looked into, but this one.
fn holders(proc: &Path) -> Vec<Holder> {
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
    fn one_walk_tells_of_every_device_of_a_round() {
        let root = tempfile::tempdir().unwrap();
        let fd = root.path().join("10/fd");
        std::fs::create_dir_all(&fd).unwrap();
        symlink("/dev/nvidia0", fd.join("3")).unwrap();
        symlink("/dev/nvidia7", fd.join("4")).unwrap();
        let mut walk = Walk::new(root.path());
        let mut of = |minor, round| {
            let found = walk.of(minor, BootNs(round));
            found.map(|found| found.map(|tgid| tgid.0).collect::<Vec<_>>())
        };
        assert_eq!(of(0, 5), Some(vec![10]));
        std::fs::remove_dir_all(root.path().join("10")).unwrap();
        assert_eq!(of(7, 5), Some(vec![10]), "no second walk");
        assert_eq!(of(7, 5 + PERIOD.0 / 2), None);
        assert_eq!(of(7, 5 + PERIOD.0), Some(Vec::new()));
    }

    #[test]
    fn walks_take_their_share_of_the_time() {
        let mut walk = Walk::new(Path::new("/nonexistent"));
        for _ in 0..3 {
            walk.pace.note(DurationNs(400_000_000));
        }
        walk.at = Some(BootNs(0));
        assert!(walk.of(0, BootNs(PERIOD.0 * 6)).is_none());
        assert!(walk.of(0, BootNs(PERIOD.0 * 7)).is_some());
    }

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
