//! Which recordings run, which of them is meant, and how a message gets there.

use anyhow::{Context, bail};
use memtrace_host::mark_sockets;
use memtrace_model::{MARK_SOCKET_VARIABLE, RunInfo, Target, Tgid};
use memtrace_store::read_run_info;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The queue of a socket holds few messages, so a busy recorder may need a moment.
const PATIENCE: Duration = Duration::from_secs(1);

/// The recordings that are meant where none is named: that of this process, else what runs.
///
/// # Errors
/// When none runs, or it is open which is meant.
pub fn nobody_named() -> anyhow::Result<Vec<Running>> {
    let meant = any_meant()?;
    if meant.is_empty() {
        bail!("no recording of this user is running; start one with: memtrace record");
    }
    Ok(meant)
}

/// The same, where none needs to run.
///
/// # Errors
/// When it is open which is meant.
pub fn any_meant() -> anyhow::Result<Vec<Running>> {
    match own_socket() {
        Some(socket) => Ok(vec![Running::at(socket)]),
        None => meant(running(), &ancestors()),
    }
}

/// A recording that runs, as far as is known.
#[derive(Debug)]
pub struct Running {
    socket: PathBuf,
    pub(super) dir: Option<PathBuf>,
    info: Option<RunInfo>,
}

impl Running {
    /// The one in a directory.
    ///
    /// # Errors
    /// When there is none, or it receives no marks.
    pub fn named(dir: &Path) -> anyhow::Result<Self> {
        let info = read_run_info(dir).context("failed to find the recording's socket")?;
        match &info.mark_socket {
            Some(socket) => Ok(Self {
                socket: PathBuf::from(socket),
                dir: Some(dir.to_owned()),
                info: Some(info),
            }),
            None => bail!("{} receives no marks", dir.display()),
        }
    }

    fn at(socket: PathBuf) -> Self {
        let dir = mark_sockets::recording_at(&socket);
        Self {
            info: dir.as_deref().and_then(|dir| read_run_info(dir).ok()),
            socket,
            dir,
        }
    }

    /// Its directory, where that is known.
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// What a person knows it by.
    pub fn shown(&self) -> std::path::Display<'_> {
        self.dir.as_deref().unwrap_or(&self.socket).display()
    }

    /// Whether it records the descendants of that process.
    fn has_root(&self, tgid: Tgid) -> bool {
        self.info.as_ref().is_some_and(|info| {
            let is_named = matches!(&info.target, Target::Pids { tgids } if tgids.contains(&tgid));
            info.root_tgid == Some(tgid) || is_named
        })
    }

    /// Whether what one records the other does too.
    fn is_of_same_tree(&self, other: &Self) -> bool {
        let (Some(own), Some(other)) = (&self.info, &other.info) else {
            return false;
        };
        let is_all = |info: &RunInfo| info.target == Target::All;
        let is_same = match own.root_tgid {
            Some(root) => other.root_tgid == Some(root),
            None => own.target == other.target,
        };
        is_all(own) || is_all(other) || is_same
    }

    /// Sends it a message, and waits a moment for a recorder that is busy.
    ///
    /// # Errors
    /// When nobody listens any more, or takes it in time.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let sender = self.connect()?;
        sender.set_write_timeout(Some(PATIENCE))?;
        sender.send(bytes).map(drop)
    }

    /// A socket whose messages go there.
    ///
    /// # Errors
    /// When nobody listens any more.
    pub fn connect(&self) -> io::Result<UnixDatagram> {
        let sender = UnixDatagram::unbound()?;
        sender.connect(&self.socket)?;
        Ok(sender)
    }
}

/// The recordings that run. What is left of those whose recorder was killed goes; one that is about
/// to begin has no directory yet, and counts where there is no other.
fn running() -> Vec<Running> {
    let (deaf, living): (Vec<_>, Vec<_>) = mark_sockets::of_user(user())
        .into_iter()
        .partition(|socket| mark_sockets::is_deaf(socket));
    deaf.iter().for_each(|socket| mark_sockets::remove(socket));
    let running = living.into_iter().map(Running::at);
    let (begun, others): (Vec<_>, Vec<_>) = running.partition(|one| one.dir.is_some());
    match begun.is_empty() {
        true => others,
        false => begun,
    }
}

