//! The files that together hold the rows of one table, and reading them as one sequence.

use super::batch::{Projection, times};
use super::error::StoreError;
use super::gather::filter;
use super::layout::{TableFiles, list, part_path, segment_path};
use super::part_file::PartFile;
use super::part_head::PartHead;
use super::part_reader::{PartReader, head_of};
use super::problem::ProblemKind;
use super::reading::Reading;
use super::resequence::Resequenced;
use super::segment_reader::SegmentReader;
use super::upsert::LastRows;
use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use memtrace_model::Table;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

/// A live recorder turns segments into parts while we look. Each try that loses that
/// race sees newer files, and a segment takes minutes to fill.
const OPEN_ATTEMPTS: usize = 5;

/// While a recording is written, small parts become one, which is there before they go. So many of the
/// newest ones are held open, or, of an address, so many of their bytes are read at once.
const HELD_PARTS: usize = 64;
const KEPT_PART_BYTES: u64 = 1 << 20;
const KEPT_BYTES: u64 = 16 << 20;

/// When a recording is closed, parts up to this size become one, up to so many bytes of them: that
/// takes a second.
const SMALL_PART_BYTES: u64 = 4 << 20;
const JOINED_BYTES: u64 = 16 << 20;

/// The files of a table as they were at one moment.
#[derive(Debug)]
pub(super) struct Sources {
    reading: Reading,
    table: &'static Table,
    /// Parts in order.
    pub(super) parts: Vec<Part>,
    /// Numbers of parts whose rows are in the newest one too: they go.
    pub(super) replaced: Range<u32>,
    /// What the newest part says about segments.
    pub(super) cut: Option<Cut>,
    /// Segments that hold rows which are in no part. Open, so that they can be read after
    /// a live recorder has removed them.
    pub(super) segments: Vec<Segment>,
}

#[derive(Debug)]
pub(super) struct Part {
    pub(super) seq: u32,
    /// Where it can be gone before it is read.
    held: Option<PartFile>,
}

/// An open segment.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) seq: u32,
    file: File,
    /// Its length when it was opened; a live recorder adds to it.
    len: u64,
    /// Only rows later than this are in no part.
    after_ns: Option<i64>,
}

impl Sources {
    /// Finds the files of a table, for whoever sees to it that no parts go, or reads none.
    pub(super) fn open(reading: &Reading, table: &'static Table) -> Result<Self, StoreError> {
        Self::open_holding(reading, table, false)
    }

    /// Finds the files of a table to which its recorder may write meanwhile.
    pub(super) fn open_lasting(
        reading: &Reading,
        table: &'static Table,
    ) -> Result<Self, StoreError> {
        Self::open_holding(reading, table, !reading.is_closed)
    }

    fn open_holding(
        reading: &Reading,
        table: &'static Table,
        is_growing: bool,
    ) -> Result<Self, StoreError> {
        let mut attempts = 1..=OPEN_ATTEMPTS;
        loop {
            attempts.next();
            let opening = Opening {
                reading,
                table,
                is_growing,
                is_last_attempt: attempts.is_empty(),
            };
            let mut files = list(&reading.origin, table.name)?;
            files.parts.retain(|&seq| reading.admit(table, seq));
            if let Ok(sources) = opening.open(&files) {
                return Ok(sources);
            }
            reading.origin.look_again()?;
        }
    }

