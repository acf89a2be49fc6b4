//! Many processes: while the recorder is stopped, beside a flood of names, at the moment of
//! attaching, and alive all at once.

use crate::measured::Measured;
use crate::{Bench, Effort};
use anyhow::{Context, Result, bail};
use memtrace_model::DiagKind;
use memtrace_model::tables::{DiagRow, ProcessRow, SelfCostRow};
use memtrace_tests::recorder::Recorder;
use memtrace_tests::scenario;
use memtrace_tests::workload::Running;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "stopped-50000",
        run: stopped,
    },
    Bench {
        name: "renames-200000",
        run: renames,
    },
    Bench {
        name: "attach-storm",
        run: attach,
    },
    Bench {
        name: "alive-30000",
        run: alive,
    },
];

const BPF: &[&str] = &["--backend", "bpf"];
const MIB: f64 = (1 << 20) as f64;

fn stopped(effort: Effort) -> Result<Vec<Measured>> {
    let (count, seconds) = effort.pick((5_000, 2), (50_000, 30));
    let (scores, recorded) = scenario::stopped(BPF, count, Duration::from_secs(seconds))?;
    let name = "stopped-50000";
    let mut rows: Vec<Measured> = scores
        .into_iter()
        .map(|score| Measured::score(name, score))
        .collect();
    let what = format!("recorder's peak RSS, stopped for {seconds} s under {count} processes");
    let mib = recorded.maxrss_bytes as f64 / MIB;
    rows.push(Measured::at_most(name, &what, "MiB", 100.0, mib));
    Ok(rows)
}

fn renames(effort: Effort) -> Result<Vec<Measured>> {
    let (count, renames) = effort.pick((1_000, 20_000), (20_000, 200_000));
    let scores = scenario::renames(BPF, count, renames)?;
    let rows = scores.into_iter();
    Ok(rows
        .map(|score| Measured::score("renames-200000", score))
        .collect())
}

fn attach(effort: Effort) -> Result<Vec<Measured>> {
    let mut rows = Vec::new();
    for (signal, word) in [(libc::SIGINT, "Ctrl-C"), (libc::SIGTERM, "SIGTERM")] {
        let mut longest = Duration::ZERO;
        for _ in 0..effort.pick(1, 5) {
            longest = longest.max(scenario::storm_at_attach(BPF, 2_000, signal)?);
        }
        let what = format!("from {word} to the end, begun under 2,000 forks a second");
        let seconds = longest.as_secs_f64();
        rows.push(Measured::at_most("attach-storm", &what, "s", 1.0, seconds));
    }
    Ok(rows)
}

fn alive(effort: Effort) -> Result<Vec<Measured>> {
    let count = effort.pick(3_000, 30_000);
    let processes = count.to_string();
    let mut idle = Running::start(&["idle", "--processes", &processes, "--bytes", "1"])?;
    idle.line()?;
    let pid = idle.pid().to_string();
    let recorder = Recorder::start(&[BPF, &["--quiet", "-p", &pid]].concat())?;
    // What is learned once, names and kinds of memory, is learned first.
    sleep(Duration::from_secs(effort.pick(5, 60)));
    let kernel_bytes = map_bytes(recorder.pid())?;
    sleep(Duration::from_secs(effort.pick(5, 60)));
    let recorded = recorder.stop()?;
    let rows: Vec<ProcessRow> = recorded.recording.rows()?;
    let costs: Vec<SelfCostRow> = recorded.recording.rows()?;
    let (first, last) = costs
        .get(costs.len() / 2)
        .zip(costs.last())
        .context("the recording has no self_cost")?;
    let cpu = |row: &SelfCostRow| {
        row.cpu_user_ns.0 + row.cpu_system_ns.0 + row.bpf_run_ns.map_or(0, |run| run.0)
    };
    let passed = last.boot_ns.0 - first.boot_ns.0;
    if passed <= 0 {
        bail!("the recording was too short");
    }
    let share = (cpu(last) - cpu(first)) as f64 * 100.0 / passed as f64;
    let interval_ms = last.interval_ns.0 / 1_000_000;
    let diags: Vec<DiagRow> = recorded.recording.rows()?;
    let shown = diags
        .iter()
        .rev()
        .find(|row| row.kind == Some(DiagKind::BackOff))
        .map_or("as asked for", |row| &row.detail);
    let missing = (count + 1 - i64::try_from(rows.len())?) as f64;
    let name = "alive-30000";
    let what = |what: &str| format!("{what} with {count} processes alive");
    let row = |what: &str, unit: &str, limit: f64, value: f64| {
        Measured::at_most(name, what, unit, limit, value)
    };
    let rss = recorded.maxrss_bytes as f64 / MIB;
    Ok(vec![
        row(&what("processes missing"), "", 0.0, missing),
        row(&what("recorder's peak RSS"), "MiB", 100.0, rss).with_note(format!(
            "its tables in the kernel: {:.1} MiB",
            kernel_bytes as f64 / MIB
        )),
        row(&what("CPU in the second half"), "%", 5.0, share)
            .with_note(format!("period {interval_ms} ms; {shown}")),
    ])
}

/// What the kernel holds for the BPF maps of a process, as it tells with their descriptors.
fn map_bytes(pid: u32) -> Result<i64> {
    let mut total = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        let text = fs::read_to_string(entry?.path()).unwrap_or_default();
        if text.contains("map_type:") {
            let bytes = text.lines().find_map(|line| line.strip_prefix("memlock:"));
            total += bytes.context("no memlock")?.trim().parse::<i64>()?;
        }
    }
    Ok(total)
}
