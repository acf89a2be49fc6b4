//! The command line: one file per subcommand, each with its arguments and a `run`.

mod output;
mod recover;
mod schema;

use clap::{Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;

/// Records where the memory of a process tree goes, and reports it.
#[derive(Debug, Parser)]
#[command(name = "memtrace", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Recover(recover::Args),
    Schema(schema::Args),
}

/// Parses the command line, runs it, and gives the exit code: the command's own for
/// `record`, 1 after an error, 2 for a usage error.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Recover(args) => recover::run(args),
        Command::Schema(args) => schema::run(args),
    };
    result.unwrap_or_else(|error| {
        // Nothing is left to do when even stderr is gone.
        let _ = writeln!(std::io::stderr(), "error: {error:#}");
        ExitCode::FAILURE
    })
}
