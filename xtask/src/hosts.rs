//! `cargo xtask hosts`: tries what starts recorders on many hosts and what reads their recordings, with
//! the real Ray, Slurm and Spark on this machine (tests/hosts). Too heavy for every change.

use crate::python::{GOLDEN_DIR, golden_dir, write_golden};
use crate::test::RAY;
use crate::venv::Venv;
use crate::{debian, sh};
use anyhow::{Result, bail};
use std::process::Command;

/// Slurm, a Java for Spark, and what makes hosts of namespaces.
const PACKAGES: &[&str] = &[
    "slurmctld",
    "slurmd",
    "slurm-client",
    "default-jre-headless",
    "iproute2",
    "util-linux",
];
/// What reads roots, and what tests and checks. Ray stands with the other tests that need it; for its
/// tables it wants aiohttp, and does not say so.
const READERS: &[&str] = &[
    "aiohttp", "pyspark", "pyyaml", "pyarrow", "pandas", "polars", "duckdb", "pytest", "mypy",
    "ruff",
];

/// Options of `cargo xtask hosts`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// First install what is missing: Debian's Slurm and Java (as root), and Ray, Spark and the
    /// others into target/hosts.
    #[arg(long)]
    install_tools: bool,
    /// Only tests with these words in their names, as pytest's -k has them.
    #[arg(value_name = "WORDS")]
    only: Option<String>,
}

/// Tries and checks.
pub(crate) fn run(args: &Args) -> Result<()> {
    let venv = Venv::named("hosts");
    let tests = sh::root().join("tests/hosts");
    if args.install_tools {
        debian::install(PACKAGES)?;
        venv.install(RAY.iter().chain(READERS))?;
    }
    for tool in ["slurmctld", "slurmd", "sbatch", "java", "ip"] {
        if sh::find_in_path(tool).is_none() {
            bail!("there is no {tool}; run `cargo xtask hosts --install-tools`");
        }
    }
    if sh::capture(venv.python().args(["-c", "import ray, pyspark, pytest"])).is_err() {
        bail!(
            "{} has no Ray, Spark or pytest; run `cargo xtask hosts --install-tools`",
            venv.dir().display()
        );
    }
    // Tried is what was installed: the sources may have changed since.
    let package = sh::root().join("python");
    sh::run(
        venv.pip_install()
            .args(["--no-deps", "--force-reinstall"])
            .arg(&package),
    )?;
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
