//! Where recordings have the sockets that marks are sent to: one file for each recorder,
//! named after its process, in a directory that only its user or root can write.

use crate::model::QUESTION_SOCKET_SUFFIX;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Root's, whose sockets belong to the user behind sudo.
const SYSTEM: &str = "/run/memtrace";

/// As whom this process acts.
pub fn euid() -> u32 {
    // SAFETY: takes nothing and can't fail.
    unsafe { libc::geteuid() }
}

/// Where this process has its own.
pub fn own_path() -> PathBuf {
    let has_system = || Path::new(SYSTEM).parent().is_some_and(Path::is_dir);
    let directory = if euid() == 0 && has_system() {
        PathBuf::from(SYSTEM)
    } else {
        users_directory()
    };
    directory.join(format!("{}.sock", std::process::id()))
}

/// Where questions go of those who mark at `socket`.
pub fn questions_beside(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(QUESTION_SOCKET_SUFFIX);
    PathBuf::from(path)
}

fn users_directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if !directory.is_empty() => PathBuf::from(directory).join("memtrace"),
        _ => std::env::temp_dir().join(format!("memtrace-{}", euid())),
    }
}

/// Makes a directory for sockets, or takes the one that is there.
///
/// # Errors
/// When it can't be made, or when somebody else made it, who could listen in.
pub fn make_directory(directory: &Path) -> io::Result<()> {
    let mode = if euid() == 0 { 0o755 } else { 0o700 };
    match std::fs::DirBuilder::new().mode(mode).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = std::fs::symlink_metadata(directory)?;
            let is_ours = found.is_dir() && found.uid() == euid() && found.mode() & 0o022 == 0;
            if is_ours {
                Ok(())
            } else {
                Err(io::Error::other(
                    "it is there and somebody else can write to it",
                ))
            }
        }
        made => made,
    }
}

/// The sockets of recordings that run for `uid`, as far as their files tell: a recorder
/// that was killed leaves its file behind.
pub fn of_user(uid: u32) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = [PathBuf::from(SYSTEM), users_directory()]
        .iter()
        .filter_map(|directory| std::fs::read_dir(directory).ok())
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "sock")
        })
        .filter(|path| std::fs::symlink_metadata(path).is_ok_and(|file| file.uid() == uid))
        .collect();
    found.sort();
    found
}
