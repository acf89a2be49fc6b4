//! `memtrace engine profile`: windows of the engine's own profiler (PyTorch's, as a rule), on all
//! servers at once.

mod requests;
mod start;
mod status;
mod stop;
mod window;

#[cfg(test)]
mod tests;

use clap::Subcommand;
use std::process::ExitCode;

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
/// When the servers can't be found, or a recording that is named can't be told.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.task {
        Task::Start(args) => crate::block_on(start::run(&args)),
        Task::Stop(args) => crate::block_on(stop::run(&args)),
        Task::Status(args) => crate::block_on(status::run(&args)),
        Task::Run(args) => crate::block_on(window::run(&args)),
    }
}
