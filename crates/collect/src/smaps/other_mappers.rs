//! Who maps files of /dev/shm outside of the recording.

use super::budget::{Meter, Stopped};
use super::key::Key;
use super::mappings::Header;
use memtrace_model::Tgid;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

/// What is to be found out of files of /dev/shm.
pub(super) struct Wanted {
    /// Processes of the recording that map any object.
    pub(super) recorded: HashSet<Tgid>,
    /// Files that none of them maps.
    pub(super) asked: HashSet<Key>,
}

/// Who maps files of /dev/shm outside of the recording: they tell a leak from somebody else's.
pub(super) struct OtherMappers {
    pub(super) asked: HashSet<Key>,
    pub(super) mapped: HashSet<Key>,
    /// Some process may not be looked at.
    pub(super) has_refusal: bool,
}

impl OtherMappers {
    /// Looks at every process of a procfs but those that are recorded.
    pub(super) fn find(
        root: &Path,
        wanted: Wanted,
        meter: &mut Meter<'_>,
    ) -> Result<Self, Stopped> {
        let mut found = Self {
            asked: wanted.asked,
            mapped: HashSet::new(),
            has_refusal: false,
        };
        for tgid in processes(root) {
            if wanted.recorded.contains(&tgid) {
                continue;
            }
            match fs::read(root.join(format!("{tgid}/maps"))) {
                Ok(text) => found.mapped.extend(
                    text.split(|byte| *byte == b'\n')
                        .filter_map(Header::parse)
                        .filter(|header| header.path.starts_with(b"/dev/shm/"))
                        .map(|header| (header.device, header.inode)),
                ),
                Err(error) => found.has_refusal |= error.kind() == io::ErrorKind::PermissionDenied,
            }
            meter.pause()?;
        }
        Ok(found)
    }
}

/// Every process of a procfs.
pub(crate) fn processes(root: &Path) -> Vec<Tgid> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Tgid));
    ids.collect()
}