    /// All rows within the bounds of the recording: of a table with a key the last row of each
    /// key, else in order of time.
    pub(super) fn rows<'a>(
        &'a self,
        projection: &'a Projection,
    ) -> Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send + 'a> {
        let Some(key) = self.table.key else {
            let schema = projection.schema().clone();
            let segments = Resequenced::new(self.segment_rows(projection), schema);
            let rows = self.part_rows(projection).map(Ok).chain(segments);
            return Box::new(self.allowed(rows));
        };
        // Both passes read the same columns: what is left out because of damage must be
        // the same in both.
        let pass = || {
            let rows = self
                .part_rows(projection)
                .chain(self.segment_rows(projection));
            self.allowed(rows.map(Ok::<_, Infallible>)).flatten()
        };
        Box::new(LastRows::find(key, pass()).keep(key, pass()))
    }

    /// No more rows than a recording can have.
    fn allowed<E>(
        &self,
        mut batches: impl Iterator<Item = Result<RecordBatch, E>>,
    ) -> impl Iterator<Item = Result<RecordBatch, E>> {
        let bounds = self.reading.bounds;
        let mut allowance = bounds.map(|bounds| bounds.allowance(self.table));
        let mut taken = 0;
        let mut is_over = false;
        std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            let (batch, allowance) = match (batches.next()?, &mut allowance) {
                (Ok(batch), Some(allowance)) => (batch, allowance),
                (batch, _) => return Some(batch),
            };
            let fitting = allowance.take(&batch);
            taken += fitting as u64;
            is_over = fitting < batch.num_rows();
            if is_over {
                let kind = ProblemKind::TooMany { count: taken };
                self.reading.note(Path::new(self.table.name), kind);
            }
            Some(Ok(batch.slice(0, fitting)))
        })
    }

    /// The rows of the parts as they stand there.
    pub(super) fn part_rows<'a>(
        &'a self,
        projection: &'a Projection,
    ) -> impl Iterator<Item = RecordBatch> + 'a {
        let parts = self.parts.iter();
        parts.flat_map(move |part| self.rows_of_part(part, projection))
    }

    /// The rows of one part as they stand there.
    pub(super) fn rows_of_part<'a>(
        &self,
        part: &Part,
        projection: &'a Projection,
    ) -> impl Iterator<Item = RecordBatch> + use<'a> {
        let name = part_path(self.table.name, part.seq);
        let file = match &part.held {
            Some(file) => Ok(file.clone()),
            None => self.reading.origin.open_part(&name),
        };
        let part = PartReader::open(file, name.clone(), projection, &self.reading);
        self.reading.within(name, part.into_iter().flatten())
    }

    /// The newest parts, from the oldest of them on, that are small enough to be written once more.
    pub(super) fn small_parts(&self) -> &[Part] {
        let bytes = |part: &Part| {
            let path = part_path(self.table.name, part.seq);
            self.reading.origin.open_part(&path).map(|file| file.len())
        };
        let mut sum = 0;
        let is_small = |part: &&Part| {
            bytes(part).is_ok_and(|bytes| {
                sum += bytes;
                bytes <= SMALL_PART_BYTES && sum <= JOINED_BYTES
            })
        };
        let count = self.parts.iter().rev().take_while(is_small).count();
        self.newest_parts(count)
    }

    /// So many of the newest parts, in their order.
    pub(super) fn newest_parts(&self, count: usize) -> &[Part] {
        let start = self.parts.len().saturating_sub(count);
        self.parts.get(start..).unwrap_or_default()
    }

    /// The rows of the segments that are in no part, in order of arrival.
    pub(super) fn segment_rows<'a>(
        &'a self,
        projection: &'a Projection,
    ) -> impl Iterator<Item = RecordBatch> + 'a {
        let segments = self.segments.iter();
        segments.flat_map(move |segment| self.rows_of_segment(segment, projection))
    }

    /// The segments as whoever follows them needs them: number, file, and the time after which
    /// their rows are in no part.
    pub(super) fn into_segments(self) -> impl Iterator<Item = (u32, File, Option<i64>)> {
        let segments = self.segments.into_iter();
        segments.map(|segment| (segment.seq, segment.file, segment.after_ns))
    }

    /// The rows of one segment that are in no part, in order of arrival.
    pub(super) fn rows_of_segment<'a>(
        &self,
        segment: &'a Segment,
        projection: &'a Projection,
    ) -> impl Iterator<Item = RecordBatch> + use<'a> {
        let name = segment_path(self.table.name, segment.seq);
        let file = &segment.file;
        let reader =
            SegmentReader::open(file, segment.len, name.clone(), projection, &self.reading);
        let batches = self.reading.within(name, reader.into_iter().flatten());
        batches.map(|batch| match segment.after_ns {
            Some(after_ns) => later_than(batch, after_ns),
            None => batch,
        })
    }
}

/// One attempt at opening the files of a listing.
struct Opening<'a> {
    reading: &'a Reading,
    table: &'static Table,
    is_growing: bool,
    is_last_attempt: bool,
}

/// A file of the listing is gone.
struct Gone;

