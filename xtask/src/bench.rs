//! `cargo xtask bench`: measures what memtrace promises, on this machine, in release
//! builds. What is measured, and how, is in the `memtrace-bench` program of the tests
//! crate.

use crate::sh;
use anyhow::Result;
use std::path::PathBuf;
use std::process::Command;

/// Options of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names of measurements, or beginnings of them; all where none is given.
    names: Vec<String>,
    /// Where the results go as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Fewer and shorter runs: shows that it works, resolves less.
    #[arg(long)]
    quick: bool,
    /// Name the measurements and stop.
    #[arg(long)]
    list: bool,
}

/// Builds and measures.
pub(crate) fn run(args: &Args) -> Result<()> {
    sh::run(
        sh::cargo()
            .current_dir(sh::root())
            .args(["build", "--locked", "--release", "--bins"])
            .args(["--package", "memtrace", "--package", "memtrace-tests"])
            .args(["--package", "memtrace-remote"]),
    )?;
    let mut bench = Command::new(sh::target_dir().join("release/memtrace-bench"));
    bench.args(&args.names);
    if args.quick {
        bench.arg("--quick");
    }
    if args.list {
        bench.arg("--list");
    } else {
        let json = args.json.clone();
        let json = json.unwrap_or_else(|| sh::target_dir().join("bench.json"));
        bench.arg("--json").arg(json);
    }
    sh::run(&mut bench)
}
