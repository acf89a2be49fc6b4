//! Whether the machine's pools of huge pages have moved: no counter that is read often tells of the
//! huge pages of a process.

use crate::collect::fields::number;
use crate::collect::kept::{KeptFile, TextBuffer};
use std::fs;
use std::path::Path;

/// The pools, one for each size of a page (Documentation/admin-guide/mm/hugetlbpage.rst).
#[derive(Debug)]
pub(super) struct HugePages {
    free_counts: Vec<KeptFile>,
    last: Vec<Option<i64>>,
}

impl HugePages {
    /// `root` has a directory for each size. There is none where the kernel has no huge pages.
    pub(super) fn open(root: &Path) -> Self {
        let sizes = fs::read_dir(root).into_iter().flatten().flatten();
        let files = sizes.map(|size| KeptFile::open(&size.path().join("free_hugepages")));
        Self {
            free_counts: files.flatten().collect(),
            last: Vec::new(),
        }
    }

    /// Whether pages were taken or given back since this was asked last.
    pub(super) fn have_moved(&mut self, buffer: &mut TextBuffer) -> bool {
        let free = self.free_counts.iter().map(|file| {
            let text = file.read(buffer).ok()?;
            number(text)
        });
        let free: Vec<Option<i64>> = free.collect();
        let has_moved = !self.last.is_empty() && free != self.last;
        self.last = free;
        has_moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_taken_or_come_back_are_seen_once() {
        let root = tempfile::tempdir().unwrap();
        let file = |size: &str| root.path().join(size).join("free_hugepages");
        for size in ["hugepages-2048kB", "hugepages-1048576kB"] {
            fs::create_dir(root.path().join(size)).unwrap();
            fs::write(file(size), "8\n").unwrap();
        }
        let (mut pages, mut buffer) = (HugePages::open(root.path()), TextBuffer::default());
        assert!(!pages.have_moved(&mut buffer), "nothing was known before");
        fs::write(file("hugepages-1048576kB"), "7\n").unwrap();
        assert!(pages.have_moved(&mut buffer));
        assert!(!pages.have_moved(&mut buffer));
    }

    #[test]
    fn where_the_kernel_has_none_nothing_moves() {
        let root = tempfile::tempdir().unwrap();
        let mut pages = HugePages::open(&root.path().join("hugepages"));
        let mut buffer = TextBuffer::default();
        assert!(!pages.have_moved(&mut buffer) && !pages.have_moved(&mut buffer));
    }
}
