//! `memtrace completions` and `memtrace man`: what a package installs beside the program, made from
//! the command line itself.

use super::output::print;
use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const NAME: &str = "memtrace";

/// Print the completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memtrace completions bash > memtrace.bash && . ./memtrace.bash
  memtrace completions zsh > _memtrace       # in a directory of $fpath
  memtrace completions fish > memtrace.fish  # in ~/.config/fish/completions")]
pub(super) struct Completions {
    /// The shell to write them for
    shell: Shell,
}

/// Write the manual pages
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memtrace man > memtrace.1
  memtrace man man1 && man ./man1/memtrace-record.1")]
pub(super) struct Man {
    /// Directory for the pages of all commands, which is made if it does not exist [default: the
    /// page of memtrace itself, to stdout]
    dir: Option<PathBuf>,
}

pub(super) fn completions<C: CommandFactory>(args: &Completions) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut C::command(), NAME, &mut script);
    print(&String::from_utf8(script)?).context("failed to print the completions")
}

/// Writes the pages of a command and of all below it into a directory, which is made if it does not
/// exist.
///
/// # Errors
/// When they can't be written.
pub fn write_manual(command: clap::Command, dir: &Path) -> anyhow::Result<()> {
    let doing = || format!("failed to write the manual to {}", dir.display());
    std::fs::create_dir_all(dir).with_context(doing)?;
    clap_mangen::generate_to(command, dir).with_context(doing)
}

/// Writes the pages.
pub(super) fn man<C: CommandFactory>(args: &Man) -> anyhow::Result<ExitCode> {
    if let Some(dir) = &args.dir {
        write_manual(C::command(), dir)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut page = Vec::new();
    // There is no page for it.
    let command = C::command().disable_help_subcommand(true);
    let written = clap_mangen::Man::new(command).render(&mut page);
    written.context("failed to write the manual")?;
    print(&String::from_utf8(page)?).context("failed to print the manual")
}
