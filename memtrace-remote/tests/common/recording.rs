//! Recordings whose parts are any bytes: who carries them does not look into them.

use memtrace_model::{
    BootNs, Bytes, ClockReading, DurationNs, RunInfo, RunState, SCHEMA_VERSION, Target, WallNs,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Where it lies below any root.
pub const BELOW: &str = "run=4711/host=node1/rec=20261123T121913Z";

/// A recording in a directory of its own, with a recorder that lives or not.
pub struct Made {
    _parent: tempfile::TempDir,
    pub dir: PathBuf,
    lock: Option<File>,
}

pub fn info(state: RunState) -> RunInfo {
    RunInfo {
        schema_version: SCHEMA_VERSION,
        memtrace_version: "0.0.0".to_owned(),
        id: None,
        state,
        hostname: "node1".to_owned(),
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
            wall_ns: WallNs(1_795_436_353_000_000_000),
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

impl Made {
    /// A recording that a recorder writes to.
    pub fn live() -> Self {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join(BELOW);
        std::fs::create_dir_all(&dir).unwrap();
        let mut made = Self {
            _parent: parent,
            dir,
            lock: None,
        };
        made.state(&info(RunState::Recording));
        made
    }

    /// A closed recording with these parts.
    pub fn closed(parts: &[(&str, usize)]) -> Self {
        let mut made = Self::live();
        for &(path, size) in parts {
            made.part(path, size);
        }
        made.close();
        made
    }

    /// `run.json` anew, locked as a recorder does it.
    pub fn state(&mut self, info: &RunInfo) {
        let temporary = self.dir.join("run.json.tmp");
        std::fs::write(&temporary, serde_json::to_vec(info).unwrap()).unwrap();
        let file = File::open(&temporary).unwrap();
        file.lock().unwrap();
        std::fs::rename(temporary, self.dir.join("run.json")).unwrap();
        self.lock = Some(file);
    }

    pub fn close(&mut self) {
        self.state(&info(RunState::Closed));
        self.lock = None;
    }

    /// The recorder is gone.
    pub fn kill(&mut self) {
        self.lock = None;
    }

    /// A part of so many bytes, no two of which have the same.
    pub fn part(&self, path: &str, size: usize) {
        let path = self.dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let seed = path.as_os_str().len() + size;
        let bytes: Vec<u8> = (0..size)
            .map(|at| ((at * 31 + at / 251) ^ seed) as u8)
            .collect();
        let temporary = path.with_extension("parquet.tmp");
        std::fs::write(&temporary, bytes).unwrap();
        std::fs::rename(temporary, path).unwrap();
    }

    /// The root above it.
    pub fn root(&self) -> &Path {
        self._parent.path()
    }

    /// What it holds, by path.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        files(&self.dir)
    }
}

/// All files below a directory; one that goes while they are read is none.
pub fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(bytes) = std::fs::read(&path) {
                let name = path.strip_prefix(dir).unwrap().display().to_string();
                found.insert(name, bytes);
            }
        }
    }
    found
}
