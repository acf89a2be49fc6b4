//! What a recording is read from: a directory held open, or a place that another program reads for
//! us, such as a bucket.

use super::dir::Dir;
use super::error::StoreError;
use super::part_reader::PartFile;
use super::remote::Remote;
use super::run_file::is_locked;
use std::ffi::OsString;
use std::fs::File;
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
        let mut bytes = Vec::new();
        let file = self.open_file(path)?;
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

/// One of both. Clones stand for the same.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    Dir(Arc<Dir>),
    Remote(Arc<Remote>),
}

impl Files for Origin {
    fn path(&self) -> &Path {
        match self {
            Self::Dir(dir) => dir.path(),
            Self::Remote(remote) => remote.path(),
        }
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        match self {
            Self::Dir(dir) => dir.names(folder),
            Self::Remote(remote) => remote.names(folder),
        }
    }

    fn read_small(&self, path: &Path, max: u64) -> io::Result<Vec<u8>> {
        match self {
            Self::Dir(dir) => dir.read_small(path, max),
            Self::Remote(remote) => remote.read_small(path, max),
        }
    }

    fn modified_ns(&self, path: &Path) -> io::Result<i64> {
        match self {
            Self::Dir(dir) => dir.modified_ns(path),
            Self::Remote(remote) => remote.modified_ns(path),
        }
    }
}

impl Origin {
    /// The directory, for whoever writes.
    ///
    /// # Errors
    /// When it is none.
    pub(super) fn dir(&self) -> Result<&Arc<Dir>, StoreError> {
        match self {
            Self::Dir(dir) => Ok(dir),
            Self::Remote(remote) => Err(StoreError::ReadOnly {
                address: remote.path().to_path_buf(),
            }),
        }
    }

    /// Opens a file to which its recorder adds. There are none but in a directory.
    pub(super) fn open_file(&self, path: &Path) -> io::Result<File> {
        match self {
            Self::Dir(dir) => dir.open_file(path),
            Self::Remote(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Opens a part.
    pub(super) fn open_part(&self, path: &Path) -> io::Result<PartFile> {
        match self {
            Self::Dir(dir) => PartFile::open(dir, path),
            Self::Remote(remote) => PartFile::open_remote(remote, path),
        }
    }

    /// Whether a recorder writes to it at this moment, as far as that can be known.
    pub(super) fn is_live(&self) -> bool {
        match self {
            Self::Dir(dir) => is_locked(dir),
            Self::Remote(remote) => remote.is_fresh(),
        }
    }

    /// That all that was asked for was answered. Damage is told and passed over; a place that
    /// can't be reached is no damage.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self {
            Self::Dir(_) => Ok(()),
            Self::Remote(remote) => remote.check(),
        }
    }
}
