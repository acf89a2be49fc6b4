//! `memtrace mark`: a name for this moment, in the recording that is meant.

use super::output::say;
use crate::host::{clock, mark_sockets};
use crate::model::{
    MARK_BYTES_MAX, MARK_SOCKET_VARIABLE, MarkKind, MarkMessage, RunInfo, Target, Tgid,
};
use crate::store::read_run_info;
use anyhow::{Context, bail};
use serde_json::Value;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The queue of a socket holds few messages, so a busy recorder may need a moment.
const PATIENCE: Duration = Duration::from_secs(1);

/// Name this moment, or the begin or end of a phase, in a recording that runs
///
/// From the command of a recording or a process that was given with -p, and from what descends
/// from it, it goes to the recordings of that process. From elsewhere it goes to the running
/// recording of this user (behind sudo: of the user who called it), also to several where they
/// record the same processes. Where they record different ones, -r says which is meant. Programs
/// that memtrace started can do the same by a message to the socket in MEMTRACE_SOCKET;
/// docs/marks.md has the format.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  memtrace mark deploy --attr version=7

Exit status: 0; 1 when no recording runs, it is open which of several is meant, or one can't be
reached; 2 after a wrong use.")]
pub(super) struct Args {
    /// The mark or phase
    #[arg(value_parser = parse_name)]
    name: String,

    /// The phase begins here
    #[arg(long, conflicts_with = "end")]
    begin: bool,

    /// The phase ends here
    #[arg(long)]
    end: bool,

    /// An attribute; the value is taken as JSON where it is JSON, else as text; may be repeated
    #[arg(long = "attr", value_name = "KEY=VALUE", value_parser = parse_attribute)]
    attributes: Vec<(String, Value)>,

    /// The recording; may be repeated [default: that of this process, else the one that runs]
    #[arg(short, long = "recording", value_name = "DIR")]
    recordings: Vec<PathBuf>,

    /// Do not say into which recordings it was written
    #[arg(short, long)]
    quiet: bool,
}

/// Sends the mark.
///
/// # Errors
/// When no recording runs, it is open which of several is meant, or one of them can't be reached
/// and has not just ended beside another that was.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let kind = match (args.begin, args.end) {
        (true, _) => MarkKind::Begin,
        (_, true) => MarkKind::End,
        _ => MarkKind::Instant,
    };
    let mut message = MarkMessage::new(kind, &args.name, clock::boot());
    message.is_of_recording = true;
    message.attrs = args.attributes.into_iter().collect();
    let bytes = serde_json::to_vec(&message).context("failed to write the mark")?;
    if bytes.len() > MARK_BYTES_MAX {
        bail!(
            "the mark has {} bytes; {MARK_BYTES_MAX} is the most",
            bytes.len()
        );
    }
    let meant = match args.recordings.as_slice() {
        [] => nobody_named()?,
        named => named
            .iter()
            .map(|dir| Running::named(dir))
            .collect::<Result<_, _>>()?,
    };
    let reached = |recording: &Running| {
        if !args.quiet {
            let shown = recording.shown();
            say(&match kind {
                MarkKind::Begin => format!("the begin of {} is marked in {shown}", args.name),
                MarkKind::End => format!("the end of {} is marked in {shown}", args.name),
                _ => format!("{} is marked in {shown}", args.name),
            });
        }
    };
    send_to_all(&meant, &bytes, !args.recordings.is_empty(), reached)?;
    Ok(ExitCode::SUCCESS)
}

/// The recordings that are meant where none is named: that of this process, else what runs.
///
/// # Errors
/// When none runs, or it is open which is meant.
pub(super) fn nobody_named() -> anyhow::Result<Vec<Running>> {
    match own_socket() {
        Some(socket) => Ok(vec![Running::at(socket)]),
        None => meant(running(), &ancestors()),
    }
}

/// Marks this moment in one recording.
///
/// # Errors
/// When it can't be reached.
pub(super) fn mark_now(recording: &Running, name: &str) -> anyhow::Result<()> {
    let mut message = MarkMessage::new(MarkKind::Instant, name, clock::boot());
    message.is_of_recording = true;
    let bytes = serde_json::to_vec(&message).context("failed to write the mark")?;
    recording.send(&bytes).context("it can't be reached")
}

