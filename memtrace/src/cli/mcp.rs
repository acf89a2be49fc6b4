//! `memtrace mcp`: answers the questions of an assistant, over the Model Context Protocol
//! (<https://modelcontextprotocol.io/specification/2025-11-25>), by what other commands write.

mod answer;
mod calls;
mod message;
mod places;
mod server;
mod tools;

use super::output::say;
use anyhow::Context;
use places::Places;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

/// Answer questions of an AI assistant about recordings, over the Model Context Protocol
///
/// The assistant's program starts it, and writes and reads messages on its standard input and output
/// (docs/mcp.md has the lines for its configuration). Its tools list recordings, say what happened and
/// who held most, who held what at an instant, what grew and why, tell of one process, and compare
/// two recordings. It only reads, and only below the directories that are named here.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memtrace mcp
  memtrace mcp before after

Exit status: 0 when the program that started it closes its end; 1 if a directory can't be read; 2 on
a usage error.")]
pub(super) struct Args {
    /// What may be read: recordings, directories of them, roots of many hosts, addresses of buckets.
    /// Where a question names none, it is about the first
    #[arg(value_name = "DIR", default_value = ".")]
    places: Vec<PathBuf>,
}

/// Answers until nobody asks any more.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let places = Places::of(&args.places)?;
    if io::stdin().is_terminal() {
        say(
            "waiting for messages of a program, a line of JSON each; docs/mcp.md says how to have one start this",
        );
    }
    match server::serve(&places, &mut io::stdin().lock(), io::stdout()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("failed to read or write messages")
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
