//! Which steps passed on what: `.ci/passed.toml`.

use crate::sh;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::Command;

const HEAD: &str = "\
# Written by `cargo xtask ci` where a step passes; commit it with the change that it is of. A step
# whose inputs, toolchain and kernel stand here is not run again (but by --all). What Debian and the
# indexes of Python and Node serve is no part of it.
";

/// A run of a step that passed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) step: String,
    pub(super) toolchain: String,
    pub(super) kernel: String,
    /// SHA-256 over all that it reads.
    pub(super) inputs: String,
}

/// All that are on record: of each step, toolchain and kernel the last.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Passed {
    #[serde(default)]
    passed: Vec<Run>,
}

impl Passed {
    pub(super) fn read() -> Result<Self> {
        let path = path();
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("failed to parse {}", path.display()))
    }

    pub(super) fn has(&self, run: &Run) -> bool {
        self.passed.contains(run)
    }

    /// Writes it down. Of other steps, what the file has now stays: several run at a time.
    pub(super) fn keep(&mut self, run: Run) -> Result<()> {
        static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _alone = ALONE.lock();
        let mut all = Self::read()?;
        all.put(run);
        let path = path();
        let shown = || format!("failed to write {}", path.display());
        let new = path.with_extension("new");
        std::fs::write(&new, format!("{HEAD}\n{}", toml::to_string(&all)?)).with_context(shown)?;
        std::fs::rename(&new, &path).with_context(shown)?;
        *self = all;
        Ok(())
    }

    fn put(&mut self, run: Run) {
        let of = |run: &Run| (run.step.clone(), run.toolchain.clone(), run.kernel.clone());
        self.passed.retain(|other| of(other) != of(&run));
        self.passed.push(run);
        self.passed.sort_unstable();
    }
}

/// The toolchain and the kernel of this machine: what passes with one may fail with another.
pub(super) fn here() -> Result<[String; 2]> {
    let said = sh::capture(Command::new("rustc").arg("-vV"))?;
    let value = |key: &str| {
        let found = said.lines().find_map(|line| line.strip_prefix(key));
        let found = found.with_context(|| format!("rustc -vV does not tell its {key}"));
        found.map(|value| value.trim().to_owned())
    };
    let kernel = sh::capture(Command::new("uname").arg("-r"))?;
    Ok([
        format!("rustc {}, {}", value("release:")?, value("host:")?),
        kernel.trim().to_owned(),
    ])
}

fn path() -> PathBuf {
    sh::root().join(".ci/passed.toml")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(step: &str, kernel: &str, inputs: &str) -> Run {
        Run {
            step: step.to_owned(),
            toolchain: "rustc 1".to_owned(),
            kernel: kernel.to_owned(),
            inputs: inputs.to_owned(),
        }
    }

    #[test]
    fn the_last_run_of_a_step_counts_for_its_machine_alone() {
        let mut passed = Passed::default();
        passed.put(run("page", "6.1", "old"));
        passed.put(run("page", "6.12", "old"));
        passed.put(run("page", "6.1", "new"));
        assert!(passed.has(&run("page", "6.1", "new")));
        assert!(!passed.has(&run("page", "6.1", "old")));
        assert!(passed.has(&run("page", "6.12", "old")));
        assert!(!passed.has(&run("page", "6.12", "new")));
        assert!(!passed.has(&run("book", "6.1", "new")));
    }

    #[test]
    fn the_file_reads_as_it_was_written() {
        let mut passed = Passed::default();
        passed.put(run("page", "6.1", "a"));
        let text = format!("{HEAD}\n{}", toml::to_string(&passed).unwrap());
        let read: Passed = toml::from_str(&text).unwrap();
        assert!(read.has(&run("page", "6.1", "a")), "{text}");
    }
}
