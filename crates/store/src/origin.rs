//! What a recording is read from: a directory held open, or a place that another program reads for
//! us, such as a bucket.

use super::dir::Dir;
use super::error::StoreError;
use super::files::Files;
use super::part_file::PartFile;
use super::remote::Remote;
use super::run_file::is_locked;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

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

    /// Whether there is a folder, or what has its name.
    pub(super) fn has(&self, folder: &Path) -> bool {
        match self {
            Self::Dir(dir) => dir.inspect(folder).is_ok(),
            Self::Remote(remote) => remote.names(folder).is_ok(),
        }
    }

    /// That what is there is listed anew, where that was done when it was opened.
    pub(super) fn look_again(&self) -> Result<(), StoreError> {
        match self {
            Self::Dir(_) => Ok(()),
            Self::Remote(remote) => remote.look_again(),
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
            Self::Remote(_) => false,
        }
    }

    /// That all that was asked for was answered. Damage is reported and passed over; a place that
    /// can't be reached is no damage.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self {
            Self::Dir(_) => Ok(()),
            Self::Remote(remote) => remote.check(),
        }
    }
}
