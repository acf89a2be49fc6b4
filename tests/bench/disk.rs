//! What a recording takes on the disk.

use crate::measured::Measured;
use crate::{Bench, Effort};
use anyhow::{Context, Result};
use memtrace_model::tables::MemRow;
use memtrace_tests::recorder::Recorder;
use memtrace_tests::workload::Running;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) const BENCHES: &[Bench] = &[Bench {
    name: "disk",
    run: disk,
}];

/// 500 processes, of which 20 change all the time, in one tree.
fn disk(effort: Effort) -> Result<Vec<Measured>> {
    // Two trees, so the recorder is given the whole of both by name.
    let mut idle = Running::start(&["idle", "--processes", "480"])?;
    let mut changers = Running::start(&["changers", "--processes", "20"])?;
    idle.line()?;
    changers.line()?;
    let (idle_pid, changers_pid) = (idle.pid().to_string(), changers.pid().to_string());
    let recorder = Recorder::start(&["--quiet", "-p", &idle_pid, "-p", &changers_pid])?;
    let start = Instant::now();
    // Keyframes come every 10 s, so they are part of either length.
    sleep(Duration::from_secs(effort.pick(12, 120)));
    let length = start.elapsed();
    let recorded = recorder.stop()?;

    let mut rows = 0_u64;
    recorded.recording.scan(&[], |_: MemRow| rows += 1)?;
    let mem_bytes = size(&recorded.path().join("mem"))?;
    let all_bytes = size(&recorded.path())?;
    let per_row = mem_bytes as f64 / rows as f64;
    let per_hour = all_bytes as f64 * 3_600.0 / length.as_secs_f64() / f64::from(1 << 20);
    let row = Measured::at_most(
        "disk",
        "a row of mem after compaction",
        "bytes",
        12.0,
        per_row,
    );
    Ok(vec![row.with_note(format!(
        "{rows} rows in {:.0} s; {per_hour:.1} MiB an hour, all tables",
        length.as_secs_f64()
    ))])
}

fn size(path: &Path) -> Result<u64> {
    let meta = path
        .symlink_metadata()
        .with_context(|| format!("failed to read {}", path.display()))?;
    if !meta.is_dir() {
        return Ok(meta.len());
    }
    let mut total = 0;
    for entry in std::fs::read_dir(path)? {
        total += size(&entry?.path())?;
    }
    Ok(total)
}
