//! `memtrace mark`: a name for this moment, in the recording that is meant.

use super::output::say;
use super::running::{Running, nobody_named};
use anyhow::{Context, bail};
use memtrace_host::clock;
use memtrace_model::{MARK_BYTES_MAX, MarkKind, MarkMessage};
use serde_json::Value;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::ExitCode;

/// Name this moment, or the start or end of a phase, in a running recording
///
/// Called by the command of a recording, by a process given with -p, or by a descendant of either,
/// it writes to the recordings of that process. Called from elsewhere, it writes to the running
/// recording of this user (under sudo: of the user who called it), or to several if they record the
/// same processes. If they record different ones, name one with -r. Programs that memtrace started
/// can do the same by a message to the socket in MEMTRACE_SOCKET; docs/marks.md has the format.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  memtrace mark deploy --attr version=7

Exit status: 0; 1 if no recording is running, recordings of different processes are running and
none was named, or one can't be reached; 2 on a usage error.")]
pub(super) struct Args {
    /// The mark or phase
    #[arg(value_parser = parse_name)]
    name: String,

    /// The phase starts here
    #[arg(long, conflicts_with = "end")]
    begin: bool,

    /// The phase ends here
    #[arg(long)]
    end: bool,

    /// An attribute; the value is taken as JSON where it is JSON, else as text; may be repeated
    #[arg(long = "attr", value_name = "KEY=VALUE", value_parser = parse_attribute)]
    attributes: Vec<(String, Value)>,

    /// The recording; may be repeated [default: that of this process, else the running one]
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
                MarkKind::Begin => format!("the start of {} is marked in {shown}", args.name),
                MarkKind::End => format!("the end of {} is marked in {shown}", args.name),
                _ => format!("{} is marked in {shown}", args.name),
            });
        }
    };
    send_to_all(&meant, &bytes, !args.recordings.is_empty(), reached)?;
    Ok(ExitCode::SUCCESS)
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
    use std::os::unix::net::UnixDatagram;

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
                .map(|name| Running::of_root(&place(name), 1))
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
