//! The recordings of jobs of many hosts below one root, `ROOT/run=ID/host=NAME/rec=START`: which
//! there are, and opening one. No link below the root is followed.

use super::dir::Dir;
use super::error::StoreError;
use super::folder::Folder;
use super::recording::Recording;
use super::remote::RemoteReader;
use super::run_file::RUN_FILE;
use memtrace_model::{Order, PlaceName};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const RUN: &str = "run=";
const HOST: &str = "host=";
const REC: &str = "rec=";

/// A folder of recordings of many hosts: a whole root, one run of it, or one host of a run.
#[derive(Debug)]
pub struct Root {
    folder: Folder,
    level: Level,
}

/// What a folder is, and so what the names in it mean.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Level {
    Root,
    Run { run: String },
    Host { run: String, host: String },
}

/// Where a recording lies below a root: which run it is of, which host it is of, and when that began.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placed {
    /// The name of the run.
    pub run: String,
    /// The name of the host.
    pub host: String,
    /// The recording: the UTC time of its start.
    pub rec: String,
}

/// A run and when the newest of its recordings began.
pub type NewestOf = (String, String);

impl Root {
    /// The folder of recordings at a path, or of a run below it; `None` where there is something
    /// else, such as a recording. Where there is no such run it is the folder itself.
    ///
    /// # Errors
    /// When the directory can't be listed.
    pub fn open(path: &Path, run: Option<&str>) -> Result<Option<Self>, StoreError> {
        let Ok(dir) = Dir::open(path) else {
            return Ok(None);
        };
        let path = path.canonicalize();
        Self::of(Folder::Dir(Arc::new(dir)), &path.unwrap_or_default(), run)
    }

    /// The same at an address.
    ///
    /// # Errors
    /// When it can't be listed.
    pub fn open_remote(
        reader: Arc<RemoteReader>,
        run: Option<&str>,
    ) -> Result<Option<Self>, StoreError> {
        let path = PathBuf::from(reader.address());
        let below = String::new();
        Self::of(Folder::Remote { reader, below }, &path, run)
    }

    fn of(folder: Folder, path: &Path, run: Option<&str>) -> Result<Option<Self>, StoreError> {
        match run.and_then(|run| Self::of_run(&folder, run)) {
            Some(of_run) => Ok(Some(of_run)),
            None => Self::of_folder(folder, path),
        }
    }

    /// A run of a root. Others are not looked at: a bucket may have very many.
    fn of_run(root: &Folder, run: &str) -> Option<Self> {
        let name = run.parse::<PlaceName>().ok()?;
        let folder = root.below(&format!("{RUN}{name}")).ok()?;
        let names = folder.names().ok()?;
        let has_hosts = names.iter().any(|name| key_part(name, HOST).is_some());
        let run = run.to_owned();
        has_hosts.then_some(Self {
            folder,
            level: Level::Run { run },
        })
    }

    fn of_folder(folder: Folder, path: &Path) -> Result<Option<Self>, StoreError> {
        let names = folder.names()?;
        if names.iter().any(|name| name == RUN_FILE) {
            return Ok(None);
        }
        let has = |prefix: &str| names.iter().any(|name| key_part(name, prefix).is_some());
        let above = |levels: usize, prefix: &str| {
            let name = path.ancestors().nth(levels)?.file_name()?.to_str()?;
            key_part(name, prefix).map(str::to_owned)
        };
        let unnamed = String::new;
        let level = if has(RUN) {
            Level::Root
        } else if has(HOST) {
            let run = above(0, RUN).unwrap_or_else(unnamed);
            Level::Run { run }
        } else if has(REC) {
            let run = above(1, RUN).unwrap_or_else(unnamed);
            let host = above(0, HOST).unwrap_or_else(unnamed);
            Level::Host { run, host }
        } else {
            return Ok(None);
        };
        Ok(Some(Self { folder, level }))
    }

    /// What the runs are called, whether or not they have recordings.
    ///
    /// # Errors
    /// When the folder can't be listed.
    pub fn run_names(&self) -> Result<Vec<String>, StoreError> {
        Ok(match &self.level {
            Level::Root => key_parts(&self.folder, RUN)?,
            Level::Run { run } | Level::Host { run, .. } => vec![run.clone()],
        })
    }

