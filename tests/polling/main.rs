//! What a polling backend can promise: memory and processes that last longer than the
//! interval, the command's end, and null for what polling does not know.

use anyhow::{Context, Result};
use memtrace_model::{DiagKind, DiagRow, MemRow, ProcessRow};
use memtrace_tests::recorder::{Recorded, record};
use memtrace_tests::scenario::{self, Score};
use memtrace_tests::workload::{self, number};
use std::process::Command;

const INTERVAL_MS: &str = "50ms";

fn words(backend: &str) -> [&str; 6] {
    [
        "--backend",
        backend,
        "--interval",
        INTERVAL_MS,
        "--budget",
        "50",
    ]
}

fn recorded(backend: &str, command: &Command) -> Result<Recorded> {
    record(&words(backend), command)
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn all_hold(scores: &[Score]) {
    let failed: Vec<_> = scores.iter().filter(|score| !score.is_full()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

/// The process whose command line begins so.
fn process<'a>(processes: &'a [ProcessRow], beginning: &str) -> Result<&'a ProcessRow> {
    processes
        .iter()
        .find(|row| {
            row.cmdline
                .as_deref()
                .is_some_and(|line| line.starts_with(beginning))
        })
        .with_context(|| format!("no process {beginning:?} in {processes:#?}"))
}

fn memory_that_lasts_is_seen_at_its_height(backend: &str) -> Result<()> {
    let words = [
        "spike",
        "--bytes",
        "64M",
        "--hold-ms",
        "600",
        "--count",
        "1",
        "--gap-ms",
        "300",
    ];
    let recorded = recorded(backend, &workload::command(&words)?)?;
    let lines = workload::parse(&recorded.output)?;
    let line = lines.first().context("the workload said nothing")?;
    let (high, mark) = (
        number(line, "high_rss_bytes")?,
        number(line, "vmhwm_bytes")?,
    );
    let pid = number(line, "pid")?;
    let processes: Vec<ProcessRow> = recorded.recording.rows()?;
    let spike = processes
        .iter()
        .find(|row| i64::from(row.tgid.0) == pid)
        .context("the workload is not recorded")?;
    let peak = spike.peak_rss_bytes.context("its peak is unknown")?.0;
    assert!(peak >= high / 100 * 99, "{peak} of {high}");
    // The kernel takes its mark from counters that can be off by some pages for each CPU.
    assert!(
        peak <= mark + (1 << 20),
        "{peak} is more than the kernel's mark, {mark}"
    );
    assert_eq!(spike.peak_error_bytes, None, "a poll can miss any peak");
    let series: Vec<MemRow> = recorded.recording.rows()?;
    let highest = series
        .iter()
        .filter_map(|row| row.rss_bytes)
        .max()
        .map(|bytes| bytes.0);
    assert!(
        highest.is_some_and(|highest| highest >= high / 100 * 99),
        "{highest:?} of {high}"
    );
    Ok(())
}

fn children_that_last_belong_and_the_commands_end_is_known(backend: &str) -> Result<()> {
    // Longer than a second: sysinfo knows starts to the second only.
    let recorded = recorded(backend, &shell("sleep 1.31 & sleep 1.32 & wait; exit 7"))?;
    assert_eq!(recorded.exit_code, 7);
    let processes: Vec<ProcessRow> = recorded.recording.rows()?;
    let root = process(&processes, "sh -c")?;
    assert_eq!(root.exit_code, Some(7));
    assert!(root.kernel_maxrss_bytes.is_some());
    for name in ["sleep 1.31", "sleep 1.32"] {
        let child = process(&processes, name)?;
        assert_eq!(child.parent_upid, Some(root.upid));
        assert_eq!(child.root_upid, Some(root.upid));
        assert!(child.exit_boot_ns.is_some());
        assert_eq!(child.kernel_maxrss_bytes, None);
    }
    Ok(())
}

fn what_polling_cannot_know_is_null_and_said(backend: &str) -> Result<()> {
    let recorded = recorded(backend, &shell("sleep 0.4"))?;
    let series: Vec<MemRow> = recorded.recording.rows()?;
    assert!(!series.is_empty());
    let living = series
        .iter()
        .filter(|row| row.rss_bytes.is_some_and(|bytes| bytes.0 > 0));
    assert!(living.clone().all(|row| row.heap_bytes.is_none()));
    if backend == "sysinfo" {
        assert!(living.clone().all(|row| row.rss_anon_bytes.is_none()));
    }
    let diag: Vec<DiagRow> = recorded.recording.rows()?;
    assert!(
        diag.iter()
            .any(|row| row.kind == Some(DiagKind::PollingLimit)),
        "{diag:#?}"
    );
    Ok(())
}

#[test]
fn procfs_sees_memory_that_lasts_at_its_height() -> Result<()> {
    memory_that_lasts_is_seen_at_its_height("procfs")
}

#[test]
fn sysinfo_sees_memory_that_lasts_at_its_height() -> Result<()> {
    memory_that_lasts_is_seen_at_its_height("sysinfo")
}

#[test]
fn procfs_knows_children_that_last_and_the_commands_end() -> Result<()> {
    children_that_last_belong_and_the_commands_end_is_known("procfs")
}

#[test]
fn sysinfo_knows_children_that_last_and_the_commands_end() -> Result<()> {
    children_that_last_belong_and_the_commands_end_is_known("sysinfo")
}

#[test]
fn procfs_leaves_null_what_it_cannot_know() -> Result<()> {
    what_polling_cannot_know_is_null_and_said("procfs")
}

#[test]
fn sysinfo_leaves_null_what_it_cannot_know() -> Result<()> {
    what_polling_cannot_know_is_null_and_said("sysinfo")
}

#[test]
fn procfs_finds_what_a_phase_added_and_what_each_step_keeps() -> Result<()> {
    all_hold(&scenario::phases(&words("procfs"))?);
    Ok(())
}

fn a_process_learns_what_its_descendants_held(backend: &str) -> Result<()> {
    all_hold(&scenario::sections(&words(backend), 64 << 20, 1_000)?);
    Ok(())
}

#[test]
fn procfs_tells_a_process_what_its_descendants_held() -> Result<()> {
    a_process_learns_what_its_descendants_held("procfs")
}

#[test]
fn sysinfo_tells_a_process_what_its_descendants_held() -> Result<()> {
    a_process_learns_what_its_descendants_held("sysinfo")
}
