//! The directory of a recording, held open: every file in it is reached from its descriptor.
//!
//! A recording belongs to a user while root may write, read or close it, and it may come from
//! anywhere. So no path is looked up twice, no link inside it is followed, and only regular
//! files are opened: a FIFO would wait for a writer for ever, and opening a device can do
//! whatever its driver does.

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What every open of a folder has. `NONBLOCK` is for whatever may be put in its place.
const FOLDER: OFlags = OFlags::DIRECTORY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);
/// What every open of a file has.
const FILE: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// How often, and after how long each time, a locked directory is tried again.
const LOCK_ATTEMPTS: usize = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// An open directory. Paths are relative to it: a name, or a folder and a name.
#[derive(Debug)]
pub(super) struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

/// The directory itself, or a folder below it.
enum Folder<'a> {
    Itself(BorrowedFd<'a>),
    Below(OwnedFd),
}

impl AsFd for Folder<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Itself(fd) => *fd,
            Self::Below(fd) => fd.as_fd(),
        }
    }
}

impl Dir {
    /// Opens the directory that a person named, through links as they are everywhere.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let fd = fs::open(path, FOLDER, Mode::empty())?;
        Ok(Self {
            fd,
            path: path.to_path_buf(),
        })
    }

    /// Opens a folder of it, which must not be a link.
    pub(super) fn below(&self, name: &str) -> io::Result<Self> {
        Ok(Self {
            fd: open_folder(self.fd.as_fd(), OsStr::new(name))?,
            path: self.path.join(name),
        })
    }

    /// Makes a directory, or opens the one that is there unless that is a link. Says whether
    /// it was made.
    pub(super) fn create(path: &Path, mode: Mode) -> io::Result<(Self, bool)> {
        let Some(name) = path.file_name() else {
            return Ok((Self::open(path)?, false));
        };
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let parent = Self::open(parent)?;
        let is_new = match fs::mkdirat(&parent.fd, name, mode) {
            Ok(()) => true,
            Err(rustix::io::Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let fd = open_folder(parent.fd.as_fd(), name)?;
        let path = path.to_path_buf();
        Ok((Self { fd, path }, is_new))
    }

    /// Locks it for as long as this value lives. Where the file system has no locks, nothing
    /// happens.
    ///
    /// # Errors
    /// When somebody else has it locked, and for long: anybody who may read it can do that.
    pub(super) fn lock(&self) -> io::Result<()> {
        let mut attempts = 1..=LOCK_ATTEMPTS;
        loop {
            attempts.next();
            match fs::flock(&self.fd, fs::FlockOperation::NonBlockingLockExclusive) {
                Err(rustix::io::Errno::WOULDBLOCK) if !attempts.is_empty() => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let kind = io::ErrorKind::WouldBlock;
                    return Err(io::Error::new(kind, "another process has it locked"));
                }
                _ => return Ok(()),
            }
        }
    }

    /// The path by which it was opened, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A path of the recording as a message shows it.
    pub(super) fn full_path(&self, path: &Path) -> PathBuf {
        self.path.join(path)
    }

    /// User and group it belongs to.
    pub(super) fn owner(&self) -> io::Result<(u32, u32)> {
        let stat = fs::fstat(&self.fd)?;
        Ok((stat.st_uid, stat.st_gid))
    }

    /// Whether it has a name no more: someone has removed it.
    pub(super) fn is_removed(&self) -> bool {
        fs::fstat(&self.fd).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// The names in a folder, or in the directory itself for an empty path.
    pub(super) fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(self.folder(folder)?)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_os_string());
            }
        }
        Ok(names)
    }

    /// Opens a regular file for reading.
    pub(super) fn open_file(&self, path: &Path) -> io::Result<File> {
        self.open_regular(path, OFlags::RDONLY)
    }

    /// Opens a regular file for reading and writing.
    pub(super) fn open_file_to_write(&self, path: &Path) -> io::Result<File> {
        self.open_regular(path, OFlags::RDWR)
    }

    fn open_regular(&self, path: &Path, access: OFlags) -> io::Result<File> {
        let (folder, name) = self.place_of(path)?;
        // Asked first, because to open a device is to use it; and again, because the name may
        // stand for something else by then.
        let stat = fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        check_type(stat.st_mode, FileType::RegularFile)?;
        let file = File::from(fs::openat(&folder, name, FILE | access, Mode::empty())?);
        check_type(fs::fstat(&file)?.st_mode, FileType::RegularFile)?;
        Ok(file)
    }

    /// What stands under a name, links not followed: device, inode and time of the last change
    /// in ns since the Unix epoch.
    pub(super) fn inspect(&self, path: &Path) -> io::Result<Inspected> {
        let (folder, name) = self.place_of(path)?;
        let stat = fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Inspected::of(&stat))
    }

    /// Makes a file that must not exist yet, not even as a link.
    pub(super) fn create_file(&self, path: &Path, mode: Mode) -> io::Result<File> {
        let (folder, name) = self.place_of(path)?;
        let flags = FILE | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        Ok(File::from(fs::openat(&folder, name, flags, mode)?))
    }

    /// Makes a folder unless it is there; gives it where it is new.
    pub(super) fn create_folder(&self, path: &Path, mode: Mode) -> io::Result<Option<OwnedFd>> {
        let (folder, name) = self.place_of(path)?;
        let is_new = match fs::mkdirat(&folder, name, mode) {
            Ok(()) => true,
            Err(rustix::io::Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let made = open_folder(folder.as_fd(), name)?;
        Ok(is_new.then_some(made))
    }

    /// Gives a file another name, in place of what has it.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_folder, from_name) = self.place_of(from)?;
        let (to_folder, to_name) = self.place_of(to)?;
        Ok(fs::renameat(&from_folder, from_name, &to_folder, to_name)?)
    }

    /// Removes a file.
    pub(super) fn remove_file(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = self.place_of(path)?;
        Ok(fs::unlinkat(&folder, name, AtFlags::empty())?)
    }

    /// Removes an empty folder.
    pub(super) fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = self.place_of(path)?;
        Ok(fs::unlinkat(&folder, name, AtFlags::REMOVEDIR)?)
    }

    /// Makes the names in a folder last through a crash of the machine.
    pub(super) fn sync(&self, folder: &Path) -> io::Result<()> {
        Ok(fs::fsync(self.folder(folder)?)?)
    }

    /// Gives the directory itself to a user.
    pub(super) fn give_to(&self, (uid, gid): (u32, u32)) -> io::Result<()> {
        give(&self.fd, (uid, gid))
    }

    fn folder(&self, path: &Path) -> io::Result<Folder<'_>> {
        if path.as_os_str().is_empty() {
            return Ok(Folder::Itself(self.fd.as_fd()));
        }
        open_folder(self.fd.as_fd(), path.as_os_str()).map(Folder::Below)
    }

    fn place_of<'p>(&self, path: &'p Path) -> io::Result<(Folder<'_>, &'p OsStr)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = self.folder(path.parent().unwrap_or(Path::new("")))?;
        Ok((folder, name))
    }
}

