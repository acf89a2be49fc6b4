//! What a person waits for who calls memtrace: a help text, a mark, a first report.

use crate::measured::Measured;
use crate::{Bench, Effort, stats};
use anyhow::{Result, ensure};
use memtrace_tests::program;
use memtrace_tests::recorder::Recorder;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "help",
        run: help,
    },
    Bench {
        name: "one-mark",
        run: mark,
    },
    Bench {
        name: "first-report",
        run: first_report,
    },
];

const START_MAX_MS: f64 = 10.0;
/// The program itself runs for less than a tenth of a second.
const FIRST_REPORT_MAX_S: f64 = 10.0;

fn help(effort: Effort) -> Result<Vec<Measured>> {
    let times = times_ms(effort.pick(5, 50), Path::new("."), &["--help"])?;
    let row = Measured::estimate_at_most("help", "memtrace --help", "ms", START_MAX_MS, times);
    Ok(vec![row])
}

fn mark(effort: Effort) -> Result<Vec<Measured>> {
    let own = std::process::id().to_string();
    let recorder = Recorder::start(&["--quiet", "-p", &own])?;
    let dir = recorder.path().display().to_string();
    let words = ["mark", "--recording", &dir, "here"];
    let times = times_ms(effort.pick(5, 50), Path::new("."), &words);
    recorder.stop()?;
    let row = Measured::estimate_at_most("one-mark", "memtrace mark", "ms", START_MAX_MS, times?);
    Ok(vec![row])
}

fn first_report(effort: Effort) -> Result<Vec<Measured>> {
    let script = "held = b'x' * (300 << 20)";
    let mut seconds = Vec::new();
    for _ in 0..effort.pick(1, 5) {
        let dir = tempfile::tempdir()?;
        let words = [
            "record", "--quiet", "-o", "first", "--", "python3", "-c", script,
        ];
        let start = Instant::now();
        call(dir.path(), &words)?;
        call(dir.path(), &["report", "first"])?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    let what = "recording and reporting python3 -c …";
    let estimate = stats::estimate(&seconds);
    let row = Measured::estimate_at_most("first-report", what, "s", FIRST_REPORT_MAX_S, estimate);
    Ok(vec![row])
}

/// Wall time of calls.
fn times_ms(count: usize, dir: &Path, words: &[&str]) -> Result<stats::Estimate> {
    let mut times = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        call(dir, words)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(stats::estimate(&times))
}

fn call(dir: &Path, words: &[&str]) -> Result<()> {
    let mut memtrace = Command::new(program::memtrace()?);
    let ended = memtrace
        .args(words)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    ensure!(ended.success(), "memtrace {words:?} ended with {ended}");
    Ok(())
}
