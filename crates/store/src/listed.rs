//! The recordings in a directory.

use super::dir::Dir;
use super::error::StoreError;
use super::kept::at_levels;
use super::run_file::start_time;
use memtrace_model::WallNs;
use std::cmp::Reverse;
use std::path::{Path, PathBuf};

/// What the directory of a recording starts with unless the person named it.
const RECORDING_PREFIX: &str = "memtrace-";

/// The recordings in `dir`, the one that was started last first: the directories with a `run.json`
/// of memtrace, whatever their names, by the start time in it, and those of a root, at
/// `run=…/host=…/rec=…`. A directory named `memtrace-*` whose start time can't be read comes last.
///
/// # Errors
/// When `dir` can't be listed. Directories that can't be read are passed over.
pub fn recordings_in(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let listing = std::fs::read_dir(dir).map_err(|error| StoreError::io("list", dir, error))?;
    let mut found: Vec<(Option<WallNs>, PathBuf)> = Vec::new();
    for entry in listing {
        let entry = entry.map_err(|error| StoreError::io("list", dir, error))?;
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        let Ok(opened) = Dir::open(&entry.path()) else {
            continue;
        };
        if let Ok(started) = start_time(&opened) {
            if started.is_some() || name.starts_with(RECORDING_PREFIX) {
                found.push((started, entry.path()));
            }
            continue;
        }
        at_levels(&opened, name, &mut |recording| {
            if let Ok(Some(started)) = start_time(recording) {
                found.push((Some(started), recording.path().to_path_buf()));
            }
        });
    }
    // The name decides between recordings of the same instant, so that the answer does not depend
    // on the order of the listing.
    found.sort_by(|a, b| Reverse(a).cmp(&Reverse(b)));
    Ok(found.into_iter().map(|(_, path)| path).collect())
}
