//! What being recorded costs a program that does nothing but one thing, and what a
//! recording costs a program that it is not about.
//!
//! Ratios are taken pair by pair, traced and untraced right after each other and in
//! alternating order, of CPU time per operation: what others do on the machine moves both.

use crate::measured::Measured;
use crate::{Bench, Effort, stats};
use anyhow::{Context, Result};
use memtrace_tests::recorder::Recorder;
use memtrace_tests::scenario;
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
        name: "syscalls-storm-mmap",
        run: |effort| by_syscalls(effort, "mmap", SYSCALLS),
    },
    Bench {
        name: "syscalls-storm-brk",
        run: |effort| by_syscalls(effort, "brk", SYSCALLS),
    },
    Bench {
        name: "syscalls-untraced-getppid",
        run: |effort| untraced(effort, "syscalls", "getppid", None),
    },
    Bench {
        name: "untraced-getppid",
        run: |effort| untraced(effort, "auto", "getppid", Some(NOISE)),
    },
    Bench {
        name: "untraced-mmap",
        run: |effort| untraced(effort, "auto", "mmap", None),
    },
    Bench {
        name: "vm-million",
        run: million,
    },
];

/// What is asked of tracing by the end of every system call.
const SYSCALLS: f64 = 1.15;

/// What counts as no slower.
const NOISE: f64 = 1.02;

/// Which process a recorder is attached to.
#[derive(Clone, Copy)]
enum Target {
    Storm,
    Other(u32),
}

fn traced(effort: Effort, kind: &str, limit: f64) -> Result<Vec<Measured>> {
    let ratios = ratios(effort, kind, Target::Storm, "none")?;
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

fn by_syscalls(effort: Effort, kind: &str, limit: f64) -> Result<Vec<Measured>> {
    let ratios = ratios(effort, kind, Target::Storm, "syscalls")?;
    let what = format!("{kind} storm of 1 MiB, by the end of system calls, to untraced");
    let name = format!("syscalls-storm-{kind}");
    Ok(vec![Measured::estimate_at_most(
        &name,
        &what,
        "x",
        limit,
        stats::estimate(&ratios),
    )])
}

/// What a program pays that is not recorded, beside a recording with probes by `way`; with a
/// limit where one is asked.
fn untraced(effort: Effort, way: &str, kind: &str, limit: Option<f64>) -> Result<Vec<Measured>> {
    let mut other = Running::start(&["idle", "--processes", "1"])?;
    other.line()?;
    let ratios = ratios(effort, kind, Target::Other(other.pid()), way)?;
    let what = format!("{kind} of an untraced process, beside a recording with --probes {way}");
    let name = match way {
        "auto" => format!("untraced-{kind}"),
        _ => format!("{way}-untraced-{kind}"),
    };
    let estimate = stats::estimate(&ratios);
    Ok(vec![match limit {
        Some(limit) => Measured::estimate_at_most(&name, &what, "x", limit, estimate),
        None => Measured::told(&name, &what, "x", estimate),
    }])
}

/// A million mappings of one page: exact sums, no rows, and a recorder that does not grow.
fn million(effort: Effort) -> Result<Vec<Measured>> {
    const MIB: f64 = (1 << 20) as f64;
    let count = effort.pick(100_000, 1_000_000);
    let words = ["--probes", "syscalls"];
    let (_, few_bytes) = scenario::vm_storm(&words, 1_000)?;
    let (scores, many_bytes) = scenario::vm_storm(&words, count)?;
    let mut rows: Vec<Measured> = scores
        .into_iter()
        .map(|score| Measured::score("vm-million", score))
        .collect();
    let what = format!("recorder's peak RSS for {count} mmap and munmap, above that for 1,000");
    let more = (many_bytes - few_bytes) as f64 / MIB;
    rows.push(Measured::at_most("vm-million", &what, "MiB", 1.0, more));
    Ok(rows)
}

fn ratios(effort: Effort, kind: &str, target: Target, way: &str) -> Result<Vec<f64>> {
    let mut ratios = Vec::new();
    for pair in 0..effort.pick(3, 21) {
        let (traced, untraced) = if pair % 2 == 0 {
            let traced = leg(effort, kind, Some(target), way)?;
            (traced, leg(effort, kind, None, way)?)
        } else {
            let untraced = leg(effort, kind, None, way)?;
            (leg(effort, kind, Some(target), way)?, untraced)
        };
        ratios.push(traced / untraced);
    }
    Ok(ratios)
}

/// CPU time per operation of one storm.
fn leg(effort: Effort, kind: &str, target: Option<Target>, way: &str) -> Result<f64> {
    let length = effort.pick("200", "500");
    let mut storm = Running::held(&["storm", "--kind", kind, "--ms", length])?;
    let recorder = match target {
        Some(Target::Storm) => Some(attach(storm.pid(), way)?),
        Some(Target::Other(pid)) => Some(attach(pid, way)?),
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

fn attach(pid: u32, way: &str) -> Result<Recorder> {
    Recorder::start(&["--quiet", "--probes", way, "-p", &pid.to_string()])
}
