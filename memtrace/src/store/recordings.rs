//! The only way to a recording: who opens one is known, and what was wrong with it.

use super::error::StoreError;
use super::problem::{Problem, Problems};
use super::recording::Recording;
use super::remote::RemoteReader;
use super::root::{Placed, Root};
use super::tail::Tail;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The recordings that a program opens. None is had but from here, so that what of any of them could
/// not be read, or is missing, can be told when it has been read, whatever was asked of it.
#[derive(Debug, Default)]
pub struct Recordings(Mutex<Vec<Opened>>);

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    problems: Problems,
}

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

    fn note(&self, path: &Path, problems: Problems) {
        let path = path.to_path_buf();
        self.list().push(Opened { path, problems });
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Opened>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was wrong with any of them so far, each with the path of its recording: damage shows only
    /// where something is read.
    pub fn problems(&self) -> Vec<(PathBuf, Problem)> {
        let mut all: Vec<(PathBuf, Problem)> = Vec::new();
        for opened in self.list().iter() {
            for problem in opened.problems.list() {
                let known = (opened.path.clone(), problem);
                if !all.contains(&known) {
                    all.push(known);
                }
            }
        }
        all
    }

    /// How many were opened, each once.
    pub fn count(&self) -> usize {
        let list = self.list();
        let paths: BTreeSet<&Path> = list.iter().map(|opened| &*opened.path).collect();
        paths.len()
    }
}
