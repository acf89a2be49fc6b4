//! What stood at an instant, of tables whose rows hold until the next one of the same thing:
//! `pss`, `shm_object`, `cached_file`.

use super::RowSource;
use crate::model::tables::{CachedFileRow, PssRow, ShmObjectRow};
use crate::model::{BootNs, Upid};
use std::collections::HashMap;
use std::hash::Hash;

/// Device and inode.
type ObjectKey = (String, i64);

/// What is known about sharing at one instant.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) pss: HashMap<Upid, PssRow>,
    pub(super) objects: Vec<ShmObjectRow>,
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
        let is_better = match self.rows.get(&key) {
            None => true,
            Some((kept, _)) if *kept <= self.at => boot_ns <= self.at && boot_ns >= *kept,
            Some((kept, _)) => boot_ns < *kept,
        };
        if is_better {
            self.rows.insert(key, (boot_ns, row));
        }
    }

    fn into_rows(self) -> impl Iterator<Item = (K, R)> {
        self.rows.into_iter().map(|(key, (_, row))| (key, row))
    }
}

/// Reads the three tables once. `None` for a recording that has nothing in them.
pub(super) fn read<S: RowSource>(
    source: &S,
    instants: &[BootNs],
) -> Result<Option<Vec<Standing>>, S::Error> {
    let mut is_empty = true;
    let mut pss: Vec<Kept<Upid, PssRow>> = instants.iter().map(|&at| Kept::new(at)).collect();
    source.scan(&[], |row: PssRow| {
        is_empty = false;
        for kept in &mut pss {
            kept.take(row.upid, row.boot_ns, row);
        }
    })?;
    let mut objects: Vec<Kept<ObjectKey, ShmObjectRow>> =
        instants.iter().map(|&at| Kept::new(at)).collect();
    source.scan(&[], |row: ShmObjectRow| {
        is_empty = false;
        for kept in &mut objects {
            let key = (row.device.clone(), row.inode);
            kept.take(key, row.boot_ns, row.clone());
        }
    })?;
    let mut files: Vec<Kept<ObjectKey, CachedFileRow>> =
        instants.iter().map(|&at| Kept::new(at)).collect();
    source.scan(&[], |row: CachedFileRow| {
        is_empty = false;
        for kept in &mut files {
            let key = (row.device.clone(), row.inode);
            kept.take(key, row.boot_ns, row.clone());
        }
    })?;
    if is_empty {
        return Ok(None);
    }
    let all = pss.into_iter().zip(objects).zip(files);
    let standings = all.map(|((pss, objects), files)| Standing {
        pss: pss.into_rows().collect(),
        objects: objects.into_rows().map(|(_, row)| row).collect(),
        files: files.into_rows().map(|(_, row)| row).collect(),
    });
    Ok(Some(standings.collect()))
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
        assert_eq!(kept(&[110, 90, 10]), Some(90));
        assert_eq!(kept(&[150, 120, 130]), Some(120));
        assert_eq!(kept(&[]), None);
    }
}
