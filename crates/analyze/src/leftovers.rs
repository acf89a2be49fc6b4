//! What was left of the tree at the end of the recording: `survivor` and `orphaned_shm`.

use super::composition::{Composition, together};
use super::process::Process;
use super::process_table::ProcessTable;
use super::who::{OwnerKeys, Who};
use memtrace_model::keys;
use memtrace_model::tables::{OrphanedShmRow, ShmObjectRow, SurvivorRow};
use memtrace_model::{BootNs, Bytes, Fate, MappingKind, Order, RowSource, ShmFamily, Tgid, Upid};
use memtrace_report::words::{bytes, bytes_or_unknown};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// What was left behind.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Leftovers {
    /// How many processes outlived the root of their tree; `survivors` may list fewer.
    pub survivor_count: usize,
    /// What they held together, every page once, swap included; null when that is unknown.
    #[serde(rename = "survivors_held_bytes")]
    pub held: Option<Bytes>,
    /// Those processes, the one that held most first.
    #[serde(rename = "survivors")]
    pub outlived: Vec<Survivor>,
    /// How many objects of shared memory have no owner; `orphaned_shm` may list fewer.
    pub orphaned_shm_count: usize,
    /// Those objects, the largest first.
    #[serde(rename = "orphaned_shm")]
    pub objects: Vec<OrphanedShmObject>,
}

/// A process that outlived the root of its tree.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Survivor {
    /// What was recorded of it.
    #[serde(flatten, with = "SurvivorKeys")]
    pub row: SurvivorRow,
    /// Which process; without a name where it has no row in `process`.
    #[serde(flatten)]
    pub who: Who,
    /// What it held then, its part of shared pages alone, and swap; `None` when unknown.
    #[serde(skip)]
    pub part: Option<Bytes>,
}

/// Shared memory that nobody had mapped or open any more.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OrphanedShmObject {
    /// What was recorded of it.
    #[serde(flatten, with = "ObjectKeys")]
    pub row: OrphanedShmRow,
    /// The process that made it, or the first that was seen to map it.
    #[serde(flatten, with = "OwnerKeys")]
    pub owner: Who,
}

keys! {
    SurvivorKeys of row: SurvivorRow {
        /// Process id of its parent by then.
        parent_pid: Option<Tgid> = row.parent_tgid,
        /// The kernel's name for that.
        parent_comm: Option<String> = row.parent_comm.clone(),
        /// Anonymous memory in RAM; null when unknown.
        anon_bytes: Option<Bytes> = row.rss_anon_bytes,
        /// Resident pages of mapped files.
        file_bytes: Option<Bytes> = row.rss_file_bytes,
        /// Resident shared memory.
        shmem_bytes: Option<Bytes> = row.rss_shmem_bytes,
        /// Memory swapped out.
        swap_bytes: Option<Bytes> = row.swap_bytes,
        /// What it held on all GPUs when it was last seen; null when the driver does not tell.
        gpu_bytes: Option<Bytes> = row.gpu_bytes,
        /// What became of it.
        fate: Option<Fate> = row.fate,
    }
}

keys! {
    ObjectKeys of row: OrphanedShmRow {
        /// What it is.
        kind: Option<MappingKind> = row.kind,
        /// Path of the file, or the key of the segment in hexadecimal.
        name: String = row.name.clone(),
        /// Device of its file system; null for a System V segment.
        device: Option<String> = row.device.clone(),
        /// Inode; of a System V segment its id.
        inode: i64 = row.inode,
        /// Whose it is by its name; null when the name says nothing.
        family: Option<ShmFamily> = row.family,
        /// Process id of its creator; null when nothing tells.
        creator_pid: Option<Tgid> = row.creator_tgid,
        /// User it belongs to.
        uid: Option<i64> = row.uid,
        /// Apparent size; null when unknown.
        size_bytes: Option<Bytes> = row.size_bytes,
        /// Memory and swap it takes.
        allocated_bytes: Option<Bytes> = row.allocated_bytes,
        /// Whether every process could be looked into; false: one of the others may have it.
        is_certain: bool = row.is_certain,
    }
}

/// When the first survivors were looked at.
pub(super) fn looked_at<S: RowSource>(source: &S) -> Result<Option<BootNs>, S::Error> {
    let mut first: Option<BootNs> = None;
    source.scan(&["boot_ns", "has_root_ended"], |row: SurvivorRow| {
        if row.has_root_ended {
            first = Some(first.map_or(row.boot_ns, |first| first.min(row.boot_ns)));
        }
    })?;
    Ok(first)
}

impl Leftovers {
    /// Notes what was held when the first survivors were looked at.
    pub(super) fn note(&mut self, state: &Composition, table: &ProcessTable) {
        let parts: HashMap<usize, Bytes> = state
            .shares
            .iter()
            .map(|share| (share.process, share.bytes()))
            .collect();
        for one in &mut self.outlived {
            let place = table.find(one.row.upid);
            let part = place.and_then(|place| parts.get(&place).copied());
            one.part = part.map(|part| part + one.row.swap_bytes.unwrap_or_default());
        }
        self.held = self.outlived.iter().map(|one| one.part).sum();
    }
}

/// What some survivors held, every page once, in words.
pub(super) fn held_in_words<'a>(survivors: impl Iterator<Item = &'a Survivor> + Clone) -> String {
    let held: Option<Bytes> = survivors.clone().map(|one| one.part).sum();
    match held {
        Some(held) => bytes(held),
        None => {
            let sum = together(survivors.map(|one| one.row.held_bytes()));
            format!("{} (sum of RSS and swap)", bytes_or_unknown(sum))
        }
    }
}

