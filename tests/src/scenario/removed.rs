//! A cgroup that is removed while it is recorded.

use super::book::{Book, Score};
use crate::cgroup::MemoryGroup;
use crate::recorder::Recorder;
use crate::workload::Running;
use anyhow::Result;
use memtrace_model::{CgroupMemRow, DiagRow, Severity};
use std::thread::sleep;
use std::time::Duration;

/// The group of one of two processes goes with it; the recording goes on.
///
/// # Errors
/// When the run itself fails.
pub fn removed_group(words: &[&str]) -> Result<Vec<Score>> {
    let group = MemoryGroup::new("memtrace-removed", 256 << 20)?;
    let directory = group.dir().to_owned();
    let mut inside = Running::start_in(&group, &["idle", "--processes", "1"])?;
    let mut outside = Running::start(&["idle", "--processes", "1"])?;
    inside.line()?;
    outside.line()?;
    let pids = [inside.pid().to_string(), outside.pid().to_string()];
    let targets = ["--quiet", "-p", &pids[0], "-p", &pids[1]];
    let recorder = Recorder::start(&[words, &targets].concat())?;
    sleep(Duration::from_millis(1_500));
    inside.finish()?;
    drop(group);
    let is_removed = !directory.exists();
    sleep(Duration::from_millis(2_500));
    let recorded = recorder.stop()?;
    outside.finish()?;
    Book::open(&recorded)?;
    let rows: Vec<CgroupMemRow> = recorded.recording.rows()?;
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let of_group = rows.iter().filter(|row| row.cgroup.ends_with(&*name));
    let diags: Vec<DiagRow> = recorded.recording.rows()?;
    let failure = diags
        .iter()
        .find(|row| row.severity == Some(Severity::Loss) || row.subject.contains("cgroup"));
    Ok(vec![
        Score::of("the group was removed", is_removed, || {
            directory.display().to_string()
        }),
        Score::of(
            "it was read while it was there",
            of_group.clone().count() > 0,
            || format!("{rows:?}"),
        ),
        Score::of("its end is no failure", failure.is_none(), || {
            format!("{failure:?}")
        }),
    ])
}