/// Sends it to each, whatever becomes of the others. One that nobody named may end meanwhile, while
/// another is reached.
fn send_to_all(
    meant: &[Running],
    bytes: &[u8],
    are_named: bool,
    reached: impl Fn(&Running),
) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for recording in meant {
        match recording.send(bytes) {
            Ok(()) => reached(recording),
            Err(error) => failed.push((recording, error)),
        }
    }
    if !are_named && failed.len() < meant.len() {
        failed.retain(|(_, error)| !is_gone(error));
    }
    if failed.is_empty() {
        return Ok(());
    }
    let errors = failed.iter().map(|(recording, error)| {
        let shown = recording.shown();
        match is_gone(error) {
            true => format!("{shown} is not being recorded any more"),
            false => format!("failed to send the mark to {shown}: {error}"),
        }
    });
    bail!("{}", errors.collect::<Vec<_>>().join("; "))
}

/// Whether nobody listens any more.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::NotFound
    )
}

/// A recording that runs, as far as is known.
pub(super) struct Running {
    socket: PathBuf,
    pub(super) dir: Option<PathBuf>,
    info: Option<RunInfo>,
}

impl Running {
    /// The one in a directory.
    ///
    /// # Errors
    /// When there is none, or it receives no marks.
    pub(super) fn named(dir: &Path) -> anyhow::Result<Self> {
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

    fn shown(&self) -> std::path::Display<'_> {
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

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let sender = UnixDatagram::unbound()?;
        sender.set_write_timeout(Some(PATIENCE))?;
        sender.connect(&self.socket)?;
        sender.send(bytes).map(drop)
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
    if running.is_empty() {
        bail!("no recording of this user is running; start one with: memtrace record");
    }
    let others = |at: usize| running.iter().skip(at + 1);
    let mut all = running.iter().enumerate();
    if !all.all(|(at, one)| others(at).all(|other| one.is_of_same_tree(other))) {
        let named = running.iter().map(|one| format!("-r {}", one.shown()));
        bail!(
            "{} recordings run, and not of the same processes; say which is meant: {}",
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

fn parse_name(text: &str) -> Result<String, &'static str> {
    if text.is_empty() {
        Err("a mark needs a name")
    } else {
        Ok(text.to_owned())
    }
}

fn parse_attribute(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            Ok((key.to_owned(), value))
        }
        _ => Err(format!("'{text}' is not KEY=VALUE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::golden::Script;

    fn running_at(socket: &Path, root: u32) -> Running {
        let mut info = Script::command(&["a"], 1.0).info;
        info.root_tgid = Some(Tgid(root));
        Running {
            socket: socket.to_owned(),
            dir: None,
            info: Some(info),
        }
    }

    #[test]
    fn a_mark_goes_to_all_recordings_of_the_nearest_ancestor() {
        let running = || {
            let roots = [("near", 3), ("far", 2), ("near too", 3), ("other", 9)];
            roots.map(|(name, root)| running_at(Path::new(name), root))
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

    #[test]
    fn a_recording_that_has_just_ended_keeps_a_mark_from_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| dir.path().join(name);
        let living = UnixDatagram::bind(place("living")).unwrap();
        living.set_nonblocking(true).unwrap();
        drop(UnixDatagram::bind(place("deaf")).unwrap());
        let sent = |names: &[&str], are_named| {
            let meant: Vec<Running> = names
                .iter()
                .map(|name| running_at(&place(name), 1))
                .collect();
            let sent = send_to_all(&meant, b"mark", are_named, |_| ());
            let got = living.recv(&mut [0; 8]).is_ok();
            (sent.map_err(|error| error.to_string()), got)
        };
        let all = ["deaf", "living", "none"];
        assert_eq!(sent(&all, false), (Ok(()), true));
        let (refused, got) = sent(&all, true);
        let refused = refused.unwrap_err();
        for name in ["deaf", "none"] {
            let said = format!("{} is not being recorded any more", place(name).display());
            assert!(refused.contains(&said), "{refused}");
        }
        assert!(got, "the others have it all the same");
        let (refused, got) = sent(&["deaf", "none"], false);
        assert_eq!((refused.is_err(), got), (true, false));
    }

    #[test]
    fn an_attribute_is_json_where_it_can_be_and_text_else() {
        let value = |text: &str| parse_attribute(text).unwrap().1;
        assert_eq!(value("rank=3"), Value::from(3));
        assert_eq!(value("ok=true"), Value::from(true));
        assert_eq!(value("model=llama-3"), Value::from("llama-3"));
        assert_eq!(value("path=a=b"), Value::from("a=b"));
        assert_eq!(value("empty="), Value::from(""));
        for wrong in ["rank", "=3", ""] {
            assert!(parse_attribute(wrong).is_err(), "{wrong}");
        }
    }
}
