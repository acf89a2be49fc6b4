//! Turns the spool segments of a table into a Parquet part.
//!
//! Every step leaves a recording that reads the same: the part gets its name only when it
//! is complete and on disk, segments go only after that, and from its number and its cut
//! a reader knows what of the segments the part has replaced (the rule in the room's head).

use super::batch::{Projection, times};
use super::disk::Disk;
use super::error::StoreError;
use super::layout::{DAMAGED, SPOOL, list, list_half_written, part_path, segment_path, temporary};
use super::manifest::PartReplaced;
use super::part_writer::PartWriter;
use super::problem::Problem;
use super::reading::Reading;
use super::resequence::Resequencer;
use super::sources::{Cut, Sources};
use super::upsert::LastRows;
use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use memtrace_model::Table;
use std::ffi::OsString;
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
    },
    /// Everything there is: the last part.
    End,
}

/// Converts the segments of one table; damage met on the way is noted in `reading`.
pub(super) fn compact(
    disk: &Disk,
    reading: &Reading,
    table: &'static Table,
    through: Through,
) -> Result<(), StoreError> {
    let mut sources = Sources::open(reading, table)?;
    if let Through::Segment { seq: last, .. } = through {
        sources.segments.retain(|segment| segment.seq <= last);
    }
    let mut replaced = Replaced {
        cut: sources.cut,
        drained: Vec::new(),
    };
    if let Some(seq) = number_of_new_part(&sources, table, through) {
        let part = Conversion { disk, table, seq };
        replaced = part.run(&sources, through)?;
    }
    replaced.remove(disk, table, through, &reading.problems())
}

/// The number of the part to write; `None` when there is nothing to put in one.
fn number_of_new_part(sources: &Sources, table: &Table, through: Through) -> Option<u32> {
    let newest_part = sources.parts.last().map(|part| part.seq);
    let after_newest = newest_part.map_or(1, |part| part.saturating_add(1));
    match sources.segments.last() {
        Some(last) if last.seq >= after_newest => Some(last.seq),
        // A segment that outlived its part is the last one. While the recording goes on,
        // the next number is that of the segment being written, so its rest has to wait.
        Some(_) => (through == Through::End).then_some(after_newest),
        // A finished recording has a part of every table, if an empty one, so that a query
        // finds its columns.
        None if through == Through::End && newest_part.is_none() => Some(after_newest),
        // Parts of a table with a key become one.
        None if through == Through::End && table.key.is_some() && sources.parts.len() > 1 => {
            Some(after_newest)
        }
        None => None,
    }
}

/// One new part.
struct Conversion<'a> {
    disk: &'a Disk,
    table: &'static Table,
    seq: u32,
}

impl Conversion<'_> {
    fn run(&self, sources: &Sources, through: Through) -> Result<Replaced, StoreError> {
        self.disk.create_dir(Path::new(self.table.name))?;
        let path = part_path(self.table.name, self.seq);
        let outcome = self.write_part(&path, sources, through);
        if outcome.is_err() {
            // On a full disk, half a part is what takes the room. The first error counts.
            let _ = self.disk.remove_file_if_there(&temporary(&path));
        }
        outcome
    }

    fn write_part(
        &self,
        path: &Path,
        sources: &Sources,
        through: Through,
    ) -> Result<Replaced, StoreError> {
        let mut part = PartWriter::create(self.disk, self.table, path)?;
        let replaced = match self.table.key {
            Some(key) => self.write_last_rows(&mut part, sources, key, through)?,
            None => self.write_in_order(&mut part, sources, through)?,
        };
        let cut_ns = replaced.cut.and_then(|cut| cut.at_ns);
        let part = part.publish(self.disk, cut_ns)?;
        let there = list(self.disk.dir(), self.table.name)?.segments;
        self.disk.list_lost(self.table, self.seq, &there)?;
        let has_rest = |seq: &u32| cut_ns.is_some() && !replaced.drained.contains(seq);
        let segments = sources.segments.iter().map(|segment| segment.seq);
        let listed = PartReplaced {
            segments: segments.filter(has_rest).collect(),
            replaces_before: self.table.key.is_some() && through == Through::End,
        };
        part.list(self.disk, listed)?;
        Ok(replaced)
    }

    /// Writes the rows in order of time.
    fn write_in_order(
        &self,
        part: &mut PartWriter,
        sources: &Sources,
        through: Through,
    ) -> Result<Replaced, StoreError> {
        let projection = Projection::all(self.table);
        let start_ns = sources.cut.and_then(|cut| cut.at_ns).unwrap_or(i64::MIN);
        let mut resequencer = Resequencer::new(projection.schema().clone(), start_ns);
        let mut write = |batch: Result<Option<RecordBatch>, ArrowError>| match self.check(batch)? {
            Some(batch) => part.write(self.disk, &batch),
            None => Ok(()),
        };
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
            Through::End => {
                write(resequencer.finish())?;
                None
            }
        };
        newest.retain(|&(_, newest_ns)| at_ns.is_none_or(|at_ns| newest_ns <= at_ns));
        Ok(Replaced {
            cut: Some(Cut {
                part: self.seq,
                at_ns,
            }),
            drained: newest.into_iter().map(|(seq, _)| seq).collect(),
        })
    }

    /// Writes the last row of each key. The last part of a recording takes those of all
    /// parts before it too, so that the finished table has one row per key.
    fn write_last_rows(
        &self,
        part: &mut PartWriter,
        sources: &Sources,
        key: &str,
        through: Through,
    ) -> Result<Replaced, StoreError> {
        let projection = Projection::all(self.table);
        let pass = || {
            let parts = matches!(through, Through::End)
                .then(|| sources.part_rows(&projection))
                .into_iter()
                .flatten();
            parts.chain(sources.segment_rows(&projection))
        };
        for batch in LastRows::find(key, pass()).keep(key, pass()) {
            part.write(self.disk, &self.check(batch)?)?;
        }
        Ok(Replaced {
            cut: Some(Cut {
                part: self.seq,
                at_ns: None,
            }),
            drained: Vec::new(),
        })
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
        if through != Through::End {
            return Ok(());
        }
        for path in list_half_written(disk.dir(), table.name)? {
            disk.remove_file_if_there(&path)?;
        }
        if table.key.is_some() {
            for &seq in files.parts.iter().filter(|&&seq| seq < part) {
                remove_file(disk, &part_path(table.name, seq), problems)?;
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
