//! A recording at an address, read by a program of its own that speaks with the network:
//! memtrace itself opens no connection.
//!
//! What is asked is a line of JSON; what is answered is one too, and behind it as many bytes as it
//! says. One question is under way at a time.

use super::error::StoreError;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The end of a part is read in one go: its footer is there, and of a small part all.
const TAIL_BYTES: u64 = 64 << 10;
/// Ends of parts are kept, because a table is read more than once, up to so much.
const KEPT_TAILS_BYTES: usize = 16 << 20;
/// What is asked for at a time, in questions of [`QUESTION_BYTES`].
const MAX_BYTES: u64 = 1 << 29;
/// The line of an answer is a listing at the longest.
const MAX_LINE_BYTES: u64 = 128 << 20;

/// A question asks for no more bytes, so that whoever answers holds no more. Each range counts with
/// [`NEAR_BYTES`] more.
pub const QUESTION_BYTES: u64 = 16 << 20;
/// A gap of so much between two ranges is read along: that takes no longer than a request more.
pub const NEAR_BYTES: u64 = 64 << 10;

/// What ranges count as in a question.
pub fn asked_bytes(ranges: &[Range<u64>]) -> u64 {
    let lengths = ranges
        .iter()
        .map(|range| range.end.saturating_sub(range.start));
    let each = lengths.map(|length| length.saturating_add(NEAR_BYTES));
    each.fold(0, u64::saturating_add)
}

/// The same ranges, a question for each, none of which asks for too much: a long range is cut.
fn questions(ranges: &[Range<u64>]) -> Vec<Vec<Range<u64>>> {
    let longest = QUESTION_BYTES - NEAR_BYTES;
    let mut questions: Vec<Vec<Range<u64>>> = Vec::new();
    let mut left = 0_u64;
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let piece = start..range.end.min(start.saturating_add(longest));
            start = piece.end;
            let cost_bytes = asked_bytes(slice::from_ref(&piece));
            match (left.checked_sub(cost_bytes), questions.last_mut()) {
                (Some(less), Some(question)) => {
                    left = less;
                    question.push(piece);
                }
                _ => {
                    left = QUESTION_BYTES - cost_bytes;
                    questions.push(vec![piece]);
                }
            }
        }
    }
    questions
}

/// What is asked of an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Which files there are below a path, in all its folders.
    Files {
        /// Relative to the address; empty for that itself.
        below: String,
    },
    /// Which folders there are in a folder.
    Folders {
        /// Relative to the address; empty for that itself.
        of: String,
    },
    /// Bytes of a file.
    Bytes {
        /// Relative to the address.
        file: String,
        /// Which, in order.
        ranges: Vec<Range<u64>>,
    },
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The files that are there.
    Files(Vec<FileThere>),
    /// The names of the folders.
    Folders(Vec<String>),
    /// So many bytes come behind the line: those of all ranges, one after the other.
    Bytes(u64),
    /// It can't be answered, and why.
    Refused {
        /// Whether that is because it does not exist.
        is_absent: bool,
        /// In words for the person.
        why: String,
    },
}

/// A file that there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileThere {
    /// Relative to what was asked for.
    pub path: String,
    /// Bytes in it.
    pub size: u64,
    /// When it was written, in ns since the Unix epoch.
    pub modified_ns: i64,
}

/// A program that reads an address.
#[derive(Debug)]
pub struct RemoteReader {
    address: String,
    line: Mutex<Line>,
}

