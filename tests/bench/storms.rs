//! What being recorded costs a program that does nothing but one thing, and what a
//! recording costs a program that it is not about.
//!
//! Ratios are taken pair by pair, traced and untraced right after each other, in alternating
//! order and in one process, of CPU time per operation: what others do on the machine moves
//! both, and where memory happens to lie is the same for both.

use crate::floor::EmptyProgram;
use crate::measured::Measured;
use crate::stats::Estimate;
use crate::{Bench, Effort, stats};
use anyhow::{Context, Result};
use memtrace_tests::recorder::Recorder;
use memtrace_tests::scenario;
use memtrace_tests::workload::Running;

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "storm-fault",
        run: faults,
    },
    Bench {
        name: "storm-fault-stacks",
        run: faults_with_stacks,
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

/// What watches a storm.
#[derive(Clone, Copy)]
enum Watch<'a> {
    Nothing,
    EmptyProgram,
    /// A recording of the storm, with probes by this way.
    Itself(&'a str),
    /// The same with stacks of what it touches.
    WithStacks,
    /// A recording of another process.
    Other(&'a str, u32),
}

/// Page faults: what a recording costs, what an empty program costs in its place, and the
/// rest, which is memtrace's own.
fn faults(effort: Effort) -> Result<Vec<Measured>> {
    let watches = [Watch::Nothing, Watch::EmptyProgram, Watch::Itself("none")];
    let costs = costs(effort, "fault", &watches)?;
    let ratio = |over: usize, under: usize| {
        let ratios: Vec<f64> = costs.iter().map(|leg| leg[over] / leg[under]).collect();
        stats::estimate(&ratios)
    };
    let traced = "fault storm, traced to untraced";
    let floor = "fault storm, an empty program on rss_stat to none";
    let own = "fault storm, traced to an empty program";
    Ok(vec![
        Measured::estimate_at_most("storm-fault", traced, "x", 1.05, ratio(2, 0)),
        Measured::reported("storm-fault-floor", floor, "x", ratio(1, 0)),
        Measured::reported("storm-fault-own", own, "x", ratio(2, 1)),
    ])
}

/// Page faults: what stacks cost a program that is recorded, beside the same without.
fn faults_with_stacks(effort: Effort) -> Result<Vec<Measured>> {
    let watches = [Watch::Itself("none"), Watch::WithStacks];
    let costs = costs(effort, "fault", &watches)?;
    let ratios: Vec<f64> = costs.iter().map(|leg| leg[1] / leg[0]).collect();
    let what = "fault storm, recorded with --stacks to recorded without";
    let estimate = stats::estimate(&ratios);
    Ok(vec![Measured::estimate_at_most(
        "storm-fault-stacks",
        what,
        "x",
        NOISE,
        estimate,
    )])
}

fn traced(effort: Effort, kind: &str, limit: f64) -> Result<Vec<Measured>> {
    let estimate = ratio(effort, kind, Watch::Itself("none"))?;
    let what = format!("{kind} storm, traced to untraced");
    let name = format!("storm-{kind}");
    Ok(vec![Measured::estimate_at_most(
        &name, &what, "x", limit, estimate,
    )])
}

fn by_syscalls(effort: Effort, kind: &str, limit: f64) -> Result<Vec<Measured>> {
    let estimate = ratio(effort, kind, Watch::Itself("syscalls"))?;
    let what = format!("{kind} storm of 1 MiB, by the end of system calls, to untraced");
    let name = format!("syscalls-storm-{kind}");
    Ok(vec![Measured::estimate_at_most(
        &name, &what, "x", limit, estimate,
    )])
}

/// What a program pays that is not recorded, beside a recording with probes by `way`; with a
/// limit where one is asked.
fn untraced(effort: Effort, way: &str, kind: &str, limit: Option<f64>) -> Result<Vec<Measured>> {
    let mut other = Running::start(&["idle", "--processes", "1"])?;
    other.line()?;
    let estimate = ratio(effort, kind, Watch::Other(way, other.pid()))?;
    let what = format!("{kind} of an untraced process, beside a recording with --probes {way}");
    let name = match way {
        "auto" => format!("untraced-{kind}"),
        _ => format!("{way}-untraced-{kind}"),
    };
    Ok(vec![match limit {
        Some(limit) => Measured::estimate_at_most(&name, &what, "x", limit, estimate),
        None => Measured::reported(&name, &what, "x", estimate),
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

/// How much slower a watched storm is.
fn ratio(effort: Effort, kind: &str, watch: Watch<'_>) -> Result<Estimate> {
    let costs = costs(effort, kind, &[Watch::Nothing, watch])?;
    let ratios: Vec<f64> = costs.iter().map(|leg| leg[1] / leg[0]).collect();
    Ok(stats::estimate(&ratios))
}

/// CPU time per operation of one storm, watched in one way after the other: the costs in
/// the order of `watches`, taken forward and backward in turn, as often as is asked.
fn costs(effort: Effort, kind: &str, watches: &[Watch<'_>]) -> Result<Vec<Vec<f64>>> {
    let length = effort.pick("200", "500");
    let mut storm = Running::held(&["storm", "--kind", kind, "--ms", length])?;
    let mut all = Vec::new();
    for turn in 0..effort.pick(3, 21) {
        let mut costs = vec![0.0; watches.len()];
        let mut order: Vec<_> = costs.iter_mut().zip(watches).collect();
        if turn % 2 == 1 {
            order.reverse();
        }
        for (cost, watch) in order {
            *cost = leg(&mut storm, *watch)?;
        }
        all.push(costs);
    }
    storm.finish()?;
    Ok(all)
}

/// CPU time per operation of one storm.
fn leg(storm: &mut Running, watch: Watch<'_>) -> Result<f64> {
    let empty = matches!(watch, Watch::EmptyProgram).then(EmptyProgram::attach);
    let empty = empty.transpose()?;
    let recorder = match watch {
        Watch::Nothing | Watch::EmptyProgram => None,
        Watch::Itself(way) => Some(attach(storm.pid(), way, &[])?),
        Watch::WithStacks => Some(attach(storm.pid(), "none", &["--stacks"])?),
        Watch::Other(way, pid) => Some(attach(pid, way, &[])?),
    };
    storm.go()?;
    let line = storm.line()?;
    drop(empty);
    if let Some(recorder) = recorder {
        recorder.stop()?;
    }
    line["cpu_ns_per_operation"]
        .as_f64()
        .with_context(|| format!("no cost in {line}"))
}

fn attach(pid: u32, way: &str, words: &[&str]) -> Result<Recorder> {
    let pid = pid.to_string();
    let all = ["--quiet", "--probes", way, "-p", &pid];
    Recorder::start(&[&all, words].concat())
}
