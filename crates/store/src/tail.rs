//! Follows a recording while it grows: each look gives the rows that came since the one before.
//!
//! A segment is read on from where the last look stopped. It stays open, so that the rest of it can
//! be read when the recorder has made a part of it and removed it, and what is in a part by then
//! is never read from there. Whoever did not look for so long that whole segments came and went
//! begins anew: [`TailState::Lost`].

use super::batch::{Irregular, Projection, for_each_row};
use super::bounds::Bounds;
use super::error::StoreError;
use super::layout::{SPOOL, names_in, segment_path, segments_among};
use super::problem::{Problem, ProblemKind, Problems};
use super::reading::Reading;
use super::recording::{Recording, last_write_ns};
use super::run_file::read;
use super::segment_reader::{Place, SegmentReader};
use super::sources::{Sources, later_than};
use arrow_array::RecordBatch;
use memtrace_model::{Row, RunInfo, RunState, TABLES, Table};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

/// So many looks pass until it is asked again how long the recording is by now.
const LOOKS: u32 = 64;

/// What became of a recording that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailState {
    /// A recorder writes to it.
    Live,
    /// Nobody writes to it any more, and it was not closed.
    Left,
    /// It is closed: its parts have all there is, in order.
    Closed,
    /// Rows have come and gone to where they can't be distinguished from those that were read.
    Lost,
}

/// A recording that is followed.
#[derive(Debug)]
pub struct Tail {
    reading: Reading,
    info: RunInfo,
    tables: HashMap<&'static str, Followed>,
    /// What is in the spool.
    names: Vec<OsString>,
    looks: u32,
    is_live: bool,
    was_cut_off: bool,
    has_lost: bool,
}

/// How far a table was read.
#[derive(Debug, Default)]
struct Followed {
    /// The number of the newest file that was met.
    newest: u32,
    /// Segments that may have more.
    open: VecDeque<Open>,
}

/// A segment that may have more.
#[derive(Debug)]
struct Open {
    seq: u32,
    file: File,
    place: Place,
    /// Only rows later than this are in no part that was read.
    after_ns: Option<i64>,
}

impl Tail {
    /// Begins with a recording's first row.
    ///
    /// # Errors
    /// When the directory holds no recording, or one of a schema that this version can't read.
    pub(super) fn open(dir: &Path) -> Result<Self, StoreError> {
        let recording = Recording::open(dir)?;
        Ok(Self {
            reading: recording.reading().clone(),
            info: recording.info().clone(),
            tables: HashMap::new(),
            names: Vec::new(),
            looks: 0,
            is_live: true,
            was_cut_off: recording.is_cut_off(),
            has_lost: false,
        })
    }

    /// What the recording says about itself.
    pub fn info(&self) -> &RunInfo {
        &self.info
    }

    /// Whether it was cut off when it was opened.
    pub(super) fn was_cut_off(&self) -> bool {
        self.was_cut_off
    }

    /// What list the damage is put on.
    pub(super) fn problem_list(&self) -> Problems {
        self.reading.problem_list()
    }

    /// The damage met so far.
    pub fn problems(&self) -> Vec<Problem> {
        self.reading.problems()
    }

    /// Looks what there is now. What is answered was so before: rows that are read after it are
    /// the last ones where nobody writes any more.
    ///
    /// # Errors
    /// When the recording's directory can't be read.
    pub fn look(&mut self) -> Result<TailState, StoreError> {
        let dir = &self.reading.origin;
        // In this order: a recorder that closes it in between is seen as live.
        let is_live = dir.is_live();
        let state = match is_live || self.info.state != RunState::Recording {
            true => self.info.state,
            false => {
                self.info = read(dir)?.info;
                self.info.state
            }
        };
        self.names = names_in(dir, Path::new(SPOOL))?;
        if self.looks.is_multiple_of(LOOKS) {
            self.reading.bounds = Bounds::of(&self.info, last_write_ns(dir)?);
        }
        self.looks += 1;
        self.is_live = is_live;
        Ok(match state {
            _ if self.has_lost => TailState::Lost,
            _ if is_live => TailState::Live,
            RunState::Recording => TailState::Left,
            _ => TailState::Closed,
        })
    }

