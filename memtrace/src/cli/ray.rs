//! `memtrace ray`: recorders on the nodes of a Ray cluster, which the Python package starts. Ray speaks
//! Python, and what it starts has to be of its version.

use super::caller::as_caller;
use anyhow::Context;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The interpreter on the PATH: of a virtual environment, where one is active.
const PYTHON: &str = "python3";
const MODULE: &str = "memtrace.ray";

/// Record every node of a Ray cluster (docs/hosts.md)
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct Args {
    /// What to do, and its options; `memtrace ray --help` tells of them
    #[arg(
        value_name = "WORDS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

/// Goes on as the Python package, with the same words; behind sudo as the person who called it.
///
/// # Errors
/// When there is no Python.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut command = Command::new(PYTHON);
    command.args(["-m", MODULE]).args(args.words);
    as_caller(&mut command);
    let error = command.exec();
    Err(error).with_context(|| format!("failed to execute {PYTHON} -m {MODULE}"))
}
