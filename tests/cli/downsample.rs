//! `memtrace downsample`: fewer rows, and a report that says the same.

use super::*;
use memtrace_model::tables::{ClockRow, MemRow};
use memtrace_store::Recordings;
use serde_json::Value;
use std::path::Path;

const MS: i64 = 1_000_000;

fn reported(dir: &Path) -> Result<Value> {
    let report = memtrace([
        "report".as_ref(),
        dir.as_os_str(),
        "-f".as_ref(),
        "json".as_ref(),
    ])?;
    Ok(serde_json::from_slice(&report.stdout)?)
}

/// How many rows of memory there are. Each has the wall time of its instant, in whole milliseconds.
fn rows(dir: &Path) -> Result<usize> {
    let recording = Recordings::default().open(dir)?;
    let clocks: Vec<ClockRow> = recording.rows()?;
    let offsets = || clocks.iter().map(|row| row.ts.0 - row.boot_ns.0);
    let (least, most) = (offsets().min(), offsets().max());
    let (least, most) = least.zip(most).context("no reading of the clocks")?;
    let rows = recording.rows::<MemRow>()?;
    for row in &rows {
        assert_eq!(row.ts.0 % MS, 0, "{}", row.ts.0);
        let offset = row.ts.0 - row.boot_ns.0;
        // What downsampling cuts off comes on top of what was cut off before.
        let is_near = (least - 2 * MS..=most + MS).contains(&offset);
        assert!(is_near, "{offset} is not within {least} to {most}");
    }
    Ok(rows.len())
}

#[test]
fn a_recording_has_fewer_rows_afterwards_and_the_same_peak() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("recording");
    let mut busy = Running::start(&["changers", "--processes", "3"])?;
    busy.line()?;
    let pid = busy.pid().to_string();
    let words = [
        "record",
        "-q",
        "-d",
        "6",
        "--interval",
        "20ms",
        "-p",
        &pid,
        "-o",
    ];
    let recorded = memtrace(words.iter().map(OsStr::new).chain([dir.as_os_str()]))?;
    assert_eq!(
        recorded.status.code(),
        Some(0),
        "{}",
        super::words(&recorded)
    );
    let (before, rows_before) = (reported(&dir)?, rows(&dir)?);
    let here = dir.as_os_str();
    let to = |period: &'static str| {
        memtrace([
            "downsample".as_ref(),
            here,
            "--to".as_ref(),
            period.as_ref(),
        ])
    };
    let done = to("3s")?;
    assert_eq!(done.status.code(), Some(0), "{}", super::words(&done));
    let (after, rows_after) = (reported(&dir)?, rows(&dir)?);
    assert!(rows_after < rows_before, "{rows_before} → {rows_after}");
    // Bounds are those of the instants that are left.
    for bound in ["bytes", "at_least_bytes"] {
        assert_eq!(after["held_peak"][bound], before["held_peak"][bound]);
    }
    for key in ["peak", "sum_of_rss_peak_bytes", "trees", "oom_kills"] {
        assert_eq!(after[key], before[key], "{key}");
    }
    let downsampled = &after["recording"]["downsampled"];
    assert_eq!(downsampled["period_ns"], 3_000_000_000_i64);
    assert_eq!(
        after["recording"]["problems"],
        before["recording"]["problems"]
    );
    let again = to("1s")?;
    let said = String::from_utf8(again.stdout)?;
    assert!(said.contains("has a period of 3"), "{said}");
    let text = memtrace(["report".as_ref(), here])?;
    let text = String::from_utf8(text.stdout)?;
    assert!(text.contains("downsampled to 3s"), "{text}");
    Ok(())
}

#[test]
fn what_is_still_recorded_or_is_not_said_how_is_refused() -> Result<()> {
    let recorder = Recorder::start(&[
        "-q",
        "--backend",
        "procfs",
        "-p",
        &std::process::id().to_string(),
    ])?;
    let live = memtrace([
        "downsample".as_ref(),
        recorder.path().as_os_str(),
        "--to".as_ref(),
        "1s".as_ref(),
    ])?;
    assert_eq!(live.status.code(), Some(1));
    let said = words(&live);
    assert!(said.contains("downsample"), "{said}");
    recorder.stop()?;
    for wrong in [
        &["downsample"][..],
        &["downsample", "--to", "0s"],
        &["downsample", "--tiers", "1d"],
        &["downsample", "--tiers", "1m:1s"],
        &["downsample", "--to", "1s", "--tiers", "1d:1s"],
        &["record", "--downsample", "1d:1s", "-a"],
        &["record", "--every", "1h", "--downsample", "1d", "-a"],
    ] {
        assert_eq!(memtrace(wrong)?.status.code(), Some(2), "{wrong:?}");
    }
    Ok(())
}
