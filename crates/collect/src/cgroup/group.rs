//! One memory cgroup under observation: its kept files, whatever the version.

use super::reading::Source;
use super::{v1, v2};
use crate::fields::bytes;
use crate::kept::{KeptFile, TextBuffer};
use memtrace_host::CgroupVersion;
use memtrace_model::{Bytes, CgroupMemRow};
use std::io;
use std::path::{Path, PathBuf};

/// The group was removed.
#[derive(Debug)]
pub(super) struct Removed;

/// The file that holds the limit comes first in each list, then that of what is in use.
fn sources(version: CgroupVersion) -> &'static [Source] {
    match version {
        CgroupVersion::V1 => &v1::SOURCES,
        CgroupVersion::V2 => &v2::SOURCES,
    }
}

/// A group with its files open.
#[derive(Debug)]
pub(super) struct Cgroup {
    directory: PathBuf,
    version: CgroupVersion,
    /// In the order of [`sources`]; `None` for a file that this kernel does not have, or
    /// that the root of a hierarchy lacks. Only the first one while nothing else is asked.
    files: Vec<Option<KeptFile>>,
}

impl Cgroup {
    pub(super) fn new(directory: PathBuf, version: CgroupVersion) -> Self {
        Self {
            directory,
            version,
            files: Vec::new(),
        }
    }

    /// Reads the group, into a row without its path and time. A group that holds no process of
    /// the recording is of interest only for its limit: `Ok(None)` when it has none.
    pub(super) fn read(
        &mut self,
        is_holder: bool,
        buffer: &mut TextBuffer,
    ) -> Result<Option<CgroupMemRow>, Removed> {
        let sources = sources(self.version);
        let mut row = CgroupMemRow::default();
        self.read_sources(sources.get(..1).unwrap_or_default(), &mut row, buffer)?;
        if !is_holder && row.limit_bytes.is_none() {
            self.files.truncate(1);
            return Ok(None);
        }
        self.read_sources(sources, &mut row, buffer)?;
        Ok(Some(row))
    }

    /// What is in use now, where that was read before: one file, of those kept open.
    pub(super) fn current(&self, buffer: &mut TextBuffer) -> Option<Bytes> {
        let file = self.files.get(1)?.as_ref()?;
        bytes(file.read(buffer).ok()?)
    }

    fn read_sources(
        &mut self,
        sources: &[Source],
        row: &mut CgroupMemRow,
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
                Ok(text) => enter(text, row),
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
