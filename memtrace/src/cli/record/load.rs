//! `record --load`: the sender of a plan beside the command that it is sent to.

use super::Args;
use crate::cli::caller::as_caller;
use crate::cli::output::say;
use crate::cli::own_program::own_program;
use crate::cli::remote;
use crate::cli::values::parse_interval;
use crate::session::Marks;
use anyhow::Context;
use memtrace_model::{DurationNs, Tgid};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Between two readings of the memory of GPUs, where nobody says.
const GPU_INTERVAL: DurationNs = DurationNs(100_000_000);

/// A server that loads a large model takes this long, in seconds.
const READY_WITHIN: &str = "7200";

/// The sender, which ends with this.
#[derive(Debug)]
pub(super) struct Sender(Child);

impl Sender {
    /// Starts it. It waits for the server, goes through the plan, and ends the server.
    ///
    /// # Errors
    /// When it is not there, or can't be executed.
    pub(super) fn start(
        args: &Args,
        plan: &Path,
        server: Tgid,
        marks: &Marks,
    ) -> anyhow::Result<Self> {
        let program = remote::found()?;
        let mut command = Command::new(&program);
        if !args.as_root {
            as_caller(&mut command);
        }
        command.args(["load", "run", "--no-bar", "--wait", READY_WITHIN]);
        command.args(["--then-stop", &server.0.to_string()]);
        for (option, value) in [("--url", &args.load_url), ("--model", &args.load_model)] {
            if let Some(value) = value {
                command.arg(format!("{option}={value}"));
            }
        }
        if let Some(requests) = args.load_profile {
            command.arg(format!("--profile={requests}"));
        }
        command.arg("--").arg(plan);
        // It finds the recording as the command does.
        command.envs(marks.environment());
        let child = command.stdin(Stdio::null()).spawn();
        let child = child.with_context(|| format!("failed to execute {}", program.display()))?;
        Ok(Self(child))
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            // SAFETY: a signal to a child that has not been waited for.
            unsafe { libc::kill(self.0.id().cast_signed(), libc::SIGTERM) };
        }
        let _ = self.0.wait();
    }
}

/// The GPUs to observe, and how often they are read. With a load both are taken from the environment
/// where they are not given, as scripts for such experiments do; `value_of` tells what is there.
///
/// # Errors
/// When what stands there is no time.
pub(super) fn gpus(
    args: &Args,
    value_of: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<(Vec<String>, DurationNs)> {
    let variable = |name: &str| {
        let value = value_of(name).filter(|_| args.load.is_some());
        value.filter(|value| !value.trim().is_empty())
    };
    let gpus = match variable("GPU_INDICES").filter(|_| args.gpu.is_empty()) {
        Some(indices) => {
            let indices = indices.split(',').map(|index| index.trim().to_owned());
            indices.filter(|index| !index.is_empty()).collect()
        }
        None => args.gpu.clone(),
    };
    let interval = match (args.gpu_interval, variable("GPU_INTERVAL_MS")) {
        (Some(interval), _) => interval,
        (None, Some(milliseconds)) => parse_interval(&format!("{}ms", milliseconds.trim()))
            .map_err(anyhow::Error::msg)
            .context("GPU_INTERVAL_MS can't be used")?,
        (None, None) => GPU_INTERVAL,
    };
    Ok((gpus, interval))
}

/// Says what each condition took, as `memtrace report` does.
pub(super) fn report(dir: &Path, as_root: bool) {
    let reported = || -> std::io::Result<bool> {
        let mut command = Command::new(own_program()?);
        if !as_root {
            as_caller(&mut command);
        }
        command
            .args(["report", "--section", "conditions", "--"])
            .arg(dir);
        Ok(command.stdin(Stdio::null()).status()?.success())
    };
    if !reported().unwrap_or(false) {
        say("what the conditions took can't be shown here");
    }
}
