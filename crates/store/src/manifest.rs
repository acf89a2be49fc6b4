//! `manifest.jsonl`: the files of rows that a recording has, so that one that is missing, doubled,
//! exchanged or of another recording is known.
//!
//! It only grows, by a line of JSON for each segment that is begun and each part that is made; a part
//! that has taken the place of earlier ones says so. Each line has its checksum. The first
//! names the recording, whose id stands in `run.json` and in each file of rows too; one that is closed
//! ends with a line that says so.
//!
//! A part is named here once it has its name, and a segment goes after that: whatever interrupts a
//! recorder, no file is missing that is named here. A part that the recorder could not name any more
//! is known by its id, and its number, which is above all that are named.

use super::checksum::{Checked, check_json};
use super::error::StoreError;
use super::files::Files;
use super::layout::{SPOOL, names_in, part_path, parts_of, segment_path, segments_among};
use super::problem::{MAX_PROBLEMS, ProblemKind};
use memtrace_model::{Bytes, RunInfo, TABLES};
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};

/// The name of the file.
pub const MANIFEST: &str = "manifest.jsonl";

/// Half a million files of rows.
pub(super) const MAX_MANIFEST_BYTES: u64 = 128 << 20;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub(super) enum Line {
    /// Whose files these are; the first line.
    Recording {
        /// As in `run.json`.
        id: String,
    },
    /// A segment was begun.
    Segment { table: String, seq: u32 },
    /// A segment was to go into a part, and was not there.
    Lost { table: String, seq: u32 },
    /// A part was made, or is about to take the place of the one of its number.
    Part {
        table: String,
        seq: u32,
        /// What is in it.
        #[serde(flatten)]
        facts: PartFacts,
        /// What it stands for.
        #[serde(flatten)]
        replaced: PartReplaced,
    },
    /// The recording was closed. Behind it are parts of rows that were added since.
    Closed {},
}

/// What a part stands for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct PartReplaced {
    /// Segments with a number up to its own of which rows are in no part yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) segments: Vec<u32>,
    /// The parts from this number on up to its own are in it, and go.
    #[serde(
        default,
        alias = "replaces_before",
        deserialize_with = "first_replaced",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) replaces_from: Option<u32>,
}

/// Recordings up to version 2.6 only say whether all earlier parts are replaced.
fn first_replaced<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum First {
        All(bool),
        Number(u32),
    }
    Ok(match First::deserialize(deserializer)? {
        First::All(all) => all.then_some(0),
        First::Number(first) => Some(first),
    })
}

/// What tells one part from another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PartFacts {
    /// Rows in it.
    pub(super) rows: u64,
    /// The size of its file, in bytes.
    pub(super) bytes: u64,
    /// The `boot_ns` of its first row; of a table in order of time that has rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) first_boot_ns: Option<i64>,
    /// That of its last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_boot_ns: Option<i64>,
    /// The checksum of its footer, in which those of its columns stand.
    pub(super) footer_crc32: String,
}

/// An id for a recording: of its host and the clocks of its start, which no other has to the
/// nanosecond.
pub(super) fn id_of(info: &RunInfo) -> String {
    let start = info.clocks.first();
    let start = start.map(|clock| (clock.boot_ns, clock.monotonic_ns, clock.wall_ns));
    let digest = Sha256::digest(format!("{} {start:?}", info.hostname));
    let bytes = digest.iter().take(16);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// What a manifest says.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    tables: HashMap<String, Listed>,
    is_closed: bool,
    /// Whether all of its lines could be read.
    is_whole: bool,
    /// Where its last whole line ends.
    len: u64,
}

/// The files of one table.
#[derive(Debug, Default)]
struct Listed {
    /// By their numbers. One that took the place of another has what is in either: rows that are
    /// added are named before they are there.
    parts: BTreeMap<u32, Vec<PartFacts>>,
    /// Numbers of parts that were replaced: from the key on, up to the value, which replaced them.
    replaced: BTreeMap<u32, u32>,
    /// Segments that have rows which are in no part.
    segments: BTreeSet<u32>,
    lost: Vec<u32>,
}