impl Opening<'_> {
    fn open(&self, files: &TableFiles) -> Result<Sources, Gone> {
        let newest = newest_head(&files.parts, |seq| {
            head_of(&part_path(self.table.name, seq), self.reading)
        });
        let cut = newest.map(Cut::of);
        let replaced = newest.and_then(|(part, head)| Some(head.replaces_from?..part));
        let replaced = replaced.unwrap_or_default();
        // Where parts are carried their manifest comes behind them.
        let unnamed = files.parts.iter().copied();
        let unnamed = unnamed.filter(|&seq| self.reading.is_unnamed(self.table, seq));
        let others: Vec<Range<u32>> = unnamed
            .filter_map(|seq| {
                let head = head_of(&part_path(self.table.name, seq), self.reading)?;
                Some(head.replaces_from?..seq)
            })
            .collect();
        let is_left = |seq: &&u32| {
            !replaced.contains(seq) && !others.iter().any(|others| others.contains(seq))
        };
        let parts: Vec<u32> = files.parts.iter().filter(is_left).copied().collect();
        let mut sources = Sources {
            reading: self.reading.clone(),
            table: self.table,
            parts: Vec::new(),
            replaced,
            cut,
            segments: Vec::new(),
        };
        let mut allowance = KEPT_BYTES;
        let first_held = parts.len().saturating_sub(HELD_PARTS);
        for (place, &seq) in parts.iter().enumerate() {
            let held = match self.is_growing && place >= first_held {
                true => self.keep(&part_path(self.table.name, seq), |path| {
                    let file = self.reading.origin.open_part(path)?;
                    file.held(KEPT_PART_BYTES.min(allowance))
                })?,
                false => None,
            };
            let held = held.flatten();
            allowance -= held.as_ref().map_or(0, PartFile::kept_bytes);
            sources.parts.push(Part { seq, held });
        }
        for (seq, after_ns) in needed_segments(files, cut) {
            let path = segment_path(self.table.name, seq);
            let opened = self.keep(&path, |path| {
                let file = self.reading.origin.open_file(path)?;
                Ok((file.metadata()?.len(), file))
            })?;
            sources.segments.extend(opened.map(|(len, file)| Segment {
                seq,
                file,
                len,
                after_ns,
            }));
        }
        Ok(sources)
    }

    /// Opens a file. One that can't be opened is a problem, unless it is just gone and
    /// there is another attempt.
    fn keep<T>(
        &self,
        path: &Path,
        open: impl FnOnce(&Path) -> io::Result<T>,
    ) -> Result<Option<T>, Gone> {
        match open(path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.is_last_attempt => {
                Err(Gone)
            }
            Err(error) => {
                let reason = error.to_string();
                self.reading.note(path, ProblemKind::Unreadable { reason });
                Ok(None)
            }
        }
    }
}

/// How far a part goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The number of the part.
    pub(super) part: u32,
    /// The time up to which it and the parts before it hold the rows of segments with a
    /// number up to this; `None` when they hold all.
    pub(super) at_ns: Option<i64>,
}

impl Cut {
    fn of((part, head): (u32, PartHead)) -> Self {
        Self {
            part,
            at_ns: head.cut_ns,
        }
    }
}

/// The newest part that can be read, and what it says of other files. Where the newest part is
/// damaged, its segments, should they still be there, are the only source of its rows.
fn newest_head(
    parts: &[u32],
    head_of: impl Fn(u32) -> Option<PartHead>,
) -> Option<(u32, PartHead)> {
    let mut newest_first = parts.iter().rev();
    newest_first.find_map(|&part| head_of(part).map(|head| (part, head)))
}

/// The segments that hold rows which are in no part, with the time after which they do.
fn needed_segments(files: &TableFiles, cut: Option<Cut>) -> Vec<(u32, Option<i64>)> {
    let segments = files.segments.iter();
    segments
        .filter_map(|&seq| match cut {
            Some(Cut { part, at_ns }) if seq <= part => at_ns.map(|at_ns| (seq, Some(at_ns))),
            _ => Some((seq, None)),
        })
        .collect()
}

/// The rows of a batch that are later than a time.
pub(super) fn later_than(batch: RecordBatch, after_ns: i64) -> RecordBatch {
    let times = times(&batch);
    if times.iter().all(|&time| time > after_ns) {
        return batch;
    }
    let is_later: Vec<bool> = times.iter().map(|&time| time > after_ns).collect();
    filter(batch.clone(), &is_later).unwrap_or(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cut of the newest part; `None` outside stands for one that can't be read.
    fn newest_cut(parts: &[u32], cut_of: impl Fn(u32) -> Option<Option<i64>>) -> Option<Cut> {
        let head = |seq| {
            cut_of(seq).map(|cut_ns| PartHead {
                cut_ns,
                replaces_from: None,
            })
        };
        newest_head(parts, head).map(Cut::of)
    }

    fn files(parts: &[u32], segments: &[u32]) -> TableFiles {
        TableFiles {
            parts: parts.to_vec(),
            segments: segments.to_vec(),
        }
    }

    #[test]
    fn segments_above_the_newest_part_are_needed_in_full_and_others_after_its_cut() {
        let files = files(&[1, 3], &[2, 3, 4, 5]);
        let cut = newest_cut(&files.parts, |_| Some(Some(7)));
        let needed = needed_segments(&files, cut);
        assert_eq!(needed, [(2, Some(7)), (3, Some(7)), (4, None), (5, None)]);
    }

    #[test]
    fn segments_up_to_a_part_without_a_cut_are_not_needed() {
        let files = files(&[3], &[2, 3, 4]);
        let cut = newest_cut(&files.parts, |_| Some(None));
        assert_eq!(needed_segments(&files, cut), [(4, None)]);
    }

    #[test]
    fn the_segments_of_an_unreadable_part_are_needed_after_the_cut_before_it() {
        let files = files(&[2, 3], &[2, 3]);
        let cut = newest_cut(&files.parts, |part| (part == 2).then_some(Some(7)));
        assert_eq!(needed_segments(&files, cut), [(2, Some(7)), (3, None)]);
        let cut = newest_cut(&files.parts, |_| None);
        assert_eq!(needed_segments(&files, cut), [(2, None), (3, None)]);
    }
}
