//! The `memtrace-remote` command: what memtrace does over the network, as the person who calls it.
//!
//! It is a program of its own so that the recorder, which may run as root, links no HTTP client and
//! opens no connection. `memtrace load`, `memtrace engine` and `memtrace push` start it with the same
//! words.

mod engine;
mod http;
mod limits;
mod load;
mod metrics;
mod objects;
mod push;
mod read;
mod recordings;
mod seconds;
mod stop;

use clap::{CommandFactory, Parser, Subcommand};
use memtrace::cli::{build_version, say, write_manual};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::runtime::{Builder, Runtime};

/// What memtrace does over the network. `memtrace load`, `engine` and `push` call it.
#[derive(Debug, Parser)]
#[command(
    name = "memtrace-remote",
    bin_name = "memtrace",
    version,
    long_version = build_version(),
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Load(load::Args),
    Engine(engine::Args),
    Push(push::Args),
    Read(read::Args),
    Metrics(metrics::Args),
    /// Write the manual pages, as pages of memtrace
    #[command(hide = true)]
    Man {
        /// Directory for them
        dir: PathBuf,
    },
}

fn main() -> ExitCode {
    limits::hold_memory(0);
    call(Cli::parse()).unwrap_or_else(|error| {
        say(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}

fn call(asked: Cli) -> anyhow::Result<ExitCode> {
    match asked.command {
        Command::Load(args) => load::run(args),
        Command::Engine(args) => engine::run(args),
        Command::Push(args) => push::run(&args),
        Command::Read(args) => read::run(&args),
        Command::Metrics(args) => metrics::run(args),
        Command::Man { dir } => {
            write_manual(Cli::command().name("memtrace"), &dir).map(|()| ExitCode::SUCCESS)
        }
    }
}

/// Does what these words ask for, as if a person had written them behind `memtrace`.
fn call_words(words: Vec<OsString>) -> anyhow::Result<ExitCode> {
    let program = [OsString::from("memtrace")];
    call(Cli::try_parse_from(program.into_iter().chain(words))?)
}

/// One thread: what a request costs the sender must not be spread over cores that the server needs.
fn runtime() -> std::io::Result<Runtime> {
    let mut runtime = Builder::new_current_thread();
    runtime.max_blocking_threads(limits::WAITING_THREADS);
    runtime.thread_stack_size(limits::STACK_BYTES);
    runtime.enable_all().build()
}

/// Does it, and waits for nothing that is still under way then, as the name of a host is whose server
/// does not answer, or a file system that hangs.
fn block_on<T>(doing: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = runtime()?;
    let done = runtime.block_on(doing);
    runtime.shutdown_background();
    done
}
