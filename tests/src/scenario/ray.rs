//! A Ray session: who each of its processes is, and its object store counted once.

use super::book::{Book, Score, no_loss};
use super::settle::Settle;
use crate::program;
use crate::recorder::{Recorded, Recorder};
use crate::workload::number;
use anyhow::{Context, Result, bail};
use memtrace_model::ProcessRow;
use memtrace_model::tables::{PssRow, ShmFamily, ShmObjectRow, TitleRow};
use memtrace_store::Recording;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// What is tested is the result and not the pace.
const BUDGET: &[&str] = &["--budget", "100"];
/// So long at most it holds what it holds, should nobody be there to say that it is enough.
const HOLD_SECONDS: &str = "180";
/// The file that says so.
const ENOUGH: &str = "enough";
/// What Ray calls its processes, and what memtrace does.
const OF_RAY: &[(&str, &str)] = &[
    ("gcs_server", "gcs_server"),
    ("raylet", "raylet"),
    ("monitor", "autoscaler monitor"),
    ("dashboard", "dashboard"),
    ("log_monitor", "log monitor"),
];
/// Processes that the raylet starts, by what they were started as.
const OF_RAYLET: &[(&str, &str)] = &[
    ("/ray/dashboard/agent.py", "dashboard agent"),
    (
        "/ray/_private/runtime_env/agent/main.py",
        "runtime env agent",
    ),
];

/// A session from its start to its end, which is also found by `--ray` while it runs: its driver is
/// nobody's descendant there.
///
/// # Errors
/// When the run itself fails.
pub fn ray_session(words: &[&str]) -> Result<Vec<Score>> {
    let dir = tempfile::tempdir()?;
    let mut recorder = Recorder::of_command(&[words, BUDGET].concat(), &session(&dir)?)?;
    let truth: Value = serde_json::from_str(&recorder.line()?)?;
    let (roles, size) = (roles(&truth)?, number(&truth, "object_bytes")?);
    let found = found_while_it_runs(words, &truth, &roles)?;
    Settle::UntilRead.wait(&recorder, |so_far| is_read(so_far, &roles))?;
    std::fs::write(dir.path().join(ENOUGH), "")?;
    let recorded = recorder.wait()?;
    let mut scores = vec![everybody_is_known(&recorded, &roles)?];
    scores.extend(store_counts_once(&recorded, size)?);
    scores.push(no_loss(&recorded)?);
    scores.push(everybody_is_known(&found, &roles)?);
    scores.push(no_loss(&found)?);
    Ok(scores)
}

/// A recording of a cluster that has begun before.
fn found_while_it_runs(
    words: &[&str],
    truth: &Value,
    roles: &BTreeMap<i64, String>,
) -> Result<Recorded> {
    // The one of this test: there can be others.
    let session = truth["session"].as_str().context("no session")?;
    let target = format!("--ray={session}");
    let recorder = Recorder::start(&[words, &["--quiet", &target]].concat())?;
    Settle::UntilRead.wait(&recorder, |so_far| {
        let rows: Vec<ProcessRow> = so_far.rows()?;
        let is_there = |pid: &i64| rows.iter().any(|row| i64::from(row.tgid.0) == *pid);
        Ok(roles.keys().all(is_there))
    })?;
    recorder.stop()
}

/// Whether everybody's memory was read.
fn is_read(so_far: &Recording, roles: &BTreeMap<i64, String>) -> Result<bool> {
    let processes: Vec<ProcessRow> = so_far.rows()?;
    let readings: Vec<PssRow> = so_far.rows()?;
    let is_read = |pid: &i64| {
        let of_it = processes.iter().find(|row| i64::from(row.tgid.0) == *pid);
        of_it.is_some_and(|process| readings.iter().any(|row| row.upid == process.upid))
    };
    Ok(roles.keys().all(is_read))
}

fn session(dir: &tempfile::TempDir) -> Result<Command> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/ray_session.py");
    let mut command = Command::new(program::ray_python()?);
    command.args([script, HOLD_SECONDS]).arg(dir.path());
    Ok(command)
}

