//! The exit status of `memtrace diff`, which a CI job goes by.

use super::*;
use memtrace_tests::workload;

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
fn a_recording_that_was_cut_off_passes_no_limit() -> Result<()> {
    let steps = workload::command(&["steps", "--count", "100", "--gap-ms", "50"])?;
    let mut recorder = Recorder::of_command(&[], &steps)?;
    // Rows are on the disk a second later.
    for _ in 0..40 {
        recorder.line()?;
    }
    let path = recorder.path();
    let report = |words: &[&str]| -> Result<_> {
        let words = words.iter().map(OsStr::new);
        let words = ["report".as_ref()].into_iter().chain(words);
        let output = memtrace(words.chain([path.as_os_str()]))?;
        Ok((output.status.code(), self::words(&output)))
    };
    let (code, said) = report(&["--strict"])?;
    assert_eq!(code, Some(0), "it goes on: {said}");
    recorder.signal(libc::SIGKILL)?;
    let (cut_off, _) = recorder.wait_alone()?;
    assert_eq!(report(&[])?.0, Some(0));
    let (code, said) = report(&["--strict"])?;
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("its end is missing"), "{said}");
    // Of one that nothing rose from, so that only what is missing counts.
    assert_eq!(status(&cut_off, &cut_off, &[])?, Some(0));
    let limit = ["--fail-above", "5%"];
    assert_eq!(status(&cut_off, &cut_off, &limit)?, Some(4));
    Ok(())
}

#[test]
fn a_wrong_use_and_an_error_are_distinguished() -> Result<()> {
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
    let shown = |words: &[&str]| -> Result<String> {
        let path = one.path();
        let both = ["diff".as_ref(), path.as_os_str(), path.as_os_str()];
        let output = memtrace(both.into_iter().chain(words.iter().map(AsRef::as_ref)))?;
        Ok(String::from_utf8(output.stdout)?)
    };
    let roles = |words: &[&str]| -> Result<usize> {
        let report: serde_json::Value = serde_json::from_str(&shown(words)?)?;
        Ok(report["roles"].as_array().context("no roles")?.len())
    };
    assert_eq!(roles(&["-f", "json"])?, 2, "the shell and the workload");
    assert_eq!(roles(&["-f", "json", "--top", "1"])?, 1);
    let lines = |words: &[&str]| -> Result<usize> { Ok(shown(words)?.lines().count()) };
    assert!(lines(&["-f", "csv", "--top", "1"])? < lines(&["-f", "csv"])?);
    Ok(())
}

/// A root with a run `small` and a run `large`, of two hosts each.
fn root() -> Result<tempfile::TempDir> {
    let root = tempfile::tempdir()?;
    for (name, bytes) in [("small", 32 << 20), ("large", 96 << 20)] {
        for (host, bytes) in [("node1", bytes), ("node2", 16 << 20)] {
            let of = run(bytes, 0)?;
            let place = format!("run={name}/host={host}/rec=20261123T121913Z");
            let to = root.path().join(place);
            std::fs::create_dir_all(to.parent().context("a folder")?)?;
            std::fs::rename(of.path(), to)?;
        }
    }
    Ok(root)
}

#[test]
fn two_runs_of_many_hosts_are_compared_and_no_run_with_a_recording() -> Result<()> {
    let root = root()?;
    let diff = |places: &[&str], options: &[&str]| -> Result<std::process::Output> {
        let paths = places
            .iter()
            .map(|place| root.path().join(place).into_os_string());
        let options = options.iter().map(|word| OsStr::new(word).to_owned());
        memtrace(["diff".into()].into_iter().chain(paths).chain(options))
    };
    let (small, large) = ("run=small", "run=large");
    let limit = ["--fail-above", "20%"];
    assert_eq!(diff(&[small, large], &limit)?.status.code(), Some(3));
    assert_eq!(diff(&[large, small], &limit)?.status.code(), Some(0));
    assert_eq!(
        diff(&[small, small], &["--fail-above", "0%"])?
            .status
            .code(),
        Some(0)
    );
    assert_eq!(diff(&[small, large], &[])?.status.code(), Some(0));

    let by_name = diff(&[""], &["--run", "small", "--run", "large", "-f", "json"])?;
    let shown: serde_json::Value =
        serde_json::from_slice(&by_name.stdout).with_context(|| words(&by_name))?;
    assert_eq!(shown["format"], "memtrace-run-diff");
    assert_eq!(
        (&shown["before"]["run"], &shown["after"]["run"]),
        (&"small".into(), &"large".into())
    );
    assert_eq!(shown["peak"]["is_sure"], true, "{shown:#}");
    let rise = shown["host_peak"]["change_bytes"].as_i64();
    assert!(rise > Some(56 << 20) && rise < Some(72 << 20), "{rise:?}");
    let hosts = shown["hosts"].as_array().context("hosts")?;
    assert_eq!(hosts[0]["host"], "node1");
    let text = diff(&[small, large], &[])?;
    let text = String::from_utf8(text.stdout)?;
    assert!(
        text.contains("Peak of all hosts: ") && text.contains("By host, the most"),
        "{text}"
    );

    let one = "run=small/host=node1/rec=20261123T121913Z";
    for (places, options, says) in [
        (
            &[small, one][..],
            &[][..],
            "compare two runs, or two recordings",
        ),
        (&[one, small], &[], "compare two runs, or two recordings"),
        (
            &[one, one],
            &["--run", "small"],
            "and neither of these is one",
        ),
        (
            &["", ""],
            &["--run", "medium"],
            "has no run medium; it has large, small",
        ),
        (&[small], &[], "name a second"),
        (&[small, large], &["-f", "html"], "text, md, json and csv"),
    ] {
        let refused = diff(places, options)?;
        assert!(!refused.status.success(), "{}", words(&refused));
        assert!(words(&refused).contains(says), "{}", words(&refused));
    }
    Ok(())
}
