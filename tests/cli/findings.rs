//! What a report finds is saved beside a recording that was closed.

use crate::*;
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
