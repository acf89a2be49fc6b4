//! The store as a whole: what is written is read again, whatever happens in between.
//! Parts of it are tested beside their code.

mod columns;
mod crash;
mod damage;
mod downsample;
mod findings;
mod full_disk;
mod hostile;
mod kept;
mod kills;
mod manifest;
mod revision;
mod rotation;
mod round_trip;
mod size;
mod tail;

use super::Writer;
use super::writer::Limits;
use memtrace_model::tables::{FirstSeenBy, MemRow, MemSource, ProcessRow};
use memtrace_model::{
    BootNs, Bytes, ClockReading, DurationNs, Record, RunInfo, RunState, SCHEMA_VERSION, Target,
    Tgid, Upid, WallNs,
};
use std::path::{Path, PathBuf};

/// The wall clock of the tests minus their boot clock.
const EPOCH_NS: i64 = 1_700_000_000_000_000_000;

/// Limits so small that a few rows meet them.
const SMALL: Limits = Limits {
    flush_rows: 10,
    flush_bytes: 1 << 20,
    segment_rows: 50,
    segment_bytes: 1 << 20,
};

fn info() -> RunInfo {
    RunInfo {
        schema_version: SCHEMA_VERSION,
        memtrace_version: "0.0.0".to_owned(),
        id: None,
        state: RunState::Recording,
        hostname: "host".to_owned(),
        kernel: "6.1".to_owned(),
        arch: "x86_64".to_owned(),
        page_size_bytes: Bytes(4096),
        cpu_count: 2,
        mem_total_bytes: None,
        target: Target::All,
        root_tgid: None,
        backend: "procfs".to_owned(),
        backend_reason: "test".to_owned(),
        interval_ns: DurationNs(100_000_000),
        clocks: vec![ClockReading {
            boot_ns: BootNs(0),
            monotonic_ns: 0,
            wall_ns: WallNs(EPOCH_NS),
        }],
        command_exit_code: None,
        mark_socket: None,
        gpus: Vec::new(),
        gpu_note: None,
        downsampled: None,
        place: None,
        host: serde_json::Value::Null,
        plan: serde_json::Value::Null,
    }
}

fn mem(boot_ms: i64, upid: i64) -> MemRow {
    let boot_ns = boot_ms * 1_000_000;
    MemRow {
        ts: WallNs(EPOCH_NS + boot_ns),
        boot_ns: BootNs(boot_ns),
        upid: Upid(upid),
        rss_bytes: Some(Bytes(boot_ms * 4096 + upid)),
        rss_anon_bytes: Some(Bytes(boot_ms * 4096)),
        rss_file_bytes: Some(Bytes(upid)),
        swap_bytes: (boot_ms % 2 == 0).then_some(Bytes(0)),
        vm_size_bytes: Some(Bytes(i64::MAX)),
        source: Some(MemSource::Snapshot),
        ..MemRow::default()
    }
}

fn process(upid: i64, comm: &str) -> ProcessRow {
    ProcessRow {
        upid: Upid(upid),
        tgid: Tgid(upid.unsigned_abs() as u32),
        parent_upid: Some(Upid(1)),
        comm: comm.to_owned(),
        exe: Some("/bin/ünï".into()),
        uid: Some(0),
        start_boot_ns: BootNs(upid),
        first_seen_boot_ns: BootNs(upid),
        first_seen_by: Some(FirstSeenBy::Fork),
        exit_code: Some(-1),
        oom_killed: Some(true),
        ..ProcessRow::default()
    }
}

/// A recording's directory that does not exist yet, and what keeps its parent alive.
fn new_dir() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("memtrace-test");
    (parent, dir)
}

fn append_all<R: Clone + Into<Record>>(writer: &mut Writer, rows: &[R]) {
    for row in rows {
        writer.append(&row.clone().into()).unwrap();
    }
}

/// Leaves a recording as a killed recorder does: what was flushed is there, the lock is
/// gone.
fn kill(writer: Writer) {
    drop(writer);
}

fn files_below(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                names.push(path.strip_prefix(dir).unwrap().display().to_string());
            }
        }
    }
    names.sort();
    names
}
