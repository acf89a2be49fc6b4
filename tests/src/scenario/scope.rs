//! A command in a memory cgroup of its own: what the report says it held, against who reads that group
//! a hundred times a second.

use super::book::{Score, no_loss};
use crate::cgroup;
use crate::program::said;
use crate::recorder::Recorder;
use crate::{program, workload};
use anyhow::{Context, Result};
use memtrace_collect::cgroup::unread_keys;
use memtrace_host::CgroupVersion;
use memtrace_model::tables::ProcessRow;
use memtrace_store::Recordings;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

const PACE: Duration = Duration::from_millis(10);
/// The highest may lie between two looks, and it may take as long until a row tells of it: longer on an
/// emulated machine. `cargo xtask lab --staged` asks for half of this.
const NEAR_NS: i64 = 400_000_000;

/// Records a workload that ends by itself. Answers whether the group was there and is gone, whether the
/// peak and its time are those of the group, and that nothing was lost.
///
/// # Errors
/// When the run itself fails.
pub fn scope(words: &[&str], workload: &[&str]) -> Result<Vec<Score>> {
    let words = [words, &["--quiet", "--scope", "always"]].concat();
    let recorder = Recorder::of_command(&words, &workload::command(workload)?)?;
    let name = format!("memtrace-{}", recorder.pid());
    let own = cgroup::own_directory()?;
    // systemd makes it beside that of the session.
    let dirs = [own.join(&name), own.with_file_name(name + ".scope")];
    let watch = std::thread::spawn({
        let dirs = dirs.clone();
        move || looks(&dirs)
    });
    let version = match own.join("memory.usage_in_bytes").exists() {
        true => CgroupVersion::V1,
        false => CgroupVersion::V2,
    };
    let stat = std::fs::read_to_string(own.join("memory.stat"))?;
    let unread = unread_keys(version, &stat);
    let recorded = recorder.wait()?;
    let Ok(looks) = watch.join() else {
        anyhow::bail!("the group could not be looked at");
    };
    let highest = looks.iter().map(|(_, [bytes, _])| *bytes).max();
    let bytes = highest.context("nobody saw the group")?;
    let with_kernel = looks.iter().map(|(_, [bytes, kernel])| bytes + kernel);
    let all = with_kernel.max().context("nobody saw the group")?;
    let report = recorded.report(&[])?;
    let peak = &report["peak"];
    let amount = |key: &str| {
        peak[key]
            .as_i64()
            .with_context(|| format!("the peak has no {key}"))
    };
    let text = amount("held_bytes")?;
    let start = report["recording"]["start"]["boot_ns"]
        .as_i64()
        .context("no start")?;
    let offset = peak["at"]["offset_ns"].as_i64().context("no time")?;
    // It may stand there for a while. The kinds of v2 lag what is in use while that grows.
    let near = looks
        .iter()
        .filter(|(_, [seen, _])| (bytes - seen) * 10 <= bytes);
    let off = near.map(|(at, _)| (start + offset - at).abs()).min();
    let off = off.context("no look")?;
    Ok(vec![
        Score::of("the group is removed", are_gone(&dirs), || {
            format!("{dirs:?}")
        }),
        Score::of(
            "the group tells what is held",
            peak["held_basis"] == "cgroup",
            || peak["held_basis"].to_string(),
        ),
        Score::of(
            "the peak is what the group is charged for, within 1 % of it and of its kernel memory",
            (bytes - text) * 100 <= bytes && (text - all) * 100 <= all,
            || format!("reported {text}, seen {bytes}, {all} with kernel memory"),
        ),
        Score::of(
            "its time is that of the group within 0.4 s",
            off <= NEAR_NS,
            || format!("{} ms off", off / 1_000_000),
        ),
        Score::of(
            "every amount that the kernel tells of a group has a column",
            unread.is_empty(),
            || unread.join(" "),
        ),
        no_loss(&recorded)?,
    ])
}

/// The same of a person who is not root, whose user manager makes the group.
///
/// # Errors
/// When the run itself fails.
pub fn scope_of_person() -> Result<Vec<Score>> {
    const PERSON: u32 = 1000;
    let dir = tempfile::tempdir()?;
    std::os::unix::fs::chown(dir.path(), Some(PERSON), Some(PERSON))?;
    let place = dir.path().join("rec");
    let mut session = Command::new("systemd-run");
    session
        .args(["--scope", "--quiet", "--collect", "--unit=session-2"])
        .args(["--slice=user-1000.slice", "--uid=1000"])
        .env("XDG_RUNTIME_DIR", "/run/user/1000")
        .arg(program::memtrace()?)
        .args([
            "record",
            "--quiet",
            "--backend",
            "procfs",
            "--scope",
            "always",
            "-o",
        ])
        .arg(&place)
        .arg("--")
        .arg(program::workload()?)
        .args(["holdings", "--bytes", "32M", "--hold-ms", "700"]);
    said(&mut session)?;
    let mut report = Command::new(program::memtrace()?);
    let report = said(report.arg("report").arg(&place).args(["-f", "json"]))?;
    let report: serde_json::Value = serde_json::from_str(&report)?;
    let peak = &report["peak"];
    let groups: Vec<ProcessRow> = Recordings::default().open(&place)?.rows()?;
    let is_in_scope = |row: &ProcessRow| {
        let group = row.cgroup.as_deref().unwrap_or_default();
        group.contains("/user@1000.service/") && group.ends_with(".scope")
    };
    Ok(vec![
        Score::of(
            "the group tells what is held",
            peak["held_basis"] == "cgroup",
            || peak.to_string(),
        ),
        Score::of(
            "all processes are in a scope of the person's manager",
            !groups.is_empty() && groups.iter().all(is_in_scope),
            || format!("{groups:?}"),
        ),
    ])
}

/// Whether none of these is there any more; systemd takes its time.
fn are_gone(dirs: &[PathBuf]) -> bool {
    let is_gone = || !dirs.iter().any(|dir| dir.exists());
    (0..500).any(|_| {
        let is_gone = is_gone();
        if !is_gone {
            sleep(PACE);
        }
        is_gone
    })
}

/// What the group, which is one of these, was charged for anonymous and shared memory and for the kernel
/// while it was there, and when.
fn looks(dirs: &[PathBuf]) -> Vec<(i64, [i64; 2])> {
    let mut looks = Vec::new();
    let mut waits = 1_000;
    loop {
        match dirs.iter().find_map(|dir| cgroup::charged_bytes(dir).ok()) {
            Some(bytes) => looks.push((memtrace_host::clock::boot().0, bytes)),
            // Not made yet, or removed.
            None if !looks.is_empty() || waits == 0 => return looks,
            None => waits -= 1,
        }
        sleep(PACE);
    }
}
