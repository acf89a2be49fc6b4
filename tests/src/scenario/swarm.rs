//! More processes than the reader of the kernel's events keeps up with: while it is stopped,
//! beside a flood of names, and while it attaches.

use super::book::Score;
use crate::recorder::{Recorded, Recorder};
use crate::workload::{Running, number};
use anyhow::{Context, Result};
use memtrace_model::Tgid;
use memtrace_model::tables::{DiagRow, ProcessRow, TitleRow};
use serde_json::Value;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Every hundredth child calls exec.
const EXECS: &str = "100";

/// What a child ended with, as wait4 reported its parent.
type End = (Option<i32>, Option<i64>);

/// The recorder is stopped for at least `stop` while `count` processes come and go.
///
/// # Errors
/// When the run itself fails.
pub fn stopped(words: &[&str], count: usize, stop: Duration) -> Result<(Vec<Score>, Recorded)> {
    let mut swarm = Running::held(&["swarm", "--count", &count.to_string(), "--execs", EXECS])?;
    let pid = swarm.pid().to_string();
    let recorder = Recorder::start(&[words, &["--quiet", "-p", &pid]].concat())?;
    recorder.signal(libc::SIGSTOP)?;
    let start = Instant::now();
    swarm.go()?;
    let root = swarm.pid();
    let truth: Vec<Value> = (0..count).map(|_| swarm.line()).collect::<Result<_>>()?;
    std::thread::sleep(stop.saturating_sub(start.elapsed()));
    swarm.finish()?;
    recorder.signal(libc::SIGCONT)?;
    // Everybody has ended, and so does the recording once it has found out.
    let recorded = recorder.wait()?;
    let mut scores = children(&recorded, root, &truth)?;
    scores.push(no_process_lost(&recorded)?);
    Ok((scores, recorded))
}

/// One process takes `renames` names while `count` others come and go.
///
/// # Errors
/// When the run itself fails.
pub fn renames(words: &[&str], count: usize, renames: u64) -> Result<Vec<Score>> {
    let mut swarm = Running::held(&[
        "swarm",
        "--count",
        &count.to_string(),
        "--renames",
        &renames.to_string(),
    ])?;
    let pid = swarm.pid().to_string();
    let recorder = Recorder::start(&[words, &["--quiet", "-p", &pid]].concat())?;
    swarm.go()?;
    let root = swarm.pid();
    let truth: Vec<Value> = (0..count).map(|_| swarm.line()).collect::<Result<_>>()?;
    let renamer = swarm.line()?;
    let last = renamer["name"].as_str().context("no name")?.to_owned();
    // Names that were lost are looked up once a second.
    std::thread::sleep(Duration::from_secs(2));
    swarm.finish()?;
    let recorded = recorder.wait()?;
    let mut scores = children(&recorded, root, &truth)?;
    let tgid = Tgid(u32::try_from(number(&renamer, "renamer")?)?);
    let processes: Vec<ProcessRow> = recorded.recording.rows()?;
    let process = processes.iter().find(|row| row.tgid == tgid);
    let process = process.context("the process that renames itself is missing")?;
    let titles: Vec<TitleRow> = recorded.recording.rows()?;
    let mut of_it = titles.iter().filter(|row| row.upid == process.upid);
    scores.push(Score::of(
        "the last name is known",
        process.comm == last && of_it.any(|row| row.comm == last),
        || format!("{:?}, truth {last:?}", process.comm),
    ));
    scores.push(no_process_lost(&recorded)?);
    Ok(scores)
}

/// A recording of a tree that forks all the time, asked to stop as soon as it has begun. Answers
/// how long that took.
///
/// # Errors
/// When it does not begin, or does not end.
pub fn storm_at_attach(words: &[&str], rate: u64, signal: i32) -> Result<Duration> {
    let rate = rate.to_string();
    let mut swarm = Running::held(&["swarm", "--count", "10000000", "--rate", &rate])?;
    swarm.go()?;
    let pid = swarm.pid().to_string();
    let recorder = Recorder::start(&[words, &["--quiet", "-p", &pid]].concat())?;
    let start = Instant::now();
    recorder.signal(signal)?;
    recorder.wait()?;
    Ok(start.elapsed())
}

/// Every child is in the recording, with its parent, its exit code and its ru_maxrss.
fn children(recorded: &Recorded, root: u32, truth: &[Value]) -> Result<Vec<Score>> {
    let processes: Vec<ProcessRow> = recorded.recording.rows()?;
    let root = processes.iter().find(|row| row.tgid == Tgid(root));
    let root = root.context("the root is missing")?.upid;
    // Process ids are used again.
    let mut found: HashMap<(i64, End), usize> = HashMap::new();
    let mut parents = Score::new("its parent is the one who forked it");
    for row in processes.iter().filter(|row| row.upid != root) {
        let end = (row.exit_code, row.kernel_maxrss_bytes.map(|bytes| bytes.0));
        *found.entry((i64::from(row.tgid.0), end)).or_default() += 1;
        parents.case(row.parent_upid == Some(root), || format!("{row:?}"));
    }
    let mut ends = Score::new("every child is recorded, with its exit code and its ru_maxrss");
    for child in truth {
        let pid = number(child, "pid")?;
        let code = i32::try_from(number(child, "exit_code")?)?;
        let end = (Some(code), Some(number(child, "ru_maxrss_bytes")?));
        let count = found.entry((pid, end)).or_default();
        ends.case(*count > 0, || {
            let of_pid = processes.iter().filter(|row| i64::from(row.tgid.0) == pid);
            format!("{child}: {:?}", of_pid.collect::<Vec<_>>())
        });
        *count = count.saturating_sub(1);
    }
    Ok(vec![ends, parents])
}

/// What else the machine does may be lost: kills by the OOM killer are reported of strangers too.
fn no_process_lost(recorded: &Recorded) -> Result<Score> {
    let diags: Vec<DiagRow> = recorded.recording.rows()?;
    let loss = diags
        .iter()
        .find(|row| ["lifecycle", "members"].contains(&row.subject.as_str()));
    Ok(Score::of(
        "no process is lost by its own account",
        loss.is_none(),
        || format!("{loss:?}"),
    ))
}
