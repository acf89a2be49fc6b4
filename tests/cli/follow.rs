//! Phases are reported while a recording goes on.

use crate::*;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

/// So many phases of one name are one line of a report.
const REPEATS: usize = 6;
/// Marks phases of one name, waits for a line of its input, marks another one, and waits again.
const SCRIPT: &str = "\
    for n in 1 2 3 4 5 6; do memtrace mark --begin load && memtrace mark --end load; done; \
    read line; memtrace mark --begin warm-up && memtrace mark --end warm-up && read line";

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
    let deadline = Instant::now() + PATIENCE;
    while !place.join("run.json").exists() {
        anyhow::ensure!(Instant::now() < deadline, "nothing is recorded");
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
    for _ in 0..REPEATS {
        let line = next()?.context("a line while it goes on")?;
        assert!(
            line.trim_start().starts_with('+') && line.ends_with("load"),
            "{line}"
        );
    }
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
fn phases_stand_between_the_lines_of_the_command_where_that_is_asked_for() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let program = program::memtrace()?;
    let path = program.parent().context("a directory")?;
    let script = "memtrace mark --begin load && memtrace mark --end load; read line
        echo 'INFO 01-30 11:53:40 model_runner.py:1110] Starting to load model m...'
        echo 'INFO 01-30 11:53:50 model_runner.py:1115] Loading model weights took 14.98 GB'
        echo warm >&2";
    let mut recorder = Command::new(&program)
        .args(["record", "--inline", "--backend", "procfs", "-o"])
        .arg(dir.path().join("recording"))
        .args(["--", "sh", "-c", script])
        .env("PATH", format!("{}:/usr/bin:/bin", path.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = recorder.stdin.take().context("an input")?;
    let said = recorder.stderr.take().context("what it says")?;
    let mut lines = BufReader::new(said).lines();
    let mut has_title = false;
    // The command waits for its input.
    loop {
        let line = lines.next().transpose()?.context("a line of the phase")?;
        has_title |= line.contains("RSS MiB") && line.ends_with("PHASE");
        if line.trim_start().starts_with('+') && line.ends_with("  load") {
            break;
        }
    }
    assert!(has_title);
    assert_eq!(recorder.try_wait()?, None);
    input.write_all(b"go on\n")?;
    let rest: Vec<String> = lines.collect::<Result<_, _>>()?;
    assert!(rest.contains(&"warm".to_owned()), "{rest:?}");
    // What it writes is read for marks unasked.
    let is_read = rest.iter().any(|line| line.contains(" vllm.load_model "));
    assert!(is_read, "{rest:?}");
    assert!(recorder.wait()?.success());
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
