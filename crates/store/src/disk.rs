//! Makes, names and removes the files of one recording, and counts what is written.

use super::dir::{Dir, give};
use super::error::StoreError;
use super::manifest::{Line, MANIFEST};
use super::manifest_writer::ManifestWriter;
use memtrace_model::Table;
use rustix::fs::Mode;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

// Command lines and titles of every recorded process are in a recording, so it is
// private to its owner, as perf.data is. The umask can take more away.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const DIR_MODE: Mode = Mode::RWXU;

/// The directory of a recording, to write to. All paths are relative to it.
#[derive(Debug)]
pub(super) struct Disk {
    dir: Arc<Dir>,
    /// User and group that everything made here is given to.
    owner: Option<(u32, u32)>,
    written_bytes: AtomicU64,
    /// The recording's id, where it has one, which its files of rows have too.
    id: Option<String>,
    manifest: Option<ManifestWriter>,
}

impl Disk {
    /// Stands for an existing directory. What root makes in it belongs to its owner.
    pub(super) fn new(dir: Arc<Dir>) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        Self {
            owner: dir.owner().ok().filter(|_| is_root),
            dir,
            written_bytes: AtomicU64::new(0),
            id: None,
            manifest: None,
        }
    }

    /// Files of rows that are made in it have the id of a recording.
    pub(super) fn with_id(self, id: Option<&str>) -> Self {
        Self {
            id: id.map(str::to_owned),
            ..self
        }
    }

    /// That of a recording, whose manifest goes on where it has one.
    pub(super) fn of_recording(dir: Arc<Dir>, id: Option<&str>) -> Result<Self, StoreError> {
        let mut disk = Self::new(dir).with_id(id);
        let resume = |id| ManifestWriter::resume(&disk.dir, id);
        let resumed = id.map(resume).transpose();
        disk.manifest = resumed
            .map_err(|error| disk.error("open", Path::new(MANIFEST), error))?
            .flatten();
        Ok(disk)
    }

    /// Begins the manifest of a new recording.
    pub(super) fn begin_manifest(&mut self, id: String) -> Result<(), StoreError> {
        let file = self.create_file(Path::new(MANIFEST))?;
        self.manifest = Some(ManifestWriter::new(file));
        self.list(&Line::Recording { id: id.clone() })?;
        self.id = Some(id);
        Ok(())
    }

    /// The recording's id, where it has one.
    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Adds a line to the manifest, where there is one.
    pub(super) fn list(&self, line: &Line) -> Result<(), StoreError> {
        if let Some(manifest) = &self.manifest {
            let added = manifest.add(line);
            let bytes = added.map_err(|error| self.error("write", Path::new(MANIFEST), error))?;
            self.count_written(bytes);
        }
        Ok(())
    }

    /// Says in the manifest which segments of those up to a number should be there, and are not.
    pub(super) fn list_lost(
        &self,
        table: &Table,
        seq: u32,
        there: &[u32],
    ) -> Result<(), StoreError> {
        let manifest = self.manifest.as_ref();
        let lost = manifest.map(|manifest| manifest.lost(table, seq, there));
        lost.into_iter().flatten().try_for_each(|seq| {
            self.list(&Line::Lost {
                table: table.name.to_owned(),
                seq,
            })
        })
    }

    /// Makes the directory of a new recording, or takes an empty one. It belongs to `owner`,
    /// as everything made in it; an empty one that was there keeps the owner it has.
    pub(super) fn create(path: &Path, owner: Option<(u32, u32)>) -> Result<Self, StoreError> {
        let is_taken = || StoreError::NotEmpty {
            dir: path.to_path_buf(),
        };
        let (dir, is_new) = match Dir::create(path, DIR_MODE) {
            Ok(made) => made,
            Err(_) if path.symlink_metadata().is_ok() => return Err(is_taken()),
            Err(error) => return Err(StoreError::io("create", path, error)),
        };
        let is_empty = dir.names(Path::new("")).is_ok_and(|names| names.is_empty());
        if !is_empty {
            return Err(is_taken());
        }
        if let Some(owner) = owner.filter(|_| is_new) {
            // A recording that stays root's is better than none; `is_given` tells.
            let _ = dir.give_to(owner);
        }
        Ok(Self {
            dir: Arc::new(dir),
            owner,
            written_bytes: AtomicU64::new(0),
            id: None,
            manifest: None,
        })
    }

    /// Whether the directory belongs to whom it should. A file system may have no owners.
    pub(super) fn is_given(&self) -> bool {
        self.owner.is_none() || self.dir.owner().ok() == self.owner
    }

    pub(super) fn dir(&self) -> &Arc<Dir> {
        &self.dir
    }

    /// A path of the recording as a message shows it.
    pub(super) fn full_path(&self, path: &Path) -> PathBuf {
        self.dir.full_path(path)
    }

    /// That the directory is still there. Files of one that was removed can be written for as
    /// long as they are open, and nobody will ever read them.
    pub(super) fn check_there(&self) -> Result<(), StoreError> {
        match self.dir.is_removed() {
            true => Err(StoreError::Removed {
                dir: self.dir.path().to_path_buf(),
            }),
            false => Ok(()),
        }
    }

    /// Makes a folder unless it is there.
    pub(super) fn create_dir(&self, path: &Path) -> Result<(), StoreError> {
        let made = self.dir.create_folder(path, DIR_MODE);
        let made = made.map_err(|error| self.error("create", path, error))?;
        if let Some((folder, owner)) = made.zip(self.owner) {
            // As for files below.
            let _ = give(folder, owner);
        }
        Ok(())
    }

    /// Makes a file that must not exist yet.
    pub(super) fn create_file(&self, path: &Path) -> Result<File, StoreError> {
        let file = self.dir.create_file(path, FILE_MODE);
        let file = file.map_err(|error| self.error("create", path, error))?;
        if let Some(owner) = self.owner {
            // `is_given` tells whether this file system allows it. A file that stays root's
            // is better than no file.
            let _ = give(&file, owner);
        }
        Ok(file)
    }

    /// Gives a file that is synced to disk its final name, and makes the name last.
    pub(super) fn publish(&self, from: &Path, to: &Path) -> Result<(), StoreError> {
        let renamed = self.dir.rename(from, to);
        renamed.map_err(|error| self.error("rename a finished file to", to, error))?;
        self.sync_dir_of(to)
    }

    /// Makes the names of the files beside `path` last through a crash of the machine.
    pub(super) fn sync_dir_of(&self, path: &Path) -> Result<(), StoreError> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let synced = self.dir.sync(folder);
        synced.map_err(|error| self.error("sync", folder, error))
    }

    /// Removes a file unless it is gone.
    pub(super) fn remove_file_if_there(&self, path: &Path) -> Result<(), StoreError> {
        match self.dir.remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.error("remove", path, error))
            }
            _ => Ok(()),
        }
    }

    /// Removes a folder unless it is gone, or holds something that is not ours.
    pub(super) fn remove_dir_if_empty(&self, path: &Path) -> Result<(), StoreError> {
        match self.dir.remove_folder(path) {
            Err(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
                ) =>
            {
                Err(self.error("remove", path, error))
            }
            _ => Ok(()),
        }
    }

    /// An error of the system, unless the reason for it is that the directory is gone.
    fn error(&self, doing: &'static str, path: &Path, error: io::Error) -> StoreError {
        match self.check_there() {
            Err(removed) => removed,
            Ok(()) => StoreError::io(doing, &self.full_path(path), error),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_that_holds_something_is_not_taken() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("run");
        Disk::create(&dir, None).unwrap();
        Disk::create(&dir, None).unwrap();
        std::fs::write(dir.join("mine"), b"").unwrap();
        let error = Disk::create(&dir, None).unwrap_err();
        assert!(matches!(error, StoreError::NotEmpty { .. }));
        let file = dir.join("mine");
        assert!(matches!(
            Disk::create(&file, None).unwrap_err(),
            StoreError::NotEmpty { .. }
        ));
    }

    #[test]
    fn files_are_private_and_never_overwritten_nor_reached_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::new(Arc::new(Dir::open(dir.path()).unwrap()));
        let file = disk.create_file(Path::new("a")).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0);
        disk.create_file(Path::new("a")).unwrap_err();
        std::os::unix::fs::symlink(dir.path().join("b"), dir.path().join("link")).unwrap();
        disk.create_file(Path::new("link")).unwrap_err();
        assert!(!dir.path().join("b").exists());
    }
}
