//! What a report finds is saved beside a recording that was closed.

use crate::*;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

const TABLES: [&str; 2] = ["phase/part-00001.parquet", "role_mem/part-00001.parquet"];

/// Records a script of a shell into DIR/recording.
fn record(dir: &Path, options: &[&str], script: &str) -> Result<Output> {
    let place = dir.join("recording");
    let place = place.to_str().context("a path that is text")?;
    let words = ["record", "--backend", "procfs", "-o", place];
    let command = ["--", "sh", "-c", script];
    memtrace([words.as_slice(), options, command.as_slice()].concat())
}

#[test]
fn findings_are_saved_unless_they_are_not_wanted() -> Result<()> {
    for (options, is_saved) in [(&[][..], true), (&["--no-findings"], false)] {
        let dir = tempfile::tempdir()?;
        let output = record(dir.path(), options, "sleep 0.3; exit 7")?;
        assert_eq!(output.status.code(), Some(7), "{}", words(&output));
        for table in TABLES {
            let path = dir.path().join("recording").join(table);
            assert_eq!(path.is_file(), is_saved, "{table} with {options:?}");
        }
    }
    Ok(())
}

#[test]
fn where_they_cannot_be_saved_a_line_says_so_and_the_status_is_the_commands() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let elsewhere = tempfile::tempdir()?;
    let link = format!(
        "ln -s {} {}/recording/phase; sleep 0.3; exit 3",
        elsewhere.path().display(),
        dir.path().display()
    );
    let output = record(dir.path(), &[], &link)?;
    assert_eq!(output.status.code(), Some(3), "{}", words(&output));
    let said = words(&output);
    assert!(said.contains("not saved as tables: "), "{said}");
    assert!(said.contains("symbolic link"), "{said}");
    assert!(said.contains("memtrace report --save-findings"), "{said}");
    assert_eq!(elsewhere.path().read_dir()?.count(), 0);
    let report = memtrace(["report".as_ref(), dir.path().join("recording").as_os_str()])?;
    assert!(report.status.success(), "{}", words(&report));
    Ok(())
}

#[test]
fn a_directory_whose_name_begins_like_an_option_is_shown_with_the_one_it_is_in() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let output = Command::new(program::memtrace()?)
        .args([
            "record",
            "--backend",
            "procfs",
            "-o=-y",
            "--",
            "sleep",
            "0.3",
        ])
        .current_dir(dir.path())
        .output()?;
    let said = words(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("memtrace report ./-y"), "{said}");
    for table in TABLES {
        assert!(dir.path().join("-y").join(table).is_file(), "{said}");
    }
    Ok(())
}

#[test]
fn a_signal_ends_the_saving_and_leaves_nobody_behind() -> Result<()> {
    for (signal, status) in [("TERM", Some(7)), ("KILL", None)] {
        let dir = tempfile::tempdir()?;
        // Who saves there waits for this lock.
        let lock = File::open(dir.path())?;
        lock.lock()?;
        let said = tempfile::NamedTempFile::new()?;
        let mut recorder = Command::new(program::memtrace()?)
            .args(["record", "--backend", "procfs", "-o"])
            .arg(dir.path())
            .args(["--", "sh", "-c", "sleep 0.3; exit 7"])
            .stderr(said.reopen()?)
            .spawn()?;
        let pid = recorder.id().to_string();
        let words = || std::fs::read_to_string(said.path()).unwrap_or_default();
        await_that("it says what takes so long", || {
            words().contains("saving phases and roles")
        });
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let child = children.trim();
        assert!(runs(child), "{children:?} saves");
        let sent = Command::new("kill").args(["-s", signal, &pid]).status()?;
        assert!(sent.success());
        let ended = recorder.wait()?;
        assert_eq!(ended.code(), status, "{}", words());
        match status {
            Some(_) => assert!(
                words().contains("not saved as tables: a signal"),
                "{}",
                words()
            ),
            None => assert_eq!(ended.signal(), Some(9)),
        }
        // The lock is kept for longer than this: it would still wait for it.
        let since = Instant::now();
        await_that("whoever saves has ended", || !runs(child));
        assert!(since.elapsed() < Duration::from_secs(1), "with SIG{signal}");
    }
    Ok(())
}
