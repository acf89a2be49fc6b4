//! `memtrace list`, and commands that are given a directory of recordings.

use super::*;
use serde_json::Value;
use std::path::Path;

/// What it writes to stdout and stderr.
fn all_words(arguments: &[&str]) -> Result<String> {
    let output = memtrace(arguments)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &words(&output))
}

fn recorded(dir: &Path, command: &[&str]) -> Result<()> {
    let place = dir.to_str().context("a path that is text")?;
    let record = ["record", "-q", "--backend", "procfs", "-o", place, "--"];
    memtrace([&record[..], command].concat())?;
    Ok(())
}

#[test]
fn recordings_are_listed_with_how_they_ended() -> Result<()> {
    let dir = tempfile::tempdir()?;
    recorded(&dir.path().join("first"), &["sleep", "0.2"])?;
    recorded(&dir.path().join("second"), &["sh", "-c", "exit 3"])?;
    std::fs::create_dir(dir.path().join("memtrace-broken"))?;
    std::fs::write(dir.path().join("memtrace-broken/run.json"), "{}")?;
    let here = dir.path().to_str().context("a path that is text")?;
    let text = all_words(&["list", here])?;
    assert!(text.contains("3 recordings in "), "{text}");
    let json = memtrace(["list", here, "-f", "json"])?;
    let json: Value = serde_json::from_slice(&json.stdout)?;
    let listed = json["recordings"].as_array().context("a list")?;
    let of = |key: &str| -> Vec<Value> { listed.iter().map(|one| one[key].clone()).collect() };
    assert_eq!(of("command_exit_code"), [3.into(), 0.into(), Value::Null]);
    assert_eq!(of("state"), ["ended".into(), "ended".into(), Value::Null]);
    assert!(
        listed[1]["duration_ns"].as_i64() > Some(200_000_000),
        "{json}"
    );
    assert!(
        listed[1]["process_peak_rss_bytes"].as_i64() > Some(100_000),
        "{json}"
    );
    assert!(listed[2]["error"].as_str().is_some(), "{json}");
    Ok(())
}

#[test]
fn a_directory_stands_for_its_newest_recording_or_that_of_a_time() -> Result<()> {
    let dir = tempfile::tempdir()?;
    recorded(&dir.path().join("first"), &["sleep", "0.3"])?;
    std::thread::sleep(std::time::Duration::from_secs(3));
    recorded(&dir.path().join("second"), &["sleep", "0.1"])?;
    let here = dir.path().to_str().context("a path that is text")?;
    let table = memtrace(["list", here, "-f", "csv"])?;
    let table = String::from_utf8(table.stdout)?;
    // A second of grace is given, for a time that was rounded.
    let first = table.lines().nth(2).and_then(|row| row.split(',').next());
    let first = first.context("a start")?.replace(" UTC", "Z");
    let newest = all_words(&["report", here])?;
    assert!(newest.contains("sleep 0.1"), "{newest}");
    assert!(newest.contains("the newest of 2 recordings"), "{newest}");
    let earlier = all_words(&["report", here, "--at", &first])?;
    assert!(earlier.contains("sleep 0.3"), "{earlier}");
    let listed = all_words(&["list", here, "--at", &first])?;
    assert!(listed.contains("1 recording in "), "{listed}");
    let none = memtrace(["report", here, "--at", "2020-01-01T00:00:00Z"])?;
    assert_eq!(none.status.code(), Some(1));
    let none = words(&none);
    assert!(none.contains("none of the 2 recordings"), "{none}");
    Ok(())
}