    /// The runs and, of each, when the newest of its recordings began: the newest run first. And
    /// what could not be listed of those without a recording.
    ///
    /// # Errors
    /// When the folder can't be listed.
    pub fn runs(&self) -> Result<(Vec<NewestOf>, Vec<StoreError>), StoreError> {
        let (mut runs, mut refused) = (Vec::new(), Vec::new());
        for run in self.run_names()? {
            match self.recordings(&run) {
                Ok((places, of_hosts)) => match places.into_iter().map(|place| place.rec).max() {
                    Some(newest) => runs.push((run, newest)),
                    None => refused.extend(of_hosts),
                },
                // What is no run's folder can't be listed as one.
                Err(error) => refused.push(error),
            }
        }
        runs.order_by(|a, b| (&b.1, &b.0).cmp(&(&a.1, &a.0)));
        Ok((runs, refused))
    }

    /// The recordings of a run, in order, and why a host has none where its folder can't be
    /// listed.
    ///
    /// # Errors
    /// When the folder of the run can't be listed.
    pub fn recordings(&self, run: &str) -> Result<(Vec<Placed>, Vec<StoreError>), StoreError> {
        let placed = |folder: &Folder, host: &str| {
            let recs = key_parts(folder, REC)?.into_iter();
            let placed = recs.map(|rec| Placed {
                run: run.to_owned(),
                host: host.to_owned(),
                rec,
            });
            Ok::<Vec<Placed>, StoreError>(placed.collect())
        };
        let of_run;
        let folder = match &self.level {
            Level::Host { host, .. } => {
                let mut places = placed(&self.folder, host)?;
                places.sort_unstable();
                return Ok((places, Vec::new()));
            }
            Level::Run { .. } => &self.folder,
            Level::Root => {
                of_run = self.folder.below(&format!("{RUN}{run}"))?;
                &of_run
            }
        };
        let (mut places, mut refused) = (Vec::new(), Vec::new());
        for host in key_parts(folder, HOST)? {
            let of_host = folder.below(&format!("{HOST}{host}"));
            match of_host.and_then(|folder| placed(&folder, &host)) {
                Ok(of_host) => places.extend(of_host),
                Err(error) => refused.push(error),
            }
        }
        places.sort_unstable();
        Ok((places, refused))
    }

    /// Opens one of its recordings.
    ///
    /// # Errors
    /// When it is none, or one of a schema that this version can't read.
    pub(super) fn recording(&self, place: &Placed) -> Result<Recording, StoreError> {
        let mut folder = self.folder.clone();
        for name in self.folders(place) {
            folder = folder.below(&name)?;
        }
        folder.recording()
    }

    /// Where one of its recordings is, as a person would name it.
    pub fn path_of(&self, place: &Placed) -> PathBuf {
        below(self.folder.path(), self.folders(place))
    }

    /// The same by the path of a root alone, of a run in it or of a host of that.
    pub fn path_below(path: &Path, place: &Placed) -> PathBuf {
        let name = path.file_name().and_then(|name| name.to_str());
        let is = |prefix: &str| name.is_some_and(|name| key_part(name, prefix).is_some());
        let above = match () {
            () if is(RUN) => 1,
            () if is(HOST) => 2,
            () => 0,
        };
        below(path.to_owned(), folders(place).into_iter().skip(above))
    }

    fn folders(&self, place: &Placed) -> Vec<String> {
        let above = match self.level {
            Level::Root => 0,
            Level::Run { .. } => 1,
            Level::Host { .. } => 2,
        };
        folders(place).into_iter().skip(above).collect()
    }
}

impl Placed {
    /// The place of a recording by its path, where that has the names of one below a root.
    pub fn of_path(path: &Path) -> Option<Self> {
        // An address is no path of this machine, and has the same names.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let part = |levels: usize, prefix: &str| {
            let name = path.ancestors().nth(levels)?.file_name()?.to_str()?;
            key_part(name, prefix).map(str::to_owned)
        };
        Some(Self {
            run: part(2, RUN)?,
            host: part(1, HOST)?,
            rec: part(0, REC)?,
        })
    }
}

