//! Files that may be a load generator's, by when they were written and where they are.

use memtrace_model::{Order, WallNs};
use std::collections::{BTreeSet, HashSet};
use std::fs::{DirEntry, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Generators make folders of their own, and some of them folders in these.
const DEPTH_MAX: usize = 5;
/// Names that are looked at in all.
const NAMES_MAX: usize = 100_000;
/// Files that are given.
const FILES_MAX: usize = 1_000;

/// What generators call their files.
const ENDINGS: [&str; 2] = ["json", "jsonl"];

#[derive(Debug)]
pub(super) struct Search {
    since: WallNs,
    found: BTreeSet<PathBuf>,
    /// Device and inode of those, which can be reached by several paths.
    met: HashSet<(u64, u64)>,
    names_left: usize,
    is_cut: bool,
}

impl Search {
    /// For files that were written since then.
    pub(super) fn since(since: WallNs) -> Self {
        Self {
            since,
            found: BTreeSet::new(),
            met: HashSet::new(),
            names_left: NAMES_MAX,
            is_cut: false,
        }
    }

    /// Looks below the current directory, and at each path that a command line names: an argument,
    /// or what follows its `=`. Of these what can't be read is passed by.
    pub(super) fn of_command(&mut self, words: &[String]) -> io::Result<()> {
        for word in words.iter().skip(1) {
            let named = word
                .split_once('=')
                .map_or(word.as_str(), |(_, value)| value);
            for path in [word, named].map(Path::new) {
                // A name that is none of a file tells nothing.
                let Ok(metadata) = path.metadata() else {
                    continue;
                };
                match metadata.is_dir() {
                    // A command can use a folder that it can't list, and one that is gone by now.
                    true => _ = self.below(path),
                    false => self.take(path.to_path_buf(), &metadata),
                }
            }
        }
        self.below(Path::new("."))
    }

    /// Looks below a folder. Hidden folders and recordings have no such files, links are not
    /// followed, and what can't be read is passed by.
    pub(super) fn below(&mut self, folder: &Path) -> io::Result<()> {
        let mut folders = vec![(folder.to_path_buf(), 0)];
        let mut is_first = true;
        while let Some((folder, depth)) = folders.pop() {
            let entries = match std::fs::read_dir(&folder) {
                Err(error) if is_first => return Err(error),
                Err(_) => continue,
                Ok(entries) => entries,
            };
            is_first = false;
            let mut entries: Vec<DirEntry> = entries.filter_map(Result::ok).collect();
            if entries.iter().any(|entry| entry.file_name() == "run.json") {
                continue;
            }
            entries.order_by_key(DirEntry::file_name);
            for entry in entries {
                let Some(left) = self.names_left.checked_sub(1) else {
                    self.is_cut = true;
                    return Ok(());
                };
                self.names_left = left;
                let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
                // Of the entry itself, a link not followed.
                let Ok(metadata) = entry.metadata() else {
                    continue;
                };
                if metadata.is_dir() && !is_hidden && depth < DEPTH_MAX {
                    folders.push((entry.path(), depth + 1));
                }
                self.take(entry.path(), &metadata);
            }
        }
        Ok(())
    }

    fn take(&mut self, path: PathBuf, metadata: &Metadata) {
        let ending = path.extension().and_then(|ending| ending.to_str());
        let is_named_so = ending.is_some_and(|ending| ENDINGS.contains(&ending));
        let seconds = metadata.mtime().saturating_mul(1_000_000_000);
        let written = seconds.saturating_add(metadata.mtime_nsec());
        if !metadata.is_file() || !is_named_so || written < self.since.0 {
            return;
        }
        if self.found.len() == FILES_MAX {
            self.is_cut = true;
            return;
        }
        if self.met.insert((metadata.dev(), metadata.ino())) {
            let shown = path.strip_prefix(".").unwrap_or(&path);
            self.found.insert(shown.to_path_buf());
        }
    }

    /// Whether there was more to look at.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The files in the order of their paths.
    pub(super) fn found(self) -> impl Iterator<Item = PathBuf> {
        self.found.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    #[test]
    fn what_was_written_since_is_found_wherever_generators_put_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for folder in ["a/b/c", ".hidden", "recording", "elsewhere"] {
            create_dir_all(path(folder)).unwrap();
        }
        let names = [
            "a/b/c/new.jsonl",
            "a/old.json",
            "a/text.txt",
            ".hidden/x.json",
            "recording/run.json",
            "recording/y.json",
            "elsewhere/named.json",
        ];
        for name in names {
            write(path(name), "{}").unwrap();
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let hour = Duration::from_secs(3_600);
        let old = std::fs::File::options()
            .write(true)
            .open(path("a/old.json"))
            .unwrap();
        old.set_modified(SystemTime::now() - hour).unwrap();
        std::os::unix::fs::symlink(path("elsewhere"), path("a/link")).unwrap();
        let since = WallNs((now - hour / 2).as_nanos() as i64);
        let mut search = Search::since(since);
        search.below(&path("a")).unwrap();
        search.below(&path("recording")).unwrap();
        let named = format!("--output-file={}", path("elsewhere/named.json").display());
        let folder = path("elsewhere").display().to_string();
        let words = ["bench", "--model", "m", &named, &folder].map(str::to_owned);
        // The current directory of a test is that of its crate, where nothing is new.
        search.of_command(&words).unwrap();
        assert!(!search.is_cut());
        let found: Vec<PathBuf> = search
            .found()
            .filter(|one| one.starts_with(dir.path()))
            .collect();
        assert_eq!(
            found,
            [path("a/b/c/new.jsonl"), path("elsewhere/named.json")]
        );
        search = Search::since(since);
        search.below(&path("nowhere")).unwrap_err();
    }

    #[test]
    fn a_folder_of_the_command_that_can_not_be_listed_is_passed_by() {
        use memtrace_host::{HostFacts, Person, SudoUser, as_person};
        use std::fs::{Permissions, set_permissions};
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("model");
        create_dir_all(&folder).unwrap();
        set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        set_permissions(&folder, Permissions::from_mode(0o311)).unwrap();
        // Root lists every folder.
        let mut facts = HostFacts::read();
        facts.sudo = Some(SudoUser {
            uid: 65_534,
            gid: 65_534,
            name: None,
        });
        let person = Person::behind(&facts, false);
        let mut search = Search::since(WallNs(0));
        as_person(person.as_ref(), || search.below(&folder)).unwrap_err();
        let words = ["serve".to_owned(), folder.display().to_string()];
        as_person(person.as_ref(), || search.of_command(&words)).unwrap();
    }
}