/// What a line changes of the segments of its table that have rows which are in no part.
pub(super) fn note_segments(segments: &mut BTreeSet<u32>, line: &Line) {
    match line {
        Line::Segment { seq, .. } => drop(segments.insert(*seq)),
        Line::Lost { seq, .. } => drop(segments.remove(seq)),
        Line::Part { seq, replaced, .. } => {
            let mut left = BTreeSet::new();
            while let Some(segment) = segments.first().copied().filter(|segment| segment <= seq) {
                segments.remove(&segment);
                left.insert(segment);
            }
            let has_rest = replaced
                .segments
                .iter()
                .filter(|segment| left.contains(segment));
            segments.extend(has_rest);
        }
        Line::Recording { .. } | Line::Closed {} => {}
    }
}

/// What is wrong with a file.
pub(super) type Found = (PathBuf, ProblemKind);

fn note(found: &mut Vec<Found>, kind: ProblemKind) {
    if found.len() < MAX_PROBLEMS {
        found.push((PathBuf::from(MANIFEST), kind));
    }
}

impl Listed {
    fn take(&mut self, line: Line) {
        match line {
            Line::Lost { seq, .. } => self.lost.push(seq),
            Line::Part {
                seq,
                facts,
                replaced,
                ..
            } => {
                if let Some(first) = replaced.replaces_from.filter(|&first| first < seq) {
                    while let Some((&part, _)) = self.parts.range(first..seq).next() {
                        self.parts.remove(&part);
                    }
                    while let Some((&start, _)) = self.replaced.range(first..seq).next() {
                        self.replaced.remove(&start);
                    }
                    self.replaced.insert(first, seq);
                }
                self.parts.entry(seq).or_default().push(facts);
            }
            Line::Recording { .. } | Line::Segment { .. } | Line::Closed {} => {}
        }
    }
}

