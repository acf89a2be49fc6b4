//! What `memtrace top` costs beside the recorder that it reads.

use crate::measured::Measured;
use crate::{Bench, Effort, stats};
use anyhow::{Context, Result, ensure};
use memtrace_tests::program;
use memtrace_tests::recorder::Recorder;
use memtrace_tests::workload::Running;
use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "top-500",
        run: |effort| {
            let mut idle = Running::start(&["idle", "--processes", "500"])?;
            beside(effort, &mut idle, "top-500", "500 processes that wait", 1.5)
        },
    },
    Bench {
        name: "top-household",
        run: |effort| {
            let mut tree = Running::start(&["household", "--processes", "60"])?;
            beside(effort, &mut tree, "top-household", "60 that work", 1.5)
        },
    },
];

/// Share of one CPU of `top` at two looks a second: the difference between a long and a short look
/// at a recording that runs, which leaves out the start.
fn beside(
    effort: Effort,
    workload: &mut Running,
    name: &str,
    who: &str,
    limit_percent: f64,
) -> Result<Vec<Measured>> {
    workload.line()?;
    let pid = workload.pid().to_string();
    let recorder = Recorder::start(&["--quiet", "-p", &pid])?;
    let dir = recorder.path();
    let (short, long) = (3, effort.pick(10, 30));
    let mut shares = Vec::new();
    for _ in 0..effort.pick(1, 3) {
        let short_ns = cpu_ns(&dir, Duration::from_secs(short))?;
        let long_ns = cpu_ns(&dir, Duration::from_secs(long))?;
        shares.push((long_ns - short_ns) as f64 / 1e7 / (long - short) as f64);
    }
    recorder.stop()?;
    let what = format!("CPU of top at 2 Hz, {who} at 10 Hz");
    let estimate = stats::estimate(&shares);
    let row = Measured::estimate_at_most(name, &what, "%", limit_percent, estimate);
    Ok(vec![row.with_note(estimate.meaning().to_string())])
}

/// CPU time of one that shows a recording on a terminal for so long.
fn cpu_ns(dir: &Path, length: Duration) -> Result<i64> {
    let (mut ours, theirs) = terminal()?;
    let child = Command::new(program::memtrace()?)
        .args(["top", "-r"])
        .arg(dir)
        .env("TERM", "xterm-256color")
        .stdin(theirs.try_clone()?)
        .stdout(theirs)
        .stderr(Stdio::null())
        .spawn()
        .context("failed to start memtrace top")?;
    // A terminal that nobody reads would have it wait.
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 65_536];
        let mut count = 0;
        while let Ok(length @ 1..) = ours.read(&mut bytes) {
            count += length;
        }
        count
    });
    std::thread::sleep(length);
    let pid = child.id().cast_signed();
    // SAFETY: plain numbers, and room for what is answered; the child was not waited for.
    let usage = unsafe {
        libc::kill(pid, libc::SIGTERM);
        let mut usage: libc::rusage = std::mem::zeroed();
        let waited = libc::wait4(pid, std::ptr::null_mut(), 0, &raw mut usage);
        ensure!(waited == pid, "memtrace top could not be waited for");
        usage
    };
    let written = reader.join().unwrap_or(0);
    ensure!(written > 1_000, "memtrace top has drawn nothing");
    let ns = |time: libc::timeval| time.tv_sec * 1_000_000_000 + time.tv_usec * 1_000;
    Ok(ns(usage.ru_utime) + ns(usage.ru_stime))
}

fn terminal() -> Result<(File, OwnedFd)> {
    let (mut ours, mut theirs) = (-1, -1);
    let none = std::ptr::null_mut();
    let size = libc::winsize {
        ws_row: 50,
        ws_col: 160,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: room for two descriptors, which are owned from here on, and a size; the rest is
    // optional.
    unsafe {
        let answer = libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            none,
            none.cast(),
            (&raw const size).cast_mut(),
        );
        ensure!(answer == 0, "no pseudo-terminal");
        libc::fcntl(ours, libc::F_SETFD, libc::FD_CLOEXEC);
        Ok((File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)))
    }
}
