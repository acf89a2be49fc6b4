//! The files of a recording that leave its host, for whoever carries them to a root.
//!
//! The recording may be somebody else's and still be written: its files are opened as all files
//! of a recording are, and what has no name of the layout stays where it is.

use super::checksum::seal_json;
use super::dir::Dir;
use super::error::StoreError;
use super::files::Files;
use super::layout::{DAMAGED, SPOOL, names_in, part_path, parts_of, table_and_seq};
use super::manifest::{MANIFEST, MAX_MANIFEST_BYTES, Manifest};
use super::problem::Problem;
use super::recording::Recording;
use super::room::remove_empty_folders;
use super::run_file::{RUN_FILE, contents, is_locked, open_dir, read};
use memtrace_model::{FINDINGS, PlaceName, RunInfo, RunState};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A table's name is no longer.
const TABLE_NAME_BYTES_MAX: usize = 64;

/// A folder that was changed so long ago shows by its time that it is changed again.
const SETTLED_NS: i128 = 2_000_000_000;

/// A recording whose files are carried somewhere else.
#[derive(Debug)]
pub struct Outgoing {
    dir: Arc<Dir>,
}

/// A part of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingPart {
    table: String,
    seq: u32,
    /// Bytes in it.
    pub size: u64,
}

/// What was found in folders of tables, and when those were last changed.
#[derive(Debug, Default)]
pub struct Looked {
    tables: HashMap<String, (i64, Vec<OutgoingPart>)>,
}

impl Looked {
    fn note(&mut self, table: String, modified_ns: Option<i64>, found: Vec<OutgoingPart>) {
        // The clock of a file system has steps: what changes once more within one shows nothing.
        let settled = jiff::Timestamp::now().as_nanosecond() - SETTLED_NS;
        match modified_ns.filter(|&modified_ns| i128::from(modified_ns) < settled) {
            Some(modified_ns) => self.tables.insert(table, (modified_ns, found)),
            None => self.tables.remove(&table),
        };
    }
}

