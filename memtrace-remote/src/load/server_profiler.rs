//! The profiler of the small server: it has the paths of vLLM's, and each window becomes a trace that
//! is empty but for its begin and end.

use jiff::Timestamp;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

const START: &str = "/start_profile";
const STOP: &str = "/stop_profile";
/// What a server tells of its routes.
const API: &str = "/openapi.json";

pub(super) struct Profiler {
    dir: PathBuf,
    /// The begin of the window that is open.
    begun: Mutex<Option<Timestamp>>,
}

impl Profiler {
    pub(super) fn writing_to(dir: PathBuf) -> Self {
        Self {
            dir,
            begun: Mutex::new(None),
        }
    }

    /// Whether a path is one of its.
    pub(super) fn is_asked(path: &str) -> bool {
        [START, STOP, API].contains(&path)
    }

    /// What it answers there.
    ///
    /// # Errors
    /// When a trace can't be written.
    pub(super) fn answer(&self, path: &str) -> std::io::Result<Value> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        match path {
            API => return Ok(json!({"paths": {START: {"post": {}}, STOP: {"post": {}}}})),
            START => *begun = Some(begun.unwrap_or_else(Timestamp::now)),
            // vLLM takes a stop without a start too.
            _ => {
                if let Some(begin) = begun.take() {
                    self.write(begin)?;
                }
            }
        }
        Ok(json!({}))
    }

    fn write(&self, begin: Timestamp) -> std::io::Result<()> {
        let end = Timestamp::now();
        let window = json!({
            "name": "window",
            "ph": "X",
            "pid": std::process::id(),
            "tid": 0,
            "ts": begin.as_microsecond(),
            "dur": end.as_microsecond() - begin.as_microsecond(),
        });
        let trace = json!({"traceEvents": [window]});
        // Two servers may share a directory, and stop within one microsecond.
        let (pid, time) = (std::process::id(), end.as_microsecond());
        let name = format!("rank0_{pid}.{time}.pt.trace.json");
        std::fs::create_dir_all(&self.dir)?;
        std::fs::write(self.dir.join(name), trace.to_string())
    }
}
