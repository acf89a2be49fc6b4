//! Ends the manifest of a recording that is closed.

use super::disk::Disk;
use super::error::StoreError;
use super::layout::{part_path, parts_of};
use super::manifest::{Line, Manifest, PartReplaced};
use super::part_reader::facts_of;
use super::reading::Reading;
use crate::model::TABLES;

/// Says that it is closed. A part that could not be named there when it was made, as on a disk that
/// was full, is named now, and so are segments that are not there and were in no part.
pub(super) fn close_manifest(disk: &Disk, reading: &Reading) -> Result<(), StoreError> {
    let dir = &**disk.dir();
    let manifest = disk
        .id()
        .and_then(|id| Manifest::read(dir, id, &mut Vec::new()));
    let Some(manifest) = manifest else {
        return Ok(());
    };
    for table in TABLES {
        disk.list_lost(table, u32::MAX, &[])?;
        for seq in parts_of(dir, table.name)? {
            if manifest.names(table.name, seq) {
                continue;
            }
            if let Some(facts) = facts_of(&part_path(table.name, seq), reading) {
                disk.list(&Line::Part {
                    table: table.name.to_owned(),
                    seq,
                    facts,
                    replaced: PartReplaced::default(),
                })?;
            }
        }
    }
    disk.list(&Line::Closed {})
}
