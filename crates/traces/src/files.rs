//! Which files are traces: those that are named, and in a folder those whose names say so.

use std::io;
use std::path::{Path, PathBuf};

/// A folder of traces holds a few files for each rank; of more, the rest is not looked at.
const FILES_MAX: usize = 4_096;
/// SGLang makes a folder for each window.
const DEPTH_MAX: usize = 2;

/// The traces of a place.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// In the order of their names.
    pub files: Vec<PathBuf>,
    /// Whether there are more of them.
    pub has_more: bool,
}

/// The traces in a folder and the folders in it, or the one file that a path names.
///
/// # Errors
/// When the path leads to nothing, or the folder can't be listed.
pub fn find(path: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    let state = path.metadata()?;
    if state.is_dir() {
        found.add(path, 1)?;
        found.files.sort();
    } else {
        found.files.push(path.to_path_buf());
    }
    Ok(found)
}

impl Found {
    fn add(&mut self, dir: &Path, depth: usize) -> io::Result<()> {
        for entry in std::fs::read_dir(dir)?.filter_map(Result::ok) {
            // Not of what a link leads to.
            let Ok(state) = entry.metadata() else {
                continue;
            };
            if state.is_dir() && depth < DEPTH_MAX {
                // One that this user may not list has no traces for them.
                let _ = self.add(&entry.path(), depth + 1);
            } else if state.is_file() && is_trace(&entry.file_name().to_string_lossy()) {
                if self.files.len() == FILES_MAX {
                    self.has_more = true;
                    return Ok(());
                }
                self.files.push(entry.path());
            }
        }
        Ok(())
    }
}

/// Whether a name is one of a trace. Tables that vLLM writes beside them (`profiler_out_0.txt`) are none.
fn is_trace(name: &str) -> bool {
    let name = name.strip_suffix(".gz").unwrap_or(name);
    let has_no_ending = name.starts_with("profiler_out_") && !name.contains('.');
    name.ends_with(".json") || has_no_ending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_found_by_name_in_a_folder_and_one_below_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(place("window/below")).unwrap();
        let traces = [
            "a.pt.trace.json.gz",
            "b.json",
            "profiler_out_0",
            "window/c.trace.json.gz",
        ];
        let others = ["profiler_out_0.txt", "d.json.tmp", "window/below/e.json"];
        for name in traces.iter().chain(&others) {
            std::fs::write(place(name), "{}").unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", place("link.json")).unwrap();
        let found = find(dir.path()).unwrap();
        assert_eq!(found.files, traces.map(place));
        let named = find(&place("profiler_out_0.txt")).unwrap();
        assert_eq!(named.files, [place("profiler_out_0.txt")]);
        assert!(find(&place("none")).is_err());
    }
}
