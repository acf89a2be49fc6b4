//! Recordings that are carried elsewhere, and read where they are.

use anyhow::{Result, ensure};
use memtrace_tests::{program, recorder};
use std::process::{Command, Output};

fn memtrace(words: &[&str]) -> Result<Output> {
    Ok(Command::new(program::memtrace()?).args(words).output()?)
}

#[test]
fn a_recording_that_was_carried_reads_the_same_by_its_address() -> Result<()> {
    program::memtrace_remote()?;
    let recorded = recorder::record(&["--backend", "procfs"], Command::new("sleep").arg("0.3"))?;
    let here = recorded.path().display().to_string();
    let root = tempfile::tempdir()?;
    let address = format!("file://{}", root.path().display());
    let pushed = memtrace(&["push", &here, &address, "--run", "4711", "--host", "node1"])?;
    let said = String::from_utf8_lossy(&pushed.stderr).into_owned();
    ensure!(pushed.status.success(), "{said}");
    let there = said.split_whitespace().find(|word| word.contains("/rec="));
    let there = there.unwrap_or_default();
    ensure!(
        there.starts_with(&format!("{address}/run=4711/host=node1/rec=")),
        "{said}"
    );
    for words in [
        &["report", "--format", "csv"][..],
        &["report", "--section", "processes"],
    ] {
        let of = |recording: &str| memtrace(&[words, &[recording]].concat());
        let (here, there) = (of(&here)?, of(there)?);
        ensure!(
            there.status.success(),
            "{}",
            String::from_utf8_lossy(&there.stderr)
        );
        ensure!(
            !here.stdout.is_empty() && here.stdout == there.stdout,
            "{words:?}"
        );
    }
    for words in [
        &["recover", there][..],
        &["report", "--save-findings", there],
    ] {
        let refused = memtrace(words)?;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        ensure!(
            !refused.status.success() && said.contains("only read"),
            "{said}"
        );
    }
    Ok(())
}
