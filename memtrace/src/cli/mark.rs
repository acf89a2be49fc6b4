//! `memtrace mark`: a name for this moment, in every recording that runs.

use crate::host::{clock, mark_sockets};
use crate::model::{MARK_BYTES_MAX, MarkKind, MarkMessage};
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

/// Name this moment, or the begin or end of a phase, in the recordings that run
///
/// Goes to every running recording of this user (behind sudo: of the user who called it),
/// or to one. Programs that memtrace started can do the same by a message to the socket in
/// MEMTRACE_SOCKET; docs/marks.md has the format.
#[derive(Debug, clap::Args)]
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

    /// The recording [default: every running recording of this user]
    #[arg(short, long, value_name = "DIR")]
    recording: Option<PathBuf>,
}

/// Sends the mark.
///
/// # Errors
/// When no recording runs, or one of them can't be reached.
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
    match args.recording {
        Some(directory) => {
            let socket = socket_of(&directory)?;
            send(&socket, &bytes)
                .map_err(|error| explain(&error, &directory))
                .map(|()| ExitCode::SUCCESS)
        }
        None => send_to_all(&bytes),
    }
}

fn send_to_all(bytes: &[u8]) -> anyhow::Result<ExitCode> {
    let mut reached = 0;
    for socket in mark_sockets::of_user(user()) {
        match send(&socket, bytes) {
            Ok(()) => reached += 1,
            // Its recorder was killed; or it closed between our look and our call.
            Err(error) if is_gone(&error) => {
                let _ = std::fs::remove_file(&socket);
                let _ = std::fs::remove_file(mark_sockets::questions_beside(&socket));
            }
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("failed to send the mark to {}", socket.display()));
            }
        }
    }
    if reached == 0 {
        bail!("no recording of this user is running; start one with: memtrace record");
    }
    Ok(ExitCode::SUCCESS)
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

fn socket_of(directory: &Path) -> anyhow::Result<PathBuf> {
    let info = read_run_info(directory).context("failed to find the recording's socket")?;
    match info.mark_socket {
        Some(path) => Ok(PathBuf::from(path)),
        None => bail!("{} receives no marks", directory.display()),
    }
}

fn send(socket: &Path, bytes: &[u8]) -> io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    sender.set_write_timeout(Some(PATIENCE))?;
    sender.connect(socket)?;
    sender.send(bytes).map(drop)
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::NotFound
    )
}

fn explain(error: &io::Error, directory: &Path) -> anyhow::Error {
    let directory = directory.display();
    if is_gone(error) {
        anyhow::anyhow!("{directory} is not being recorded any more")
    } else {
        anyhow::anyhow!("failed to send the mark to {directory}: {error}")
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