    /// Gives the rows of a table that came since they were last read, in the order of arrival:
    /// those of one instant may come in several goes. Of a table with a key, a later row replaces
    /// the one before. Columns are as in [`Recording::scan`], those of all where none is named.
    ///
    /// # Errors
    /// As [`Recording::scan`].
    pub fn read<R: Row>(
        &mut self,
        columns: &[&str],
        mut take_row: impl FnMut(R),
    ) -> Result<(), StoreError> {
        let table = R::TABLE;
        let projection = match columns {
            [] => Projection::all(table),
            named => Projection::named(table, named)?,
        };
        let mut irregular = Irregular::default();
        let mut take = |batch: RecordBatch| for_each_row(&batch, &mut irregular, &mut take_row);
        let mut followed = match self.tables.remove(table.name) {
            Some(followed) => followed,
            None => self.begin(table, &projection, &mut take)?,
        };
        self.has_lost |= !followed.find(&self.reading, table, &self.names);
        followed.read(&self.reading, table, &projection, self.is_live, &mut take);
        self.tables.insert(table.name, followed);
        if irregular.incomplete_rows > 0 {
            let count = irregular.incomplete_rows;
            let kind = ProblemKind::IncompleteRows { count };
            self.reading.note(Path::new(table.name), kind);
        }
        Ok(())
    }

    /// Reads the parts that there are, and finds the segments that hold the rest.
    fn begin(
        &self,
        table: &'static Table,
        projection: &Projection,
        take: &mut impl FnMut(RecordBatch),
    ) -> Result<Followed, StoreError> {
        debug_assert!(TABLES.iter().any(|known| known.name == table.name));
        let sources = Sources::open_lasting(&self.reading, table)?;
        sources.part_rows(projection).for_each(take);
        let newest_part = sources.parts.last().map_or(0, |part| part.seq);
        let open = sources.into_segments().map(|(seq, file, after_ns)| Open {
            seq,
            file,
            place: Place::default(),
            after_ns,
        });
        let open: VecDeque<Open> = open.collect();
        let newest = open.iter().map(|open| open.seq).max();
        Ok(Followed {
            newest: newest.unwrap_or(0).max(newest_part),
            open,
        })
    }
}

impl Followed {
    /// Opens the segments that are new. False where one of them has come and gone.
    fn find(&mut self, reading: &Reading, table: &Table, names: &[OsString]) -> bool {
        for seq in segments_among(names, table.name) {
            if seq <= self.newest {
                continue;
            }
            let opened = reading.origin.open_file(&segment_path(table.name, seq));
            let Some(file) = opened.ok().filter(|_| seq == self.newest + 1) else {
                return false;
            };
            self.newest = seq;
            self.open.push_back(Open {
                seq,
                file,
                place: Place::default(),
                after_ns: None,
            });
        }
        true
    }

    /// Reads on. Only to the newest segment something can be added, and only while somebody writes.
    fn read(
        &mut self,
        reading: &Reading,
        table: &Table,
        projection: &Projection,
        is_live: bool,
        take: &mut impl FnMut(RecordBatch),
    ) {
        let newest = self.newest;
        for open in &mut self.open {
            let is_growing = is_live && open.seq == newest;
            open.read(reading, table, projection, is_growing, take);
        }
        self.open.retain(|open| open.seq == newest);
    }
}

impl Open {
    fn read(
        &mut self,
        reading: &Reading,
        table: &Table,
        projection: &Projection,
        is_growing: bool,
        take: &mut impl FnMut(RecordBatch),
    ) {
        let name = segment_path(table.name, self.seq);
        let len = match self.file.metadata() {
            // Nothing was added: most looks at most tables.
            Ok(metadata) if metadata.len() == self.place.at => return,
            Ok(metadata) => metadata.len(),
            Err(error) => {
                let reason = error.to_string();
                return reading.note(&name, ProblemKind::Unreadable { reason });
            }
        };
        let resumed = SegmentReader::resume(
            &self.file,
            len,
            name.clone(),
            projection,
            reading,
            &self.place,
            is_growing,
        );
        let Some(mut batches) = resumed else {
            return;
        };
        for batch in reading.within(name, batches.by_ref()) {
            take(match self.after_ns {
                Some(after_ns) => later_than(batch, after_ns),
                None => batch,
            });
        }
        self.place = batches.place();
    }
}