/// Which of them are meant where none is named, by a process with these ancestors, nearest first.
fn meant(mut running: Vec<Running>, ancestors: &[Tgid]) -> anyhow::Result<Vec<Running>> {
    let is_root = |tgid: &&Tgid| running.iter().any(|one| one.has_root(**tgid));
    if let Some(&root) = ancestors.iter().find(is_root) {
        running.retain(|one| one.has_root(root));
        return Ok(running);
    }
    let others = |at: usize| running.iter().skip(at + 1);
    let mut all = running.iter().enumerate();
    if !all.all(|(at, one)| others(at).all(|other| one.is_of_same_tree(other))) {
        let named = running.iter().map(|one| format!("-r {}", one.shown()));
        bail!(
            "{} recordings of different processes are running; name one: {}",
            running.len(),
            named.collect::<Vec<_>>().join(", ")
        );
    }
    Ok(running)
}

/// Where the recording listens that started the command that this process is of, while it runs.
fn own_socket() -> Option<PathBuf> {
    let socket = std::env::var_os(MARK_SOCKET_VARIABLE).filter(|socket| !socket.is_empty())?;
    Some(PathBuf::from(socket)).filter(|socket| !mark_sockets::is_deaf(socket))
}

/// This process and those it descends from, nearest first, as far as they can be read.
fn ancestors() -> Vec<Tgid> {
    let mut found = vec![Tgid(std::process::id())];
    while let Some(parent) = found.last().and_then(|&last| parent_of(last)) {
        // 0 is no process. An id that came before is a reused one.
        if parent.0 == 0 || found.contains(&parent) {
            break;
        }
        found.push(parent);
    }
    found
}

#[cfg(target_os = "linux")]
fn parent_of(Tgid(tgid): Tgid) -> Option<Tgid> {
    let process = procfs::process::Process::new(tgid.cast_signed()).ok()?;
    Some(Tgid(process.stat().ok()?.ppid.cast_unsigned()))
}

#[cfg(not(target_os = "linux"))]
fn parent_of(_: Tgid) -> Option<Tgid> {
    None
}

/// Whose recordings: the user behind sudo, as for `record`.
fn user() -> u32 {
    let own = mark_sockets::euid();
    let behind = || std::env::var("SUDO_UID").ok()?.parse().ok();
    if own == 0 {
        behind().unwrap_or(own)
    } else {
        own
    }
}

#[cfg(test)]
impl Running {
    /// One that listens there, of the processes below a root.
    pub(super) fn of_root(socket: &Path, root: u32) -> Self {
        let mut info = memtrace_golden::Script::command(&["a"], 1.0).info;
        info.root_tgid = Some(Tgid(root));
        Self {
            socket: socket.to_owned(),
            dir: None,
            info: Some(info),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_goes_to_all_recordings_of_the_nearest_ancestor() {
        let running = || {
            let roots = [("near", 3), ("far", 2), ("near too", 3), ("other", 9)];
            roots.map(|(name, root)| Running::of_root(Path::new(name), root))
        };
        let meant = |ancestors: &[u32]| {
            let ancestors: Vec<Tgid> = ancestors.iter().copied().map(Tgid).collect();
            let meant = meant(running().into(), &ancestors)?;
            let sockets = meant
                .into_iter()
                .map(|one| one.socket.display().to_string());
            anyhow::Ok(sockets.collect::<Vec<_>>())
        };
        assert_eq!(meant(&[5, 3, 2, 1]).unwrap(), ["near", "near too"]);
        assert_eq!(meant(&[4, 2, 1]).unwrap(), ["far"]);
        assert!(meant(&[4, 1]).is_err(), "it is open which is meant");
    }
}
