//! Makes, names and removes the files of one recording, and counts what is written.

use super::error::StoreError;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, fchown, lchown};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

// Command lines and titles of every recorded process are in a recording, so it is
// private to its owner, as perf.data is. The umask can take more away.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// The directory of a recording. All paths are relative to it.
#[derive(Debug)]
pub(super) struct Disk {
    dir: PathBuf,
    owner: OnceLock<(u32, u32)>,
    written_bytes: AtomicU64,
}

impl Disk {
    /// Stands for an existing directory.
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_path_buf(),
            owner: OnceLock::new(),
            written_bytes: AtomicU64::new(0),
        }
    }

    /// Makes the directory of a new recording, or takes an empty one.
    pub(super) fn create(dir: &Path) -> Result<Self, StoreError> {
        match DirBuilder::new().mode(DIR_MODE).create(dir) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let is_empty = std::fs::read_dir(dir).is_ok_and(|mut list| list.next().is_none());
                if !is_empty {
                    return Err(StoreError::NotEmpty {
                        dir: dir.to_path_buf(),
                    });
                }
            }
            Err(error) => return Err(StoreError::io("create", dir, error)),
        }
        Ok(Self::new(dir))
    }

    /// The directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A path of the recording as the system needs it.
    pub(super) fn full_path(&self, path: &Path) -> PathBuf {
        self.dir.join(path)
    }

    /// Gives everything made so far, and everything made from now on, to a user.
    pub(super) fn set_owner(&self, uid: u32, gid: u32) -> Result<(), StoreError> {
        let _ = self.owner.set((uid, gid));
        chown_tree(&self.dir, uid, gid)
    }

    /// Makes a folder unless it is there.
    pub(super) fn create_dir(&self, path: &Path) -> Result<(), StoreError> {
        let full_path = self.full_path(path);
        match DirBuilder::new().mode(DIR_MODE).create(&full_path) {
            Ok(()) => {
                if let Some(&(uid, gid)) = self.owner.get() {
                    // As for files below.
                    let _ = lchown(&full_path, Some(uid), Some(gid));
                }
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(StoreError::io("create", &full_path, error)),
        }
    }

    /// Makes a file that must not exist yet, not even as a symbolic link: the recorder may
    /// run as root in a directory that belongs to someone else.
    pub(super) fn create_file(&self, path: &Path) -> Result<File, StoreError> {
        let full_path = self.full_path(path);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(&full_path)
            .map_err(|error| StoreError::io("create", &full_path, error))?;
        if let Some(&(uid, gid)) = self.owner.get() {
            // `set_owner` has reported whether this file system allows it. A file that
            // stays root's is better than no file.
            let _ = fchown(&file, Some(uid), Some(gid));
        }
        Ok(file)
    }

    /// Gives a file that is synced to disk its final name, and makes the name last.
    pub(super) fn publish(&self, from: &Path, to: &Path) -> Result<(), StoreError> {
        let full_path = self.full_path(to);
        std::fs::rename(self.full_path(from), &full_path)
            .map_err(|error| StoreError::io("rename a finished file to", &full_path, error))?;
        self.sync_dir_of(to)
    }

    /// Makes the names of the files beside `path` last through a crash of the machine.
    pub(super) fn sync_dir_of(&self, path: &Path) -> Result<(), StoreError> {
        let full_path = self.full_path(path.parent().unwrap_or(Path::new("")));
        File::open(&full_path)
            .and_then(|dir| dir.sync_all())
            .map_err(|error| StoreError::io("sync", &full_path, error))
    }

    /// Removes a file unless it is gone.
    pub(super) fn remove_file_if_there(&self, path: &Path) -> Result<(), StoreError> {
        let full_path = self.full_path(path);
        match std::fs::remove_file(&full_path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io("remove", &full_path, error))
            }
            _ => Ok(()),
        }
    }

    /// Removes a folder unless it is gone, or holds something that is not ours.
    pub(super) fn remove_dir_if_empty(&self, path: &Path) -> Result<(), StoreError> {
        let full_path = self.full_path(path);
        match std::fs::remove_dir(&full_path) {
            Ok(()) => Ok(()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(StoreError::io("remove", &full_path, error)),
        }
    }

    /// Adds to what [`Disk::written_bytes`] answers.
    pub(super) fn count_written(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes written to files in all.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }
}

/// Changes the owner of a directory and of all below it, following no links.
fn chown_tree(path: &Path, uid: u32, gid: u32) -> Result<(), StoreError> {
    lchown(path, Some(uid), Some(gid))
        .map_err(|error| StoreError::io("change the owner of", path, error))?;
    let metadata =
        std::fs::symlink_metadata(path).map_err(|error| StoreError::io("inspect", path, error))?;
    if !metadata.is_dir() {
        return Ok(());
    }
    let list_error = |error| StoreError::io("list", path, error);
    for entry in std::fs::read_dir(path).map_err(list_error)? {
        chown_tree(&entry.map_err(list_error)?.path(), uid, gid)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_that_holds_something_is_not_taken() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("run");
        Disk::create(&dir).unwrap();
        Disk::create(&dir).unwrap();
        std::fs::write(dir.join("mine"), b"").unwrap();
        let error = Disk::create(&dir).unwrap_err();
        assert!(matches!(error, StoreError::NotEmpty { .. }));
        let file = dir.join("mine");
        assert!(matches!(
            Disk::create(&file).unwrap_err(),
            StoreError::NotEmpty { .. }
        ));
    }

    #[test]
    fn files_are_private_and_never_overwritten_nor_reached_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::new(dir.path());
        let file = disk.create_file(Path::new("a")).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0);
        disk.create_file(Path::new("a")).unwrap_err();
        std::os::unix::fs::symlink(dir.path().join("b"), dir.path().join("link")).unwrap();
        disk.create_file(Path::new("link")).unwrap_err();
        assert!(!dir.path().join("b").exists());
    }
}
