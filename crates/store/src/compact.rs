//! Turns the spool segments of a table into a Parquet part.
//!
//! Every step leaves a recording that reads the same: the part gets its name only when it
//! is complete and on disk, segments go only after that, and from its number and its cut
//! a reader knows what of the segments the part has replaced (the rule in the room's head). The same
//! holds for earlier parts that are written once more with it: they go when it is there.

use super::batch::{Projection, times};
use super::disk::Disk;
use super::error::StoreError;
use super::layout::{DAMAGED, SPOOL, list, list_half_written, part_path, segment_path, temporary};
use super::manifest::PartReplaced;
use super::part_head::PartHead;
use super::part_writer::{FinishedPart, PartWriter};
use super::problem::Problem;
use super::reading::Reading;
use super::resequence::Resequencer;
use super::sources::{Cut, Part, Sources};
use super::upsert::LastRows;
use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use memtrace_model::Table;
use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;

/// How far a conversion goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Through {
    /// Up to a closed segment, while the recording goes on. The newest rows stay in the
    /// segment for the next part, so that late rows still find their place; that is what
    /// the part's cut says.
    Segment {
        seq: u32,
        /// When it was closed, on the boot clock, where that was because its time had come: rows
        /// wait no longer than they must, also where none came after them.
        closed_ns: Option<i64>,
        /// So many of the newest parts are written once more, with it.
        joined: usize,
    },
    /// Everything there is: the last part.
    End {
        /// Whether the small parts before it go into it, as those that were closed by time.
        joins: bool,
    },
}

/// Converts the segments of one table; damage met on the way is noted in `reading`. Gives the size of
/// the part that was made of them, if there was something to put in one.
pub(super) fn compact(
    disk: &Disk,
    reading: &Reading,
    table: &'static Table,
    through: Through,
) -> Result<Option<u64>, StoreError> {
    let mut sources = Sources::open(reading, table)?;
    if let Through::Segment { seq: last, .. } = through {
        sources.segments.retain(|segment| segment.seq <= last);
    }
    let mut replaced = Replaced {
        cut: sources.cut,
        drained: Vec::new(),
        parts: vec![sources.replaced.clone()],
    };
    // What turns out to be damaged when it is written once more stays as it is, and is reported. So
    // does what there is no room for twice.
    let mut made = None;
    for joined in [joined_parts(&sources, table, through), &[]] {
        let Some(seq) = number_of_new_part(&sources, joined.len(), through) else {
            continue;
        };
        let conversion = Conversion {
            disk,
            reading,
            table,
            seq,
            joined,
        };
        made = conversion.run(&sources, through)?;
        if made.is_some() {
            break;
        }
    }
    let bytes = made.map(|(bytes, newly)| {
        replaced.cut = newly.cut;
        replaced.drained = newly.drained;
        replaced.parts.extend(newly.parts);
        bytes
    });
    replaced.remove(disk, table, through, &reading.problems())?;
    Ok(bytes)
}

/// The parts that the new one takes the place of.
fn joined_parts<'s>(sources: &'s Sources, table: &Table, through: Through) -> &'s [Part] {
    match through {
        Through::Segment { joined, .. } => sources.newest_parts(joined),
        // A finished table has one row per key.
        Through::End { .. } if table.key.is_some() => &sources.parts,
        Through::End { joins: true } => sources.small_parts(),
        Through::End { joins: false } => &[],
    }
}

/// The number of the part to write; `None` when there is nothing to put in one.
fn number_of_new_part(sources: &Sources, joined: usize, through: Through) -> Option<u32> {
    let is_end = matches!(through, Through::End { .. });
    let newest_part = sources.parts.last().map(|part| part.seq);
    let after_newest = newest_part.map_or(1, |part| part.saturating_add(1));
    match sources.segments.last() {
        Some(last) if last.seq >= after_newest => Some(last.seq),
        // A segment that outlived its part is the last one. While the recording goes on,
        // the next number is that of the segment being written, so its rest has to wait.
        Some(_) => is_end.then_some(after_newest),
        // A finished recording has a part of every table, if an empty one, so that a query
        // finds its columns.
        None if is_end && (newest_part.is_none() || joined > 1) => Some(after_newest),
        None => None,
    }
}

/// A part that is whole and has no name yet.
struct Written {
    part: FinishedPart,
    head: PartHead,
    /// Segments of which all is in it.
    drained: Vec<u32>,
}

