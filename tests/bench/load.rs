//! What the sender of `memtrace load` costs: CPU that the server does not get.

use crate::measured::Measured;
use crate::{Bench, Effort, stats};
use anyhow::{Context, Result, ensure};
use memtrace_tests::program;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub(crate) const BENCHES: &[Bench] = &[Bench {
    name: "load-chunk",
    run: load_chunk,
}];

/// Streams that go on at a time, each with so many tokens a second.
const STREAMS: u64 = 64;
const RATE: &str = "50";

/// The difference between long and short answers, which leaves out the start and the prompts.
fn load_chunk(effort: Effort) -> Result<Vec<Measured>> {
    let dir = tempfile::tempdir()?;
    let mut server = Command::new(program::memtrace_remote()?)
        .args(["load", "serve", "--port", "0", "--rate", RATE])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("failed to start the server")?;
    let measured = per_chunk(effort, dir.path(), &mut server);
    server.kill()?;
    server.wait()?;
    let estimate = stats::estimate(&measured?);
    let row = Measured::estimate_at_most(
        "load-chunk",
        &format!("sender's CPU a chunk, {STREAMS} streams of {RATE} tokens a second"),
        "µs",
        20.0,
        estimate,
    );
    Ok(vec![row.with_note(estimate.meaning().to_string())])
}

fn per_chunk(effort: Effort, dir: &Path, server: &mut Child) -> Result<Vec<f64>> {
    let stderr = server.stderr.take().context("a pipe")?;
    let mut line = String::new();
    BufReader::new(stderr).read_line(&mut line)?;
    let url = line.split(' ').find(|word| word.starts_with("http://"));
    let url = url.context("the server has no address")?;
    let url = url.trim_end_matches(';');
    let (short, long) = (50, effort.pick(200, 600));
    let mut costs = Vec::new();
    for _ in 0..effort.pick(2, 5) {
        let more = cpu_us(dir, url, long)? - cpu_us(dir, url, short)?;
        costs.push(more / ((long - short) * STREAMS) as f64);
    }
    Ok(costs)
}

/// CPU time of a sender whose answers have so many tokens each.
fn cpu_us(dir: &Path, url: &str, tokens: u64) -> Result<f64> {
    let plan = dir.join("plan.jsonl");
    let made = Command::new(program::memtrace_remote()?)
        .args([
            "load",
            "plan",
            "--input-lens",
            "256",
            "--prefix-reuse",
            "low",
        ])
        .args(["--output-lens", &tokens.to_string()])
        .args(["--concurrencies", &STREAMS.to_string(), "-o"])
        .arg(&plan)
        .stderr(Stdio::null())
        .status()?;
    ensure!(made.success(), "no plan");
    let child = Command::new(program::memtrace_remote()?)
        .args(["load", "run", "--no-recording", "--url", url])
        .arg("-o")
        .arg(tempfile::tempdir_in(dir)?.keep())
        .arg(&plan)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let pid = child.id().cast_signed();
    let mut status = 0;
    // SAFETY: room for what is answered; the child was not waited for.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let waited = libc::wait4(pid, &raw mut status, 0, &raw mut usage);
        ensure!(
            waited == pid && status == 0,
            "the sender failed: {status:#x}"
        );
        usage
    };
    let us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    Ok(us(usage.ru_utime) + us(usage.ru_stime))
}
