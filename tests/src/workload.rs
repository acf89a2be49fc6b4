//! Workloads, started by a test, and the truth that they tell.

use crate::cgroup::MemoryGroup;
use crate::program;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The command that runs a workload: its name and options.
///
/// # Errors
/// When the workloads were not built.
pub fn command(words: &[&str]) -> Result<Command> {
    let mut command = Command::new(program::workload()?);
    command.args(words);
    Ok(command)
}

/// Runs a workload to its end and gives its lines.
///
/// # Errors
/// When it fails, or says something that is not JSON.
pub fn run(words: &[&str]) -> Result<Vec<Value>> {
    let output = command(words)?.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "workload {words:?} ended with {}: {}",
            output.status,
            said.trim()
        );
    }
    parse(&output.stdout)
}

/// The lines of a workload's output.
///
/// # Errors
/// When a line is not JSON.
pub fn parse(output: &[u8]) -> Result<Vec<Value>> {
    output
        .lines()
        .map(|line| {
            let line = line?;
            serde_json::from_str(&line).with_context(|| format!("failed to parse {line:?}"))
        })
        .collect()
}

/// A number in a line of truth.
///
/// # Errors
/// When the line does not have it.
pub fn number(line: &Value, key: &str) -> Result<i64> {
    line[key]
        .as_i64()
        .with_context(|| format!("no number {key:?} in {line}"))
}

/// A workload that runs beside the test. Killed when the value goes.
#[derive(Debug)]
pub struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Running {
    /// Starts a workload that stays until its standard input closes.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn start(words: &[&str]) -> Result<Self> {
        Self::spawn(&mut command(words)?)
    }

    /// The same, inside a memory cgroup.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn start_in(group: &MemoryGroup, words: &[&str]) -> Result<Self> {
        Self::spawn(&mut group.inside(&command(words)?))
    }

    /// Starts a workload that does nothing before [`Running::go`].
    ///
    /// # Errors
    /// When it can't be started.
    pub fn held(words: &[&str]) -> Result<Self> {
        Self::spawn(command(words)?.args(["--held", "1"]))
    }

    /// Starts any program that ends when its standard input closes.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("failed to start a workload")?;
        let output = child.stdout.take().context("the workload has no output")?;
        Ok(Self {
            input: child.stdin.take(),
            output: BufReader::new(output),
            child,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets a held workload go.
    ///
    /// # Errors
    /// When it is gone.
    pub fn go(&mut self) -> Result<()> {
        let input = self.input.as_mut().context("its input is closed")?;
        input
            .write_all(b"\n")
            .context("failed to reach the workload")
    }

    /// The next line it says.
    ///
    /// # Errors
    /// When it ends instead, or the line is not JSON.
    pub fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("failed to parse {line:?}"))
    }

    /// Closes its input, and gives what it still says before its end.
    ///
    /// # Errors
    /// When it fails, or says something that is not JSON.
    pub fn finish(mut self) -> Result<Vec<Value>> {
        drop(self.input.take());
        let mut rest = Vec::new();
        self.output.read_to_end(&mut rest)?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("a workload ended with {status}");
        }
        parse(&rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After `finish` it is gone already, and both only say so.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
