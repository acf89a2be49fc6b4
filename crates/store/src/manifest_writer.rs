//! Adds lines to the manifest of a recording that is written.

use super::checksum::seal_line;
use super::dir::Dir;
use super::manifest::{Line, MANIFEST, Manifest, note_segments};
use memtrace_model::Table;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The manifest, for all that write files of rows.
#[derive(Debug)]
pub(super) struct ManifestWriter {
    file: File,
    end: Mutex<End>,
}

#[derive(Debug, Default)]
struct End {
    len: u64,
    /// Segments that have rows which are in no part.
    segments: HashMap<String, BTreeSet<u32>>,
}

impl ManifestWriter {
    /// That of a new recording, in an empty file.
    pub(super) fn new(file: File) -> Self {
        Self {
            file,
            end: Mutex::default(),
        }
    }

    /// Goes on with that of a recording that was left. `None` where there is none to go on with: one
    /// that begins in the middle would know nothing of what is missing.
    pub(super) fn resume(dir: &Dir, id: &str) -> io::Result<Option<Self>> {
        let Some(manifest) = Manifest::read(dir, id, &mut Vec::new()) else {
            return Ok(None);
        };
        let (len, segments) = manifest.into_open();
        let file = dir.open_file_to_write(Path::new(MANIFEST))?;
        // Half a line that a killed recorder left.
        file.set_len(len)?;
        let end = Mutex::new(End { len, segments });
        Ok(Some(Self { file, end }))
    }

    /// Of the segments that go into a part with a number those that are not there.
    pub(super) fn lost(&self, table: &Table, seq: u32, there: &[u32]) -> Vec<u32> {
        let end = self.lock();
        let due = end.segments.get(table.name).into_iter().flatten();
        due.copied()
            .filter(|segment| *segment <= seq && !there.contains(segment))
            .collect()
    }

    /// Adds a line, and says how many bytes that took. All but those of segments last through a crash
    /// of the machine when this returns.
    pub(super) fn add(&self, line: &Line) -> io::Result<u64> {
        let mut text = serde_json::to_vec(line)?;
        seal_line(&mut text);
        let mut end = self.lock();
        if let Err(error) = self.file.write_all_at(&text, end.len) {
            // Half a line would be damage to whoever reads what comes behind it.
            let _ = self.file.set_len(end.len);
            return Err(error);
        }
        end.len += text.len() as u64;
        if let Line::Segment { table, .. } | Line::Lost { table, .. } | Line::Part { table, .. } =
            line
        {
            note_segments(end.segments.entry(table.clone()).or_default(), line);
        }
        drop(end);
        if !matches!(line, Line::Recording { .. } | Line::Segment { .. }) {
            self.file.sync_data()?;
        }
        Ok(text.len() as u64)
    }

    fn lock(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