/// One new part.
struct Conversion<'a> {
    disk: &'a Disk,
    reading: &'a Reading,
    table: &'static Table,
    seq: u32,
    /// Earlier parts that are written once more, with it.
    joined: &'a [Part],
}

impl Conversion<'_> {
    /// Gives the size of the part, and what it has replaced; `None` where nothing was made, because
    /// rows of an earlier part that was to go into it can't be read, or all of them not be written.
    fn run(
        &self,
        sources: &Sources,
        through: Through,
    ) -> Result<Option<(u64, Replaced)>, StoreError> {
        self.disk.create_dir(Path::new(self.table.name))?;
        let path = part_path(self.table.name, self.seq);
        let written = self.write_part(&path, sources, through);
        let is_optional = self.table.key.is_none() && !self.joined.is_empty();
        let outcome = match written {
            Err(_) if is_optional => Ok(None),
            Ok(Some(written)) => self.publish(sources, written).map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        if !matches!(outcome, Ok(Some(_))) {
            // On a full disk, half a part is what takes the room. The first error counts.
            let _ = self.disk.remove_file_if_there(&temporary(&path));
        }
        outcome
    }

    /// Writes all of it under its temporary name.
    fn write_part(
        &self,
        path: &Path,
        sources: &Sources,
        through: Through,
    ) -> Result<Option<Written>, StoreError> {
        let mut part = match through {
            Through::Segment {
                closed_ns: Some(_), ..
            } if self.joined.is_empty() => PartWriter::create_bare(self.disk, self.table, path)?,
            _ => PartWriter::create(self.disk, self.table, path)?,
        };
        let (cut_ns, drained) = match self.table.key {
            Some(key) => {
                self.write_last_rows(&mut part, sources, key)?;
                (None, Vec::new())
            }
            None => {
                let written = self.write_in_order(&mut part, sources, through)?;
                if self.joins_damaged() {
                    return Ok(None);
                }
                written
            }
        };
        let replaces_from = self.first_replaced(sources);
        let head = PartHead {
            cut_ns,
            replaces_from,
        };
        Ok(Some(Written {
            part: part.finish(self.disk, head)?,
            head,
            drained,
        }))
    }

    /// Gives it its name, and lists it.
    fn publish(&self, sources: &Sources, written: Written) -> Result<(u64, Replaced), StoreError> {
        let Written {
            part,
            head,
            drained,
        } = written;
        let PartHead {
            cut_ns,
            replaces_from,
        } = head;
        part.publish(self.disk)?;
        let there = list(self.disk.dir(), self.table.name)?.segments;
        self.disk.list_lost(self.table, self.seq, &there)?;
        let has_rest = |seq: &u32| cut_ns.is_some() && !drained.contains(seq);
        let segments = sources.segments.iter().map(|segment| segment.seq);
        let listed = PartReplaced {
            segments: segments.filter(has_rest).collect(),
            replaces_from,
        };
        part.list(self.disk, listed)?;
        let replaced = Replaced {
            cut: Some(Cut {
                part: self.seq,
                at_ns: cut_ns,
            }),
            drained,
            parts: replaces_from
                .map(|first| first..self.seq)
                .into_iter()
                .collect(),
        };
        Ok((part.bytes(), replaced))
    }

    /// Whether an earlier part that goes into this one could not be read in full.
    fn joins_damaged(&self) -> bool {
        let problems = self.reading.problems();
        let mut joined = self.joined.iter();
        joined.any(|part| {
            let path = part_path(self.table.name, part.seq);
            problems.iter().any(|problem| problem.file == path)
        })
    }

    /// The number after that of the last part that stays: whatever is between is in this one.
    fn first_replaced(&self, sources: &Sources) -> Option<u32> {
        let first = self.joined.first()?;
        let stays = sources.parts.iter().take_while(|part| part.seq < first.seq);
        Some(stays.last().map_or(0, |part| part.seq + 1))
    }

    /// Writes the rows in order of time. Gives the time up to which they are in it, `None` for all, and
    /// the segments of which none is later.
    fn write_in_order(
        &self,
        part: &mut PartWriter,
        sources: &Sources,
        through: Through,
    ) -> Result<(Option<i64>, Vec<u32>), StoreError> {
        let projection = Projection::all(self.table);
        let start_ns = sources.cut.and_then(|cut| cut.at_ns).unwrap_or(i64::MIN);
        let mut resequencer = Resequencer::new(projection.schema().clone(), start_ns);
        let mut write = |batch: Result<Option<RecordBatch>, ArrowError>| match self.check(batch)? {
            Some(batch) => part.write(self.disk, &batch),
            None => Ok(()),
        };
        for joined in self.joined {
            for batch in sources.rows_of_part(joined, &projection) {
                write(Ok(Some(batch)))?;
            }
        }
        let mut newest = Vec::new();
        for segment in &sources.segments {
            let mut newest_ns = i64::MIN;
            for batch in sources.rows_of_segment(segment, &projection) {
                newest_ns = times(&batch).iter().copied().fold(newest_ns, i64::max);
                write(resequencer.push(batch))?;
            }
            newest.push((segment.seq, newest_ns));
        }
        let at_ns = match through {
            Through::Segment { closed_ns, .. } => {
                resequencer.note_time(closed_ns.unwrap_or(i64::MIN));
                write(resequencer.drain())?;
                Some(resequencer.watermark_ns())
            }
            Through::End { .. } => {
                write(resequencer.finish())?;
                None
            }
        };
        newest.retain(|&(_, newest_ns)| at_ns.is_none_or(|at_ns| newest_ns <= at_ns));
        Ok((at_ns, newest.into_iter().map(|(seq, _)| seq).collect()))
    }

    /// Writes the last row of each key.
    fn write_last_rows(
        &self,
        part: &mut PartWriter,
        sources: &Sources,
        key: &str,
    ) -> Result<(), StoreError> {
        let projection = Projection::all(self.table);
        let pass = || {
            let parts = self.joined.iter();
            let rows = parts.flat_map(|part| sources.rows_of_part(part, &projection));
            rows.chain(sources.segment_rows(&projection))
        };
        for batch in LastRows::find(key, pass()).keep(key, pass()) {
            part.write(self.disk, &self.check(batch)?)?;
        }
        Ok(())
    }

    fn check<T>(&self, result: Result<T, ArrowError>) -> Result<T, StoreError> {
        let path = || self.disk.full_path(&part_path(self.table.name, self.seq));
        result.map_err(|error| StoreError::encode(&path(), &error))
    }
}

