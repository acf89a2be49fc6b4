//! Closes a recording whose recorder was killed.

use super::append::RowBuffer;
use super::close::{close_manifest, list_unlisted};
use super::compact::{Through, compact};
use super::disk::Disk;
use super::error::StoreError;
use super::layout::{SPOOL, list, segment_path};
use super::problem::Problem;
use super::recording::Recording;
use super::run_file::{LockedRunFile, open_dir};
use super::segment_writer::SegmentWriter;
use super::writer::with_state;
use memtrace_model::tables::{DiagKind, DiagRow, Severity};
use memtrace_model::{BootNs, ClockOffset, Row, RunState, SCHEMA_VERSION, TABLES, WallNs};
use std::path::Path;
use std::sync::Arc;

/// What a recovery found and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoverReport {
    /// The recording was closed already; nothing was done.
    pub was_closed: bool,
    /// The time of the latest row, on the boot clock; unknown when there are no rows.
    pub last_boot_ns: Option<BootNs>,
    /// Files that could not be read in full. Damaged ones are kept in `damaged/`.
    pub problems: Vec<Problem>,
}

/// Closes a recording that its recorder did not: what is in the spool becomes Parquet, a
/// row in `diag` says so, and `run.json` says [`RunState::Recovered`]. It can be
/// interrupted and repeated.
///
/// # Errors
/// When the recorder still lives, when the recording is of a newer schema, and when the
/// files can't be read or written.
pub fn recover(dir: &Path) -> Result<RecoverReport, StoreError> {
    let opened = Arc::new(open_dir(dir)?);
    let lock = LockedRunFile::lock(&opened)?;
    let recording = Recording::of(Arc::clone(&opened))?;
    let info = recording.info();
    if info.schema_version.minor > SCHEMA_VERSION.minor {
        return Err(StoreError::NewerSchema {
            doing: "close",
            dir: dir.to_path_buf(),
            found: info.schema_version,
            memtrace_version: info.memtrace_version.clone(),
        });
    }
    let last_boot_ns = recording.last_boot_ns()?;
    if recording.is_closed() {
        return Ok(RecoverReport {
            was_closed: true,
            last_boot_ns,
            problems: recording.problems(),
        });
    }
    let disk = Disk::of_recording(opened, info.id.as_deref())?;
    note_recovery(&disk, &recording, last_boot_ns)?;
    // What is left out of a report, for its time say, is still in the recording.
    let reading = recording.reading().to_keep();
    list_unlisted(&disk, &reading)?;
    for table in TABLES {
        let joins = info.place.is_some();
        compact(&disk, &reading, table, Through::End { joins })?;
    }
    disk.remove_dir_if_empty(Path::new(SPOOL))?;
    close_manifest(&disk, &reading)?;
    let info = with_state(info.clone(), RunState::Recovered);
    // Its checksum says that all files have one, which the older ones of an old recording don't.
    let closed = match reading.has_checksums {
        true => LockedRunFile::write(&disk, &info)?,
        false => LockedRunFile::write_unsealed(&disk, &info)?,
    };
    drop((lock, closed));
    let mut problems = recording.problems();
    for problem in reading.problems() {
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    Ok(RecoverReport {
        was_closed: false,
        last_boot_ns,
        problems,
    })
}

/// Adds the row of `diag` that says so, unless an interrupted recovery has.
fn note_recovery(
    disk: &Disk,
    recording: &Recording,
    last_boot_ns: Option<BootNs>,
) -> Result<(), StoreError> {
    let diags = recording.rows::<DiagRow>()?;
    if diags
        .iter()
        .any(|row| row.kind == Some(DiagKind::Recovered))
    {
        return Ok(());
    }
    let clock = recording.info().clocks.last();
    // Where the recording ends: this moment may be after a reboot, on another clock.
    let boot_ns = last_boot_ns
        .or(clock.map(|clock| clock.boot_ns))
        .unwrap_or_default();
    let ts = clock.map_or(WallNs::default(), |&clock| {
        ClockOffset::at(clock).to_wall(boot_ns)
    });
    let row = DiagRow {
        ts,
        boot_ns,
        severity: Some(Severity::Loss),
        kind: Some(DiagKind::Recovered),
        subject: "recording".to_owned(),
        count: None,
        detail: "the recorder died, or could write no more, before it could close the \
                 recording: what came after this time is missing"
            .to_owned(),
    };
    let table = DiagRow::TABLE;
    let files = list(disk.dir(), table.name)?;
    let newest = files.segments.last().max(files.parts.last());
    let seq = newest.map_or(1, |newest| newest.saturating_add(1));
    let mut buffer = RowBuffer::new(table);
    buffer.push(&row.into());
    disk.create_dir(Path::new(SPOOL))?;
    let mut segment = SegmentWriter::create(disk, table, seq)?;
    let path = disk.full_path(&segment_path(table.name, seq));
    let batch = buffer
        .take()
        .map_err(|error| StoreError::encode(&path, &error))?;
    segment.write(disk, &batch)?;
    segment.close(disk)
}
