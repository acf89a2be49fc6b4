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
pub struct Recordings(Mutex<BTreeMap<PathBuf, Opened>>);

/// What is known of one that was opened.
#[derive(Debug, Default)]
struct Opened {
    problems: Problems,
    is_cut_off: bool,
}

impl Recordings {
    /// Opens the recording in a directory.
    ///
    /// # Errors
    /// When the directory holds no recording, or one of a schema that this version can't
    /// read.
    pub fn open(&self, dir: &Path) -> Result<Recording, StoreError> {
        let recording = Recording::open(dir)?;
        self.note(dir, &recording);
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
        self.note(recording.dir(), &recording);
        Ok(recording)
    }

    /// Opens a recording below a root.
    ///
    /// # Errors
    /// As for a directory.
    pub fn open_placed(&self, root: &Root, place: &Placed) -> Result<Recording, StoreError> {
        let recording = root.recording(place)?;
        self.note(&root.path_of(place), &recording);
        Ok(recording)
    }

    /// Begins with a recording's first row, and goes on as it grows.
    ///
    /// # Errors
    /// As for a directory.
    pub fn follow(&self, dir: &Path) -> Result<Tail, StoreError> {
        let tail = Tail::open(dir)?;
        let opened = Opened {
            problems: tail.problem_list(),
            is_cut_off: tail.was_cut_off(),
        };
        self.lock().insert(dir.to_path_buf(), opened);
        Ok(tail)
    }

    /// Notes that a recording is left out of what it was asked for, and why.
    pub fn note_unread(&self, path: &Path, reason: String) {
        let mut opened = self.lock();
        let opened = opened.entry(path.to_path_buf()).or_default();
        opened
            .problems
            .note(Path::new("recording"), ProblemKind::Unreadable { reason });
    }

    fn note(&self, path: &Path, recording: &Recording) {
        let opened = Opened {
            problems: recording.problem_list(),
            is_cut_off: recording.is_cut_off(),
        };
        self.lock().insert(path.to_path_buf(), opened);
    }

    /// Those whose recorder was gone before it closed them, when they were opened: what it had not
    /// written by then is in no file, so no problem tells.
    pub fn cut_off(&self) -> Vec<PathBuf> {
        let opened = self.lock();
        let cut_off = opened.iter().filter(|(_, opened)| opened.is_cut_off);
        cut_off.map(|(path, _)| path.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Opened>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was wrong with any of them so far, each with the path of its recording: damage shows only
    /// where something is read.
    pub fn problems(&self) -> Vec<(PathBuf, Problem)> {
        let opened = self.lock();
        let of = |(path, opened): (&PathBuf, &Opened)| {
            let path = path.clone();
            opened
                .problems
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