impl Outgoing {
    /// Opens the directory of a recording.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        Ok(Self {
            dir: Arc::new(open_dir(dir)?),
        })
    }

    /// The recordings in a directory: itself, or those at `run=…/host=…/rec=…` below it, where it may
    /// be a whole root, a run or a host of it. What can't be opened is none.
    ///
    /// # Errors
    /// When there is no such directory.
    pub fn find(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
        let opened = open_dir(dir)?;
        if opened.inspect(Path::new(RUN_FILE)).is_ok() {
            return Ok(vec![dir.to_path_buf()]);
        }
        let mut found = Vec::new();
        walk(opened, &mut found);
        found.sort_unstable();
        Ok(found)
    }

    /// Whether a recorder writes to it at this moment. To be asked before the state is read: a
    /// recorder that closes it in between is then seen as alive, never as gone.
    pub fn is_live(&self) -> bool {
        is_locked(&self.dir)
    }

    /// Whether it is what somebody carries here of a recording that went on where that comes from:
    /// as [`Recording::is_open`](super::Recording::is_open) has it, of one to which no recorder
    /// here writes.
    pub fn is_open(&self, info: &RunInfo) -> bool {
        let has_spool = || self.dir.inspect(Path::new(SPOOL)).is_ok();
        info.place.is_some() && info.state == RunState::Recording && !has_spool()
    }

    /// Its `run.json`, and what that says.
    ///
    /// # Errors
    /// When it can't be read, or is of a schema that this version can't read.
    pub fn run_file(&self) -> Result<(Vec<u8>, RunInfo), StoreError> {
        let refused =
            |error| StoreError::io("read", &self.dir.full_path(Path::new(RUN_FILE)), error);
        // The recorder replaces it; what is sent has to be what is understood.
        loop {
            let json = contents(&self.dir).map_err(refused)?;
            let info = read(&self.dir)?.info;
            if contents(&self.dir).map_err(refused)? == json {
                return Ok((json, info));
            }
        }
    }

    /// Its `manifest.jsonl`, as it is now. Empty where it has none, as recordings of the first
    /// versions of memtrace, or where it is longer than a reader takes.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn manifest(&self) -> Result<Vec<u8>, StoreError> {
        let path = Path::new(MANIFEST);
        match self.dir.read_small(path, MAX_MANIFEST_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Ok(bytes) if bytes.len() as u64 > MAX_MANIFEST_BYTES => Ok(Vec::new()),
            read => read.map_err(|error| StoreError::io("read", &self.dir.full_path(path), error)),
        }
    }

    /// What is wrong with its files, as far as that shows without reading them: those that are missing.
    ///
    /// # Errors
    /// As [`Outgoing::run_file`].
    pub fn problems(&self) -> Result<Vec<Problem>, StoreError> {
        Ok(Recording::of(Arc::clone(&self.dir))?.problems())
    }

    /// The parts of its tables, as they are now.
    ///
    /// # Errors
    /// When the directory can't be listed.
    pub fn parts(&self) -> Result<Vec<OutgoingPart>, StoreError> {
        self.parts_again(&mut Looked::default())
    }

    /// The same for whoever has looked before: of a folder to which nothing came since, and from
    /// which nothing went, no file is looked at.
    ///
    /// # Errors
    /// As [`Outgoing::parts`].
    pub fn parts_again(&self, looked: &mut Looked) -> Result<Vec<OutgoingPart>, StoreError> {
        let mut tables: Vec<String> = names_in(&self.dir, Path::new(""))?
            .into_iter()
            .filter_map(|name| name.into_string().ok())
            .filter(|name| is_table_name(name))
            .collect();
        tables.sort_unstable();
        let mut parts = Vec::new();
        for table in tables {
            let folder = self.dir.inspect(Path::new(&table)).ok();
            let modified_ns = folder.map(|folder| folder.modified_ns);
            match looked.tables.get(&table) {
                Some((then_ns, known)) if Some(*then_ns) == modified_ns => {
                    parts.extend_from_slice(known);
                }
                _ => {
                    let found = self.parts_in(&table);
                    parts.extend_from_slice(&found);
                    looked.note(table, modified_ns, found);
                }
            }
        }
        Ok(parts)
    }

    fn parts_in(&self, table: &str) -> Vec<OutgoingPart> {
        // What is no folder has no parts.
        let numbers = parts_of(&self.dir, table).unwrap_or_default();
        let parts = numbers.into_iter().filter_map(|seq| {
            // A part of a table with a key goes when the recording is closed.
            let inspected = self.dir.inspect(&part_path(table, seq)).ok()?;
            Some(OutgoingPart {
                table: table.to_owned(),
                seq,
                size: inspected.size,
            })
        });
        parts.collect()
    }

    /// Opens a part.
    ///
    /// # Errors
    /// When it is gone, is no regular file, or the system refuses.
    pub fn open_part(&self, part: &OutgoingPart) -> io::Result<File> {
        self.dir.open_file(&part.path())
    }

    /// Removes these parts, `run.json`, and the directory where nothing else is in it. Says
    /// whether it is gone.
    ///
    /// # Errors
    /// When somebody else writes to it, or the system refuses.
    pub fn remove(self, parts: &[OutgoingPart]) -> io::Result<bool> {
        self.dir.lock()?;
        for part in parts {
            self.dir.remove_file(&part.path())?;
        }
        let mut folders: Vec<&str> = parts.iter().map(|part| part.table.as_str()).collect();
        folders.dedup();
        folders.push(SPOOL);
        for folder in folders {
            // What holds something else, or is not there, is left as it is.
            let _ = self.dir.remove_folder(Path::new(folder));
        }
        let own = [MANIFEST, RUN_FILE];
        let names = self.dir.names(Path::new(""))?;
        if names.iter().any(|name| own.iter().all(|own| name != own)) {
            return Ok(false);
        }
        for name in own
            .into_iter()
            .filter(|&own| names.iter().any(|name| name == own))
        {
            self.dir.remove_file(Path::new(name))?;
        }
        let path = self.dir.path();
        std::fs::remove_dir(path)?;
        remove_empty_folders(path);
        Ok(true)
    }
}

impl OutgoingPart {
    /// Its path in the recording: a folder and a name.
    pub fn path(&self) -> PathBuf {
        part_path(&self.table, self.seq)
    }

    /// Whether it has findings, which a report can save again. Other parts stay as they are, until one
    /// takes their place.
    pub fn is_of_findings(&self) -> bool {
        FINDINGS.iter().any(|table| table.name == self.table)
    }
}

/// The parts whose place another has taken, by what a manifest says.
#[derive(Debug)]
pub struct ReplacedParts(Option<Manifest>);

impl ReplacedParts {
    /// Those of the recording with an id, by the bytes of its manifest.
    pub fn of(manifest: &[u8], id: Option<&str>) -> Self {
        Self(id.and_then(|id| Manifest::of(manifest, id, &mut Vec::new())))
    }

    /// Whether a file is one of them, by its path in the recording, and the part that has its rows is
    /// among those that are there.
    pub fn contains(&self, path: &Path, is_there: impl Fn(&Path) -> bool) -> bool {
        let part = table_and_seq(path).filter(|&(table, seq)| part_path(table, seq) == path);
        let Some(((table, seq), manifest)) = part.zip(self.0.as_ref()) else {
            return false;
        };
        let by = std::iter::successors(Some(seq), |&seq| manifest.replaced_by(table, seq));
        by.skip(1).any(|by| is_there(&part_path(table, by)))
    }
}