/// What the newest part has made superfluous.
struct Replaced {
    /// The newest part and how far it goes.
    cut: Option<Cut>,
    /// Segments of which no row is later than the cut.
    drained: Vec<u32>,
    /// Numbers of parts that are in it.
    parts: Vec<Range<u32>>,
}

impl Replaced {
    /// Removes the files whose rows are all in the newest part, or in parts before it. One
    /// that could not be read in full is put aside instead: someone may want the rest.
    fn remove(
        &self,
        disk: &Disk,
        table: &Table,
        through: Through,
        problems: &[Problem],
    ) -> Result<(), StoreError> {
        let Some(Cut { part, at_ns }) = self.cut else {
            return Ok(());
        };
        let files = list(disk.dir(), table.name)?;
        for &seq in &files.segments {
            let is_drained = seq <= part && at_ns.is_none();
            if is_drained || self.drained.contains(&seq) {
                remove_file(disk, &segment_path(table.name, seq), problems)?;
            }
        }
        let is_replaced = |seq: &&u32| self.parts.iter().any(|parts| parts.contains(seq));
        for &seq in files.parts.iter().filter(is_replaced) {
            remove_file(disk, &part_path(table.name, seq), problems)?;
        }
        if matches!(through, Through::End { .. }) {
            for path in list_half_written(disk.dir(), table.name)? {
                disk.remove_file_if_there(&path)?;
            }
        }
        Ok(())
    }
}

fn remove_file(disk: &Disk, path: &Path, problems: &[Problem]) -> Result<(), StoreError> {
    if !problems.iter().any(|problem| problem.file == path) {
        return disk.remove_file_if_there(path);
    }
    let damaged = Path::new(DAMAGED);
    disk.create_dir(damaged)?;
    let mut name = OsString::new();
    for component in path.strip_prefix(SPOOL).unwrap_or(path) {
        if !name.is_empty() {
            name.push("-");
        }
        name.push(component);
    }
    disk.publish(path, &damaged.join(name))
}
