//! Phases around memory of a known size, as the report tells them.

use super::book::Score;
use crate::program;
use crate::recorder::record;
use crate::workload::{self, number};
use anyhow::{Context, Result};
use std::process::Command;
use std::time::{Duration, Instant};

/// A slope is distinguished from eight steps on, and of these the first three count as warm-up.
const STEPS: &str = "10";
/// What every step keeps.
const LEAK_BYTES: i64 = 4 << 20;

/// A phase that adds 64 MiB and steps that keep 4 MiB each, held against `memtrace report`.
///
/// # Errors
/// When the run itself fails.
pub fn phases(words: &[&str]) -> Result<Vec<Score>> {
    let leak = LEAK_BYTES.to_string();
    let gap = gap()?.as_millis().to_string();
    let phases = [
        "phases", "--steps", STEPS, "--leak", &leak, "--gap-ms", &gap,
    ];
    let recorded = record(words, &workload::command(&phases)?)?;
    let report = recorded.report(&[])?;
    let lines = report["phases"]["lines"].as_array();
    let lines = lines.context("the report has no phases")?;
    let line = |name: &str| {
        let line = lines.iter().find(|line| line["name"] == name);
        line.with_context(|| format!("no phase {name} in {lines:#?}"))
    };
    let truth = workload::parse(&recorded.output)?;
    let truth = truth.first().context("the workload said nothing")?;

    let load = line("load")?;
    let mut delta = Score::new("a phase added what its process says, within 1 %");
    let expected = number(truth, "delta_bytes")?;
    for whose in ["own", "tree"] {
        let found = load[whose]["delta"]["rss_bytes"].as_i64();
        let is_near = found.is_some_and(|found| (found - expected).abs() * 100 <= expected);
        delta.case(is_near, || format!("{whose}: {found:?}, truth {expected}"));
    }
    let is_its = load["pid"] == truth["pid"] && load["ended_by"] == "mark";
    let owner = Score::of("the phase belongs to its process", is_its, || {
        load.to_string()
    });

    let steps = &line("step_<N>_work")?["steps"];
    let slope = steps["own"]["bytes_per_step"].as_f64();
    let leak = LEAK_BYTES as f64;
    let is_near = slope.is_some_and(|slope| (slope - leak).abs() * 100.0 <= leak);
    let slope = Score::of("a leak per step is found within 1 %", is_near, || {
        format!("{steps}, truth {leak}")
    });
    Ok(vec![delta, owner, slope])
}

/// Time between two marks in which the recorder is sure to come by: on an emulated machine
/// starting a program takes longer than all intervals of a real one.
fn gap() -> Result<Duration> {
    const LEAST: Duration = Duration::from_millis(400);
    let start = Instant::now();
    Command::new(program::memtrace()?)
        .arg("--version")
        .output()?;
    Ok(LEAST.max(4 * start.elapsed()))
}
