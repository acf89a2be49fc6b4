//! The part of every process in what several share.

use super::Attributor;
use crate::analyze::attribution::Basis;
use crate::analyze::shares::Share;
use crate::model::Bytes;
use crate::model::tables::ShmObjectRow;
use crate::sweep::Amounts;
use std::collections::HashMap;

impl Attributor<'_> {
    /// The part of every process that held memory.
    pub(super) fn shares(&self) -> Vec<Share> {
        let shmem: HashMap<i64, i64> = self
            .holders
            .iter()
            .map(|(process, amounts)| {
                let held = amounts.shmem().map_or(0, |held| held.0);
                (self.upid(*process).0, held)
            })
            .collect();
        let mut parts: HashMap<i64, i64> = HashMap::new();
        for object in self.objects_there() {
            for (upid, part) in divide(object, &shmem) {
                *parts.entry(upid).or_default() += part;
            }
        }
        let share = |&(process, amounts): &(usize, Amounts)| {
            let line = self.anon_line(process, &amounts);
            let part = parts.get(&self.upid(process).0).copied();
            Share {
                process,
                anon_bytes: line.as_ref().map(|line| line.bytes),
                anon_basis: line.map_or(Basis::UpperBound, |line| line.basis),
                shmem_bytes: part.map(Bytes).or_else(|| unattributed(&amounts)),
            }
        };
        self.holders.iter().map(share).collect()
    }
}

/// The part of a process that maps no known object: nothing, where it has no shared memory.
fn unattributed(amounts: &Amounts) -> Option<Bytes> {
    amounts.shmem().filter(|held| held.0 == 0)
}

/// Divides what an object takes of memory among its mappers.
fn divide(object: &ShmObjectRow, shmem: &HashMap<i64, i64>) -> Vec<(i64, i64)> {
    let object_bytes = object.in_memory_bytes().map_or(0, |bytes| bytes.0);
    let mappers = object
        .mappers
        .split(' ')
        .filter_map(|upid| upid.parse().ok());
    let mappers: Vec<(i64, i64)> = mappers
        .filter_map(|upid: i64| Some((upid, *shmem.get(&upid)?)))
        .collect();
    let all: i64 = mappers.iter().map(|(_, held)| held).sum();
    if all == 0 {
        // Nobody has a page of it: it is whose it was first.
        let first = object.first_mapper_upid.map(|upid| upid.0);
        return first.map(|upid| (upid, object_bytes)).into_iter().collect();
    }
    let part = |held: i64| (object_bytes as f64 * held as f64 / all as f64) as i64;
    mappers
        .iter()
        .map(|(upid, held)| (*upid, part(*held)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::golden::mem_row;
    use crate::model::tables::MemRow;
    use crate::model::{BootNs, Upid, WallNs};

    fn object(mappers: &str) -> ShmObjectRow {
        ShmObjectRow {
            ts: WallNs(0),
            boot_ns: BootNs(0),
            device: "0:25".to_owned(),
            inode: 1,
            is_deleted: false,
            allocated_bytes: Some(Bytes(300)),
            resident_bytes: Some(Bytes(300)),
            mapper_count: 3,
            mappers: mappers.to_owned(),
            first_mapper_upid: Some(Upid(6)),
            ..ShmObjectRow::default()
        }
    }

    #[test]
    fn shared_memory_of_no_known_object_is_unknown_not_nothing() {
        let held = |shmem| {
            Amounts::of(&MemRow {
                rss_shmem_bytes: shmem,
                ..mem_row(1, 0, None)
            })
        };
        assert_eq!(unattributed(&held(Some(Bytes(256)))), None);
        assert_eq!(unattributed(&held(None)), None);
        assert_eq!(unattributed(&held(Some(Bytes(0)))), Some(Bytes(0)));
    }

    #[test]
    fn an_object_is_divided_by_what_each_mapper_has_of_it() {
        let shmem = HashMap::from([(6, 0), (9, 200), (10, 100), (11, 500)]);
        assert_eq!(
            divide(&object("6 9 10"), &shmem),
            [(6, 0), (9, 200), (10, 100)]
        );
    }

    #[test]
    fn an_object_that_nobody_touched_is_its_first_mappers() {
        let shmem = HashMap::from([(6, 0), (9, 0)]);
        assert_eq!(divide(&object("6 9"), &shmem), [(6, 300)]);
    }
}
