//! What goes into the machine: memtrace, what its tests call, the tests, and their list.

use super::dir;
use crate::sh;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Beside each other, so that each finds the others as in a build.
const BINARIES: &[&str] = &[
    "memtrace",
    "memtrace-workload",
    "memtrace-needs",
    "memtrace-guest",
];
/// The package whose tests run memtrace.
const TESTS: &str = "memtrace-tests";
/// Tests of the command line, and of a GPU library that a stand-in plays: the same on every
/// kernel.
const SAME_EVERYWHERE: &[&str] = &["cli", "gpu"];
/// The name under which the guest looks for the list of tests.
const PLAN: &str = "guest-plan.json";

/// One test to run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Test {
    /// The test binary, as the guest finds it.
    pub(super) binary: PathBuf,
    /// The test's name in it.
    pub(super) name: String,
    /// Marked `#[ignore]`: reported as skipped.
    pub(super) is_ignored: bool,
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = self.binary.file_name().unwrap_or_default();
        write!(f, "{} {}", binary.to_string_lossy(), self.name)
    }
}

/// What the guest is to do.
#[derive(Serialize)]
struct Plan<'a> {
    tests: &'a [Test],
    /// Measure what the ways to see mmap and brk cost.
    measures: bool,
}

/// The files, all in one directory.
pub(super) struct Programs {
    /// The directory; the tests are in `deps` below it.
    pub(super) dir: PathBuf,
    /// The chosen tests.
    pub(super) tests: Vec<Test>,
}

impl Programs {
    /// Builds everything, keeps a copy without debugging information, and lists the tests
    /// that the filters choose.
    pub(super) fn build(profile: &str, filters: &[String], measures: bool) -> Result<Self> {
        let mut build = sh::cargo();
        build.current_dir(sh::root());
        build.args(["build", "--locked", "--profile", profile, "--workspace"]);
        sh::run(build.args(BINARIES.iter().flat_map(|name| ["--bin", name])))?;
        // Its directory is named otherwise.
        let built = sh::target_dir().join(if profile == "dev" { "debug" } else { profile });
        let into = dir()?.join("programs");
        if into.exists() {
            std::fs::remove_dir_all(&into)?;
        }
        std::fs::create_dir_all(into.join("deps"))?;
        for name in BINARIES {
            strip(&built.join(name), &into.join(name))?;
        }
        let mut tests = Vec::new();
        for (name, binary) in test_binaries(profile)? {
            let copy = into.join("deps").join(&name);
            strip(&binary, &copy)?;
            tests.extend(list(&copy)?.into_iter().filter(|test| {
                let shown = test.to_string();
                filters.is_empty() || filters.iter().any(|filter| shown.contains(filter))
            }));
        }
        if tests.is_empty() {
            bail!("no test is named like {}", filters.join(" or "));
        }
        tests.sort();
        write_plan(&into, &tests, measures)?;
        Ok(Self { dir: into, tests })
    }
}

/// Tells the guest whose programs are in a directory what to do.
pub(super) fn write_plan(dir: &Path, tests: &[Test], measures: bool) -> Result<()> {
    let plan = Plan { tests, measures };
    std::fs::write(dir.join(PLAN), serde_json::to_vec(&plan)?)?;
    Ok(())
}

/// Copies a program without its debugging information, which is nine tenths of it.
fn strip(from: &Path, to: &Path) -> Result<()> {
    let mut strip = Command::new("strip");
    sh::capture(strip.arg("--strip-debug").arg("-o").arg(to).arg(from))?;
    Ok(())
}

/// What cargo says of a file it made.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

/// The integration tests of the tests crate, built: name and file. Built with the whole
/// workspace, so that nothing is built twice.
fn test_binaries(profile: &str) -> Result<Vec<(String, PathBuf)>> {
    let mut build = sh::cargo();
    build.current_dir(sh::root());
    build.args(["test", "--no-run", "--locked", "--profile", profile]);
    // Not the unit tests: nobody runs those there.
    build.args(["--workspace", "--test", "*"]);
    let messages = sh::capture(build.args(["--message-format", "json-render-diagnostics"]))?;
    let manifest = sh::root().join("tests/Cargo.toml");
    let mut binaries = Vec::new();
    for line in messages.lines() {
        let Ok(artifact) = serde_json::from_str::<Artifact>(line) else {
            continue;
        };
        let is_test = artifact.target.kind.iter().any(|kind| kind == "test");
        let is_same = SAME_EVERYWHERE.contains(&artifact.target.name.as_str());
        if is_test
            && !is_same
            && artifact.manifest_path == manifest
            && let Some(executable) = artifact.executable
        {
            binaries.push((artifact.target.name, executable));
        }
    }
    if binaries.is_empty() {
        bail!("cargo built no test of {TESTS}");
    }
    Ok(binaries)
}

/// The tests in a binary.
fn list(binary: &Path) -> Result<Vec<Test>> {
    let names = |ignored: &[&str]| {
        let mut list = Command::new(binary);
        list.args(["--list", "--format", "terse"]).args(ignored);
        let text = sh::capture(&mut list)?;
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        anyhow::Ok(names.map(str::to_owned).collect::<BTreeSet<_>>())
    };
    let ignored = names(&["--ignored"])?;
    let name = binary.file_name().context("a test without a name")?;
    let tests = names(&[])?.into_iter().map(|test| Test {
        binary: Path::new("deps").join(name),
        is_ignored: ignored.contains(&test),
        name: test,
    });
    Ok(tests.collect())
}
