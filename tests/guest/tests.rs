//! The chosen tests, each in a process of its own and for a limited time.

use crate::machine;
use anyhow::{Context, Result};
use memtrace_tests::program;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The list of tests, beside the programs.
const PLAN: &str = "guest-plan.json";
/// How long a test may take. An emulated CPU is slower than a real one by a factor of
/// twenty and more.
const PATIENCE: Duration = Duration::from_secs(240);

/// One test to run.
#[derive(Debug, Deserialize)]
pub(crate) struct Test {
    /// The test binary.
    binary: PathBuf,
    /// The test's name in it.
    name: String,
    /// Marked `#[ignore]`: left out by its own source.
    is_ignored: bool,
}

/// What is to be done.
#[derive(Debug, Deserialize)]
pub(crate) struct Plan {
    /// The chosen tests.
    pub(crate) tests: Vec<Test>,
    /// Measure what the ways to see mmap and brk cost.
    pub(crate) measures: bool,
}

pub(crate) fn plan() -> Result<Plan> {
    let beside = program::memtrace()?;
    let place = beside.with_file_name(PLAN);
    let text = std::fs::read_to_string(&place)
        .with_context(|| format!("failed to read {}", place.display()))?;
    let mut plan: Plan = serde_json::from_str(&text)
        .with_context(|| format!("failed to parse {}", place.display()))?;
    // Binaries are named by their place below the programs.
    for test in &mut plan.tests {
        test.binary = beside.with_file_name(&test.binary);
    }
    Ok(plan)
}

impl Test {
    /// Runs it, unless it needs what is missing, and tells how it ended. One that fails is run once
    /// more: the emulation stands still where its host does, and most tests have to do with time. If
    /// it passes then, it is flaky, and why it failed before is reported.
    pub(crate) fn outcome(&self, missing: &[(&str, String)]) -> Value {
        let binary = self.binary.file_name().unwrap_or_default();
        let shown = |outcome: &str, ms: Option<u128>, output: String| {
            json!({
                "test": self.name, "binary": binary.to_string_lossy(), "outcome": outcome,
                "ms": ms, "output": output,
            })
        };
        if self.is_ignored {
            return shown("skipped", None, "marked #[ignore]".to_owned());
        }
        let needs = |word: &str| self.name.contains(&format!("needs_{word}::"));
        if let Some((word, reason)) = missing.iter().find(|(word, _)| needs(word)) {
            return shown("skipped", None, format!("needs {word}: {reason}"));
        }
        let start = Instant::now();
        let first = self.failure();
        let again = first.as_ref().and_then(|_| self.failure());
        let ms = Some(start.elapsed().as_millis());
        match (first, again) {
            (None, _) => shown("passed", ms, String::new()),
            (Some(first), None) => shown("flaky", ms, first),
            (Some(first), Some(again)) => {
                shown("failed", ms, format!("{first}\nand once more:\n{again}"))
            }
        }
    }

    /// Runs it; why it failed.
    fn failure(&self) -> Option<String> {
        let ended = self.run(Instant::now() + PATIENCE);
        ended.unwrap_or_else(|error| Some(format!("{error:#}")))
    }

    /// Runs it; what it said when it failed.
    fn run(&self, until: Instant) -> Result<Option<String>> {
        let place = std::env::temp_dir().join("memtrace-guest-output");
        let output = File::create(&place).context("failed to keep the test's output")?;
        let child = Command::new(&self.binary)
            .args(["--exact", &self.name, "--nocapture"])
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // A group of its own, to end with all that it started.
            .process_group(0)
            .spawn()
            .with_context(|| format!("failed to start {}", self.binary.display()))?;
        let status = wait(child.id(), until);
        if status != Some(0) {
            // What it has started would be beside whatever runs next.
            // SAFETY: the group is the child's own, and nobody else's as long as one of it is there.
            unsafe { libc::kill(-(child.id().cast_signed()), libc::SIGKILL) };
        }
        let said = said(&place)?;
        // A name that no test has is no failure for the test's own runner.
        let has_run = said.contains("test result: ok. 1 passed");
        Ok(match status {
            Some(0) if has_run => None,
            Some(0) => Some(format!("{said}\nno such test ran")),
            Some(status) => Some(format!("{said}\nwait status {status}")),
            None => Some(format!("{said}\nnot over after {PATIENCE:?}")),
        })
    }
}

/// Waits for a child until a time, and takes orphans along. Null when it had to be ended.
fn wait(child: u32, until: Instant) -> Option<i32> {
    let mut is_late = false;
    loop {
        match machine::reap() {
            Some((pid, status)) if pid == child => return (!is_late).then_some(status),
            Some(_) => continue,
            None => {}
        }
        if !is_late && Instant::now() > until {
            is_late = true;
            // SAFETY: the group of a child that is not waited for yet is its own.
            unsafe { libc::kill(-(child.cast_signed()), libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The end of what a test said: the reason of a failure stands there.
fn said(place: &Path) -> Result<String> {
    const MOST: usize = 8 << 10;
    let said = std::fs::read(place).context("failed to read the test's output")?;
    let from = said.len().saturating_sub(MOST);
    Ok(String::from_utf8_lossy(said.get(from..).unwrap_or_default()).into_owned())
}
