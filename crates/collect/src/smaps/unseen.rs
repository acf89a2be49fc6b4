//! Whether memory has moved that no counter tells of which is read often: huge pages of hugetlbfs and
//! page tables are in no RSS. The machine's own sums say so at little cost.

use crate::fields::{kib, number, pairs};
use crate::kept::{KeptFile, TextBuffer};
use memtrace_model::Bytes;
use std::fs;
use std::path::Path;

/// Page tables of all processes move all the time: by so much it is worth asking whose they are.
const WORTH: i64 = 8 << 20;

/// The sums of the machine.
#[derive(Debug)]
pub(super) struct Unseen {
    /// For each size of a huge page (Documentation/admin-guide/mm/hugetlbpage.rst).
    free_counts: Vec<KeptFile>,
    meminfo: Option<KeptFile>,
    /// Free huge pages by size when this was asked last.
    free: Option<Vec<Option<i64>>>,
    /// Page tables when they had last moved.
    page_tables: Option<Bytes>,
}

impl Unseen {
    /// `huge_pages` has a directory for each size. There is none where the kernel has no huge pages.
    pub(super) fn open(huge_pages: &Path, meminfo: &Path) -> Self {
        let sizes = fs::read_dir(huge_pages).into_iter().flatten().flatten();
        let files = sizes.map(|size| KeptFile::open(&size.path().join("free_hugepages")));
        Self {
            free_counts: files.flatten().collect(),
            meminfo: KeptFile::open(meminfo).ok(),
            free: None,
            page_tables: None,
        }
    }

    /// Whether it has moved since this was asked last.
    pub(super) fn has_moved(&mut self, buffer: &mut TextBuffer) -> bool {
        let free = self.free_counts.iter();
        let free = free.map(|file| number(file.read(buffer).ok()?)).collect();
        let before = self.free.replace(free);
        let have_pages_moved = before.is_some_and(|before| Some(before) != self.free);
        let text = self
            .meminfo
            .as_ref()
            .and_then(|file| file.read(buffer).ok());
        let tables = text.and_then(|text| {
            let (_, value) = pairs(text).find(|(key, _)| *key == b"PageTables")?;
            kib(value)
        });
        let moved = tables
            .zip(self.page_tables)
            .map(|(now, before)| (now - before).0.saturating_abs());
        let have_tables_moved = moved.is_some_and(|moved| moved >= WORTH);
        if have_tables_moved || self.page_tables.is_none() {
            self.page_tables = tables;
        }
        have_pages_moved || have_tables_moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_taken_and_tables_that_grow_are_seen_once() {
        let root = tempfile::tempdir().unwrap();
        let free = |size: &str| root.path().join("sizes").join(size).join("free_hugepages");
        for size in ["hugepages-2048kB", "hugepages-1048576kB"] {
            fs::create_dir_all(free(size).parent().unwrap()).unwrap();
            fs::write(free(size), "8\n").unwrap();
        }
        let meminfo = root.path().join("meminfo");
        let tables = |kib: i64| {
            fs::write(&meminfo, format!("MemTotal: 9 kB\nPageTables:  {kib} kB\n")).unwrap();
        };
        tables(1_000);
        let mut unseen = Unseen::open(&root.path().join("sizes"), &meminfo);
        let mut buffer = TextBuffer::default();
        let mut has_moved = || unseen.has_moved(&mut buffer);
        assert!(!has_moved(), "nothing was known before");
        fs::write(free("hugepages-1048576kB"), "7\n").unwrap();
        assert!(has_moved() && !has_moved());
        tables(5_000);
        assert!(!has_moved(), "that is little");
        tables(10_000);
        assert!(has_moved() && !has_moved());
    }

    #[test]
    fn where_the_kernel_tells_nothing_nothing_moves() {
        let root = tempfile::tempdir().unwrap();
        let mut unseen = Unseen::open(&root.path().join("sizes"), &root.path().join("meminfo"));
        let mut buffer = TextBuffer::default();
        assert!(!unseen.has_moved(&mut buffer) && !unseen.has_moved(&mut buffer));
    }
}
