//! Where recordings have the sockets that marks are sent to: one file for each recorder,
//! named after its process, in a directory that only its user or root can write.

use memtrace_model::QUESTION_SOCKET_SUFFIX;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Root's, whose sockets belong to the user behind sudo.
const SYSTEM: &str = "/run/memtrace";

/// What the name of the link to a recording has behind that of its socket.
const RECORDING_SUFFIX: &str = ".recording";

/// Another recorder that starts takes far less time than this.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

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
    with_suffix(socket, QUESTION_SOCKET_SUFFIX)
}

/// Writes down which recording listens at `socket`: a link to its directory, beside it.
///
/// # Errors
/// When the link can't be made.
pub fn link_recording(socket: &Path, recording: &Path) -> io::Result<()> {
    let link = with_suffix(socket, RECORDING_SUFFIX);
    std::os::unix::fs::symlink(std::path::absolute(recording)?, link)
}

/// The directory of the recording that listens at `socket`, where it is written down.
pub fn recording_at(socket: &Path) -> Option<PathBuf> {
    std::fs::read_link(with_suffix(socket, RECORDING_SUFFIX)).ok()
}

/// Removes a socket and what stands beside it. What is gone already is as good.
pub fn remove(socket: &Path) {
    for suffix in ["", QUESTION_SOCKET_SUFFIX, RECORDING_SUFFIX] {
        let _ = std::fs::remove_file(with_suffix(socket, suffix));
    }
}

fn with_suffix(socket: &Path, suffix: &str) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(suffix);
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
                Err(io::Error::other("it exists and others can write to it"))
            }
        }
        made => made,
    }
}

/// Removes the sockets of recorders that were killed: those of a directory where nobody takes
/// what is sent. Of two recorders that start in one moment, only one does so; and while it does,
/// the other waits with its own, or it could be taken for a dead one's with the same process id.
/// Gives the right to do so back when what is answered is dropped.
///
/// # Errors
/// When the directory can't be read.
pub fn remove_dead(directory: &Path) -> io::Result<File> {
    let here = File::open(directory)?;
    for _ in 0..LOCK_TRIES {
        match here.try_lock() {
            Ok(()) => {
                remove_dead_in(directory);
                break;
            }
            // One that was stopped in the midst of it does not keep us.
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(_)) => break,
        }
    }
    Ok(here)
}

fn remove_dead_in(directory: &Path) {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let beside = [QUESTION_SOCKET_SUFFIX, RECORDING_SUFFIX];
        let marks = match beside.iter().find_map(|word| name.strip_suffix(word)) {
            Some(marks) => path.with_file_name(marks),
            None => path.clone(),
        };
        // Of all that a recorder has here this is made first and removed first.
        let is_dead = marks.extension().is_some_and(|word| word == "sock") && is_deaf(&marks);
        if is_dead {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Whether nobody listens at a socket for datagrams. A connection to it disturbs nobody.
pub fn is_deaf(socket: &Path) -> bool {
    let probe = UnixDatagram::unbound().and_then(|probe| probe.connect(socket));
    probe.is_err_and(|error| {
        matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
        )
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_dead_recorders_go_and_those_of_living_ones_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let name = |name: &str| dir.path().join(name);
        let living = UnixDatagram::bind(name("1.sock")).expect("a socket");
        for made in ["2.sock", "4.sock"] {
            drop(UnixDatagram::bind(name(made)).expect("a socket"));
        }
        for made in ["1.sock.ask", "2.sock.ask", "3.sock.ask", "notes"] {
            std::fs::write(name(made), "").expect("a file");
        }
        for made in ["1.sock", "2.sock"] {
            link_recording(&name(made), Path::new("/nowhere")).expect("a link");
        }
        drop(remove_dead(dir.path()).expect("read"));
        let mut left: Vec<String> = std::fs::read_dir(dir.path())
            .expect("read")
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        left.sort();
        assert_eq!(left, ["1.sock", "1.sock.ask", "1.sock.recording", "notes"]);
        let recording = recording_at(&name("1.sock"));
        assert_eq!(recording.as_deref(), Some(Path::new("/nowhere")));
        drop(living);
    }

    #[test]
    fn a_recorder_that_was_stopped_while_it_removed_keeps_nobody() {
        let dir = tempfile::tempdir().expect("a directory");
        let stopped = File::open(dir.path()).expect("open");
        stopped.lock().expect("locked");
        drop(UnixDatagram::bind(dir.path().join("2.sock")).expect("a socket"));
        drop(remove_dead(dir.path()).expect("read"));
        assert!(dir.path().join("2.sock").exists(), "it is the other's turn");
    }
}
