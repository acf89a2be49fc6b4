//! `cargo xtask python`: tests the Python package with the machine's Python, in an
//! environment of its own, installed as a user installs it, and checks the code of the lab.

use crate::{debian, sh};
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;

/// What checks the code beside its tests.
const CHECKERS: &[&str] = &["mypy", "ruff"];

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
    let venv = sh::target_dir().join("python");
    let bin = venv.join("bin");
    let package = sh::root().join("python");
    if args.install_tools {
        debian::install(&["python3-venv"])?;
        if !bin.join("python3").exists() {
            sh::run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        }
        let with_tests = format!("{}[test]", package.display());
        sh::run(pip(&bin).args(CHECKERS).arg(with_tests))?;
    }
    let has_tests = sh::capture(Command::new(bin.join("pytest")).arg("--version")).is_ok();
    if !has_tests {
        bail!(
            "{} has no pytest; run `cargo xtask python --install-tools`",
            venv.display()
        );
    }
    // What is tested is what was installed: the sources may have changed since.
    sh::run(
        pip(&bin)
            .args(["--no-deps", "--force-reinstall"])
            .arg(&package),
    )?;
    let run_in = |dir: &Path, program: &str, words: &[&str]| {
        sh::run(Command::new(bin.join(program)).args(words).current_dir(dir))
    };
    run_in(&package, "pytest", &["--quiet"])?;
    for dir in [&package, &sh::root().join("tests/lab")] {
        run_in(dir, "mypy", &[])?;
        run_in(dir, "ruff", &["check"])?;
        run_in(dir, "ruff", &["format", "--check"])?;
    }
    Ok(())
}

fn pip(bin: &Path) -> Command {
    let mut pip = Command::new(bin.join("python3"));
    pip.args(["-m", "pip", "install", "--quiet"]);
    pip
}
