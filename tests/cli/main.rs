//! `memtrace` as a person meets it: wrong uses, exit codes, signals, and bad days. Where no
//! backend is named, each test runs with the best one of the machine.

mod addresses;
mod clocks;
mod damaged;
mod diff;
mod downsample;
mod ends;
mod engine;
mod every;
mod export;
mod findings;
mod follow;
mod full_disk;
mod help;
mod hostile;
mod hosts;
mod import;
mod jobs;
mod killed;
mod lines;
mod links;
mod list;
mod load;
mod marks;
mod mcp;
mod metrics;
mod names;
mod page;
mod pid_reuse;
mod pty;
mod ray;
mod report;
mod report_hosts;
mod rude_marks;
mod signals;
mod stacks;
mod sudo;
mod targets;
mod top;
mod torch;
mod traces;
mod versions;
mod watch;
mod wrong_use;

use anyhow::{Context, Result};
use memtrace_model::ProcessRow;
use memtrace_tests::program;
use memtrace_tests::recorder::{Recorded, Recorder};
use memtrace_tests::workload::Running;
use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long something may take that is sure to come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs memtrace to its end.
fn memtrace<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Result<Output> {
    Command::new(program::memtrace()?)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .context("failed to start memtrace")
}

/// A shell that runs a script.
fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// What a program said on standard error.
fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A shell that runs a script with mounts of its own, which its children see and nobody else.
fn shell_with_own_mounts(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]);
    command.stdin(Stdio::null());
    command
}

/// Waits until something is so.
fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never so: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs: one that has ended and waits to be waited for does not.
fn runs(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| stat.rsplit(") ").next()?.chars().next())
        .is_some_and(|state| !"ZX".contains(state))
}

/// Ends a process that the test's own command reported the id of.
fn end(pid: &str) -> Result<()> {
    let pid: i32 = pid.parse().context("not a process id")?;
    // SAFETY: plain numbers.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    Ok(())
}

/// The process of a recording that had this id.
fn process(recorded: &Recorded, pid: u32) -> Result<ProcessRow> {
    let processes: Vec<ProcessRow> = recorded.recording.rows()?;
    let found = processes.iter().find(|row| row.tgid.0 == pid).cloned();
    found.with_context(|| format!("no pid {pid} in {processes:#?}"))
}
