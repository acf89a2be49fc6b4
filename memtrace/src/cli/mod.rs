//! The command line: one file per subcommand, each with its arguments and a `run`.

use std::process::ExitCode;

/// Parses the command line, runs it, and gives the exit code: the command's own for
/// `record`, 1 after an error, 2 for a usage error.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
