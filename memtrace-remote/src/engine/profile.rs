//! `memtrace engine profile`: windows of the engine's own profiler (PyTorch's, as a rule), on all
//! servers at once.

mod requests;
mod start;
mod status;
mod stop;
mod window;

#[cfg(test)]
mod tests;

use crate::seconds::{parse_pause, parse_seconds};
use clap::Subcommand;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The window as a phase of recordings.
const PHASE: &str = "engine.profile";

/// The time in which the servers write their traces, which takes memory of its own.
const FLUSH: &str = "engine.profile.flush";

/// Where traces are looked for, and how long.
#[derive(Debug, clap::Args)]
struct Traces {
    /// Where the servers write their traces [default: as the command lines of servers on this machine
    /// say]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// How long the servers may take to write their traces, and to answer before that, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1800", value_parser = parse_seconds)]
    timeout: Duration,

    /// How long to wait for files after the servers say that they are written, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_pause)]
    settle: Duration,
}

/// Start and stop the profilers of all servers, and list what they wrote
///
/// vLLM has a profiler when it was started with --profiler-config '{"profiler": "torch",
/// "torch_profiler_dir": "/DIR"}'; trainers that start vLLM pass that on (--vllm-profiler-config).
/// SGLang always has one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memtrace engine profile run --router http://127.0.0.1:3521 --requests 4
  memtrace engine profile start --from-log train.log; sleep 5
  memtrace engine profile stop --from-log train.log")]
pub(super) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Start(start::Args),
    Stop(stop::Args),
    Status(status::Args),
    Run(window::Args),
}

/// Does it.
///
/// # Errors
/// When the servers can't be found, or a recording that is named can't be reported.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.task {
        Task::Start(args) => crate::block_on(start::run(&args)),
        Task::Stop(args) => crate::block_on(stop::run(&args)),
        Task::Status(args) => crate::block_on(status::run(&args)),
        Task::Run(args) => crate::block_on(window::run(&args)),
    }
}

/// The exit status.
fn all_or_none(is_well: bool) -> ExitCode {
    match is_well {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
