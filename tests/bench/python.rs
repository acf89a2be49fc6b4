//! What the Python package costs its caller, and whether the peak of a section is the kernel's:
//! with the machine's own `python3`, and the package as it stands in python/src.

use crate::measured::Measured;
use crate::{Bench, Effort, stats};
use anyhow::{Context, Result, bail};
use memtrace_tests::program;
use memtrace_tests::scenario::Score;
use memtrace_tests::workload::number;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "python-mark",
        run: marks,
    },
    Bench {
        name: "python-peak",
        run: |effort| peak(effort.pick(1, 5)),
    },
];

/// With a recorder, and without one.
const MARK_MAX_US: f64 = 10.0;
const NO_MARK_MAX_NS: f64 = 200.0;
/// The other measurement: a mark now and then, in a program that does something else.
const GAP_MS: u64 = 10;

const SECTION_BYTES: i64 = 1 << 30;
const HOLD_MS: u64 = 5;

/// The script, which finds the package in the sources.
fn script(words: &[&str]) -> Result<Command> {
    const PYTHON: &str = "python3";
    let runs = Command::new(PYTHON).arg("--version").output();
    if !runs.is_ok_and(|output| output.status.success()) {
        bail!("there is no {PYTHON} on the PATH: the Python package can't be measured");
    }
    let here = env!("CARGO_MANIFEST_DIR");
    let mut script = Command::new(PYTHON);
    script
        .arg(format!("{here}/bench/python_package.py"))
        .args(words)
        .env("PYTHONPATH", format!("{here}/../python/src"))
        .env_remove("MEMTRACE_SOCKET");
    Ok(script)
}

/// The script below a recorder of its own.
fn recorded(script: &Command, place: &std::path::Path) -> Result<Command> {
    let mut recorder = Command::new(program::memtrace()?);
    recorder
        .args(["record", "--quiet", "-o"])
        .arg(place)
        .arg("--")
        .arg(script.get_program())
        .args(script.get_args());
    let variables = script.get_envs();
    recorder.envs(variables.filter_map(|(name, value)| Some((name, value?))));
    Ok(recorder)
}

fn reported(command: &mut Command) -> Result<Value> {
    let output = command.output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The medians of some runs.
struct Medians {
    mark_us: Vec<f64>,
    nothing_us: Vec<f64>,
    together_ns: Vec<f64>,
}

fn medians(runs: usize, count: u64, gap_ms: u64, is_recorded: bool) -> Result<Medians> {
    let [count, gap] = [count, gap_ms].map(|number| number.to_string());
    let mut medians = Medians {
        mark_us: Vec::new(),
        nothing_us: Vec::new(),
        together_ns: Vec::new(),
    };
    for _ in 0..runs {
        let mut script = script(&["mark", &count, &gap])?;
        let dir = tempfile::tempdir()?;
        let line = match is_recorded {
            true => reported(&mut recorded(&script, &dir.path().join("recording"))?)?,
            false => reported(&mut script)?,
        };
        if line["is_recording"] != is_recorded {
            bail!("the marks went elsewhere: {line}");
        }
        let ns = |name: &str| {
            let number = line[name].as_f64();
            number.with_context(|| format!("no {name} in {line}"))
        };
        medians.mark_us.push(ns("mark_ns")? / 1e3);
        medians.nothing_us.push(ns("nothing_ns")? / 1e3);
        medians.together_ns.push(ns("together_ns")?);
    }
    Ok(medians)
}

fn marks(effort: Effort) -> Result<Vec<Measured>> {
    let runs = effort.pick(2, 9);
    let count = effort.pick(2_000, 20_000);
    let name = "python-mark";
    let at_once = medians(runs, count, 0, true)?;
    let spaced = medians(runs, effort.pick(50, 300), GAP_MS, true)?;
    let alone = medians(runs, count, 0, false)?;
    let row = |what: &str, medians: &Medians| {
        let estimate = stats::estimate(&medians.mark_us);
        let row = Measured::estimate_at_most(name, what, "µs", MARK_MAX_US, estimate);
        row.with_note(format!(
            "{}; a call of an empty function there: {:.2} µs",
            estimate.meaning(),
            stats::median(&medians.nothing_us)
        ))
    };
    Ok(vec![
        row("mark() in Python, recorder running", &at_once),
        row(
            "the same, one every 10 ms in a program that is busy with something else",
            &spaced,
        ),
        Measured::estimate_at_most(
            name,
            "mark() in Python without a recorder",
            "ns",
            NO_MARK_MAX_NS,
            stats::estimate(&alone.together_ns),
        ),
    ])
}

/// The peak of a section against VmHWM, read from outside after it, and against the pages that
/// it touched.
fn peak(runs: usize) -> Result<Vec<Measured>> {
    let mut equal = Score::new("peak() of a section that holds 1 GiB for 5 ms = VmHWM");
    let mut over_kib = Vec::new();
    let (bytes, hold) = (SECTION_BYTES.to_string(), HOLD_MS.to_string());
    for _ in 0..runs {
        let mut child = script(&["peak", &bytes, &hold])?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("a pipe")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let kernels = vm_hwm_bytes(child.id());
        drop(child.stdin.take());
        if !child.wait()?.success() {
            bail!("the script failed");
        }
        let line: Value = serde_json::from_str(&line)?;
        let (kernels, peak) = (kernels?, number(&line, "peak_bytes")?);
        let is_equal = kernels == peak && line["source"] == "vm_hwm";
        equal.case(is_equal, || format!("{line}, VmHWM {kernels}"));
        over_kib.push((peak - number(&line, "counted_bytes")?) as f64 / 1024.0);
    }
    let what = "the same above the pages counted before it and touched in it";
    let estimate = stats::estimate(&over_kib);
    Ok(vec![
        Measured::score("python-peak", equal),
        Measured::reported("python-peak", what, "KiB", estimate),
    ])
}

fn vm_hwm_bytes(pid: u32) -> Result<i64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    let kib: i64 = kib.context("no VmHWM")?.parse()?;
    Ok(kib * 1024)
}
