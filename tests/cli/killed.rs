//! kill -9 of the recorder.

use super::*;
use memtrace_model::MemRow;
use memtrace_store::{Recording, Recordings};
use memtrace_tests::workload::{self, number};
use serde_json::Value;

/// What was observed is on disk after a second. As much again is for a machine so busy that
/// the recorder's own turn comes late.
const LOST_NS: i64 = 2_000_000_000;
/// The recorder is killed after this much of a workload that goes on for longer.
const LIVED_NS: i64 = 3_500_000_000;

/// Records a workload of known steps and kills the recorder. Gives the steps that were
/// reported, and when the recorder was killed.
fn killed(words: &[&str]) -> Result<(Recorded, Vec<Value>, i64)> {
    let steps = workload::command(&["steps", "--count", "200", "--gap-ms", "50"])?;
    let mut recorder = Recorder::of_command(words, &steps)?;
    let mut shown: Vec<Value> = Vec::new();
    let boot_ns = loop {
        let line: Value = serde_json::from_str(&recorder.line()?)?;
        shown.push(line);
        let [first, .., last] = shown.as_slice() else {
            continue;
        };
        let last = number(last, "boot_ns")?;
        if last - number(first, "boot_ns")? >= LIVED_NS {
            break last;
        }
    };
    recorder.signal(libc::SIGKILL)?;
    let (recorded, _output) = recorder.wait_alone()?;
    assert_eq!(recorded.exit_code, 128 + libc::SIGKILL);
    Ok((recorded, shown, boot_ns))
}

/// Every step that was older than what may be lost is in the recording, also as a peak.
fn holds_all_but_the_last_second(
    recording: &Recording,
    shown: &[Value],
    killed_boot_ns: i64,
) -> Result<()> {
    let mut kept = Vec::new();
    for line in shown {
        if number(line, "boot_ns")? < killed_boot_ns - LOST_NS {
            kept.push(number(line, "rss_bytes")?);
        }
    }
    let last = *kept.last().context("no step is old enough")?;
    let pid = number(&shown[0], "pid")?;
    let processes: Vec<ProcessRow> = recording.rows()?;
    let row = processes.iter().find(|row| i64::from(row.tgid.0) == pid);
    let row = row.context("the workload is not recorded")?;
    let peak = row.peak_rss_bytes.map(|bytes| bytes.0);
    let error = row.peak_error_bytes.map_or(0, |bytes| bytes.0);
    assert!(
        peak.is_some_and(|peak| peak + error >= last),
        "peak {peak:?} ± {error}, and it had {last}"
    );
    let mut series: Vec<MemRow> = recording.rows()?;
    series.retain(|mem| mem.upid == row.upid);
    let highest = series.iter().filter_map(|mem| mem.rss_bytes).max();
    assert!(
        highest.is_some_and(|highest| highest.0 >= last),
        "{highest:?} of {last}"
    );
    // A step is 2 MiB, so no polling of 100 ms leaves a hole of more than some steps.
    for step in &kept {
        let is_seen = series
            .iter()
            .filter_map(|mem| mem.rss_bytes)
            .any(|rss| (rss.0 - step).abs() <= 16 << 20);
        assert!(is_seen, "nothing near {step} in {} rows", series.len());
    }
    Ok(())
}

#[test]
fn a_killed_recorder_leaves_the_command_alone_and_loses_at_most_the_last_second() -> Result<()> {
    let (recorded, shown, boot_ns) = killed(&[])?;
    let pid = number(&shown[0], "pid")?.to_string();
    assert!(runs(&pid), "the command lives");
    end(&pid)?;

    assert!(!recorded.recording.is_closed());
    holds_all_but_the_last_second(&recorded.recording, &shown, boot_ns)?;
    let path = recorded.path();
    let path = path.to_str().context("a path that is text")?;
    let report = memtrace(["report", path])?;
    let text = String::from_utf8_lossy(&report.stdout);
    assert!(report.status.success(), "{}", words(&report));
    assert!(text.contains("steps"), "{text}");

    let length = |text: &str| {
        let (_, rest) = text.split_once("recorded for ")?;
        rest.split_once(' ').map(|(length, _)| length.to_owned())
    };
    let before = length(&text).context(text.into_owned())?;

    let recover = memtrace(["recover", path])?;
    assert!(recover.status.success(), "{}", words(&recover));
    let report = memtrace(["report", path])?;
    let text = String::from_utf8_lossy(&report.stdout);
    assert_eq!(length(&text), Some(before), "{text}");
    let closed = Recordings::default().open(&recorded.path())?;
    assert!(closed.is_closed());
    assert_eq!(closed.problems(), []);
    holds_all_but_the_last_second(&closed, &shown, boot_ns)?;
    Ok(())
}

#[test]
fn with_kill_child_the_command_dies_with_its_recorder() -> Result<()> {
    let script = "echo $$; exec sleep 60";
    let mut recorder = Recorder::of_command(&["--kill-child"], &shell(script))?;
    let pid = recorder.line()?;
    recorder.signal(libc::SIGKILL)?;
    let (recorded, _output) = recorder.wait_alone()?;
    await_that("the command is gone", || !runs(&pid));
    assert!(!recorded.recording.is_closed());
    Ok(())
}

#[test]
fn a_recording_in_progress_is_not_recovered_under_its_recorder() -> Result<()> {
    let mut recorder = Recorder::of_command(&[], &shell("echo $$; exec sleep 60"))?;
    recorder.line()?;
    let path = recorder.path();
    let recover = memtrace(["recover".as_ref(), path.as_os_str()])?;
    let text = words(&recover);
    assert_eq!(recover.status.code(), Some(1), "{text}");
    assert!(text.contains("a recorder is still writing to it"), "{text}");
    // Reading works.
    let report = memtrace(["report".as_ref(), path.as_os_str()])?;
    assert!(report.status.success(), "{}", words(&report));
    recorder.signal(libc::SIGTERM)?;
    assert!(recorder.wait()?.recording.is_closed());
    Ok(())
}
