//! `memtrace engine profile stop`: closes the window on all servers, waits until the traces are
//! written, and looks what is there.

use super::{FLUSH, PHASE, Traces, all_or_none};
use crate::engine::action::Action;
use crate::engine::engines::{Engines, named};
use crate::engine::traces::{Listing, Looks, Verdict, settled};
use crate::engine::workers::Servers;
use crate::recordings::{Recordings, Reported};
use crate::stop::Stop;
use anyhow::Context;
use memtrace::cli::say;
use memtrace_model::MarkKind;
use serde_json::Map;
use std::io::{self, Write};
use std::process::ExitCode;

/// Stop the profiler of each server, and wait until the traces are written
///
/// The paths of the files that were written go to standard output.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit status: 0; 1 when not all stopped, or no worker's traces are there.")]
pub(super) struct Args {
    #[command(flatten)]
    servers: Servers,

    #[command(flatten)]
    traces: Traces,

    #[command(flatten)]
    reported: Reported,
}

/// Stops them.
///
/// # Errors
/// When the servers can't be found.
pub(super) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut stop = Stop::by_signals()?;
    let mut recordings = args.reported.if_clear();
    let engines = Engines::find(&args.servers, args.traces.dir.as_deref()).await;
    let engines = engines.context("nothing was stopped, and profilers that are on stay on")?;
    let is_well = close(&engines, None, &args.traces, &mut recordings, &mut stop).await?;
    Ok(all_or_none(is_well))
}

/// Stops the profilers and says what they wrote. Answers whether all is as it should be. `before` is
/// what was there before the window, where this program opened it.
///
/// # Errors
/// When the list of files can't be written.
pub(super) async fn close(
    engines: &Engines,
    before: Option<&Listing>,
    traces: &Traces,
    recordings: &mut Recordings,
    stop: &mut Stop,
) -> anyhow::Result<bool> {
    let at_stop = Listing::of(&engines.dirs);
    recordings.mark(MarkKind::End, PHASE, Map::new());
    recordings.mark(MarkKind::Begin, FLUSH, Map::new());
    let stopped = engines.ask(Action::StopProfile(traces.timeout), stop).await;
    recordings.mark(MarkKind::End, FLUSH, Map::new());
    let left_on = engines.without(&stopped);
    if !left_on.is_empty() {
        let whom = named(left_on.into_iter());
        say(&format!(
            "the profiler may still be on: {whom}. Stop it with memtrace engine profile stop, \
             where `status` finds the server"
        ));
    }
    let configs = engines.configs();
    if !configs.is_empty() && configs.iter().all(|config| config.is_cuda()) {
        return Ok(stopped.len() == engines.all.len());
    }
    if engines.dirs.is_empty() {
        say(
            "the directory of the traces is unknown, because no server process with a \
             torch_profiler_dir is visible here: name it with --dir",
        );
        return Ok(stopped.len() == engines.all.len());
    }
    let has_limit = configs.iter().any(|config| config.max_iterations > 0);
    let written_before = before.map_or(has_limit && !at_stop.is_empty(), |before| {
        !at_stop.since(before).is_empty()
    });
    let after = match (stopped.is_empty(), written_before) {
        // Nothing more comes.
        (true, _) | (_, true) => Listing::of(&engines.dirs),
        (false, false) => settled(&engines.dirs, &at_stop, traces.settle).await,
    };
    let looks = Looks {
        before,
        at_stop: &at_stop,
        after: &after,
    };
    list(&looks.of_window())?;
    if stopped.len() < engines.all.len() {
        let files = looks.of_window().in_words();
        say(&format!("{files} written, of those servers that stopped"));
        return Ok(false);
    }
    say(&looks.in_words(&engines.dirs, &configs));
    let verdict = looks.verdict(&configs);
    Ok(matches!(
        verdict,
        Verdict::Written | Verdict::EndedByItself { .. }
    ))
}

/// Their paths, for another program.
fn list(files: &Listing) -> io::Result<()> {
    let mut text = String::new();
    for (path, _) in files.files() {
        // A name may hold what moves a terminal's cursor, or tears the list.
        text.push_str(&path.display().to_string().replace(char::is_control, "?"));
        text.push('\n');
    }
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}
