//! `memtrace push`: carries recordings to a root, a bucket or a directory where those of many hosts
//! are. Runs without privileges, beside the recorder or afterwards.

mod carry;
mod limit;
mod pace;
mod place;
mod progress;
mod upload;

use crate::block_on;
use crate::limits::PATIENCE_SECONDS;
use crate::objects::Objects;
use crate::seconds::parse_seconds;
use crate::stop::{INTERRUPTED, Stop};
use anyhow::Context;
use memtrace::cli::{parse_size, say};
use memtrace_model::Bytes;
use pace::Outcome;
use place::Given;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Upload recordings to a bucket or a directory for many hosts
///
/// ROOT is s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///directory or a
/// directory. Below it each recording is at run=ID/host=NAME/rec=START. What is there already is
/// not sent again: after an interruption, run the same command again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memtrace push before s3://bucket/memory --run 4711
  memtrace push /var/lib/memtrace s3://bucket/memory --watch --limit 10MiB

Credentials are read from the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, with
AWS_ENDPOINT_URL for another server that speaks S3; GOOGLE_APPLICATION_CREDENTIALS;
AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY. docs/hosts.md says more.

Exit status: 0 if all of it has arrived and is closed; 1 if something has not; 3 if the recorder is
gone without having closed the recording, and everything that exists of it has arrived.")]
pub(crate) struct Args {
    /// A recording, or a directory of recordings of many runs (run=…/host=…/rec=…)
    #[arg(value_name = "SOURCE")]
    source: PathBuf,

    /// The root to upload to
    #[arg(value_name = "ROOT")]
    root: String,

    /// Go on until the recording is closed and all of it has arrived; for a directory of
    /// recordings, until stopped
    #[arg(long)]
    watch: bool,

    /// Remove each recording here once it is closed and has arrived
    #[arg(long)]
    delete: bool,

    /// Limit on the average rate, such as 10MiB/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    limit: Option<Bytes>,

    /// Give up if nothing has arrived for this many seconds; with --watch, try again
    #[arg(long, value_name = "SECONDS", env = "MEMTRACE_REMOTE_TIMEOUT",
          default_value = PATIENCE_SECONDS, value_parser = parse_seconds)]
    timeout: Duration,

    #[command(flatten)]
    given: Given,

    /// Print errors only
    #[arg(short, long)]
    quiet: bool,

    /// So many seconds after a recording was complete, and each time again, look whether findings
    /// were saved since or another has taken its place
    #[arg(long, value_name = "SECONDS", hide = true)]
    #[arg(default_value = "20", value_parser = parse_seconds)]
    look_again_after: Duration,
}

/// A size, with or without "/s".
fn parse_rate(text: &str) -> Result<Bytes, String> {
    let rate = parse_size(text.strip_suffix("/s").unwrap_or(text))?;
    match rate.0 > 0 {
        true => Ok(rate),
        false => Err("must be more than zero".to_owned()),
    }
}

/// Carries.
///
/// # Errors
/// When there is nothing to carry, or no such root.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let outcome = block_on(async {
        let stop = Stop::by_signals().context("failed to wait for signals")?;
        let umask = rustix::process::umask(place::PRIVATE);
        place::check_apart(&args.source, &args.root)?;
        let objects = Objects::open(&args.root)?;
        if let Some(root) = objects.dir() {
            place::take_rights_of(root, umask);
        }
        pace::carry_all(args, &objects, stop).await
    })?;
    Ok(match outcome {
        Outcome::Complete => ExitCode::SUCCESS,
        Outcome::Unclosed => ExitCode::from(3),
        Outcome::Failed => ExitCode::FAILURE,
        Outcome::Stopped => {
            say("stopped; the same command uploads the rest");
            ExitCode::from(INTERRUPTED)
        }
    })
}
