//! The exit status of `memtrace diff`, which a CI job goes by.

use super::*;

/// A recording of a shell that has the workload hold so much, and ends with this status.
fn run(bytes: u64, status: i32) -> Result<Recorded> {
    let workload = program::workload()?;
    let spike = format!("spike --count 1 --hold-ms 300 --gap-ms 100 --bytes {bytes}");
    let script = format!("{} {spike}; exit {status}", workload.display());
    Recorder::of_command(&[], &shell(&script))?.wait()
}

fn status(before: &Recorded, after: &Recorded, words: &[&str]) -> Result<Option<i32>> {
    let paths = [before.path(), after.path()].map(|path| path.as_os_str().to_owned());
    let words = words.iter().map(|word| OsStr::new(word).to_owned());
    let output = memtrace(["diff".into()].into_iter().chain(paths).chain(words))?;
    Ok(output.status.code())
}

#[test]
fn the_exit_status_tells_what_rose_or_newly_failed() -> Result<()> {
    let (small, large) = (run(32 << 20, 0)?, run(96 << 20, 0)?);
    let limit = ["--fail-above", "20%"];
    assert_eq!(status(&small, &large, &limit)?, Some(3));
    assert_eq!(status(&small, &large, &[])?, Some(0));
    assert_eq!(status(&large, &small, &limit)?, Some(0));
    assert_eq!(status(&small, &large, &["--fail-above", "1000%"])?, Some(0));

    // A run that crashed early holds little, and is no success.
    let crashed = run(4 << 20, 1)?;
    assert_eq!(status(&small, &crashed, &limit)?, Some(3));
    assert_eq!(status(&small, &crashed, &[])?, Some(0));
    assert_eq!(status(&crashed, &crashed, &limit)?, Some(0));
    Ok(())
}

#[test]
fn a_wrong_use_and_an_error_are_told_apart() -> Result<()> {
    let one = run(4 << 20, 0)?;
    assert_eq!(status(&one, &one, &["--fail-above", "much"])?, Some(2));
    let path = one.path();
    let output = memtrace([
        "diff".as_ref(),
        path.as_os_str(),
        "/nowhere/at-all".as_ref(),
    ])?;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        words(&output).contains("/nowhere/at-all"),
        "{}",
        words(&output)
    );
    Ok(())
}

#[test]
fn top_limits_the_roles_of_every_format() -> Result<()> {
    let one = run(4 << 20, 0)?;
    let told = |words: &[&str]| -> Result<String> {
        let path = one.path();
        let both = ["diff".as_ref(), path.as_os_str(), path.as_os_str()];
        let output = memtrace(both.into_iter().chain(words.iter().map(AsRef::as_ref)))?;
        Ok(String::from_utf8(output.stdout)?)
    };
    let roles = |words: &[&str]| -> Result<usize> {
        let report: serde_json::Value = serde_json::from_str(&told(words)?)?;
        Ok(report["roles"].as_array().context("no roles")?.len())
    };
    assert_eq!(roles(&["-f", "json"])?, 2, "the shell and the workload");
    assert_eq!(roles(&["-f", "json", "--top", "1"])?, 1);
    let lines = |words: &[&str]| -> Result<usize> { Ok(told(words)?.lines().count()) };
    assert!(lines(&["-f", "csv", "--top", "1"])? < lines(&["-f", "csv"])?);
    Ok(())
}
