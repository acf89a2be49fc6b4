//! What recording costs the machine: CPU and memory of the recorder, taken by wait4 from
//! outside, and the time until it is attached.

use crate::measured::Measured;
use crate::{Bench, Effort, stats};
use anyhow::{Context, Result};
use memtrace_model::tables::SelfCostRow;
use memtrace_tests::recorder::{Recorded, Recorder, record};
use memtrace_tests::workload::{self, Running, number};
use std::thread::sleep;
use std::time::Duration;

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "snapshot-bpf",
        run: |effort| snapshot(effort, "bpf", 2.0),
    },
    Bench {
        name: "snapshot-procfs",
        run: |effort| snapshot(effort, "procfs", 5.0),
    },
    Bench {
        name: "forkstorm-cpu",
        run: forkstorm_cpu,
    },
    Bench {
        name: "idle-500",
        run: |effort| {
            let mut idle = Running::start(&["idle", "--processes", "500"])?;
            at_10_hz(effort, &mut idle, "idle-500", 0.7)
        },
    },
    Bench {
        name: "household-60",
        run: |effort| {
            let mut tree = Running::start(&["household", "--processes", "60"])?;
            at_10_hz(effort, &mut tree, "household-60", 1.0)
        },
    },
    Bench {
        name: "threads-20000",
        run: |effort| {
            let words = ["threads", "--processes", "100", "--threads", "200"];
            let mut threads = Running::start(&words)?;
            at_10_hz(
                effort,
                &mut threads,
                "CPU at 10 Hz with 100 x 200 threads",
                2.0,
            )
        },
    },
    Bench {
        name: "memory-1000",
        run: memory,
    },
    Bench {
        name: "start",
        run: start,
    },
];

/// What a recording cost.
struct Cost {
    cpu_ns: i64,
    bpf_run_ns: Option<i64>,
}

/// Records the tree of a process for a time.
fn cost(pid: u32, words: &[&str], length: Duration) -> Result<Cost> {
    let recorder = Recorder::start(&attached(pid, words))?;
    sleep(length);
    let recorded = recorder.stop()?;
    Ok(Cost {
        cpu_ns: recorded.cpu_ns,
        bpf_run_ns: bpf_run_ns(&recorded)?,
    })
}

fn attached<'a>(pid: u32, words: &[&'a str]) -> Vec<&'a str> {
    // The command line lives as long as the benchmark anyway.
    let pid: &'static str = Box::leak(pid.to_string().into_boxed_str());
    ["--quiet", "-p", pid]
        .into_iter()
        .chain(words.iter().copied())
        .collect()
}

fn bpf_run_ns(recorded: &Recorded) -> Result<Option<i64>> {
    let rows: Vec<SelfCostRow> = recorded.recording.rows()?;
    let last = rows.last().context("the recording has no self_cost")?;
    Ok(last.bpf_run_ns.map(|run| run.0))
}

/// CPU per process for one snapshot, reading, decoding and writing included: the
/// difference between many snapshots and few in the same time, which leaves out what does
/// not come with snapshots.
fn snapshot(effort: Effort, backend: &str, limit_us: f64) -> Result<Vec<Measured>> {
    const PROCESSES: i64 = 500;
    const OFTEN_MS: i64 = 50;
    const SELDOM_MS: i64 = 1_000;
    let mut idle = Running::start(&["idle", "--processes", &PROCESSES.to_string()])?;
    idle.line()?;
    let length = Duration::from_secs(effort.pick(4, 10));
    let mut costs = Vec::new();
    for _ in 0..effort.pick(1, 5) {
        let at = |interval_ms: i64| -> Result<i64> {
            let interval = format!("{interval_ms}ms");
            let words = [
                "--backend",
                backend,
                "--interval",
                &interval,
                "--budget",
                "100",
            ];
            Ok(cost(idle.pid(), &words, length)?.cpu_ns)
        };
        let more_ns = at(OFTEN_MS)? - at(SELDOM_MS)?;
        let length_ms = i64::try_from(length.as_millis())?;
        let snapshots = length_ms / OFTEN_MS - length_ms / SELDOM_MS;
        costs.push(more_ns as f64 / 1e3 / (snapshots * PROCESSES) as f64);
    }
    let name = format!("snapshot-{backend}");
    let what = "CPU per process and snapshot of 500";
    let estimate = stats::estimate(&costs);
    Ok(vec![Measured::estimate_at_most(
        &name, what, "µs", limit_us, estimate,
    )])
}

