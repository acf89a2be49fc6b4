//! What a process has open of shared memory.

use super::backings::Backings;
use super::key::Open;
use super::mappings::{Backing, Device};
use super::subject::Subject;
use memtrace_host::clock;
use memtrace_model::BootNs;
use rustix::fs::{AtFlags, CWD, StatxFlags};
use std::path::{Path, PathBuf};

/// Looks at what processes have open.
#[derive(Debug)]
pub(super) struct OpenFiles {
    root: PathBuf,
    backings: Backings,
}

impl OpenFiles {
    /// `root` is where procfs is.
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            backings: Backings::new(root),
        }
    }

    /// What a process has open of shared memory, as far as it is known until then.
    pub(super) fn of(&mut self, subject: &Subject, until: BootNs) -> Open {
        let mut open = Open::new();
        let dir = self.root.join(format!("{}/fd", subject.tgid));
        for descriptor in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if clock::boot() >= until {
                break;
            }
            let way = descriptor.path();
            let Ok(target) = std::fs::read_link(&way) else {
                continue;
            };
            if !target.is_absolute() {
                continue;
            }
            // Of a file system that does not answer, what is known of the file will do.
            let flags = AtFlags::STATX_DONT_SYNC;
            let Ok(known) = rustix::fs::statx(CWD, &way, flags, StatxFlags::BASIC_STATS) else {
                continue;
            };
            let device = Device {
                major: known.stx_dev_major,
                minor: known.stx_dev_minor,
            };
            let path = target.to_string_lossy();
            if let Some(Backing::Tmpfs | Backing::KernelTmpfs) =
                self.backings.of_open_file(device, &way, &path)
            {
                open.insert((device, known.stx_ino), way);
            }
        }
        open
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{opener, subject};
    use super::*;

    #[test]
    fn a_file_of_a_tmpfs_that_is_only_written_to_is_seen_open() {
        let (proc, _file) = opener(7);
        let mut files = OpenFiles::new(proc.path());
        let open = files.of(&subject(7), BootNs(i64::MAX));
        let ways: Vec<_> = open.values().collect();
        assert_eq!(ways, [&proc.path().join("7/fd/3")]);
        assert!(files.of(&subject(7), BootNs(0)).is_empty());
    }
}
