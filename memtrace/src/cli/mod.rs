//! The command line: one file per subcommand, each with its arguments and a `run`.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Records where the memory of a process tree goes, and reports it.
#[derive(Debug, Parser)]
#[command(name = "memtrace", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {}

/// Parses the command line, runs it, and gives the exit code: the command's own for
/// `record`, 1 after an error, 2 for a usage error.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {}
}
