//! `memtrace-bench`: measures, on this machine, what memtrace promises. Each row names
//! the requirement, so that a number never stands without what it is held against.

// The table is its purpose.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod a_day;
mod address;
mod attribution;
mod carried;
mod cost;
mod day;
mod disk;
mod exact;
mod first;
mod floor;
mod gpu;
mod hosts;
mod inside;
mod load;
mod marks;
mod measured;
mod python;
mod reading;
/// The object server that the tests of `memtrace-remote` have.
#[path = "../../memtrace-remote/tests/common/s3.rs"]
#[allow(dead_code, clippy::unwrap_used, clippy::expect_used)]
mod s3;
mod stats;
mod storms;
mod swarm;
mod top;
mod traces;

use anyhow::{Context, Result, bail};
use clap::Parser;
use measured::{Measured, Verdict};
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures what memtrace promises.
#[derive(Debug, Parser)]
struct Cli {
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

/// How much to measure.
#[derive(Clone, Copy, Debug)]
struct Effort {
    is_quick: bool,
}

impl Effort {
    /// One of two numbers.
    fn pick<T>(self, quick: T, full: T) -> T {
        if self.is_quick { quick } else { full }
    }
}

/// One measurement, which may give several rows.
struct Bench {
    name: &'static str,
    run: fn(Effort) -> Result<Vec<Measured>>,
}

/// In the order of the table that memtrace is held against.
const BENCHES: &[&[Bench]] = &[
    exact::BENCHES,
    attribution::BENCHES,
    inside::BENCHES,
    first::BENCHES,
    cost::BENCHES,
    top::BENCHES,
    storms::BENCHES,
    swarm::BENCHES,
    marks::BENCHES,
    load::BENCHES,
    python::BENCHES,
    gpu::BENCHES,
    disk::BENCHES,
    reading::BENCHES,
    hosts::BENCHES,
    carried::BENCHES,
    address::BENCHES,
    traces::BENCHES,
    a_day::BENCHES,
    day::BENCHES,
];

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what was asked for; true when nothing that was measured is missed.
fn run(cli: &Cli) -> Result<bool> {
    let all = BENCHES.iter().copied().flatten();
    let chosen: Vec<&Bench> = all
        .filter(|bench| {
            let is_meant = |name: &String| bench.name.starts_with(name.as_str());
            cli.names.is_empty() || cli.names.iter().any(is_meant)
        })
        .collect();
    if chosen.is_empty() {
        bail!(
            "no measurement is called {}; --list names them",
            cli.names.join(" or ")
        );
    }
    if cli.list {
        chosen.iter().for_each(|bench| println!("{}", bench.name));
        return Ok(true);
    }
    let effort = Effort {
        is_quick: cli.quick,
    };
    let mut rows = Vec::new();
    for bench in chosen {
        eprintln!("{} ...", bench.name);
        // One that fails is a row too: nothing is left out of the table in silence.
        let measured =
            (bench.run)(effort).unwrap_or_else(|error| vec![Measured::failed(bench.name, &error)]);
        // Who ends a long run early keeps what it had measured.
        measured
            .iter()
            .for_each(|row| eprintln!("  {}: {}", row.name, row.text));
        rows.extend(measured);
    }
    measured::print(&rows);
    if let Some(file) = &cli.json {
        let text = serde_json::to_string_pretty(&rows)?;
        std::fs::write(file, text)
            .with_context(|| format!("failed to write {}", file.display()))?;
    }
    let is_bad = |row: &Measured| matches!(row.verdict, Verdict::Missed | Verdict::Failed);
    Ok(!rows.iter().any(is_bad))
}
