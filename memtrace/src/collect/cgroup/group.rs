//! One memory cgroup under observation: its kept files, whatever the version.

use super::{v1, v2};
use crate::collect::kept::{KeptFile, TextBuffer};
use crate::host::CgroupVersion;
use crate::model::{Bytes, DurationNs};
use std::io;
use std::path::{Path, PathBuf};

/// What a group's files say, in the terms of the table `cgroup_mem`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) current: Option<Bytes>,
    pub(super) peak: Option<Bytes>,
    pub(super) limit: Option<Bytes>,
    pub(super) anon: Option<Bytes>,
    pub(super) file: Option<Bytes>,
    pub(super) shmem: Option<Bytes>,
    pub(super) file_mapped: Option<Bytes>,
    pub(super) inactive_file: Option<Bytes>,
    pub(super) kernel: Option<Bytes>,
    pub(super) slab: Option<Bytes>,
    pub(super) slab_reclaimable: Option<Bytes>,
    pub(super) pagetables: Option<Bytes>,
    pub(super) kernel_stack: Option<Bytes>,
    pub(super) percpu: Option<Bytes>,
    pub(super) sock: Option<Bytes>,
    pub(super) swap: Option<Bytes>,
    pub(super) max_event_count: Option<i64>,
    pub(super) oom_kill_count: Option<i64>,
    pub(super) psi_some: Option<DurationNs>,
    pub(super) psi_full: Option<DurationNs>,
}

/// The group was removed.
#[derive(Debug)]
pub(super) struct Removed;

/// One file of a version and how its text enters a reading.
pub(super) type Source = (&'static str, fn(&[u8], &mut Reading));

/// The file that holds the limit comes first in each list.
fn sources(version: CgroupVersion) -> &'static [Source] {
    match version {
        CgroupVersion::V1 => &v1::SOURCES,
        CgroupVersion::V2 => &v2::SOURCES,
    }
}

/// A group with its files open.
#[derive(Debug)]
pub(super) struct Group {
    directory: PathBuf,
    version: CgroupVersion,
    /// In the order of [`sources`]; `None` for a file that this kernel does not have, or
    /// that the root of a hierarchy lacks. Only the first one while nothing else is asked.
    files: Vec<Option<KeptFile>>,
}

impl Group {
    pub(super) fn new(directory: PathBuf, version: CgroupVersion) -> Self {
        Self {
            directory,
            version,
            files: Vec::new(),
        }
    }

    /// Reads the group. A group that holds no process of the recording is of interest
    /// only for its limit: `Ok(None)` when it has none.
    pub(super) fn read(
        &mut self,
        is_holder: bool,
        buffer: &mut TextBuffer,
    ) -> Result<Option<Reading>, Removed> {
        let sources = sources(self.version);
        let mut reading = Reading::default();
        self.read_sources(sources.get(..1).unwrap_or_default(), &mut reading, buffer)?;
        if !is_holder && reading.limit.is_none() {
            self.files.truncate(1);
            return Ok(None);
        }
        self.read_sources(sources, &mut reading, buffer)?;
        Ok(Some(reading))
    }

    fn read_sources(
        &mut self,
        sources: &[Source],
        reading: &mut Reading,
        buffer: &mut TextBuffer,
    ) -> Result<(), Removed> {
        for (name, _) in sources.iter().skip(self.files.len()) {
            self.files.push(open(&self.directory, name)?);
        }
        for (file, (_, enter)) in self.files.iter().zip(sources) {
            let Some(file) = file else {
                continue;
            };
            match file.read(buffer) {
                Ok(text) => enter(text, reading),
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Err(Removed),
                // PSI that is switched off (EOPNOTSUPP), or no permission: unknown.
                Err(_) => {}
            }
        }
        Ok(())
    }
}

fn open(directory: &Path, name: &str) -> Result<Option<KeptFile>, Removed> {
    match KeptFile::open(&directory.join(name)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !directory.exists() => {
            Err(Removed)
        }
        Err(_) => Ok(None),
    }
}
