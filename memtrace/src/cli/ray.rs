//! `memtrace ray`: recorders on the nodes of a Ray cluster, which the Python package starts. Ray speaks
//! Python, and what it starts has to be of its version.

use super::caller::as_caller;
use anyhow::Context;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

/// The interpreter on the PATH: of a virtual environment, where one is active.
const PYTHON: &str = "python3";
const MODULE: &str = "memtrace.ray";
/// Ends with [`NO_MODULE`] where the interpreter does not have the package.
const LOOK: &str = "import importlib.util as u, sys
try: found = u.find_spec('memtrace.ray')
except ModuleNotFoundError as error:
    if error.name not in ('memtrace', 'memtrace.ray'): raise
    found = None
sys.exit(0 if found else 44)";
/// A status that Python itself does not end with.
const NO_MODULE: i32 = 44;

/// Record every node of a Ray cluster (docs/hosts.md)
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct Args {
    /// What to do, and its options; see `memtrace ray --help`
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
/// When there is no Python, or it does not have the package.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if !has_module() {
        anyhow::bail!(
            "{PYTHON} has no module {MODULE}: install the Python package of memtrace for this \
             interpreter (in a checkout: {PYTHON} -m pip install ./python; as a wheel: \
             memtrace-python, see docs/install.md)"
        );
    }
    let mut command = Command::new(PYTHON);
    command.args(["-m", MODULE]).args(args.words);
    as_caller(&mut command);
    let error = command.exec();
    Err(error).with_context(|| format!("failed to execute {PYTHON} -m {MODULE}"))
}

/// Whether the interpreter has the package. What else goes wrong shows when it is run.
fn has_module() -> bool {
    let mut command = Command::new(PYTHON);
    command.args(["-c", LOOK]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    as_caller(&mut command);
    let status = command.status();
    !status.is_ok_and(|status| status.code() == Some(NO_MODULE))
}
