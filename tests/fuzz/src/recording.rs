//! A recording of which one file is arbitrary. Reading it may find nothing and may report damage.

use memtrace_model::tables::MemRow;
use memtrace_store::{Recordings, recover};
use std::path::{Path, PathBuf};
use std::sync::Once;

const RUN_JSON: &str = r#"{
  "schema_version": {"major": 2, "minor": 0},
  "memtrace_version": "", "state": "recording", "hostname": "", "kernel": "", "arch": "",
  "page_size_bytes": 4096, "cpu_count": 1, "mem_total_bytes": null,
  "target": {"kind": "all"}, "root_tgid": null, "backend": "", "backend_reason": "",
  "interval_ns": 0, "clocks": [], "command_exit_code": null, "host": null, "plan": null
}"#;
const ID: &str = r#""memtrace_version": "", "id": "00000000000000000000000000000000","#;

/// A folder for files that go at once, in memory where there is one.
pub fn memory() -> PathBuf {
    let shm = Path::new("/dev/shm");
    match shm.is_dir() {
        true => shm.to_path_buf(),
        false => std::env::temp_dir(),
    }
}

/// Reads a recording with these bytes as one of its files, and closes one of sixteen.
pub fn read_with(file: &str, bytes: &[u8]) {
    // libFuzzer's hook ends the process at a panic, also at one that the store contains.
    // A panic that leaves the store still ends it, behind this function.
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let dir = tempfile::tempdir_in(memory()).expect("a temporary directory");
    let path = dir.path().join(file);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder in it");
    // Only of one with an id a manifest is read.
    let run = match file {
        "manifest.jsonl" => RUN_JSON.replace(r#""memtrace_version": "","#, ID),
        _ => RUN_JSON.to_owned(),
    };
    std::fs::write(dir.path().join("run.json"), run).expect("room for run.json");
    std::fs::write(&path, bytes).expect("room for the file");
    let Ok(recording) = Recordings::default().open(dir.path()) else {
        assert_eq!(file, "run.json", "all else has a recording");
        return;
    };
    recording.rows::<MemRow>().expect("rows, if none");
    recording
        .scan::<MemRow>(&["rss_bytes"], drop)
        .expect("rows, if none");
    // It takes ten times as long as the rest, which would be tried that much less.
    if bytes.len().is_multiple_of(16) {
        drop(recover(dir.path()));
    }
}
