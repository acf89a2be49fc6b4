//! Recordings of earlier versions of the tables are read, with the answers that were right when they were made.

use super::*;
use memtrace_model::SCHEMA_VERSION;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// The version of a recording, and the report, which has found no fault with it.
fn read(recording: &Path) -> Result<(String, Value)> {
    let output = memtrace([
        OsStr::new("report"),
        recording.as_os_str(),
        OsStr::new("--format=json"),
    ])?;
    let shown = recording.display();
    assert_eq!(output.status.code(), Some(0), "{shown}: {}", words(&output));
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let run = &report["recording"];
    assert_eq!(run["problems"], Value::Array(Vec::new()), "{shown}");
    let version = &run["schema_version"];
    let version = format!("{}.{}", version["major"], version["minor"]);
    Ok((version, report))
}

#[test]
fn kept_recordings_are_read_with_the_peaks_that_getrusage_reported() -> Result<()> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings");
    let mut versions = BTreeSet::new();
    for entry in std::fs::read_dir(&dir)? {
        let kept = entry?.path();
        if !kept.is_dir() {
            continue;
        }
        let shown = kept.display();
        let truth: Value = serde_json::from_slice(&std::fs::read(kept.join("truth.json"))?)?;
        let (version, report) = read(&kept.join("recording"))?;
        assert!(kept.ends_with(&version), "{shown} has version {version}");
        versions.insert(version);
        let processes = report["processes"].as_array().context("processes")?;
        let mut found: Vec<(u64, u64)> = processes
            .iter()
            .filter_map(|process| {
                let peak = &process["peak"];
                Some((peak["rss_bytes"].as_u64()?, peak["error_bytes"].as_u64()?))
            })
            .collect();
        let text = truth["peaks_bytes"].as_array().context("peaks_bytes")?;
        let mut text: Vec<u64> = text.iter().filter_map(Value::as_u64).collect();
        found.sort_unstable();
        text.sort_unstable();
        assert_eq!((found.len(), text.len()), (3, 3), "{shown}");
        for ((peak, error), text) in found.into_iter().zip(text) {
            assert!(
                peak.abs_diff(text) <= error,
                "{shown}: {peak} bytes ±{error}, by getrusage {text}"
            );
        }
    }
    let current = format!("{}.{}", SCHEMA_VERSION.major, SCHEMA_VERSION.minor);
    assert!(
        versions.contains(&current),
        "no recording of version {current} is kept: see tests/recordings/README.md"
    );
    Ok(())
}

#[test]
fn the_recording_of_version_2_0_that_the_python_package_is_tested_with_is_read() -> Result<()> {
    let recording = "../python/tests/data/training";
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join(recording);
    let (version, report) = read(&recording)?;
    assert_eq!(version, "2.0");
    let peak = report["processes"][0]["peak"]["rss_bytes"].as_u64();
    assert!(peak.is_some_and(|peak| peak > 0), "{peak:?}");
    Ok(())
}
