//! `cargo xtask page`: checks the types of the HTML page's script, and tries the page in a browser.

use crate::python::{GOLDEN_DIR, golden_dir, write_golden};
use crate::venv::Venv;
use crate::{debian, sh};
use anyhow::{Result, bail};
use std::process::Command;

/// A browser without a window of its own, and a type checker for JavaScript.
const PACKAGES: &[&str] = &["chromium", "node-typescript", "fonts-dejavu-core"];
/// What drives the browser, and what checks the code that does.
const DRIVERS: &[&str] = &["pytest", "playwright", "mypy", "ruff"];

/// Options of `cargo xtask page`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// First install what is missing: Debian's chromium and node-typescript (as root), and what
    /// drives the browser, into target/page.
    #[arg(long)]
    install_tools: bool,
    /// Draw the pictures of docs/images again.
    #[arg(long)]
    images: bool,
    /// Only tests with these words in their names, as pytest's -k has them.
    #[arg(value_name = "WORDS")]
    only: Option<String>,
}

/// Checks and tests.
pub(crate) fn run(args: &Args) -> Result<()> {
    let venv = Venv::named("page");
    let sources = sh::root().join("crates/page/src/script");
    let tests = sh::root().join("tests/page");
    if args.install_tools {
        debian::install(PACKAGES)?;
        venv.install(DRIVERS)?;
    }
    for tool in ["tsc", "chromium"] {
        if sh::find_in_path(tool).is_none() {
            bail!("there is no {tool}; run `cargo xtask page --install-tools`");
        }
    }
    if sh::capture(Command::new(venv.program("pytest")).arg("--version")).is_err() {
        bail!(
            "{} has no pytest; run `cargo xtask page --install-tools`",
            venv.dir().display()
        );
    }
    sh::run(Command::new("tsc").arg("--project").arg(&sources))?;
    let programs = sh::build_programs(&[])?;
    let golden = golden_dir();
    write_golden(&golden)?;
    let mut test = Command::new(venv.program("pytest"));
    test.args(["--quiet", "-rP"])
        .env(GOLDEN_DIR, &golden)
        .env("MEMTRACE_PROGRAM", programs.join("memtrace"))
        .current_dir(&tests);
    if let Some(words) = &args.only {
        test.args(["-k", words]);
    }
    if args.images {
        test.env("MEMTRACE_PAGE_IMAGES", sh::root().join("docs/images"));
    }
    sh::run(&mut test)?;
    for (program, words) in [
        ("mypy", &[][..]),
        ("ruff", &["check"]),
        ("ruff", &["format", "--check"]),
    ] {
        let mut check = Command::new(venv.program(program));
        sh::run(check.args(words).current_dir(&tests))?;
    }
    Ok(())
}
