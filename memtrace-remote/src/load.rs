//! `memtrace load`: experiments on a serving engine. A plan of conditions, a sender that keeps
//! exactly the planned number of requests under way, and what became of each.

mod check;
pub(crate) mod endpoint;
mod plan;
mod prompt;
mod run;
mod serve;
mod server;
mod server_profiler;
mod smoke;
mod tokenizer;

use clap::Subcommand;
use std::process::ExitCode;

/// Experiments with load on a serving engine: plan them, send them, and see in the recording what
/// memory each condition took
///
/// A plan is a grid of conditions: prompt length, output length, concurrency, and how much of the
/// prompts is one shared prefix. The sender goes through them one after the other, closed loop.
/// Each condition is written into a running recording as a phase, and each request as a row.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memtrace load smoke                 # the whole way in seconds, without an engine
  memtrace load plan -o plan.jsonl    # then load check, and load run during a recording

`memtrace report --section conditions` shows what each condition took.")]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Plan(plan::Args),
    Check(check::Args),
    Run(Box<run::Args>),
    Smoke(smoke::Args),
    Serve(serve::Args),
}

/// Does what was asked for.
///
/// # Errors
/// When a plan can't be read or written, the server can't be used, or results can't be written.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.task {
        Task::Plan(args) => plan::run(&args),
        Task::Check(args) => check::run(&args),
        Task::Run(args) => run::run(&args),
        Task::Smoke(args) => smoke::run(&args),
        Task::Serve(args) => serve::run(&args),
    }
}
