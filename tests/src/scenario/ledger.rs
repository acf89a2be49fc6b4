//! The books of a memory cgroup close: what was attributed is what the kernel says is in
//! use.

use super::book::Score;
use crate::cgroup::MemoryGroup;
use crate::program;
use crate::recorder::{Recorded, Recorder};
use crate::workload::Running;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// The books of a tree of every kind of memory, in a group of its own, at every tenth of a
/// run once everything was read.
///
/// # Errors
/// When the run itself fails.
pub fn ledger(words: &[&str], processes: u64, settle: Duration) -> Result<Vec<Score>> {
    let count = processes.to_string();
    let recorded = recorded_in_a_group(words, &["household", "--processes", &count], settle)?;
    let mut score = Score::new("residual within 1 % of what is in use");
    // Else the sums could close because the kernel's own fill them up.
    let mut attributed = Score::new("shared memory is attributed, within 1 % of what is in use");
    for tenth in 1..=10 {
        let at = settle.as_secs_f64() + 0.5 * f64::from(tenth) - 0.5;
        let ledger = cgroup_ledger(&recorded, at)?;
        let amount = |key: &str| ledger[key].as_i64();
        let (current, residual) = (amount("current_bytes"), amount("residual_bytes"));
        let is_closed = current
            .zip(residual)
            .is_some_and(|(current, residual)| residual.abs() * 100 <= current);
        score.case(is_closed, || format!("at +{at}s: {}", in_short(&ledger)));
        let others = amount("other_shared_bytes");
        let is_attributed = current
            .zip(others)
            .is_some_and(|(current, others)| others.abs() * 100 <= current);
        attributed.case(is_attributed, || {
            format!("at +{at}s: {}", in_short(&ledger))
        });
    }
    let ledger = cgroup_ledger(&recorded, settle.as_secs_f64())?;
    let objects = ledger["shared"].as_array().map_or(0, Vec::len);
    let files = ledger["files"].as_array().context("no files")?;
    let is_named = files.iter().any(|file| {
        let path = file["path"].as_str().unwrap_or_default();
        path.contains("memtrace-household-") && file["cached_bytes"] == 64 << 20
    });
    Ok(vec![
        score,
        attributed,
        Score::of(
            "nobody else lives in the group",
            ledger["other_process_count"] == 0,
            || in_short(&ledger),
        ),
        Score::of("the shared object is one line", objects == 1, || {
            in_short(&ledger)
        }),
        Score::of("the cached file is a line", is_named, || {
            format!("{files:?}")
        }),
    ])
}

/// Records a workload in a group of its own: so long that everything was read, and 5 s more.
fn recorded_in_a_group(words: &[&str], workload: &[&str], settle: Duration) -> Result<Recorded> {
    let group = MemoryGroup::new("memtrace-ledger", 8 << 30)?;
    let mut workload = Running::start_in(&group, workload)?;
    workload.line()?;
    let pid = workload.pid().to_string();
    let recorder = Recorder::start(&[words, &["--quiet", "-p", &pid]].concat())?;
    sleep(settle + Duration::from_secs(5));
    let recorded = recorder.stop()?;
    workload.finish()?;
    Ok(recorded)
}

/// The total of a tree whose processes share memory is what the kernel charged their group:
/// what was attributed to processes and objects, against the group's own figure.
///
/// # Errors
/// When the run itself fails.
pub fn total(words: &[&str], workload: &[&str], settle: Duration) -> Result<Vec<Score>> {
    let recorded = recorded_in_a_group(words, workload, settle)?;
    let ledger = cgroup_ledger(&recorded, settle.as_secs_f64() + 4.0)?;
    let amount = |key: &str| ledger[key].as_i64();
    let current = amount("current_bytes");
    let is_closed = |key: &str| {
        let both = current.zip(amount(key));
        both.is_some_and(|(current, left)| left.abs() * 100 <= current)
    };
    let is_true = is_closed("residual_bytes") && is_closed("other_shared_bytes");
    Ok(vec![Score::of(
        "the tree's total within 1 % of the cgroup's own figure",
        is_true,
        || in_short(&ledger),
    )])
}

/// The books of the first cgroup in a report at an instant.
fn cgroup_ledger(recorded: &Recorded, seconds: f64) -> Result<Value> {
    let at = format!("+{seconds}s");
    let output = Command::new(program::memtrace()?)
        .arg("report")
        .arg(recorded.path())
        .args(["--format", "json", "--at", &at])
        .output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let ledgers = report["at"]["ledgers"].as_array();
    let of_cgroup = ledgers
        .into_iter()
        .flatten()
        .find(|ledger| ledger["scope"] == "cgroup");
    of_cgroup.cloned().context("the report has no ledger")
}

/// The sums, without the lines below them.
fn in_short(ledger: &Value) -> String {
    let sums = ledger.as_object().into_iter().flatten();
    let sums = sums.filter(|(_, value)| !value.is_array());
    sums.map(|(key, value)| format!("{key} {value}"))
        .collect::<Vec<_>>()
        .join(", ")
}
