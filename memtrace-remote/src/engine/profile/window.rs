//! `memtrace engine profile run`: a whole window in one go, and what its parts share.

use super::{Traces, all_or_none, requests, start, stop};
use crate::engine::engines::Engines;
use crate::engine::traces::Listing;
use crate::engine::workers::Servers;
use crate::recordings::Reported;
use crate::seconds::parse_pause;
use crate::stop::{INTERRUPTED, Stop};
use memtrace::cli::say;
use std::process::ExitCode;
use std::time::Duration;

/// Start the profilers, send a few requests, stop them, and list what they wrote
///
/// The paths of the files that were written go to standard output. Ctrl-C closes the window early.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit status: 0; 1 when not all servers did it, no worker's traces are there, or no request was
answered; 130 after Ctrl-C.")]
pub(super) struct Args {
    #[command(flatten)]
    servers: Servers,

    /// How many completions to send within the window, to each server in turn
    #[arg(long, value_name = "N", default_value_t = 4)]
    requests: usize,

    /// The model for these completions [default: the only one that a server has]
    #[arg(long, value_name = "NAME", env = "MODEL_NAME")]
    model: Option<String>,

    /// How long to leave the window open for other requests, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_pause)]
    duration: Duration,

    #[command(flatten)]
    traces: Traces,

    #[command(flatten)]
    reported: Reported,
}

/// Does it.
///
/// # Errors
/// When the servers can't be found.
pub(super) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut wish = Stop::by_signals()?;
    let mut recordings = args.reported.if_clear();
    let mut engines = Engines::find(&args.servers, args.traces.dir.as_deref()).await?;
    engines.timeout = Some(args.traces.timeout);
    let before = Listing::of(&engines.dirs);
    let started = start::open(&engines, &mut recordings, &mut wish).await;
    // Of one that had not answered yet it is not known: it is stopped with the others.
    let opened = if wish.is_wished() { &engines } else { &started };
    if opened.all.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    let model = args.model.as_deref();
    let asked = (model, args.traces.timeout);
    let sent = requests::send(&started.all, args.requests, asked, &wish).await;
    say(&sent.in_words());
    tokio::select! {
        () = tokio::time::sleep(args.duration) => {}
        () = wish.wished() => {}
    }
    // The wish was for the window to end; to wait for traces no longer takes a second one, which ends
    // the program.
    let mut patience = if wish.is_wished() {
        Stop::never()
    } else {
        wish.clone()
    };
    let before = Some(&before);
    let is_well = stop::close(opened, before, &args.traces, &mut recordings, &mut patience).await?;
    if wish.is_wished() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let is_all = started.all.len() == engines.all.len();
    Ok(all_or_none(is_well && is_all && sent.is_well()))
}
