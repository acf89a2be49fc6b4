//! `cargo xtask bench`: measures what memtrace promises, on this machine, in release
//! builds or as packages have it. What is measured, and how, is in the `memtrace-bench` program of
//! the tests crate.

use crate::{dist, sh};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
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
    /// The programs that `cargo xtask dist` packed last, instead of those of a release build.
    #[arg(long)]
    packaged: bool,
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
    let release = sh::target_dir().join("release");
    let dir = if args.packaged {
        beside_packaged(&release)?
    } else {
        release
    };
    let mut bench = Command::new(dir.join("memtrace-bench"));
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

/// A directory with the programs of packages, and what measures them of a release build beside them.
fn beside_packaged(release: &Path) -> Result<PathBuf> {
    let dir = dist::emptied(sh::target_dir().join("packaged"))?;
    let measuring = [
        "memtrace-bench",
        "memtrace-workload",
        "deps/libmemtrace_fake_nvml.so",
    ];
    let measuring = measuring.map(|name| release.join(name));
    let staged = dist::staged_programs();
    if let Some(memtrace) = staged.first().filter(|program| program.is_file()) {
        let said = sh::capture(Command::new(memtrace).arg("--version"))?;
        if !said.contains("\nbuild: profile dist ") {
            bail!("what was packed last is of a quick build: `cargo xtask dist` makes packages");
        }
    }
    for from in staged.iter().chain(&measuring) {
        let name = from.file_name().context("a program has a name")?;
        std::fs::copy(from, dir.join(name)).with_context(|| {
            format!(
                "failed to copy {}; `cargo xtask dist` makes packages",
                from.display()
            )
        })?;
    }
    Ok(dir)
}
