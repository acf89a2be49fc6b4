//! Files that are written whole or not at all.

use super::caller::give_to_caller;
use anyhow::{Context, bail};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file that gets its name when it is whole, and belongs to the person who called sudo. Dropped
/// before that it leaves nothing behind; after a kill a file is left whose name ends in `.partial`.
pub(super) struct Part {
    pub(super) file: BufWriter<NamedTempFile>,
    path: PathBuf,
    is_forced: bool,
}

impl Part {
    /// A file of that name in a folder. `is_forced`: an older one is replaced.
    ///
    /// # Errors
    /// When it is there and not to be replaced, or can't be made.
    pub(super) fn open(target: &Path, name: &str, is_forced: bool) -> anyhow::Result<Self> {
        let path = target.join(name);
        if !is_forced && path.symlink_metadata().is_ok() {
            bail!("{}", is_there(&path));
        }
        let mut partial = tempfile::Builder::new();
        let prefix = format!("{name}.");
        partial.prefix(&prefix).suffix(".partial");
        // As any other file that is made: the umask takes away from it.
        #[cfg(unix)]
        partial.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let file = partial
            .tempfile_in(target)
            .with_context(|| format!("failed to write to {}", target.display()))?;
        // On a file system without owners it is as good as given.
        let _ = give_to_caller(file.as_file());
        Ok(Self {
            file: BufWriter::new(file),
            path,
            is_forced,
        })
    }

    /// In the place of a file that a person named, with its owner and mode. `None` where that is a link, no ordinary file, or one of several
    /// names, or nothing can be made beside it.
    pub(super) fn in_place_of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let old = match path.symlink_metadata() {
            Ok(old) => Some(old),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(_) => return None,
        };
        if old
            .as_ref()
            .is_some_and(|old| !old.is_file() || old.nlink() > 1)
        {
            return None;
        }
        let part = Self::open(folder.unwrap_or(Path::new(".")), name, true).ok()?;
        let file = part.file.get_ref().as_file();
        let is_alike = old.is_none_or(|old| {
            fchown(file, Some(old.uid()), Some(old.gid())).is_ok()
                && file.set_permissions(old.permissions()).is_ok()
        });
        is_alike.then_some(part)
    }

    /// Brings to disk what was written.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().as_file().sync_all()
    }

    /// Gives it its name.
    pub(super) fn finish(self) -> anyhow::Result<PathBuf> {
        let doing = || format!("failed to make {}", self.path.display());
        let file = self.file.into_inner().with_context(doing)?;
        let persisted = match self.is_forced {
            true => file.persist(&self.path),
            false => file.persist_noclobber(&self.path),
        };
        match persisted {
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                bail!("{}", is_there(&self.path))
            }
            persisted => persisted.with_context(doing)?,
        };
        Ok(self.path)
    }
}

fn is_there(path: &Path) -> String {
    format!("{} exists already; --force replaces it", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{read, read_dir, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn what_is_not_finished_leaves_the_old_file_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.html");
        std::fs::write(&path, "old").unwrap();
        set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let mut part = Part::in_place_of(&path).unwrap();
        part.file.write_all(b"half").unwrap();
        drop(part);
        assert_eq!(read(&path).unwrap(), b"old");
        assert_eq!(read_dir(dir.path()).unwrap().count(), 1);
        let mut part = Part::in_place_of(&path).unwrap();
        part.file.write_all(b"new").unwrap();
        part.finish().unwrap();
        assert_eq!(read(&path).unwrap(), b"new");
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }

    #[test]
    fn a_link_and_a_device_have_no_place_for_another() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        symlink("nowhere", &link).unwrap();
        assert!(Part::in_place_of(&link).is_none());
        assert!(Part::in_place_of(Path::new("/dev/null")).is_none());
        assert!(Part::in_place_of(&dir.path().join("none/a")).is_none());
    }
}