/// What is asked about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inspected {
    device: u64,
    inode: u64,
    /// Time of the last change of the contents, in ns since the Unix epoch.
    pub(super) modified_ns: i64,
    /// Bytes in it.
    pub(super) size: u64,
}

impl Inspected {
    /// What an open file is.
    pub(super) fn of_file(file: &File) -> io::Result<Self> {
        Ok(Self::of(&fs::fstat(file)?))
    }

    #[allow(
        clippy::unnecessary_cast,
        reason = "the fields have other types on other platforms"
    )]
    fn of(stat: &fs::Stat) -> Self {
        let seconds = stat.st_mtime as i64;
        Self {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            size: stat.st_size.cast_unsigned(),
            modified_ns: seconds
                .saturating_mul(1_000_000_000)
                .saturating_add(stat.st_mtime_nsec as i64),
        }
    }

    /// Whether both are the same file.
    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// Gives an open file or folder to a user.
pub(super) fn give(fd: impl AsFd, (uid, gid): (u32, u32)) -> io::Result<()> {
    let (uid, gid) = (fs::Uid::from_raw(uid), fs::Gid::from_raw(gid));
    Ok(fs::fchown(fd, Some(uid), Some(gid))?)
}

fn open_folder(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    match fs::openat(parent, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(fd) => Ok(fd),
        Err(error) => {
            // "Not a directory" is what the system says of a link, too.
            let stat = fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            check_type(stat.st_mode, FileType::Directory)?;
            Err(error.into())
        }
    }
}

fn check_type(mode: fs::RawMode, wanted: FileType) -> io::Result<()> {
    let name = |kind| match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link, and no link in a recording is followed",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "of no known kind",
    };
    let kind = FileType::from_raw_mode(mode);
    match kind == wanted {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "it is {} where {} belongs",
            name(kind),
            name(wanted)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn refusal<T: std::fmt::Debug>(outcome: io::Result<T>) -> String {
        outcome.unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_regular_file_is_refused_by_what_it_is_and_never_waited_for() {
        let parent = tempfile::tempdir().unwrap();
        let dir = Dir::open(parent.path()).unwrap();
        let fifo = parent.path().join("fifo");
        fs::mkfifoat(fs::CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        symlink("/dev/zero", parent.path().join("link")).unwrap();
        std::fs::create_dir(parent.path().join("folder")).unwrap();
        for (name, kind) in [("fifo", "FIFO"), ("link", "link"), ("folder", "directory")] {
            let error = refusal(dir.open_file(Path::new(name)));
            assert!(error.contains(kind), "{error}");
        }
    }

    #[test]
    fn a_folder_that_is_a_link_is_not_entered() {
        let parent = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("file"), b"theirs").unwrap();
        symlink(other.path(), parent.path().join("mem")).unwrap();
        let dir = Dir::open(parent.path()).unwrap();
        let (file, mode) = (Path::new("mem/file"), Mode::RUSR);
        let refused = [
            refusal(dir.open_file(file)),
            refusal(dir.names(Path::new("mem"))),
            refusal(dir.create_file(Path::new("mem/new"), mode)),
            refusal(dir.create_folder(Path::new("mem"), mode)),
            refusal(dir.remove_file(file)),
            refusal(dir.rename(file, Path::new("file"))),
        ];
        for error in refused {
            assert!(error.contains("symbolic link"), "{error}");
        }
        assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 1);
    }
}
