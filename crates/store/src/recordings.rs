//! The only way to a recording: who opens one is known, and what was wrong with it.

use super::error::StoreError;
use super::problem::{Problem, ProblemKind, Problems};
use super::recording::Recording;
use super::remote::RemoteReader;
use super::root::{Placed, Root};
use super::tail::Tail;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The recordings that a program opens. None is had but from here, so that what of any of them could
/// not be read, or is missing, can be reported when it has been read, whatever was asked of it. Of one that
/// is opened again and again while it grows, the last time counts: what was half written has come.
#[derive(Debug, Default)]
pub struct Recordings(Mutex<BTreeMap<PathBuf, Problems>>);

impl Recordings {
    /// Opens the recording in a directory.
    ///
    /// # Errors
    /// When the directory holds no recording, or one of a schema that this version can't
    /// read.
    pub fn open(&self, dir: &Path) -> Result<Recording, StoreError> {
        let recording = Recording::open(dir)?;
        self.note(dir, recording.problem_list());
        Ok(recording)
    }

    /// Opens the recording at an address; `below` is its path there, empty for the address itself.
    ///
    /// # Errors
    /// As for a directory.
    pub fn open_remote(
        &self,
        reader: Arc<RemoteReader>,
        below: &str,
    ) -> Result<Recording, StoreError> {
        let recording = Recording::open_remote(reader, below)?;
        self.note(recording.dir(), recording.problem_list());
        Ok(recording)
    }

    /// Opens a recording below a root.
    ///
    /// # Errors
    /// As for a directory.
    pub fn open_placed(&self, root: &Root, place: &Placed) -> Result<Recording, StoreError> {
        let recording = root.recording(place)?;
        self.note(&root.path_of(place), recording.problem_list());
        Ok(recording)
    }

    /// Begins with a recording's first row, and goes on as it grows.
    ///
    /// # Errors
    /// As for a directory.
    pub fn follow(&self, dir: &Path) -> Result<Tail, StoreError> {
        let tail = Tail::open(dir)?;
        self.note(dir, tail.problem_list());
        Ok(tail)
    }

    /// Notes that a recording is left out of what it was asked for, and why.
    pub fn note_unread(&self, path: &Path, reason: String) {
        let mut opened = self.lock();
        let problems = opened.entry(path.to_path_buf()).or_default();
        problems.note(Path::new("recording"), ProblemKind::Unreadable { reason });
    }

    fn note(&self, path: &Path, problems: Problems) {
        self.lock().insert(path.to_path_buf(), problems);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Problems>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was wrong with any of them so far, each with the path of its recording: damage shows only
    /// where something is read.
    pub fn problems(&self) -> Vec<(PathBuf, Problem)> {
        let opened = self.lock();
        let of = |(path, problems): (&PathBuf, &Problems)| {
            let path = path.clone();
            problems
                .list()
                .into_iter()
                .map(move |one| (path.clone(), one))
        };
        opened.iter().flat_map(of).collect()
    }

    /// How many were opened.
    pub fn count(&self) -> usize {
        self.lock().len()
    }
}
