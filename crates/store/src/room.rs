//! Making room for a new recording below a local root: `DIR/run=ID/host=NAME/rec=START`.

use super::dir::Dir;
use super::error::StoreError;
use memtrace_model::RunPlace;
use rustix::fs::Mode;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Folders above recordings can be entered by everybody, who sees names and no more: recordings
/// themselves are private to their owner.
const ABOVE_MODE: Mode = Mode::RWXU
    .union(Mode::RGRP)
    .union(Mode::XGRP)
    .union(Mode::ROTH)
    .union(Mode::XOTH);
/// So many recordings that a host began for a run within one second are distinguished.
const NUMBERS: std::ops::Range<u32> = 2..1_000;

/// Makes the folders for a recording below a local root, which is made too where it is not there.
/// Gives the recording's directory, which is not there yet: where its name is taken it gets a number,
/// also in `place`. Below the root no link is followed.
///
/// # Errors
/// When the system refuses, or all numbers are taken.
pub fn make_room(root: &Path, place: &mut RunPlace) -> Result<PathBuf, StoreError> {
    let failed = |path: &Path, error: io::Error| StoreError::io("create", path, error);
    let mut builder = std::fs::DirBuilder::new();
    #[allow(
        clippy::unnecessary_cast,
        reason = "the bits have another type on other platforms"
    )]
    let mode = ABOVE_MODE.as_raw_mode() as u32;
    let builder = builder.recursive(true).mode(mode);
    builder.create(root).map_err(|error| failed(root, error))?;
    let owner = Dir::open(root).and_then(|root| root.owner());
    let owner = owner.map_err(|error| failed(root, error))?;
    let path = root.join(place.path());
    let mut folders: Vec<&Path> = path.ancestors().skip(1).take(2).collect();
    folders.reverse();
    for folder in folders {
        let made = Dir::create(folder, ABOVE_MODE);
        let (made, is_new) = made.map_err(|error| failed(folder, error))?;
        if is_new && rustix::process::geteuid().is_root() {
            // Whoever has the root has what is in it. One that stays root's can be used all the same.
            let _ = made.give_to(owner);
        }
    }
    let first = place.rec.clone();
    let numbered = NUMBERS.filter_map(|number| format!("{first}-{number}").parse().ok());
    for name in std::iter::once(first.clone()).chain(numbered) {
        place.rec = name;
        let path = root.join(place.path());
        if path.symlink_metadata().is_err() {
            return Ok(path);
        }
    }
    Err(StoreError::NotEmpty { dir: path })
}

/// Removes the folders above a recording that hold none any more: those of its host and its run.
pub fn remove_empty_folders(recording: &Path) {
    for (folder, key) in recording.ancestors().skip(1).zip(["host=", "run="]) {
        let name = folder.file_name().and_then(|name| name.to_str());
        let is_of_layout = name.is_some_and(|name| name.starts_with(key));
        if !is_of_layout || std::fs::remove_dir(folder).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::{DurationNs, PlaceName};
    use std::os::unix::fs::symlink;

    fn place() -> RunPlace {
        let name = |text: &str| text.parse::<PlaceName>().unwrap();
        RunPlace {
            run: name("4711"),
            host: name("node1"),
            rec: name("20261123T121913Z"),
            rotate_ns: DurationNs(60_000_000_000),
            expected_hosts: None,
        }
    }

    #[test]
    fn a_recording_finds_a_place_of_its_own_and_leaves_no_folders() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("state/memtrace");
        let mut names = Vec::new();
        for _ in 0..3 {
            let mut place = place();
            let path = make_room(&root, &mut place).unwrap();
            assert_eq!(path, root.join(place.path()));
            std::fs::create_dir(path).unwrap();
            names.push(place.rec.to_string());
        }
        let first = "20261123T121913Z";
        assert_eq!(names, [first, &format!("{first}-2"), &format!("{first}-3")]);
        let path = root.join(place().path());
        for name in names {
            remove_empty_folders(&path);
            assert!(path.parent().unwrap().exists());
            std::fs::remove_dir(path.with_file_name(format!("rec={name}"))).unwrap();
        }
        remove_empty_folders(&path);
        assert!(root.exists() && std::fs::read_dir(&root).unwrap().count() == 0);
    }

    #[test]
    fn a_folder_that_is_a_link_is_no_place() {
        let parent = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        symlink(other.path(), parent.path().join("run=4711")).unwrap();
        let error = make_room(parent.path(), &mut place()).unwrap_err();
        let error = anyhow::Error::from(error);
        assert!(format!("{error:#}").contains("symbolic link"), "{error:#}");
        assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 0);
    }
}