/// Reads both tables.
pub(super) fn read<S: RowSource>(source: &S, table: &ProcessTable) -> Result<Leftovers, S::Error> {
    let mut left = Leftovers::default();
    source.scan(&[], |row: SurvivorRow| {
        if row.has_root_ended {
            let process = table.find(row.upid);
            let who = Who {
                pid: Some(row.tgid),
                upid: Some(row.upid),
                name: process.map(|place| Arc::clone(&table.processes[place].name)),
                is_main: false,
            };
            let part = None;
            left.outlived.push(Survivor { row, who, part });
        }
    })?;
    left.outlived
        .order_by_key(|one| (std::cmp::Reverse(one.row.held_bytes()), one.row.upid));
    source.scan(&[], |row: OrphanedShmRow| {
        let owner = Who::default();
        left.objects.push(OrphanedShmObject { row, owner });
    })?;
    left.survivor_count = left.outlived.len();
    left.orphaned_shm_count = left.objects.len();
    if left.objects.is_empty() {
        return Ok(left);
    }
    let users = first_users(source, &left.objects)?;
    for object in &mut left.objects {
        let row = &object.row;
        let creator = || {
            let made = |process: &Process| {
                process.tgid == row.creator_tgid && process.start.boot_ns <= row.boot_ns
            };
            // Ids are used again: the latest.
            row.creator_tgid
                .and_then(|_| table.processes.iter().rposition(made))
        };
        let user = users.get(&key(row.device.as_deref(), row.inode));
        let user = user.and_then(|upid| table.find(*upid));
        if let Some(place) = creator().or(user) {
            object.owner = Who::from(&table.processes[place]);
        }
    }
    left.objects
        .order_by_key(|one| (std::cmp::Reverse(one.row.allocated_bytes), one.row.inode));
    Ok(left)
}

/// A System V segment has no device in `orphaned_shm`; its id is its inode in both tables.
fn key(device: Option<&str>, inode: i64) -> (String, i64) {
    (device.unwrap_or_default().to_owned(), inode)
}

/// Who mapped each first, or had it open first where nobody mapped it. An inode can be used again: of those
/// who mapped it the last one counts.
fn first_users<S: RowSource>(
    source: &S,
    objects: &[OrphanedShmObject],
) -> Result<HashMap<(String, i64), Upid>, S::Error> {
    let mut by_inode: HashMap<i64, Vec<&OrphanedShmObject>> = HashMap::new();
    for object in objects {
        by_inode.entry(object.row.inode).or_default().push(object);
    }
    let mut users = HashMap::new();
    source.scan(&[], |row: ShmObjectRow| {
        let same = by_inode.get(&row.inode).into_iter().flatten();
        let wanted = same.copied().find(|one| {
            let device = one.row.device.as_deref();
            one.row.kind == row.kind && device.is_none_or(|device| device == row.device)
        });
        let Some(wanted) = wanted.map(|wanted| key(wanted.row.device.as_deref(), row.inode)) else {
            return;
        };
        if let Some(mapper) = row.first_mapper_upid {
            users.insert(wanted, mapper);
        } else if let Some(opener) = row.first_opener_upid {
            users.entry(wanted).or_insert(opener);
        }
    })?;
    Ok(users)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{Rows, boot};
    use memtrace_model::tables::MappingKind;
    use memtrace_model::{Record, WallNs};

    fn left(device: Option<&str>, inode: i64, kind: MappingKind) -> OrphanedShmObject {
        let row = OrphanedShmRow {
            ts: WallNs(0),
            boot_ns: boot(9.0),
            device: device.map(str::to_owned),
            inode,
            kind: Some(kind),
            name: String::new(),
            is_certain: true,
            ..OrphanedShmRow::default()
        };
        let owner = Who::default();
        OrphanedShmObject { row, owner }
    }

    fn seen(device: &str, inode: i64, kind: MappingKind, mapper: i64) -> Record {
        Record::from(ShmObjectRow {
            ts: WallNs(0),
            boot_ns: boot(1.0),
            device: device.to_owned(),
            inode,
            kind: Some(kind),
            is_deleted: false,
            mapper_count: 1,
            mappers: String::new(),
            first_mapper_upid: Some(Upid(mapper)),
            ..ShmObjectRow::default()
        })
    }

    #[test]
    fn who_first_mapped_or_opened_an_object_is_found_by_kind_device_and_inode() {
        let objects = [
            left(Some("0:25"), 7, MappingKind::Tmpfs),
            left(None, 7, MappingKind::Sysv),
            left(Some("0:25"), 8, MappingKind::Tmpfs),
            left(Some("0:25"), 9, MappingKind::Tmpfs),
        ];
        let opened = |inode, opener| {
            Record::from(ShmObjectRow {
                device: "0:25".to_owned(),
                inode,
                kind: Some(MappingKind::Tmpfs),
                first_opener_upid: Some(Upid(opener)),
                ..ShmObjectRow::default()
            })
        };
        let rows = Rows(vec![
            // Who only had it open counts where nobody mapped it.
            opened(7, 5),
            opened(9, 6),
            seen("0:25", 7, MappingKind::Tmpfs, 1),
            seen("0:1", 7, MappingKind::Sysv, 2),
            // Another file system's file 8.
            seen("0:99", 8, MappingKind::Tmpfs, 3),
            // The inode is used again: the later object is the one that was left.
            seen("0:25", 7, MappingKind::Tmpfs, 4),
        ]);
        let Ok(users) = first_users(&rows, &objects);
        let mut found: Vec<_> = users.into_iter().collect();
        found.sort_unstable();
        let file = |inode, upid| (key(Some("0:25"), inode), Upid(upid));
        let segment = (key(None, 7), Upid(2));
        assert_eq!(found, [segment, file(7, 4), file(9, 6)]);
    }
}
