//! What a reading adds up: amounts by object, whichever way they were learned.

use super::mappings::{Backing, Device, Header, kind};
use memtrace_model::{MappingKind, Order};
use std::collections::HashMap;

/// Amounts in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct MappingBytes {
    pub(super) rss: f64,
    /// `None` when pages are shared with a number of others that could not be learned.
    pub(super) pss: Option<f64>,
    pub(super) private: f64,
    pub(super) anon: f64,
    /// Part of the PSS that is anonymous pages.
    pub(super) anon_pss: Option<f64>,
    pub(super) swap: f64,
    pub(super) huge: f64,
}

impl MappingBytes {
    pub(super) const NONE: Self = Self {
        rss: 0.0,
        pss: Some(0.0),
        private: 0.0,
        anon: 0.0,
        anon_pss: Some(0.0),
        swap: 0.0,
        huge: 0.0,
    };

    pub(super) fn add(&mut self, other: &Self) {
        self.rss += other.rss;
        self.pss = sum(self.pss, other.pss);
        self.private += other.private;
        self.anon += other.anon;
        self.anon_pss = sum(self.anon_pss, other.anon_pss);
        self.swap += other.swap;
        self.huge += other.huge;
    }

    /// The amounts `factor` times.
    pub(super) fn scaled(&self, factor: f64) -> Self {
        Self {
            rss: self.rss * factor,
            pss: self.pss.map(|pss| pss * factor),
            private: self.private * factor,
            anon: self.anon * factor,
            anon_pss: self.anon_pss.map(|pss| pss * factor),
            swap: self.swap * factor,
            huge: self.huge * factor,
        }
    }
}

fn sum(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? + b?)
}

/// What names an object. Memory without an object is one per kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ObjectKey {
    pub(super) kind: MappingKind,
    /// `None` for memory without an inode.
    pub(super) inode: Option<(Device, u64)>,
}

/// Everything a process maps of one object.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) path: Option<String>,
    pub(super) is_deleted: bool,
    /// Whether one of its mappings writes to it: MAP_SHARED.
    pub(super) is_shared: bool,
    /// Where one of its mappings lies: the name of its link in map_files.
    pub(super) range: (u64, u64),
    pub(super) mapping_count: i64,
    pub(super) size: i64,
    pub(super) amounts: MappingBytes,
}

/// Amounts by object.
#[derive(Debug, Default)]
pub(super) struct MappingTotals {
    objects: HashMap<ObjectKey, Object>,
}

/// The three kinds of RSS that the kernel counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Anon,
    File,
    Shmem,
}

/// Which of the kernel's counters has the pages of a mapping that were not written to
/// privately.
pub(super) fn class(kind: MappingKind) -> Class {
    match kind {
        MappingKind::Heap | MappingKind::Stack | MappingKind::Anonymous => Class::Anon,
        MappingKind::File | MappingKind::Device | MappingKind::Kernel | MappingKind::Hugetlb => {
            Class::File
        }
        MappingKind::Tmpfs
        | MappingKind::Memfd
        | MappingKind::Sysv
        | MappingKind::SharedAnonymous => Class::Shmem,
    }
}

impl MappingTotals {
    /// Enters a mapping. Amounts are added to its object with [`MappingTotals::add`].
    pub(super) fn enter(&mut self, header: &Header<'_>, backing: Backing) -> ObjectKey {
        let kind = kind(header, backing);
        let key = ObjectKey {
            kind,
            inode: (header.inode != 0).then_some((header.device, header.inode)),
        };
        let object = self.objects.entry(key).or_insert_with(|| {
            let (name, is_deleted) = header.name();
            let is_named = key.inode.is_some() || kind == MappingKind::Device;
            Object {
                path: is_named.then(|| String::from_utf8_lossy(name).into_owned()),
                is_deleted,
                is_shared: false,
                range: (header.start, header.end),
                mapping_count: 0,
                size: 0,
                amounts: MappingBytes::NONE,
            }
        });
        object.is_shared |= header.is_shared;
        object.mapping_count += 1;
        let size = i64::try_from(header.end - header.start).unwrap_or(i64::MAX);
        object.size = object.size.saturating_add(size);
        key
    }

    pub(super) fn add(&mut self, key: ObjectKey, amounts: &MappingBytes) {
        if let Some(object) = self.objects.get_mut(&key) {
            object.amounts.add(amounts);
        }
    }

