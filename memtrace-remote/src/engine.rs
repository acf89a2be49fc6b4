//! `memtrace engine`: what a person asks of a serving engine that runs, at all of its servers at once
//! and as phases of the recording.

mod action;
mod engines;
#[cfg(test)]
mod fake;
mod from_log;
mod local;
mod profile;
mod profiler_config;
mod refusals;
mod sleeping;
mod traces;
mod workers;

use clap::Subcommand;
use std::process::ExitCode;

/// Ask all servers of an engine to profile, sleep or wake
///
/// The servers are named, or found through their router or in a log. All are asked at once; the
/// answer of each is printed, with its reason. It is written as a phase into a running recording.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memtrace engine profile status --url http://localhost:8000
  memtrace engine profile run --url http://localhost:8000 --requests 4

docs/engine.md says more.")]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Profile(profile::Args),
    Sleep(sleeping::Sleep),
    Wake(sleeping::Wake),
    Status(sleeping::Status),
    ResetPrefixCache(sleeping::Reset),
}

/// Does what was asked for.
///
/// # Errors
/// When the servers can't be found, or a recording that is named can't be reported.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.task {
        Task::Profile(args) => profile::run(args),
        Task::Sleep(args) => sleeping::sleep(&args),
        Task::Wake(args) => sleeping::wake(&args),
        Task::Status(args) => sleeping::status(&args),
        Task::ResetPrefixCache(args) => sleeping::reset(&args),
    }
}
