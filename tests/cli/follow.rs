//! Phases are told while a recording goes on.

use crate::*;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

/// Marks a phase, waits for a line of its input, marks another one, and so on.
const SCRIPT: &str = "\
    memtrace mark --begin load && memtrace mark --end load && read line && \
    memtrace mark --begin warm-up && memtrace mark --end warm-up && read line";

#[test]
fn phases_are_followed_as_they_end_and_until_the_recording_ends() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("recording");
    let program = program::memtrace()?;
    let path = program.parent().context("a directory")?;
    let mut recorder = Command::new(&program)
        .args(["record", "--backend", "procfs", "-o"])
        .arg(&place)
        .args(["--", "sh", "-c", SCRIPT])
        .env("PATH", format!("{}:/usr/bin:/bin", path.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut input = recorder.stdin.take().context("an input")?;
    while !place.join("run.json").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let mut follower = Command::new(&program)
        .args(["report", "--style", "startup", "--follow"])
        .arg(&place)
        .stdout(Stdio::piped())
        .spawn()?;
    let output = follower.stdout.take().context("an output")?;
    let mut lines = BufReader::new(output).lines();
    let mut next = || lines.next().transpose();
    let title = next()?.context("a title")?;
    assert!(title.contains("PHASE"), "{title}");
    let first = next()?.context("a line while it goes on")?;
    assert!(first.ends_with("load") && first.contains('+'), "{first}");
    assert_eq!(recorder.try_wait()?, None);
    input.write_all(b"go on\n")?;
    let second = next()?.context("a line while it goes on")?;
    assert!(second.ends_with("warm-up"), "{second}");
    assert_eq!(recorder.try_wait()?, None);
    input.write_all(b"end\n")?;
    assert!(recorder.wait()?.success());
    assert_eq!(next()?, None);
    assert!(follower.wait()?.success());
    Ok(())
}

#[test]
fn only_the_log_of_phases_is_followed() -> Result<()> {
    for (words_given, expected) in [
        (&["report", "--follow"][..], "--style"),
        (
            &["report", "--style", "startup", "--follow", "-f", "md"],
            "--follow writes text",
        ),
    ] {
        let output = memtrace(words_given.iter().copied())?;
        assert!(!output.status.success());
        assert!(words(&output).contains(expected), "{}", words(&output));
    }
    Ok(())
}
