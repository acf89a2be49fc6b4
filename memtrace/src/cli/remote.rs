//! `memtrace load`, `memtrace engine` and `memtrace push`: what `memtrace-remote` does, a program of
//! its own. memtrace, which may run as root, links no HTTP client and opens no connection.

use super::caller::as_caller;
use anyhow::{Context, bail};
use memtrace_store::RemoteReader;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const REMOTE: &str = "memtrace-remote";

/// Experiments with load on a serving engine: plan, send, compare (docs/load.md)
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct Load {
    /// What to do, and its options; see `memtrace load --help`
    #[arg(
        value_name = "WORDS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

/// Ask all servers of an engine to profile, sleep or wake (docs/engine.md)
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct Engine {
    /// What to do, and its options; see `memtrace engine --help`
    #[arg(
        value_name = "WORDS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

/// Upload recordings to a bucket or a root of many hosts (docs/hosts.md)
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct Push {
    /// What to upload where, and its options; see `memtrace push --help`
    #[arg(
        value_name = "WORDS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

/// Sends load.
///
/// # Errors
/// When the program is not there, or can't be executed.
pub(super) fn load(args: Load) -> anyhow::Result<ExitCode> {
    go_on("load", args.words)
}

/// Asks an engine.
///
/// # Errors
/// When the program is not there, or can't be executed.
pub(super) fn engine(args: Engine) -> anyhow::Result<ExitCode> {
    go_on("engine", args.words)
}

/// Carries recordings.
///
/// # Errors
/// When the program is not there, or can't be executed.
pub(super) fn push(args: Push) -> anyhow::Result<ExitCode> {
    go_on("push", args.words)
}

/// Hands figures to a monitoring system.
///
/// # Errors
/// When the program is not there, or can't be executed.
pub(super) fn metrics(words: &[OsString], dir: &Path) -> anyhow::Result<ExitCode> {
    let dir = ["--".into(), dir.into()];
    go_on("metrics", [words, &dir].concat())
}

/// Goes on as that program, with the same words; behind sudo as the person who called it.
fn go_on(name: &str, words: Vec<OsString>) -> anyhow::Result<ExitCode> {
    let program = found()?;
    let mut command = Command::new(&program);
    command.arg(name).args(words);
    as_caller(&mut command);
    let error = command.exec();
    Err(error).with_context(|| format!("failed to execute {}", program.display()))
}

/// What reads an address; behind sudo as the person who called it.
///
/// # Errors
/// When the program is not there, or can't be executed.
pub(super) fn reader(address: &str) -> anyhow::Result<RemoteReader> {
    let program = found()?;
    let mut command = Command::new(&program);
    command.arg("read").arg(address);
    as_caller(&mut command);
    let started = RemoteReader::start(command, address);
    started.with_context(|| format!("failed to execute {}", program.display()))
}

/// Where the program is.
///
/// # Errors
/// When it is nowhere.
pub(super) fn found() -> anyhow::Result<PathBuf> {
    let Some(program) = find() else {
        bail!(
            "{REMOTE} is neither in the directory of memtrace nor on the PATH: `memtrace load`, \
             `memtrace engine`, `memtrace push`, `memtrace export --listen` or `--endpoint`, and addresses of buckets \
             need it. For pip it is a \
             package of its own, which the extra `memtrace-python[remote]` brings; in a checkout \
             `cargo install --path {REMOTE}` installs it"
        );
    };
    Ok(program)
}

/// Beside this program, else on the PATH.
fn find() -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.to_owned()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    // An empty entry means the current directory, where anybody may have put anything.
    let on_path =
        std::env::split_paths(&path).filter(|directory| !directory.as_os_str().is_empty());
    let mut places = beside.into_iter().chain(on_path);
    places.find_map(|place| Some(place.join(REMOTE)).filter(|program| is_executable(program)))
}

fn is_executable(program: &Path) -> bool {
    std::fs::metadata(program)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
