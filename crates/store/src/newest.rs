//! Finding the recording that was started last.

use super::dir::Dir;
use super::error::StoreError;
use super::run_file::start_time;
use std::path::{Path, PathBuf};

/// What the directory of a recording starts with unless the person named it.
const RECORDING_PREFIX: &str = "memtrace-";

/// Finds the recording in `dir` that was started last: among the directories with a
/// `run.json` of memtrace, whatever their names, by the start time in it. Where that can't be
/// read, a directory named `memtrace-*` counts still, as the oldest.
///
/// # Errors
/// When `dir` can't be listed. Directories that can't be read are passed over.
pub fn newest_recording(dir: &Path) -> Result<Option<PathBuf>, StoreError> {
    let listing = std::fs::read_dir(dir).map_err(|error| StoreError::io("list", dir, error))?;
    let mut newest = None;
    for entry in listing {
        let entry = entry.map_err(|error| StoreError::io("list", dir, error))?;
        let is_named_so = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(RECORDING_PREFIX));
        let path = entry.path();
        let Ok(started) = Dir::open(&path).and_then(|dir| start_time(&dir)) else {
            continue;
        };
        if started.is_none() && !is_named_so {
            continue;
        }
        // The name decides between recordings of the same instant, so that the answer
        // does not depend on the order of the listing.
        let candidate = (started, path);
        if newest.as_ref().is_none_or(|best| candidate > *best) {
            newest = Some(candidate);
        }
    }
    Ok(newest.map(|(_, path)| path))
}
