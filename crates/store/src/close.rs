//! Completes the manifest of a recording that is closed.

use super::disk::Disk;
use super::error::StoreError;
use super::layout::{list, part_path};
use super::manifest::{Line, Manifest, PartReplaced};
use super::part_reader::{facts_of, head_of};
use super::reading::Reading;
use memtrace_model::TABLES;

/// Says that it is closed, and which segments are not there and were in no part.
pub(super) fn close_manifest(disk: &Disk, reading: &Reading) -> Result<(), StoreError> {
    list_unlisted(disk, reading)?;
    for table in TABLES {
        disk.list_lost(table, u32::MAX, &[])?;
    }
    disk.list(&Line::Closed {})
}

/// Names the parts that could not be named when they were made: the recorder was killed just then, or
/// the disk was full. To be done before anything is made of the segments that they stand for.
pub(super) fn list_unlisted(disk: &Disk, reading: &Reading) -> Result<(), StoreError> {
    let dir = &**disk.dir();
    let manifest = disk
        .id()
        .and_then(|id| Manifest::read(dir, id, &mut Vec::new()));
    let Some(manifest) = manifest else {
        return Ok(());
    };
    for table in TABLES {
        let files = list(dir, table.name)?;
        for &seq in &files.parts {
            if manifest.names(table.name, seq) || manifest.has_replaced(table.name, seq) {
                continue;
            }
            let path = part_path(table.name, seq);
            let Some(facts) = facts_of(&path, reading) else {
                continue;
            };
            let head = head_of(&path, reading);
            let has_rest = head.is_some_and(|head| head.cut_ns.is_some());
            let segments = files.segments.iter().copied();
            let segments = segments.filter(|segment| has_rest && *segment <= seq);
            disk.list(&Line::Part {
                table: table.name.to_owned(),
                seq,
                facts,
                replaced: PartReplaced {
                    segments: segments.collect(),
                    replaces_from: head.and_then(|head| head.replaces_from),
                },
            })?;
        }
    }
    Ok(())
}