    /// Every object, in a stable order.
    pub(super) fn objects(&self) -> Vec<(ObjectKey, &Object)> {
        let mut all: Vec<_> = self.objects.iter().map(|(key, o)| (*key, o)).collect();
        all.order_by_key(|(key, _)| *key);
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The amounts of all objects.
    pub(super) fn total(&self) -> MappingBytes {
        let mut total = MappingBytes::NONE;
        for object in self.objects.values() {
            total.add(&object.amounts);
        }
        total
    }

    /// Pages of anonymous mappings that no other process maps.
    pub(super) fn private_anon(&self) -> f64 {
        let objects = self.objects.iter();
        let anonymous = objects.filter(|(key, _)| class(key.kind) == Class::Anon);
        anonymous.map(|(_, object)| object.amounts.private).sum()
    }

    /// The resident pages that the reading saw: anonymous ones, of files, of shared memory.
    pub(super) fn rss_by_class(&self) -> [f64; 3] {
        let [mut anon, mut file, mut shmem] = [0.0; 3];
        for (key, object) in &self.objects {
            let amounts = &object.amounts;
            let own_class = match class(key.kind) {
                Class::Anon => {
                    anon += amounts.rss;
                    continue;
                }
                Class::File => &mut file,
                Class::Shmem => &mut shmem,
            };
            *own_class += amounts.rss - amounts.anon;
            anon += amounts.anon;
        }
        [anon, file, shmem]
    }

    /// The PSS of anonymous pages, of files, of shared memory.
    pub(super) fn pss_by_class(&self) -> [Option<f64>; 3] {
        let mut kinds = [Some(0.0); 3];
        for (key, object) in &self.objects {
            let amounts = &object.amounts;
            let others = amounts
                .pss
                .zip(amounts.anon_pss)
                .map(|(all, anon)| all - anon);
            let [anon, file, shmem] = &mut kinds;
            let own_class = match class(key.kind) {
                Class::Anon => {
                    *anon = sum(*anon, amounts.pss);
                    continue;
                }
                Class::File => file,
                Class::Shmem => shmem,
            };
            *own_class = sum(*own_class, others);
            *anon = sum(*anon, amounts.anon_pss);
        }
        kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(lines: &[(&str, Backing, MappingBytes)]) -> MappingTotals {
        let mut totals = MappingTotals::default();
        for (line, backing, amounts) in lines {
            let key = totals.enter(&Header::parse(line.as_bytes()).unwrap(), *backing);
            totals.add(key, amounts);
        }
        totals
    }

    fn amounts(rss: f64, pss: f64, anon: f64) -> MappingBytes {
        MappingBytes {
            rss,
            pss: Some(pss),
            anon,
            anon_pss: Some(anon),
            ..MappingBytes::NONE
        }
    }

    #[test]
    fn mappings_of_one_object_are_one_line_and_those_without_are_one_per_kind() {
        let totals = totals(&[
            (
                "1000-2000 r--p 0 fd:01 9 /lib/x",
                Backing::Files,
                amounts(8.0, 4.0, 0.0),
            ),
            (
                "2000-4000 rw-p 0 fd:01 9 /lib/x",
                Backing::Files,
                amounts(8.0, 6.0, 5.0),
            ),
            (
                "5000-6000 rw-p 0 00:00 0 ",
                Backing::Files,
                amounts(1.0, 1.0, 1.0),
            ),
            (
                "7000-8000 rw-p 0 00:00 0 ",
                Backing::Files,
                amounts(1.0, 1.0, 1.0),
            ),
            (
                "8000-9000 rw-s 0 00:01 9 /memfd:x (deleted)",
                Backing::KernelTmpfs,
                amounts(3.0, 3.0, 0.0),
            ),
        ]);
        let objects = totals.objects();
        assert_eq!(objects.len(), 3, "{objects:?}");
        let library = objects
            .iter()
            .find(|(key, _)| key.kind == MappingKind::File);
        let library = library.unwrap().1;
        assert_eq!((library.mapping_count, library.size), (2, 0x3000));
        assert_eq!(library.path.as_deref(), Some("/lib/x"));
        assert_eq!(totals.pss_by_class(), [Some(7.0), Some(5.0), Some(3.0)]);
    }

    #[test]
    fn one_unknown_part_makes_the_kind_unknown_and_no_other() {
        let unknown = MappingBytes {
            rss: 5.0,
            pss: None,
            ..MappingBytes::NONE
        };
        let totals = totals(&[
            ("1000-2000 r--p 0 fd:01 9 /lib/x", Backing::Files, unknown),
            (
                "5000-6000 rw-p 0 00:00 0 ",
                Backing::Files,
                amounts(1.0, 1.0, 1.0),
            ),
        ]);
        assert_eq!(totals.pss_by_class(), [Some(1.0), None, Some(0.0)]);
        assert_eq!(totals.total().pss, None);
    }
}
