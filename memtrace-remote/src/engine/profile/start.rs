//! `memtrace engine profile start`: opens a window on all servers.

use super::{PHASE, all_or_none};
use crate::engine::action::Action;
use crate::engine::engines::Engines;
use crate::engine::workers::Servers;
use crate::limits::{LOOK_TIME, PATIENCE_SECONDS};
use crate::recordings::{Recordings, Reported};
use crate::seconds::parse_seconds;
use crate::stop::Stop;
use memtrace::cli::say;
use memtrace_model::MarkKind;
use serde_json::{Map, Value};
use std::process::ExitCode;
use std::time::Duration;

/// Start the profiler of each server
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit status: 0; 1 when not all started.")]
pub(super) struct Args {
    #[command(flatten)]
    servers: Servers,

    /// How long a server may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value = PATIENCE_SECONDS, value_parser = parse_seconds)]
    timeout: Duration,

    #[command(flatten)]
    reported: Reported,
}

/// Starts them.
///
/// # Errors
/// When the servers can't be found.
pub(super) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut stop = Stop::by_signals()?;
    let mut recordings = args.reported.if_clear();
    let mut engines = Engines::find(&args.servers, None).await?;
    engines.timeout = Some(args.timeout);
    let started = open(&engines, &mut recordings, &mut stop).await;
    Ok(all_or_none(started.all.len() == engines.all.len()))
}

/// Starts the profilers. Answers with the servers whose profiler was started.
pub(super) async fn open(
    engines: &Engines,
    recordings: &mut Recordings,
    stop: &mut Stop,
) -> Engines {
    engines.warn();
    let started = engines.ask(Action::StartProfile, stop).await;
    let started = Engines {
        all: started,
        dirs: engines.dirs.clone(),
        timeout: engines.timeout,
    };
    if started.all.is_empty() {
        return started;
    }
    let attributes = [("servers", started.all.len()), ("of", engines.all.len())];
    let attributes = attributes.map(|(name, count)| (name.to_owned(), Value::from(count)));
    recordings.mark(MarkKind::Begin, PHASE, Map::from_iter(attributes));
    for shown in recordings.names() {
        say(&format!("the window is the phase {PHASE} of {shown}"));
    }
    for engine in &started.all {
        // A worker that dies of its profiler takes the server along.
        let health = engine.worker.client.status("/health", LOOK_TIME).await;
        if let Ok(status) = &health
            && [200, 404].contains(status)
        {
            continue;
        }
        let words = health.map_or_else(|failure| failure.to_string(), |status| status.to_string());
        say(&format!(
            "{}: it has been unhealthy since its profiler was started (/health: {words})",
            engine.worker.shown()
        ));
    }
    for config in started.configs() {
        if config.delay_iterations > 0 {
            say(&format!(
                "the profiler begins after delay_iterations={} iterations",
                config.delay_iterations
            ));
            break;
        }
    }
    started
}
