//! `cargo memtrace`: builds memtrace and runs it, to try it from a checkout.
//!
//! Only `record` gains from privileges, so only for `record`, and only when the caller is
//! not root, sudo is asked; memtrace itself gives the command and the recording back to
//! the caller.

use crate::sh;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The command line of memtrace.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Words for memtrace.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Builds, and becomes memtrace: its exit code and its signals are those of the task.
pub(crate) fn run(args: &Args) -> Result<()> {
    sh::run(sh::cargo().current_dir(sh::root()).args([
        "build",
        "--quiet",
        "--locked",
        "--profile",
        "quick",
        "--package",
        "memtrace",
    ]))?;
    let program = sh::target_dir().join("quick/memtrace");
    let is_root = sh::capture(Command::new("id").arg("-u"))?.trim() == "0";
    let has_sudo = sh::find_in_path("sudo").is_some();
    let error = command(&program, &args.words, is_root, has_sudo).exec();
    Err(error).with_context(|| format!("failed to run {}", program.display()))
}

fn command(program: &Path, words: &[OsString], is_root: bool, has_sudo: bool) -> Command {
    let is_record = words.first().is_some_and(|word| word == "record");
    let mut command = if is_record && !is_root && has_sudo {
        let mut command = Command::new("sudo");
        command.arg(program);
        command
    } else {
        Command::new(program)
    };
    command.args(words);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(words: &[&str], is_root: bool, has_sudo: bool) -> OsString {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let command = command(Path::new("memtrace"), &words, is_root, has_sudo);
        command.get_program().to_owned()
    }

    #[test]
    fn sudo_is_asked_for_record_only_and_never_by_root() {
        assert_eq!(program(&["record", "-a"], false, true), "sudo");
        assert_eq!(program(&["record", "-a"], true, true), "memtrace");
        assert_eq!(program(&["record", "-a"], false, false), "memtrace");
        assert_eq!(program(&["report"], false, true), "memtrace");
        assert_eq!(program(&[], false, true), "memtrace");
    }
}