/// A `run.json` of the same recording that says that it is not closed, for as long as not all of
/// it is where that file is.
///
/// # Errors
/// When it can't be written as JSON.
pub fn as_open(info: &RunInfo) -> serde_json::Result<Vec<u8>> {
    let mut json = serde_json::to_vec_pretty(&RunInfo {
        state: RunState::Recording,
        ..info.clone()
    })?;
    seal_json(&mut json);
    Ok(json)
}

/// Goes down folders of the layout, and through no link.
fn walk(dir: Dir, found: &mut Vec<PathBuf>) {
    for name in dir.names(Path::new("")).unwrap_or_default() {
        let Some(name) = name.to_str() else {
            continue;
        };
        let is_value = |value: &str| value.parse::<PlaceName>().is_ok();
        let has = |key: &str| name.strip_prefix(key).is_some_and(is_value);
        if !["run=", "host=", "rec="].into_iter().any(has) {
            continue;
        }
        let Ok(below) = dir.below(name) else {
            continue;
        };
        if !has("rec=") {
            walk(below, found);
        } else if below.inspect(Path::new(RUN_FILE)).is_ok() {
            found.push(below.path().to_path_buf());
        }
    }
}

fn is_table_name(name: &str) -> bool {
    let is_word = name
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    let is_short = (1..=TABLE_NAME_BYTES_MAX).contains(&name.len());
    is_word && is_short && ![SPOOL, DAMAGED].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_a_name_of_the_layout_leaves_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        for file in [
            "mem/part-00001.parquet",
            "mem/part-00002.parquet.tmp",
            "Mem/part-00001.parquet",
            "spool/mem-00002.arrows",
            "mem/secret",
        ] {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "1234").unwrap();
        }
        std::fs::write(other.path().join("part-00001.parquet"), "theirs").unwrap();
        std::os::unix::fs::symlink(other.path(), dir.path().join("oom")).unwrap();
        let link = dir.path().join("mem/part-00003.parquet");
        std::os::unix::fs::symlink(other.path().join("part-00001.parquet"), link).unwrap();
        let outgoing = Outgoing::open(dir.path()).unwrap();
        let parts = outgoing.parts().unwrap();
        let paths: Vec<String> = parts
            .iter()
            .map(|part| part.path().display().to_string())
            .collect();
        assert_eq!(paths, ["mem/part-00001.parquet", "mem/part-00003.parquet"]);
        assert_eq!(parts[0].size, 4);
        assert!(outgoing.open_part(&parts[0]).is_ok());
        let refused = outgoing.open_part(&parts[1]).unwrap_err().to_string();
        assert!(refused.contains("link"), "{refused}");
    }

    #[test]
    fn only_folders_that_have_changed_are_looked_through_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("mem");
        std::fs::create_dir(&folder).unwrap();
        let part = |number: u32| folder.join(format!("part-0000{number}.parquet"));
        std::fs::write(part(1), "1").unwrap();
        let outgoing = Outgoing::open(dir.path()).unwrap();
        let mut looked = Looked::default();
        let mut sizes = || -> Vec<u64> {
            let parts = outgoing.parts_again(&mut looked).unwrap();
            parts.iter().map(|part| part.size).collect()
        };
        assert_eq!(sizes(), [1]);
        // At once, where the time of the folder may be the same.
        std::fs::write(part(2), "22").unwrap();
        assert_eq!(sizes(), [1, 2]);
        let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3_600);
        let age = || File::open(&folder).unwrap().set_modified(hour_ago).unwrap();
        age();
        assert_eq!(sizes(), [1, 2]);
        std::fs::remove_file(part(2)).unwrap();
        age();
        assert_eq!(sizes(), [1, 2], "by its time it is the same");
        std::fs::write(part(3), "333").unwrap();
        assert_eq!(sizes(), [1, 3]);
        assert_eq!(outgoing.parts().unwrap().len(), 2);
    }

    #[test]
    fn what_was_carried_is_removed_and_all_else_stays() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("rec");
        std::fs::create_dir_all(dir.join("mem")).unwrap();
        std::fs::write(dir.join("mem/part-00001.parquet"), "1").unwrap();
        std::fs::write(dir.join("run.json"), "{}").unwrap();
        std::fs::write(dir.join("note"), "mine").unwrap();
        let removed = || {
            let outgoing = Outgoing::open(&dir).unwrap();
            let parts = outgoing.parts().unwrap();
            outgoing.remove(&parts).unwrap()
        };
        assert!(!removed());
        assert!(dir.join("run.json").exists() && dir.join("note").exists());
        std::fs::remove_file(dir.join("note")).unwrap();
        assert!(removed() && !dir.exists());
    }
}
