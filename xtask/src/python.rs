//! `cargo xtask python`: tests the Python package with the machine's Python, in an
//! environment of its own, installed as a user installs it, and checks the code of the lab.

use crate::sh;
use crate::venv::Venv;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What checks the code beside its tests.
const CHECKERS: &[&str] = &["mypy", "ruff"];

/// Where the golden recordings are, for the test that writes them and for those that read them.
pub(crate) const GOLDEN_DIR: &str = "MEMTRACE_GOLDEN_DIR";
/// The test that writes them.
const WRITES_GOLDEN: &str = "findings_saved_beside_a_recording";

/// Options of `cargo xtask python`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// First install what is missing: Debian's python3-venv (as root), and what the tests
    /// read recordings with, into target/python.
    #[arg(long)]
    install_tools: bool,
}

/// Tests and checks.
pub(crate) fn run(args: &Args) -> Result<()> {
    let venv = Venv::named("python");
    let package = sh::root().join("python");
    if args.install_tools {
        install(&venv)?;
    }
    let has_tests = sh::capture(Command::new(venv.program("pytest")).arg("--version")).is_ok();
    if !has_tests {
        bail!(
            "{} has no pytest; run `cargo xtask python --install-tools`",
            venv.dir().display()
        );
    }
    // What is tested is what was installed: the sources may have changed since.
    sh::run(
        venv.pip_install()
            .args(["--no-deps", "--force-reinstall"])
            .arg(&package),
    )?;
    let golden = golden_dir();
    write_golden(&golden)?;
    let run_in = |dir: &Path, program: &str, words: &[&str]| {
        let mut command = Command::new(venv.program(program));
        sh::run(
            command
                .args(words)
                .env(GOLDEN_DIR, &golden)
                .current_dir(dir),
        )
    };
    run_in(&package, "pytest", &["--quiet"])?;
    for dir in [&package, &sh::root().join("tests/lab")] {
        run_in(dir, "mypy", &[])?;
        run_in(dir, "ruff", &["check"])?;
        run_in(dir, "ruff", &["format", "--check"])?;
    }
    Ok(())
}

/// Installs what checks the code, and what recordings are read with.
pub(crate) fn install(venv: &Venv) -> Result<()> {
    let with_tests = format!("{}[test]", sh::root().join("python").display());
    venv.install(CHECKERS.iter().copied().chain([with_tests.as_str()]))
}

/// Where tasks have the golden recordings.
pub(crate) fn golden_dir() -> PathBuf {
    sh::target_dir().join("golden")
}

/// Has memtrace's own tests write the recordings that reports are tested on, with their findings
/// and reports: the package is held against them.
pub(crate) fn write_golden(dir: &Path) -> Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    std::fs::create_dir(dir)?;
    // Of the whole workspace, so that it is what its other tests were built for.
    let words = ["test", "--quiet", "--locked", "--workspace", "--lib"];
    let mut test = sh::cargo();
    test.args(words)
        .arg(WRITES_GOLDEN)
        .env(GOLDEN_DIR, dir)
        .current_dir(sh::root());
    sh::run(&mut test)?;
    // A filter that finds no test succeeds as well.
    match std::fs::read_dir(dir)?.next() {
        Some(_) => Ok(()),
        None => bail!("{WRITES_GOLDEN} wrote no recordings"),
    }
}
