//! A recording of which one file is arbitrary. Reading it may find nothing and may report
//! damage; it must not panic, hang, or allocate without bound.

use memtrace::model::tables::MemRow;
use memtrace::store::Recordings;
use std::path::Path;
use std::sync::Once;

const RUN_JSON: &str = r#"{
  "schema_version": {"major": 2, "minor": 0},
  "memtrace_version": "", "state": "recording", "hostname": "", "kernel": "", "arch": "",
  "page_size_bytes": 4096, "cpu_count": 1, "mem_total_bytes": null,
  "target": {"kind": "all"}, "root_tgid": null, "backend": "", "backend_reason": "",
  "interval_ns": 0, "clocks": [], "command_exit_code": null, "host": null, "plan": null
}"#;

pub fn read_with(file: &str, bytes: &[u8]) {
    // libFuzzer's hook ends the process at a panic, also at one that the store contains.
    // A panic that leaves the store still ends it, behind this function.
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    // The reader takes a directory, so this goes through files; in memory where it can.
    let shm = Path::new("/dev/shm");
    let dir = if shm.is_dir() {
        tempfile::tempdir_in(shm)
    } else {
        tempfile::tempdir()
    };
    let dir = dir.expect("a temporary directory");
    let path = dir.path().join(file);
    std::fs::create_dir(path.parent().expect("a folder")).expect("a folder in it");
    std::fs::write(dir.path().join("run.json"), RUN_JSON).expect("room for run.json");
    std::fs::write(&path, bytes).expect("room for the file");
    let recording = Recordings::default().open(dir.path()).expect("a recording");
    recording.rows::<MemRow>().expect("rows, if none");
    recording
        .scan::<MemRow>(&["rss_bytes"], drop)
        .expect("rows, if none");
}
