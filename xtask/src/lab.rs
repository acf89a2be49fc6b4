//! `cargo xtask lab`: memtrace beside an independent tracer, which shares none of its code, on
//! trees whose answers are known and, asked for by name, on live Ray, vLLM and training loops.
//!
//! The tracer and the trials are Python below tests/lab: they read the kernel's own events and the
//! recording's Parquet by other ways than memtrace does. What damage and kills do to a recording,
//! and what staged OOM kills are reported as, are tests of their own; here they are run by name, so
//! that one table says it all.

mod finding;
mod staged;

use crate::venv::Venv;
use crate::{python, sh};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use finding::Finding;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Options of `cargo xtask lab`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names of trials; all where none is given.
    names: Vec<String>,
    /// Only synthetic trees, and of these only processes, their ends and peaks: less than a
    /// minute.
    #[arg(long, conflicts_with = "live")]
    quick: bool,
    /// Forty trees that hold memory in every known way, against the charge of their memory cgroup.
    #[arg(long, conflicts_with_all = ["live", "quick"])]
    staged: bool,
    /// How workers of Ray, Dask, Celery, gunicorn, torchrun and multiprocessing end: what the first
    /// line of the report says.
    #[arg(long, conflicts_with_all = ["live", "quick", "staged"], requires = "python")]
    ends: bool,
    /// Fifty kills by the OOM killer at the limit of a memory cgroup: whether the first line of the
    /// report names who grew.
    #[arg(long, conflicts_with_all = ["live", "quick", "staged", "ends"])]
    kills: bool,
    /// Leaks that are planted, and patterns of public leak reports, recorded with `--stacks`: whether the
    /// first lines of the report name the line. With `--python`, which is to have numpy and torch, those
    /// that need these too.
    #[arg(long, conflicts_with_all = ["live", "quick", "staged", "ends", "kills"])]
    leaks: bool,
    /// A month of the always-on recording within this time, such as 2h: whether memory stays flat, no
    /// process, kill or mark is lost from one recording to the next, and old ones are downsampled and
    /// removed.
    #[arg(long, value_name = "TIME",
          conflicts_with_all = ["live", "quick", "staged", "ends", "kills", "leaks"])]
    soak: Option<String>,
    /// Trials of real programs instead of synthetic trees.
    #[arg(long)]
    live: Option<Live>,
    /// The Python that has these programs, and for `rl` the package in python/. For `ray` it is
    /// the one that `cargo xtask test` installed, where none is given.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Keep the recordings here, and what the commands wrote.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// First install what recordings are read with, into target/python, where it is missing.
    #[arg(long)]
    install_tools: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Live {
    /// A session that a driver starts, and a cluster that was there before.
    Ray,
    /// Servers: one process, two ranks, two engines, one that is killed, one in a Ray actor.
    Vllm,
    /// A training loop that starts its own server, with a leak and without.
    Rl,
}

/// Builds, tries, and prints the table.
pub(crate) fn run(args: &Args) -> Result<()> {
    let programs = sh::build_programs(&[])?;
    let mut findings = trials(args, &programs)?;
    let is_one_kind = args.quick || args.staged || args.ends || args.kills || args.leaks;
    let is_whole = !is_one_kind && args.soak.is_none() && args.live.is_none();
    if is_whole && args.names.is_empty() {
        findings.extend(staged::run()?);
    }
    print!("{}", finding::table(&findings));
    let missed = findings.iter().filter(|finding| finding.is_missed());
    match (findings.len(), missed.count()) {
        (0, _) => bail!("no trial has that name"),
        (_, 0) => Ok(()),
        (count, missed) => bail!("{missed} of {count} rows are missed"),
    }
}

fn trials(args: &Args, programs: &Path) -> Result<Vec<Finding>> {
    let venv = Venv::named("python");
    let has_tools = || sh::capture(venv.python().args(["-c", "import pyarrow"])).is_ok();
    if args.install_tools && !has_tools() {
        python::install(&venv)?;
    }
    let python = venv.program("python3");
    if !has_tools() {
        bail!(
            "{} has no pyarrow; run `cargo xtask python --install-tools`",
            python.display()
        );
    }
    let mut lab = Command::new(python);
    lab.arg(sh::root().join("tests/lab"))
        .arg("--memtrace")
        .arg(programs.join("memtrace"))
        .arg("--workload")
        .arg(programs.join("memtrace-workload"));
    if let Some(live) = args.live {
        lab.arg("--live").arg(word(live));
        lab.arg("--python").arg(live_python(args, live)?);
    }
    let kinds = [
        (args.quick, "--quick"),
        (args.staged, "--staged"),
        (args.ends, "--ends"),
        (args.kills, "--kills"),
        (args.leaks, "--leaks"),
    ];
    for (is_given, word) in kinds {
        lab.args(is_given.then_some(word));
    }
    if let Some(time) = &args.soak {
        lab.arg("--soak").arg(time);
    }
    if let (true, Some(python)) = (args.ends || args.leaks, &args.python) {
        lab.arg("--python").arg(python);
    }
    if let Some(keep) = &args.keep {
        lab.arg("--keep").arg(keep);
    }
    let mut lab = lab
        .args(&args.names)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("failed to start the lab")?;
    let output = lab.stdout.take().context("the lab has no output")?;
    let findings = BufReader::new(output)
        .lines()
        .map(|line| Finding::of_line(&line?))
        .collect();
    let status = lab.wait()?;
    if !status.success() {
        bail!("the lab ended with {status}");
    }
    findings
}

fn live_python(args: &Args, live: Live) -> Result<PathBuf> {
    match (&args.python, live) {
        (Some(python), _) => Ok(python.clone()),
        (None, Live::Ray) => Ok(sh::target_dir().join("ray/bin/python3")),
        (None, Live::Vllm | Live::Rl) => {
            bail!("give the Python that has vLLM with --python, for vLLM is not installed here")
        }
    }
}

fn word(live: Live) -> &'static str {
    match live {
        Live::Ray => "ray",
        Live::Vllm => "vllm",
        Live::Rl => "rl",
    }
}