/// The role of each process id that the session knows.
fn roles(truth: &Value) -> Result<BTreeMap<i64, String>> {
    let text = truth["roles"].as_object().context("no roles")?;
    text.iter()
        .map(|(pid, role)| {
            let role = role.as_str().context("a role is no text")?;
            let named = OF_RAY.iter().find(|(kind, _)| *kind == role);
            let role = named.map_or(role, |(_, role)| role);
            Ok((pid.parse()?, role.to_owned()))
        })
        .collect()
}

/// Every process that the session tells of is in the recording with its role, and so is
/// everybody else whom Ray started.
fn everybody_is_known(recorded: &Recorded, truth: &BTreeMap<i64, String>) -> Result<Score> {
    let book = Book::open(recorded)?;
    let mut score = Score::new("every process of Ray has its role");
    let titles: Vec<TitleRow> = recorded.recording.rows()?;
    for (pid, role) in truth {
        let process = book.expect(*pid)?;
        // A worker whose task has ended is idle.
        let was = |title: &TitleRow| {
            let words = title.role.as_deref().unwrap_or_default();
            title.upid == process.upid && words.ends_with(role.as_str())
        };
        let was_it = role.starts_with("task ") && titles.iter().any(was);
        let is_it = is(process, role) || was_it && is(process, "idle worker");
        score.case(is_it, || reported(process, role));
    }
    if truth.len() < 7 {
        bail!("the session tells of too few processes: {truth:?}");
    }
    let rows: Vec<ProcessRow> = recorded.recording.rows()?;
    for process in &rows {
        let cmdline = process.cmdline.as_deref().unwrap_or_default();
        let is_reported = truth.contains_key(&i64::from(process.tgid.0));
        let agent = OF_RAYLET.iter().find(|(part, _)| cmdline.contains(part));
        let is_worker = cmdline.contains("/ray/_private/workers/default_worker.py");
        let expected = match agent {
            _ if is_reported => continue,
            Some((_, role)) => role,
            None if is_worker => "idle worker",
            // Short-lived helpers of no kind of their own.
            None => continue,
        };
        score.case(is(process, expected), || reported(process, expected));
    }
    Ok(score)
}

fn is(process: &ProcessRow, role: &str) -> bool {
    process.framework.as_deref() == Some("Ray") && process.role.as_deref() == Some(role)
}

fn reported(process: &ProcessRow, role: &str) -> String {
    format!(
        "pid {} ({}) is {:?} {:?}, not Ray {role}",
        process.tgid, process.comm, process.framework, process.role
    )
}

/// The object is there once: as a shared object, and in what the tree holds.
fn store_counts_once(recorded: &Recorded, size: i64) -> Result<Vec<Score>> {
    let is_near = |bytes: i64| (bytes - size).abs() * 50 <= size;
    let rows: Vec<ShmObjectRow> = recorded.recording.rows()?;
    let plasma = rows
        .iter()
        .filter(|row| row.family == Some(ShmFamily::RayPlasma));
    let allocated = plasma.filter_map(|row| row.allocated_bytes);
    let highest = allocated.map(|bytes| bytes.0).max().unwrap_or(0);
    // When every reader has it mapped; the tree held it from before that on.
    let report = recorded.report(&[])?;
    let offset = &report["sum_of_rss_peak_at"]["offset_ns"];
    let offset = offset.as_i64().context("no peak of the sum of RSS")?;
    let moment = format!("+{}ms", offset / 1_000_000);
    let report = recorded.report(&["--at", &moment])?;
    let at = |field: &str| report["at"][field].as_i64().unwrap_or(0);
    let (once, in_rss) = (at("held_shared_bytes"), at("sum_of_shmem_bytes"));
    Ok(vec![
        Score::of("the object store is one object", is_near(highest), || {
            format!("{highest} of {size}")
        }),
        Score::of("what the tree holds has it once", is_near(once), || {
            format!("{once} of {size}")
        }),
        Score::of("RSS has it in every reader", in_rss >= 3 * size, || {
            format!("{in_rss} of {size}")
        }),
    ])
}