#[derive(Debug)]
struct Line {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl RemoteReader {
    /// Starts the program that is to read an address.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn start(mut program: Command, address: &str) -> io::Result<Self> {
        program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = program.spawn()?;
        let questions = child.stdin.take();
        let answers = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self {
            address: address.trim_end_matches('/').to_owned(),
            line: Mutex::new(Line {
                child,
                questions,
                answers: BufReader::new(answers),
            }),
        })
    }

    /// The address that is read.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The names of the folders in a folder.
    ///
    /// # Errors
    /// When it can't be asked, or refuses.
    pub fn folders(&self, of: &str) -> io::Result<Vec<String>> {
        match self.ask(&Ask::Folders { of: of.to_owned() })?.0 {
            Answer::Folders(names) => Ok(names),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn files(&self, below: &str) -> io::Result<Vec<FileThere>> {
        let below = below.to_owned();
        match self.ask(&Ask::Files { below })?.0 {
            Answer::Files(files) => Ok(files),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The bytes of ranges.
    fn bytes(&self, file: &str, ranges: &[Range<u64>]) -> io::Result<Vec<Bytes>> {
        let lengths = ranges
            .iter()
            .map(|range| range.end.checked_sub(range.start));
        let wanted = lengths.sum::<Option<u64>>().filter(|sum| *sum <= MAX_BYTES);
        let wanted = wanted.ok_or(io::ErrorKind::InvalidData)?;
        let mut all = Vec::with_capacity(wanted as usize);
        for ranges in questions(ranges) {
            let file = file.to_owned();
            match self.ask(&Ask::Bytes { file, ranges })? {
                (Answer::Bytes(_), bytes) => all.extend_from_slice(&bytes),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        if all.len() as u64 != wanted {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = Bytes::from(all);
        let parts = ranges.iter().map(|range| {
            let length = (range.end - range.start) as usize;
            bytes.split_to(length)
        });
        Ok(parts.collect())
    }

    fn ask(&self, ask: &Ask) -> io::Result<(Answer, Bytes)> {
        let mut line = lock(&self.line);
        let answered = line.ask(ask);
        let gone = |error: io::Error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => {
                io::Error::other("the program that reads addresses has ended")
            }
            _ => error,
        };
        match answered.map_err(gone)? {
            (Answer::Refused { is_absent, why }, _) => Err(match is_absent {
                true => io::Error::new(io::ErrorKind::NotFound, why),
                false => io::Error::other(why),
            }),
            answered => Ok(answered),
        }
    }
}

impl Line {
    fn ask(&mut self, ask: &Ask) -> io::Result<(Answer, Bytes)> {
        let questions = self.questions.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut question = serde_json::to_vec(ask)?;
        question.push(b'\n');
        questions.write_all(&question)?;
        questions.flush()?;
        let mut line = Vec::new();
        let mut answers = (&mut self.answers).take(MAX_LINE_BYTES);
        answers.read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let answer = serde_json::from_slice(&line)?;
        let length = match answer {
            Answer::Bytes(length) if length <= QUESTION_BYTES => length,
            Answer::Bytes(_) => return Err(io::ErrorKind::InvalidData.into()),
            _ => 0,
        };
        let mut bytes = vec![0; length as usize];
        self.answers.read_exact(&mut bytes)?;
        Ok((answer, bytes.into()))
    }
}

impl Drop for RemoteReader {
    fn drop(&mut self) {
        let line = self.line.get_mut();
        let line = line.unwrap_or_else(PoisonError::into_inner);
        // Without questions it ends.
        drop(line.questions.take());
        let _ = line.child.wait();
    }
}

type Listing = BTreeMap<PathBuf, FileThere>;

/// The files of one recording at an address, as they were when it was opened, or looked at again.
#[derive(Debug)]
pub(super) struct Remote {
    reader: Arc<RemoteReader>,
    /// The recording's path below the address.
    below: String,
    /// That and the address, for messages.
    path: PathBuf,
    files: Mutex<Listing>,
    tails: Mutex<HashMap<PathBuf, Bytes>>,
    /// What could not be asked.
    failure: Mutex<Option<(PathBuf, io::Error)>>,
}

impl Remote {
    /// Opens the recording that is below an address at a path.
    pub(super) fn open(reader: Arc<RemoteReader>, below: &str) -> Result<Self, StoreError> {
        let address = PathBuf::from(reader.address());
        let path = match below {
            "" => address,
            below => address.join(below),
        };
        let remote = Self {
            below: below.to_owned(),
            files: Mutex::default(),
            path,
            reader,
            tails: Mutex::default(),
            failure: Mutex::default(),
        };
        remote.look_again()?;
        Ok(remote)
    }

    /// Lists anew what is there.
    pub(super) fn look_again(&self) -> Result<(), StoreError> {
        let listed = match self.reader.files(&self.below) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            listed => listed.map_err(|error| StoreError::io("open", &self.path, error))?,
        };
        let files = listed
            .into_iter()
            .map(|file| (PathBuf::from(&file.path), file));
        *lock(&self.files) = files.collect();
        lock(&self.tails).clear();
        *lock(&self.failure) = None;
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// As [`Dir`](super::dir::Dir) has them: of files, and of the folders above them.
    pub(super) fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let files = lock(&self.files);
        let inside = files
            .keys()
            .filter_map(|path| path.strip_prefix(folder).ok());
        let names: BTreeSet<OsString> = inside
            .filter_map(|path| Some(path.components().next()?.as_os_str().to_owned()))
            .collect();
        match names.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(names.into_iter().collect()),
        }
    }

    pub(super) fn read_small(&self, path: &Path, max: u64) -> io::Result<Vec<u8>> {
        let size = self.file(path)?.size.min(max + 1);
        Ok(self.read(path, slice::from_ref(&(0..size)))?.concat())
    }

    pub(super) fn modified_ns(&self, path: &Path) -> io::Result<i64> {
        Ok(self.file(path)?.modified_ns)
    }

    /// How long a file is.
    pub(super) fn len(&self, path: &Path) -> io::Result<u64> {
        Ok(self.file(path)?.size)
    }

    /// Bytes of a part, in one request; those at its end are kept.
    pub(super) fn read(&self, path: &Path, ranges: &[Range<u64>]) -> io::Result<Vec<Bytes>> {
        let len = self.len(path)?;
        let tail_start = len.saturating_sub(TAIL_BYTES);
        let at_end = ranges.iter().all(|range| range.start >= tail_start);
        if !at_end {
            return self.fetch(path, ranges);
        }
        let kept = lock(&self.tails).get(path).cloned();
        let tail = match kept {
            Some(tail) => tail,
            None => {
                let fetched = self.fetch(path, slice::from_ref(&(tail_start..len)))?;
                let tail = fetched.into_iter().next().unwrap_or_default();
                let mut tails = lock(&self.tails);
                if tails.values().map(Bytes::len).sum::<usize>() > KEPT_TAILS_BYTES {
                    tails.clear();
                }
                tails.insert(path.to_path_buf(), tail.clone());
                tail
            }
        };
        let within = |range: &Range<u64>| {
            let from = (range.start - tail_start) as usize;
            let to = range.end.checked_sub(tail_start).map(|to| to as usize);
            let to = to.filter(|to| (from..=tail.len()).contains(to));
            Ok(tail.slice(from..to.ok_or(io::ErrorKind::UnexpectedEof)?))
        };
        ranges.iter().map(within).collect()
    }

    fn fetch(&self, path: &Path, ranges: &[Range<u64>]) -> io::Result<Vec<Bytes>> {
        let file = match self.below.is_empty() {
            true => path.to_string_lossy().into_owned(),
            false => format!("{}/{}", self.below, path.display()),
        };
        self.reader.bytes(&file, ranges).inspect_err(|error| {
            let mut failure = lock(&self.failure);
            let again = io::Error::new(error.kind(), error.to_string());
            failure.get_or_insert((path.to_path_buf(), again));
        })
    }

    /// That all that was asked for was answered.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let mut failure = lock(&self.failure);
        match failure.take() {
            Some((path, error)) => Err(StoreError::io("read", &self.path.join(path), error)),
            None => Ok(()),
        }
    }

    fn file(&self, path: &Path) -> io::Result<FileThere> {
        let file = lock(&self.files).get(path).cloned();
        file.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_question_asks_for_too_much_and_all_ranges_are_asked_for_in_order() {
        let ranges = [
            0..10,
            10..(40 << 20),
            u64::MAX - 5..u64::MAX,
            7..7,
            100..(17 << 20),
        ];
        let questions = questions(&ranges);
        assert!(questions.len() >= 4, "{questions:?}");
        assert!(
            questions
                .iter()
                .all(|one| asked_bytes(one) <= QUESTION_BYTES)
        );
        let mut pieces = questions.into_iter().flatten();
        for range in ranges.into_iter().filter(|range| !range.is_empty()) {
            let mut reached = range.start;
            while reached < range.end {
                let piece = pieces.next().unwrap();
                assert_eq!(piece.start, reached);
                reached = piece.end;
            }
            assert_eq!(reached, range.end);
        }
        assert_eq!(pieces.next(), None);
        let many: Vec<_> = (0..1_000)
            .map(|at| at * 1_000_000..at * 1_000_000 + 1)
            .collect();
        assert_eq!(super::questions(&many).len(), 4);
    }
}
