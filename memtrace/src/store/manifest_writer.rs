//! Adds lines to the manifest of a recording that is written.

use super::checksum::seal_line;
use super::dir::Dir;
use super::manifest::{Line, MANIFEST, Manifest};
use crate::model::Table;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The manifest, for all that write files of rows.
#[derive(Debug)]
pub(super) struct ManifestWriter(Mutex<Open>);

#[derive(Debug)]
struct Open {
    file: File,
    len: u64,
    /// Segments that have rows which are in no part.
    segments: HashMap<String, BTreeSet<u32>>,
}

impl ManifestWriter {
    /// That of a new recording, in an empty file.
    pub(super) fn new(file: File) -> Self {
        Self(Mutex::new(Open {
            file,
            len: 0,
            segments: HashMap::new(),
        }))
    }

    /// Goes on with that of a recording that was left. `None` where there is none to go on with: one
    /// that begins in the middle would know nothing of what is missing.
    pub(super) fn resume(dir: &Dir, id: &str) -> io::Result<Option<Self>> {
        let Some(manifest) = Manifest::read(dir, id, &mut Vec::new()) else {
            return Ok(None);
        };
        let (len, segments) = manifest.into_end();
        Ok(Some(Self(Mutex::new(Open {
            file: dir.open_file_to_write(Path::new(MANIFEST))?,
            len,
            segments,
        }))))
    }

    /// Of the segments that go into a part with a number those that are not there.
    pub(super) fn lost(&self, table: &Table, seq: u32, there: &[u32]) -> Vec<u32> {
        let open = self.lock();
        let due = open.segments.get(table.name).into_iter().flatten();
        due.copied()
            .filter(|segment| *segment <= seq && !there.contains(segment))
            .collect()
    }

    /// Adds a line, and says how many bytes that took. All but those of segments last through a crash
    /// of the machine when this returns.
    pub(super) fn add(&self, line: &Line) -> io::Result<u64> {
        let mut text = serde_json::to_vec(line)?;
        seal_line(&mut text);
        let mut open = self.lock();
        let lasts = !matches!(line, Line::Recording { .. } | Line::Segment { .. });
        let written = open.file.write_all_at(&text, open.len);
        let synced = written.and_then(|()| match lasts {
            true => open.file.sync_data(),
            false => Ok(()),
        });
        if let Err(error) = synced {
            // Half a line would be damage to whoever reads what comes behind it.
            let _ = open.file.set_len(open.len);
            return Err(error);
        }
        open.len += text.len() as u64;
        open.note(line);
        Ok(text.len() as u64)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn note(&mut self, line: &Line) {
        match line {
            Line::Segment { table, seq } => {
                self.segments.entry(table.clone()).or_default().insert(*seq);
            }
            Line::Lost { table, seq } => {
                let due = self.segments.get_mut(table);
                let _ = due.is_some_and(|due| due.remove(seq));
            }
            Line::Part {
                table,
                seq,
                replaced,
                ..
            } => {
                let due = self.segments.entry(table.clone()).or_default();
                due.retain(|segment| segment > seq || replaced.segments.contains(segment));
            }
            Line::Recording { .. } | Line::Closed {} => {}
        }
    }
}
