//! The directory of one process, held open while several of its files are read, so that
//! all of them are of the same process even when its id is reused meanwhile.

use super::text;
use crate::kept::{KeptFile, TextBuffer};
use memtrace_model::Tgid;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// An open /proc/PID.
#[derive(Debug)]
pub(super) struct ProcDir(OwnedFd);

impl ProcDir {
    /// Opens the directory; `Ok(None)` when there is no such process.
    pub(super) fn open(root: &Path, tgid: Tgid) -> io::Result<Option<Self>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(root.join(tgid.to_string()), flags, Mode::empty()) {
            Ok(directory) => Ok(Some(Self(directory))),
            Err(Errno::NOENT | Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0, name, flags, Mode::empty())?.into())
    }

    /// Reads a file; `Ok(None)` when the process is gone.
    pub(super) fn read<'b>(
        &self,
        name: &str,
        buffer: &'b mut TextBuffer,
    ) -> io::Result<Option<&'b [u8]>> {
        unless_gone(
            self.file(name)
                .and_then(|file| KeptFile::from(file).read(buffer)),
        )
    }

    /// The command line. It lies in the process's own memory: reading it takes that
    /// process's mmap lock (get_mm_cmdline()) and waits while something holds it.
    pub(super) fn command_line(&self) -> io::Result<Option<String>> {
        read_command_line(self.file("cmdline"))
    }

    /// The file that runs; `Ok(None)` when the process is gone or has none.
    pub(super) fn exe(&self) -> io::Result<Option<String>> {
        let link = rustix::fs::readlinkat(&self.0, "exe", Vec::new());
        let link = unless_gone(link.map_err(io::Error::from))?;
        Ok(link.map(|path| path.to_string_lossy().into_owned()))
    }
}

/// The names of a process by the path of its directory: for one that was seen alive just
/// now, where two system calls fewer count for more than a race with the reuse of its id.
/// `Ok(None)` when it is gone.
pub(super) fn names(
    directory: &Path,
    buffer: &mut TextBuffer,
) -> io::Result<Option<(String, Option<String>)>> {
    let comm = unless_gone(buffer.read_once(&directory.join("comm")))?;
    let Some(comm) = comm.map(text::comm) else {
        return Ok(None);
    };
    let title = read_command_line(File::open(directory.join("cmdline")))?;
    Ok(Some((comm, title)))
}

fn read_command_line(file: io::Result<File>) -> io::Result<Option<String>> {
    let mut bytes = [0; text::CMDLINE_LIMIT];
    let length = unless_gone(file.and_then(|file| file.read_at(&mut bytes, 0)))?;
    Ok(length
        .and_then(|length| bytes.get(..length))
        .and_then(text::command_line))
}

/// Whether an error means that the process is no more: its directory has vanished
/// (ENOENT), or a file in it was opened before that (ESRCH).
pub(super) fn is_gone(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    code == Some(Errno::NOENT.raw_os_error()) || code == Some(Errno::SRCH.raw_os_error())
}

fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