impl Manifest {
    /// Reads the manifest of the recording with an id. What could not be read of it is put on the
    /// list; `None` where nothing of it can be used.
    pub(super) fn read(dir: &impl Files, id: &str, found: &mut Vec<Found>) -> Option<Self> {
        let mut note = |kind| note(found, kind);
        let bytes = match dir.read_small(Path::new(MANIFEST), MAX_MANIFEST_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                note(ProblemKind::Missing { rows: None });
                return None;
            }
            Err(error) => {
                let reason = error.to_string();
                note(ProblemKind::Unreadable { reason });
                return None;
            }
        };
        if bytes.len() as u64 > MAX_MANIFEST_BYTES {
            let reason =
                "it is longer than memtrace reads: what is missing is not known".to_owned();
            note(ProblemKind::Unreadable { reason });
            return None;
        }
        Self::of(&bytes, id, found)
    }

    /// The same of its bytes.
    pub(super) fn of(bytes: &[u8], id: &str, found: &mut Vec<Found>) -> Option<Self> {
        let mut note = |kind| note(found, kind);
        let mut manifest = Self {
            is_whole: true,
            ..Self::default()
        };
        let whole = bytes.iter().rposition(|&byte| byte == b'\n');
        let (lines, tail) = bytes.split_at(whole.map_or(0, |end| end + 1));
        manifest.len = lines.len() as u64;
        let mut at = 0;
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            let start = at;
            at += line.len();
            if check_json(line) != Checked::Intact {
                manifest.is_whole = false;
                note(ProblemKind::Damaged {
                    at_byte: start as u64,
                    lost_bytes: Bytes(line.len() as i64),
                    reason: "a line does not match its checksum".to_owned(),
                });
                continue;
            }
            match serde_json::from_slice(line) {
                Ok(Line::Recording { id: other }) if other != id => {
                    let reason = format!("it belongs to another recording, {other}");
                    note(ProblemKind::Unreadable { reason });
                    return None;
                }
                Ok(line) => manifest.take(line),
                // Of a newer memtrace.
                Err(_) => {}
            }
        }
        // A recorder that is killed leaves half a line, of a file that is known without it.
        if !tail.is_empty() && manifest.is_closed {
            let lost_bytes = Bytes(tail.len() as i64);
            note(ProblemKind::TruncatedTail { lost_bytes });
        }
        Some(manifest)
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Recording { .. } => {}
            Line::Closed {} => self.is_closed = true,
            Line::Segment { ref table, .. }
            | Line::Lost { ref table, .. }
            | Line::Part { ref table, .. } => {
                let listed = self.tables.entry(table.clone()).or_default();
                note_segments(&mut listed.segments, &line);
                listed.take(line);
            }
        }
    }

    /// The files that it names and that are not there.
    ///
    /// # Errors
    /// When the directory can't be listed.
    pub(super) fn missing(
        &self,
        dir: &impl Files,
        has_spool: bool,
    ) -> Result<Vec<Found>, StoreError> {
        // Segments before parts, as `layout::list` has it.
        let spool = match has_spool {
            true => names_in(dir, Path::new(SPOOL))?,
            false => Vec::new(),
        };
        let mut found = Vec::new();
        for table in TABLES {
            let Some(listed) = self.tables.get(table.name) else {
                continue;
            };
            let there = segments_among(&spool, table.name);
            let is_gone = |seq: &&u32| has_spool && there.binary_search(seq).is_err();
            let segments = listed.segments.iter().filter(is_gone).chain(&listed.lost);
            found.extend(segments.map(|&seq| {
                let path = segment_path(table.name, seq);
                (path, ProblemKind::Missing { rows: None })
            }));
            let there = parts_of(dir, table.name)?;
            let parts = listed.parts.iter();
            let parts = parts.filter(|(seq, _)| there.binary_search(seq).is_err());
            found.extend(parts.map(|(&seq, facts)| {
                let rows = facts.last().map(|facts| facts.rows);
                (part_path(table.name, seq), ProblemKind::Missing { rows })
            }));
            found.truncate(MAX_PROBLEMS);
        }
        Ok(found)
    }

    /// Whether it ends as that of a closed recording does.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether a part can be the recording's that is there: it is named, or is newer than all that
    /// are, as of a recorder that goes on or was killed.
    pub(super) fn admits(&self, table: &str, seq: u32) -> bool {
        let newest = |listed: &Listed| listed.parts.last_key_value().map(|(&newest, _)| newest);
        let is_newer = seq > self.tables.get(table).and_then(newest).unwrap_or(0);
        self.names(table, seq) || !self.is_whole || (is_newer && !self.is_closed)
    }

    /// Whether a later part has taken the place of this one, which is about to go.
    pub(super) fn has_replaced(&self, table: &str, seq: u32) -> bool {
        self.replaced_by(table, seq).is_some()
    }

    /// The number of the part that has taken the place of this one.
    pub(super) fn replaced_by(&self, table: &str, seq: u32) -> Option<u32> {
        let replaced = &self.tables.get(table)?.replaced;
        let (_, &by) = replaced.range(..=seq).next_back()?;
        (seq < by).then_some(by)
    }

    /// Whether a part is one that it names, or of a number that it does not name.
    pub(super) fn agrees(&self, table: &str, seq: u32, facts: &PartFacts) -> bool {
        let listed = self.tables.get(table);
        let named = listed.and_then(|listed| listed.parts.get(&seq));
        let is_same = |one: &PartFacts| {
            (one.rows, one.bytes, &one.footer_crc32)
                == (facts.rows, facts.bytes, &facts.footer_crc32)
        };
        named.is_none_or(|named| named.iter().any(is_same))
    }

    /// Whether it names a part.
    pub(super) fn names(&self, table: &str, seq: u32) -> bool {
        let listed = self.tables.get(table);
        listed.is_some_and(|listed| listed.parts.contains_key(&seq))
    }

    /// Where its last whole line ends, and the segments of each table that have rows which are in no
    /// part: what it goes on with.
    pub(super) fn into_open(self) -> (u64, HashMap<String, BTreeSet<u32>>) {
        let tables = self.tables.into_iter();
        let segments = tables.map(|(table, listed)| (table, listed.segments));
        (self.len, segments.collect())
    }
}
