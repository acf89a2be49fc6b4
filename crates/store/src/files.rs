//! Files of a recording by their paths, whatever they lie in.

use super::dir::Dir;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files by their paths in a recording, whatever they lie in.
pub(super) trait Files {
    /// What was opened, for messages.
    fn path(&self) -> &Path;

    /// The names in a folder, or in the recording itself for an empty path.
    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>>;

    /// The bytes of a small file, and one more than `max` where it has more.
    fn read_small(&self, path: &Path, max: u64) -> io::Result<Vec<u8>>;

    /// When a file was written, in ns since the Unix epoch.
    fn modified_ns(&self, path: &Path) -> io::Result<i64>;

    /// A path of the recording as a message shows it.
    fn full_path(&self, path: &Path) -> PathBuf {
        self.path().join(path)
    }
}

impl Files for Dir {
    fn path(&self) -> &Path {
        self.path()
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        self.names(folder)
    }

    fn read_small(&self, path: &Path, max: u64) -> io::Result<Vec<u8>> {
        let file = self.open_file(path)?;
        let len = file.metadata()?.len().min(max);
        let mut bytes = Vec::with_capacity(len as usize + 1);
        file.take(max + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn modified_ns(&self, path: &Path) -> io::Result<i64> {
        Ok(self.inspect(path)?.modified_ns)
    }
}

impl<F: Files> Files for Arc<F> {
    fn path(&self) -> &Path {
        (**self).path()
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        (**self).names(folder)
    }

    fn read_small(&self, path: &Path, max: u64) -> io::Result<Vec<u8>> {
        (**self).read_small(path, max)
    }

    fn modified_ns(&self, path: &Path) -> io::Result<i64> {
        (**self).modified_ns(path)
    }
}
