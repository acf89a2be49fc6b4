//! What stood at an instant, of tables whose rows hold until the next one of the same thing:
//! `pss`, `shm_object`, `cached_file`.

use memtrace_model::tables::{CachedFileRow, PssRow, ShmObjectRow};
use memtrace_model::{BootNs, RowSource, Upid};
use std::collections::HashMap;
use std::hash::Hash;

/// Device and inode.
pub(super) type ObjectKey = (String, i64);

/// What is known about sharing at one instant.
#[derive(Clone, Debug)]
pub(super) struct ReadingsNear {
    pub(super) pss: HashMap<Upid, PssRow>,
    /// Where nobody could be asked what an object takes, that is as it was reported next to the
    /// instant.
    pub(super) objects: Vec<ShmObjectRow>,
    /// When those amounts were reported.
    pub(super) amounts_of: HashMap<ObjectKey, BootNs>,
    pub(super) files: Vec<CachedFileRow>,
}

/// The row of each thing that stood at an instant; of one that was first looked at later,
/// the first row.
#[derive(Debug)]
struct Kept<K, R> {
    at: BootNs,
    rows: HashMap<K, (BootNs, R)>,
}

impl<K: Eq + Hash, R> Kept<K, R> {
    fn new(at: BootNs) -> Self {
        Self {
            at,
            rows: HashMap::new(),
        }
    }

    fn take(&mut self, key: K, boot_ns: BootNs, row: R) {
        if boot_ns <= self.at || !self.rows.contains_key(&key) {
            self.rows.insert(key, (boot_ns, row));
        }
    }

    fn into_kept(self) -> HashMap<K, (BootNs, R)> {
        self.rows
    }

    fn into_rows(self) -> impl Iterator<Item = (K, R)> {
        self.rows.into_iter().map(|(key, (_, row))| (key, row))
    }
}

impl ReadingsNear {
    /// Whether nothing was read.
    pub(super) fn is_empty(&self) -> bool {
        self.pss.is_empty() && self.objects.is_empty() && self.files.is_empty()
    }
}

/// Reads the three tables once.
pub(super) fn read<S: RowSource>(
    source: &S,
    instants: &[BootNs],
) -> Result<Vec<ReadingsNear>, S::Error> {
    let mut pss: Vec<Kept<Upid, PssRow>> = instants.iter().map(|&at| Kept::new(at)).collect();
    source.scan(&[], |row: PssRow| {
        for kept in &mut pss {
            kept.take(row.upid, row.boot_ns, row);
        }
    })?;
    let mut objects: Vec<Kept<ObjectKey, ShmObjectRow>> =
        instants.iter().map(|&at| Kept::new(at)).collect();
    let mut in_memory: Vec<Kept<ObjectKey, ShmObjectRow>> =
        instants.iter().map(|&at| Kept::new(at)).collect();
    source.scan(&[], |row: ShmObjectRow| {
        let key = || (row.device.clone(), row.inode);
        for kept in &mut objects {
            kept.take(key(), row.boot_ns, row.clone());
        }
        if row.in_memory_bytes().is_some_and(|bytes| bytes.0 > 0) {
            for kept in &mut in_memory {
                kept.take(key(), row.boot_ns, row.clone());
            }
        }
    })?;
    let mut files: Vec<Kept<ObjectKey, CachedFileRow>> =
        instants.iter().map(|&at| Kept::new(at)).collect();
    source.scan(&[], |row: CachedFileRow| {
        for kept in &mut files {
            let key = (row.device.clone(), row.inode);
            kept.take(key, row.boot_ns, row.clone());
        }
    })?;
    let objects = objects.into_iter().zip(in_memory);
    let all = pss.into_iter().zip(objects).zip(files);
    let standings = all.map(|((pss, (objects, reported)), files)| {
        let (objects, amounts_of) = with_amounts(objects, reported);
        ReadingsNear {
            pss: pss.into_rows().collect(),
            objects,
            amounts_of,
            files: files.into_rows().map(|(_, row)| row).collect(),
        }
    });
    Ok(standings.collect())
}

/// Gives objects that are mapped, and that nobody could be asked about, the amounts of the
/// neighbouring row that has them.
fn with_amounts(
    objects: Kept<ObjectKey, ShmObjectRow>,
    reported: Kept<ObjectKey, ShmObjectRow>,
) -> (Vec<ShmObjectRow>, HashMap<ObjectKey, BootNs>) {
    let reported = reported.into_kept();
    let mut amounts_of = HashMap::new();
    let rows = objects.into_rows().map(|(key, mut row)| {
        if row.in_memory_bytes().is_none()
            && row.mapper_count > 0
            && let Some((at, neighbour)) = reported.get(&key)
        {
            row.size_bytes = neighbour.size_bytes;
            row.allocated_bytes = neighbour.allocated_bytes;
            row.resident_bytes = neighbour.resident_bytes;
            amounts_of.insert(key, *at);
        }
        row
    });
    (rows.collect(), amounts_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_before_the_instant_stands_and_else_the_first_after_it() {
        let kept = |times: &[i64]| {
            let mut kept = Kept::new(BootNs(100));
            for &time in times {
                kept.take((), BootNs(time), time);
            }
            kept.into_rows().next().map(|((), row)| row)
        };
        assert_eq!(kept(&[10, 90, 100, 110]), Some(100));
        assert_eq!(kept(&[120, 130, 150]), Some(120));
        assert_eq!(kept(&[]), None);
    }
}
