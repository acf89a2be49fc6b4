//! Recordings that are kept beside each other on one disk, and removing one.
//!
//! What is removed is known to be a recording by its `run.json`, nobody writes to it, and nothing
//! but what a recording consists of goes: whatever else somebody put into its directory stays, and
//! the directory with it. No link below the given directory is followed.

use super::dir::Dir;
use super::error::StoreError;
use super::layout::{DAMAGED, SPOOL, is_of_recording, names_in, temporary};
use super::manifest::MANIFEST;
use super::run_file::{LockedRunFile, RUN_FILE, open_dir, read};
use memtrace_model::{Bytes, Downsampled, Order, PlaceName, RunState, WallNs};
use std::io;
use std::path::{Path, PathBuf};

/// A recording among others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Where the recording is.
    pub dir: PathBuf,
    /// When it ended; of one that its recorder did not close, when it was written last.
    pub ended: WallNs,
    /// What it takes.
    pub bytes: Bytes,
    /// The user it belongs to.
    pub uid: u32,
    /// Whether it was closed.
    pub is_closed: bool,
    /// Whether it has a place below a root, where it may be on its way to.
    pub is_placed: bool,
    /// Whether it has fewer rows than were recorded.
    pub downsampled: Option<Downsampled>,
}

/// The recordings in a directory that nobody writes to: those of a local root, at
/// `run=…/host=…/rec=…`, and those that memtrace gave their names, `memtrace-…`; the oldest first.
/// What can't be read is passed over.
///
/// # Errors
/// When the directory can't be listed.
pub fn kept(dir: &Path) -> Result<Vec<Kept>, StoreError> {
    let opened = Dir::open(dir).map_err(|error| StoreError::io("open", dir, error))?;
    let mut found = Vec::new();
    for name in names_in(&opened, Path::new(""))? {
        let Some(name) = name.to_str() else {
            continue;
        };
        let Ok(below) = opened.below(name) else {
            continue;
        };
        if name.starts_with("memtrace-") {
            found.extend(inspected(&below));
        } else {
            at_levels(&below, name, &mut |recording| {
                found.extend(inspected(recording))
            });
        }
    }
    found.order_by(|a, b| (a.ended, &a.dir).cmp(&(b.ended, &b.dir)));
    Ok(found)
}

/// Gives the recordings of a root to `each`, where a directory of this name is the folder of a run
/// in one: `run=…/host=…/rec=…`.
pub(super) fn at_levels(dir: &Dir, name: &str, each: &mut impl FnMut(&Dir)) {
    if is_level(name, "run=") {
        go_down(dir, &["host=", "rec="], each);
    }
}

fn go_down(dir: &Dir, levels: &[&str], each: &mut impl FnMut(&Dir)) {
    let Some((level, rest)) = levels.split_first() else {
        each(dir);
        return;
    };
    for name in dir.names(Path::new("")).unwrap_or_default() {
        if let Some(name) = name.to_str().filter(|name| is_level(name, level))
            && let Ok(below) = dir.below(name)
        {
            go_down(&below, rest, each);
        }
    }
}

fn is_level(name: &str, level: &str) -> bool {
    let value = name.strip_prefix(level);
    value.is_some_and(|value| value.parse::<PlaceName>().is_ok())
}

/// A recording that nobody writes to; `None` for what is none, or is written to.
fn inspected(dir: &Dir) -> Option<Kept> {
    let info = read(dir).ok()?.info;
    // Where the file system has no locks, what is not closed may be written to.
    LockedRunFile::lock(dir).ok()?;
    let (bytes, written) = size(dir).ok()?;
    // Files of a closed one are written anew, when it is downsampled for example. Of one that was
    // recovered the clocks do not say when it ended.
    let has_last_clock = info.state == RunState::Closed;
    let last = info.clocks.last().filter(|_| has_last_clock);
    Some(Kept {
        dir: dir.path().to_path_buf(),
        ended: last.map_or(written, |last| last.wall_ns),
        bytes,
        uid: dir.owner().ok()?.0,
        is_closed: info.state != RunState::Recording,
        is_placed: info.place.is_some(),
        downsampled: info.downsampled,
    })
}