/// The names of the folders that a recording is in.
fn folders(place: &Placed) -> [String; 3] {
    [
        format!("{RUN}{}", place.run),
        format!("{HOST}{}", place.host),
        format!("{REC}{}", place.rec),
    ]
}

fn below(path: PathBuf, names: impl IntoIterator<Item = String>) -> PathBuf {
    names.into_iter().fold(path, |path, name| path.join(name))
}

fn key_parts(folder: &Folder, prefix: &str) -> Result<Vec<String>, StoreError> {
    let names = folder.names()?;
    let parts = names.iter().filter_map(|name| key_part(name, prefix));
    Ok(parts.map(str::to_owned).collect())
}

/// What stands behind `run=` and the like, where it is a name as those have it.
fn key_part<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    let part = name.strip_prefix(prefix)?;
    part.parse::<PlaceName>().is_ok().then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        dir
    }

    #[test]
    fn the_newest_run_comes_first_and_a_run_or_a_host_is_found_by_its_own_folder() {
        let dir = root(&[
            "run=a/host=n1/rec=20261123T121913Z",
            "run=a/host=n1/rec=20261123T131913Z",
            "run=a/host=n2/rec=20261123T121914Z",
            "run=b/host=n1/rec=20261122T000000Z",
            "run=-no/host=n1/rec=20270101T000000Z",
            "run=c",
            "other",
        ]);
        let root = Root::open(dir.path(), None).unwrap().expect("a root");
        let (runs, _) = root.runs().unwrap();
        let names: Vec<&str> = runs.iter().map(|(run, _)| &**run).collect();
        assert_eq!(names, ["a", "b"]);
        let (all, _) = root.recordings("a").unwrap();
        assert_eq!(all.len(), 3);
        for (below, count) in [("run=a", 3), ("run=a/host=n1", 2)] {
            let part = Root::open(&dir.path().join(below), None)
                .unwrap()
                .expect("one");
            let (places, _) = part.recordings("a").unwrap();
            assert_eq!(places, all[..count], "{below}");
            assert_eq!(part.runs().unwrap().0[0].0, "a");
            let paths = places.iter().map(|place| part.path_of(place));
            assert!(paths.into_iter().all(|path| path.is_dir()));
        }
        let by_name = Root::open(dir.path(), Some("a")).unwrap().expect("a run");
        assert_eq!(by_name.run_names().unwrap(), ["a"]);
        assert_eq!(by_name.recordings("a").unwrap().0, all);
        for absent in ["c", "nowhere", "../other"] {
            let whole = Root::open(dir.path(), Some(absent)).unwrap();
            assert_eq!(whole.expect("the root").run_names().unwrap().len(), 3);
        }
        let path = dir.path().join("run=a/host=n2/rec=20261123T121914Z");
        assert_eq!(Placed::of_path(&path).as_ref(), all.last());
    }

    #[test]
    fn a_recording_is_no_root_and_a_link_is_not_followed() {
        let dir = root(&["run=a/host=n1/rec=20261123T121913Z", "rec"]);
        std::fs::write(dir.path().join("rec/run.json"), "{}").unwrap();
        assert!(Root::open(&dir.path().join("rec"), None).unwrap().is_none());
        assert!(
            Root::open(&dir.path().join("nowhere"), None)
                .unwrap()
                .is_none()
        );
        let link = dir.path().join("run=a/host=n2");
        std::os::unix::fs::symlink(dir.path().join("run=a/host=n1"), link).unwrap();
        let root = Root::open(dir.path(), None).unwrap().expect("a root");
        let (places, refused) = root.recordings("a").unwrap();
        assert_eq!((places.len(), refused.len()), (1, 1));
        std::fs::remove_dir_all(dir.path().join("run=a/host=n1")).unwrap();
        let (runs, refused_runs) = root.runs().unwrap();
        assert_eq!(
            (runs.len(), refused_runs.len()),
            (0, 1),
            "the reason is reported"
        );
        let cause = std::error::Error::source(&refused[0]).map(ToString::to_string);
        assert!(cause.is_some_and(|cause| cause.contains("link")));
    }
}
