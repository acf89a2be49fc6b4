//! What being recorded costs a program that does nothing but one thing, and what a
//! recording costs a program that it is not about.
//!
//! Ratios are taken pair by pair, traced and untraced right after each other and in
//! alternating order, of CPU time per operation: what others do on the machine moves both.

use crate::measured::Measured;
use crate::{Bench, Effort, stats};
use anyhow::{Context, Result};
use memtrace_tests::recorder::Recorder;
use memtrace_tests::workload::Running;

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "storm-fault",
        run: |effort| traced(effort, "fault", 1.05),
    },
    Bench {
        name: "storm-mmap",
        run: |effort| traced(effort, "mmap", NOISE),
    },
    Bench {
        name: "storm-brk",
        run: |effort| traced(effort, "brk", NOISE),
    },
    Bench {
        name: "untraced-getppid",
        run: untraced,
    },
];

/// What counts as no slower.
const NOISE: f64 = 1.02;

/// Which process a recorder is attached to.
#[derive(Clone, Copy)]
enum Target {
    Storm,
    Other(u32),
}

fn traced(effort: Effort, kind: &str, limit: f64) -> Result<Vec<Measured>> {
    let ratios = ratios(effort, kind, Target::Storm)?;
    let what = format!("{kind} storm, traced to untraced");
    let name = format!("storm-{kind}");
    Ok(vec![Measured::estimate_at_most(
        &name,
        &what,
        "x",
        limit,
        stats::estimate(&ratios),
    )])
}

fn untraced(effort: Effort) -> Result<Vec<Measured>> {
    let mut other = Running::start(&["idle", "--processes", "1"])?;
    other.line()?;
    let ratios = ratios(effort, "getppid", Target::Other(other.pid()))?;
    Ok(vec![Measured::estimate_at_most(
        "untraced-getppid",
        "getppid of an untraced process, beside a recording",
        "x",
        NOISE,
        stats::estimate(&ratios),
    )])
}

fn ratios(effort: Effort, kind: &str, target: Target) -> Result<Vec<f64>> {
    let mut ratios = Vec::new();
    for pair in 0..effort.pick(3, 21) {
        let (traced, untraced) = if pair % 2 == 0 {
            let traced = leg(effort, kind, Some(target))?;
            (traced, leg(effort, kind, None)?)
        } else {
            let untraced = leg(effort, kind, None)?;
            (leg(effort, kind, Some(target))?, untraced)
        };
        ratios.push(traced / untraced);
    }
    Ok(ratios)
}

/// CPU time per operation of one storm.
fn leg(effort: Effort, kind: &str, target: Option<Target>) -> Result<f64> {
    let length = effort.pick("200", "500");
    let mut storm = Running::held(&["storm", "--kind", kind, "--ms", length])?;
    let recorder = match target {
        Some(Target::Storm) => Some(attach(storm.pid())?),
        Some(Target::Other(pid)) => Some(attach(pid)?),
        None => None,
    };
    storm.go()?;
    let line = storm.line()?;
    storm.finish()?;
    if let Some(recorder) = recorder {
        recorder.stop()?;
    }
    line["cpu_ns_per_operation"]
        .as_f64()
        .with_context(|| format!("no cost in {line}"))
}

fn attach(pid: u32) -> Result<Recorder> {
    Recorder::start(&["--quiet", "-p", &pid.to_string()])
}