/// What the files of a recording take, and when the newest of them was written.
fn size(dir: &Dir) -> io::Result<(Bytes, WallNs)> {
    let (mut bytes, mut written_ns) = (0, 0);
    let all = files(dir).map_err(io::Error::other)?;
    for file in all {
        let inspected = dir.inspect(&file)?;
        bytes += inspected.size;
        written_ns = written_ns.max(inspected.modified_ns);
    }
    Ok((Bytes(bytes.cast_signed()), WallNs(written_ns)))
}

/// What the files of the recording in a directory take.
///
/// # Errors
/// When the directory can't be read; also when a recorder replaced one of them meanwhile.
pub fn size_of_recording(path: &Path) -> io::Result<Bytes> {
    let dir = open_dir(path).map_err(io::Error::other)?;
    size(&dir).map(|(bytes, _)| bytes)
}

/// The files that a recording consists of.
fn files(dir: &Dir) -> Result<Vec<PathBuf>, StoreError> {
    let mut files = Vec::new();
    for name in names_in(dir, Path::new(""))? {
        let folder = Path::new(&name);
        // What is no folder has no names.
        for name in dir.names(folder).unwrap_or_default() {
            let path = folder.join(name);
            if is_of_recording(&path) {
                files.push(path);
            }
        }
    }
    let run_file = Path::new(RUN_FILE);
    let own = [MANIFEST.into(), temporary(run_file), run_file.to_path_buf()];
    files.extend(own.into_iter().filter(|path| dir.inspect(path).is_ok()));
    Ok(files)
}

/// Removes a recording that nobody writes to. Says whether its directory is gone too: it stays where
/// it holds something else.
///
/// # Errors
/// When it is no recording, when a recorder writes to it, and when the system refuses.
pub fn remove_recording(path: &Path) -> Result<bool, StoreError> {
    let dir = open_dir(path)?;
    read(&dir)?;
    // Nor does anybody revise it.
    let locked = dir.lock();
    locked.map_err(|error| StoreError::io("lock", path, error))?;
    let _lock = LockedRunFile::lock(&dir)?;
    let failed =
        |file: &Path, error: io::Error| StoreError::io("remove", &dir.full_path(file), error);
    // `run.json` is the last: what is left of a removal that was interrupted is a recording still.
    let files = files(&dir)?;
    let mut folders: Vec<&Path> = files.iter().filter_map(|file| file.parent()).collect();
    folders.extend([SPOOL, DAMAGED].map(Path::new));
    for file in &files {
        if file == Path::new(RUN_FILE) {
            // A folder that holds something else, or is not there, is left as it is.
            for folder in folders
                .iter()
                .filter(|folder| !folder.as_os_str().is_empty())
            {
                let _ = dir.remove_folder(folder);
            }
        }
        dir.remove_file(file).map_err(|error| failed(file, error))?;
    }
    Ok(std::fs::remove_dir(path).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::os::unix::fs::symlink;

    fn names(found: &[Kept], dir: &Path) -> Vec<String> {
        let names = found.iter().map(|kept| kept.dir.strip_prefix(dir).unwrap());
        names.map(|name| name.display().to_string()).collect()
    }

    #[test]
    fn only_what_has_a_name_of_the_layout_is_of_a_recording() {
        for (path, is_its) in [
            ("mem/part-00001.parquet", true),
            ("of_tomorrow/part-00001.parquet.tmp", true),
            ("spool/mem-00001.arrows", true),
            ("damaged/whatever", true),
            ("mem/notes.txt", false),
            ("mem/part-1.parquet", false),
            ("spool/notes", false),
            ("run.json", false),
        ] {
            assert_eq!(is_of_recording(Path::new(path)), is_its, "{path}");
        }
    }

    #[test]
    fn links_and_what_is_no_recording_are_not_found() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        for name in ["memtrace-none", "run=1/host=a/rec=b", "run=1/host=../rec=b"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("memtrace-none/run.json"), "{}").unwrap();
        symlink(elsewhere.path(), dir.path().join("memtrace-link")).unwrap();
        symlink(elsewhere.path(), dir.path().join("run=2")).unwrap();
        let found = kept(dir.path()).unwrap();
        assert_eq!(names(&found, dir.path()), [""; 0]);
        let refused = remove_recording(&dir.path().join("memtrace-none"));
        assert!(refused.is_err());
        let left: BTreeSet<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left.len(), 4);
    }
}
