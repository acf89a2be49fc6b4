//! `cargo xtask TASK`: what the project does for itself. One file per task.

// A task's output is for the person who ran it; there is no library below this that
// could be made to print by accident.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod ebpf;
mod rooms;
mod sh;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The project's own tasks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Rebuild the committed BPF object, or check that it is the one its sources give.
    Ebpf(ebpf::Args),
    /// Check that imports between the rooms of memtrace go one way.
    Rooms,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Ebpf(args) => ebpf::run(&args),
        Task::Rooms => rooms::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
