//! `memtrace traces` on folders and files as people have them.

use super::*;
use std::path::Path;

/// A trace with one operator.
pub(super) const SMALL: &str = r#"{"baseTimeNanoseconds": 1763888000000000000, "traceEvents": [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10.0, "dur": 5.5}]}"#;

fn traces<'a>(words: impl IntoIterator<Item = &'a Path>) -> Result<Output> {
    let words = words.into_iter().map(Path::as_os_str);
    memtrace([OsStr::new("traces")].into_iter().chain(words))
}

fn shown(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &words(output)
}

#[test]
fn a_folder_is_read_and_its_ranks_stand_side_by_side() -> Result<()> {
    let dir = tempfile::tempdir()?;
    for rank in [0, 1] {
        std::fs::write(dir.path().join(format!("rank{rank}.json")), SMALL)?;
    }
    std::fs::write(dir.path().join("profiler_out_0.txt"), "a table")?;
    let output = traces([dir.path()])?;
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    for part in ["Rank 0: ", "Rank 1: ", "aten::mm", "Ranks side by side"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let output = traces([dir.path(), Path::new("--all-ranks")])?;
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    assert!(!text.contains("aten::mm"), "{text}");
    assert!(text.contains("2 traces start within"), "{text}");
    let output = traces([dir.path(), Path::new("--rank=1")])?;
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("Rank 1: ") && !text.contains("Rank 0: "),
        "{text}"
    );
    let output = traces([dir.path(), Path::new("--rank=7")])?;
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("no trace is of rank 7: there are 0, 1"),
        "{text}"
    );
    Ok(())
}

#[test]
fn the_exit_status_says_whether_there_was_a_trace() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let output = traces([dir.path()])?;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        shown(&output).contains("holds no trace"),
        "{}",
        shown(&output)
    );
    let other = dir.path().join("package.json");
    std::fs::write(&other, "{}")?;
    let output = traces([&*other])?;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        shown(&output).contains("no list of events"),
        "{}",
        shown(&output)
    );
    let trace = dir.path().join("a.json");
    std::fs::write(&trace, SMALL)?;
    let output = traces([dir.path()])?;
    assert!(output.status.success(), "{}", shown(&output));
    let output = traces([&*dir.path().join("none")])?;
    assert_eq!(output.status.code(), Some(1));
    Ok(())
}

#[test]
fn a_fifo_is_not_waited_for() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let pipe = dir.path().join("a.json");
    let made = Command::new("mkfifo").arg(&pipe).status()?;
    anyhow::ensure!(made.success(), "mkfifo: {made}");
    let output = traces([&*pipe])?;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        shown(&output).contains("not a regular file"),
        "{}",
        shown(&output)
    );
    Ok(())
}

#[test]
fn one_that_can_not_be_read_does_not_stop_the_others() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (pipe, trace) = (dir.path().join("a.json"), dir.path().join("b.json"));
    let made = Command::new("mkfifo").arg(&pipe).status()?;
    anyhow::ensure!(made.success(), "mkfifo: {made}");
    std::fs::write(&trace, SMALL)?;
    let output = traces([&*pipe, &*trace])?;
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("not a regular file"), "{text}");
    assert!(text.contains("aten::mm"), "{text}");
    // One that was cut off is a trace still.
    let output = {
        std::fs::write(&trace, SMALL.trim_end_matches("]}"))?;
        traces([&*trace])?
    };
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("it is cut off"), "{text}");
    Ok(())
}