/// CPU of the recorder for 2,000 short children, above that of recording the same time
/// without them. Attached, because wait4 would add the children's own CPU otherwise.
fn forkstorm_cpu(effort: Effort) -> Result<Vec<Measured>> {
    let count = effort.pick("200", "2000");
    let mut storm = Running::held(&["forkstorm", "--count", count])?;
    let recorder = Recorder::start(&attached(storm.pid(), &[]))?;
    let start = std::time::Instant::now();
    storm.go()?;
    storm.finish()?;
    let length = start.elapsed();
    let recorded = recorder.stop()?;
    let idle = Running::held(&["forkstorm", "--count", count])?;
    let without = cost(idle.pid(), &[], length)?;
    let ms = |ns: i64| ns as f64 / 1e6;
    let limit = effort.pick(15.0, 150.0);
    let what = format!("recorder's CPU for {count} children");
    let value = ms(recorded.cpu_ns - without.cpu_ns);
    let note = format!(
        "{:.0} ms with start and stop, in {:.1} s; BPF programs {}",
        ms(recorded.cpu_ns),
        length.as_secs_f64(),
        bpf_run_ns(&recorded)?.map_or("unknown".to_owned(), |ns| format!("{:.1} ms", ms(ns)))
    );
    let row = Measured::at_most("forkstorm-cpu", &what, "ms", limit, value);
    Ok(vec![row.with_note(note)])
}

/// Share of one CPU at 10 Hz, BPF programs included: the difference between a long and a
/// short recording, which leaves out start and stop.
fn at_10_hz(
    effort: Effort,
    workload: &mut Running,
    name: &str,
    limit_percent: f64,
) -> Result<Vec<Measured>> {
    workload.line()?;
    let (short, long) = (5, effort.pick(15, 35));
    let mut shares = Vec::new();
    let mut bpf = None;
    for _ in 0..effort.pick(1, 3) {
        let at = |seconds| cost(workload.pid(), &[], Duration::from_secs(seconds));
        let (short_cost, long_cost) = (at(short)?, at(long)?);
        let bpf_ns = long_cost
            .bpf_run_ns
            .zip(short_cost.bpf_run_ns)
            .map(|(long, short)| long - short);
        bpf = bpf.or(bpf_ns);
        let more_ns = long_cost.cpu_ns - short_cost.cpu_ns + bpf_ns.unwrap_or(0);
        shares.push(more_ns as f64 / 1e7 / (long - short) as f64);
    }
    let note = bpf.map_or("BPF run time unknown, not included".to_owned(), |ns| {
        format!(
            "BPF run time {:.3} % of it",
            ns as f64 / 1e7 / (long - short) as f64
        )
    });
    let estimate = stats::estimate(&shares);
    let row = Measured::estimate_at_most(
        name,
        "CPU at 10 Hz, BPF included",
        "%",
        limit_percent,
        estimate,
    );
    let note = format!("{}; {note}", estimate.meaning());
    Ok(vec![row.with_note(note)])
}

fn memory(effort: Effort) -> Result<Vec<Measured>> {
    let mut idle = Running::start(&["idle", "--processes", "1000", "--bytes", "64K"])?;
    idle.line()?;
    let recorder = Recorder::start(&attached(idle.pid(), &[]))?;
    sleep(Duration::from_secs(effort.pick(3, 20)));
    let recorded = recorder.stop()?;
    let mib = recorded.maxrss_bytes as f64 / f64::from(1 << 20);
    let what = "recorder's peak RSS with 1,000 processes";
    let row = Measured::at_most("memory-1000", what, "MiB", 40.0, mib);
    Ok(vec![
        row.with_note("by wait4, start and stop included".to_owned()),
    ])
}

/// From the call until the command runs: it is held until every probe is attached, so the
/// first one is attached earlier still.
fn start(effort: Effort) -> Result<Vec<Measured>> {
    let mut times = Vec::new();
    for _ in 0..effort.pick(3, 11) {
        let called_ns = boot_ns();
        let recorded = record(&["--quiet"], &workload::command(&["now"])?)?;
        let lines = workload::parse(&recorded.output)?;
        let began_ns = number(
            lines.first().context("the workload said nothing")?,
            "boot_ns",
        )?;
        times.push((began_ns - called_ns) as f64 / 1e6);
    }
    let what = "from the call until the command runs, all attached";
    let estimate = stats::estimate(&times);
    Ok(vec![Measured::estimate_at_most(
        "start", what, "ms", 150.0, estimate,
    )])
}

fn boot_ns() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the timespec is live and writable, and the clock id is a constant.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
