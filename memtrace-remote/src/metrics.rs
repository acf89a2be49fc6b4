//! `memtrace export --listen` and `--endpoint`: the newest figures of recordings for a monitoring system.

mod figures;
mod otlp;
mod send;
mod serve;
#[cfg(test)]
mod tests;

use crate::limits::{FIGURES_BYTES, hold_memory};
use clap::Subcommand;
use std::process::ExitCode;

/// Hand the newest figures to a monitoring system
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    how: How,
}

#[derive(Debug, Subcommand)]
enum How {
    Serve(serve::Args),
    Send(send::Args),
}

/// Hands them out until stopped.
///
/// # Errors
/// When there is nothing to read, or nobody to hand them to.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    hold_memory(FIGURES_BYTES);
    match args.how {
        How::Serve(args) => serve::run(&args),
        How::Send(args) => send::run(&args),
    }
}
