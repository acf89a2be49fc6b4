//! The part of every process in what several share.

use super::Attributor;
use crate::HeldBasis;
use crate::attribution::{Fitted, fit};
use crate::shares::Share;
use memtrace_model::Bytes;
use memtrace_model::tables::{PssRow, ShmObjectRow};
use std::collections::{HashMap, HashSet};

impl Attributor<'_> {
    /// The part of every process that held memory, as far as its kinds are known. They add up to what
    /// all held, but for what only the kernel's sum tells.
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
        let (mut unknown, mut most) = (HashSet::new(), Vec::new());
        let mut shares: Vec<Share> = Vec::with_capacity(self.holders.len());
        for (process, amounts) in self.holders.iter() {
            let Some(line) = self.anon_line(*process, amounts) else {
                continue;
            };
            let upid = self.upid(*process);
            let read = self.readings.pss.get(&upid);
            let read = |get: fn(&PssRow) -> Option<Bytes>| read.and_then(get).unwrap_or_default();
            let part = parts.get(&upid.0).copied();
            if part.is_none() {
                unknown.insert(*process);
            }
            most.push(line.most);
            shares.push(Share {
                process: *process,
                anon_bytes: line.bytes,
                anon_basis: line.basis,
                shmem_bytes: Bytes(part.or(shmem.get(&upid.0).copied()).unwrap_or_default()),
                huge_bytes: read(|row| row.hugetlb_bytes),
                page_tables_bytes: read(|row| row.page_tables_bytes),
                pinned_bytes: read(|row| row.pinned_bytes),
            });
        }
        let once = &self.state.once;
        let parts = shares.iter_mut().zip(most).map(|(share, most)| Fitted {
            bytes: &mut share.anon_bytes,
            basis: &mut share.anon_basis,
            most,
        });
        fit(
            parts.collect(),
            once.anon.bytes,
            once.basis == HeldBasis::Cgroup,
        );
        // What is of a known object is known; all others share the rest.
        let (others, known): (Vec<&mut Share>, Vec<&mut Share>) = shares
            .iter_mut()
            .partition(|share| unknown.contains(&share.process));
        let all = once.shared.bytes.0;
        let shmem: fn(&mut Share) -> &mut Bytes = |share| &mut share.shmem_bytes;
        let left = all - scale(known, all, shmem);
        scale(others, left.max(0), shmem);
        let all = shares.iter_mut().collect();
        scale(all, once.huge.bytes.0, |share| &mut share.huge_bytes);
        shares
    }
}

/// Makes parts of what is shared no more than there is, each by the same factor. Answers their sum.
fn scale(mut parts: Vec<&mut Share>, most: i64, amount: impl Fn(&mut Share) -> &mut Bytes) -> i64 {
    let sum: i64 = parts.iter_mut().map(|part| amount(part).0).sum();
    if sum <= most {
        return sum;
    }
    for part in parts {
        let amount = amount(part);
        let scaled = i128::from(amount.0) * i128::from(most) / i128::from(sum);
        *amount = Bytes(i64::try_from(scaled).unwrap_or(i64::MAX));
    }
    most
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
    use memtrace_model::{BootNs, Upid, WallNs};

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
    fn parts_are_no_more_than_there_is() {
        let share = |bytes| Share {
            shmem_bytes: Bytes(bytes),
            ..Share::default()
        };
        let mut parts = [share(300), share(100)];
        let shmem: fn(&mut Share) -> &mut Bytes = |share| &mut share.shmem_bytes;
        assert_eq!(scale(parts.iter_mut().collect(), 400, shmem), 400);
        assert_eq!(parts, [share(300), share(100)]);
        assert_eq!(scale(parts.iter_mut().collect(), 200, shmem), 200);
        assert_eq!(parts, [share(150), share(50)]);
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
