//! `memtrace import torch`: snapshots of torch's allocator, as Python itself writes them.

use super::*;
use memtrace_model::tables::{StackRow, TorchBlockState, TorchMemoryRow};
use memtrace_store::Recordings;
use serde_json::Value;
use std::path::Path;

const HERE: &str = env!("CARGO_MANIFEST_DIR");
const MIB: i64 = 1 << 20;

/// A recording of the program beside this file, which leaves its snapshots in its directory.
fn recorded() -> Result<tempfile::TempDir> {
    let dir = tempfile::tempdir()?;
    let script = format!("{HERE}/cli/torch.py");
    let output = Command::new(program::memtrace()?)
        .args(["record", "-o", "recording", "--", "python3", &script])
        .env("PYTHONPATH", format!("{HERE}/../python/src"))
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .output()?;
    assert!(output.status.success(), "{}", words(&output));
    Ok(dir)
}

fn import(dir: &Path, files: &[&str]) -> Result<Output> {
    let output = Command::new(program::memtrace()?)
        .args(["import", "torch"])
        .args(files)
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()?;
    Ok(output)
}

fn rows(dir: &Path) -> Result<Vec<TorchMemoryRow>> {
    Ok(Recordings::default().open(&dir.join("recording"))?.rows()?)
}

#[test]
fn a_marked_snapshot_is_of_the_process_that_took_it_and_is_imported_once() -> Result<()> {
    let dir = recorded()?;
    let dir = dir.path();
    let output = import(dir, &["marked.pickle"])?;
    assert!(output.status.success(), "{}", words(&output));
    let imported = rows(dir)?;
    let seen = imported
        .iter()
        .map(|row| (row.state, row.size_bytes.0 / MIB));
    let each = [
        (Some(TorchBlockState::Allocated), 3),
        (Some(TorchBlockState::Inactive), 1),
    ];
    assert_eq!(seen.collect::<Vec<_>>(), each.repeat(2));
    let recording = Recordings::default().open(&dir.join("recording"))?;
    let processes: Vec<ProcessRow> = recording.rows()?;
    let python = processes.iter().find(|row| row.comm == "python3");
    let python = python.context("the program")?;
    assert!(imported.iter().all(|row| row.upid == Some(python.upid)));
    let stacks: Vec<StackRow> = recording.rows()?;
    let [frame] = stacks.as_slice() else {
        anyhow::bail!("{stacks:#?}");
    };
    assert_eq!(frame.stack_id, imported[0].stack_id);
    assert_eq!(
        (frame.function.as_deref(), frame.line),
        (Some("load"), Some(7))
    );
    let again = import(dir, &["marked.pickle"])?;
    assert!(words(&again).contains("in the recording already"));
    assert_eq!(rows(dir)?.len(), 4);
    let report = memtrace([
        "report".as_ref(),
        "--section".as_ref(),
        "torch".as_ref(),
        "-f".as_ref(),
        "json".as_ref(),
        dir.join("recording").as_os_str(),
    ])?;
    let report: Value = serde_json::from_slice(&report.stdout)?;
    let found = &report["torch"][0];
    assert_eq!(found["pid"], python.tgid.0, "{report}");
    assert_eq!(found["reserved_bytes"], 8 * MIB);
    assert_eq!(found["inactive_bytes"], 2 * MIB);
    assert_eq!(found["sites"][0]["frame"]["function"], "load");
    Ok(())
}

#[test]
fn what_torch_dumps_is_imported_whatever_the_protocol() -> Result<()> {
    let dir = recorded()?;
    let dir = dir.path();
    let files = [
        "dumped-2.pickle",
        "dumped-3.pickle",
        "dumped-4.pickle",
        "dumped-5.pickle",
    ];
    let output = import(dir, &files)?;
    let said = words(&output);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("dumped-2.pickle: 8.0 MiB in 2 segments, of a process"),
        "{said}"
    );
    let imported = rows(dir)?;
    assert_eq!(imported.len(), 4 * files.len());
    assert!(imported.iter().all(|row| row.upid.is_none()));
    // Later, beside those that are there.
    let output = import(
        dir,
        &["one-segment.pickle", "empty.pickle", "marked.pickle"],
    )?;
    let said = words(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("4.0 MiB in 1 segment, of"), "{said}");
    assert!(said.contains("torch had reserved nothing"), "{said}");
    let imported = rows(dir)?;
    assert_eq!(imported.len(), 4 * files.len() + 2 + 4);
    let first = imported.first().context("the marked one")?;
    assert_eq!(first.snapshot, "marked.pickle");
    assert!(imported.is_sorted_by_key(|row| row.boot_ns));
    Ok(())
}

#[test]
fn a_file_that_is_no_snapshot_of_this_recording_changes_nothing() -> Result<()> {
    let dir = recorded()?;
    let dir = dir.path();
    let dumped = std::fs::read(dir.join("dumped-4.pickle"))?;
    std::fs::write(dir.join("cut.pickle"), &dumped[..dumped.len() / 3])?;
    std::fs::write(dir.join("text.pickle"), "root:x:0:0:")?;
    // After the recording.
    std::fs::write(dir.join("copied.pickle"), &dumped)?;
    for (file, expected) in [
        ("object.pickle", "STACK_GLOBAL"),
        ("cut.pickle", "ends too early"),
        ("text.pickle", "no pickle"),
        ("copied.pickle", "outside of the recording"),
        ("recording", "not a regular file"),
        ("missing.pickle", "failed to open missing.pickle"),
    ] {
        let output = import(dir, &["marked.pickle", file])?;
        let said = words(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(expected), "{said}");
        assert_eq!(rows(dir)?, []);
    }
    let output = import(dir, &["--pid", "1", "dumped-4.pickle"])?;
    assert!(words(&output).contains("no process 1 was recorded then"));
    let output = import(dir, &[])?;
    assert_eq!(output.status.code(), Some(2));
    Ok(())
}
