//! What each process holds when a page that several share is divided among them, so that the
//! parts add up to what exists.

use memtrace_model::Bytes;

/// A process's part of the memory at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The position of the process in the process table.
    pub process: usize,
    /// Anonymous memory that it holds.
    pub anon_bytes: Bytes,
    /// What that can be off by, to either side, where it was not read in full by then how much it copied
    /// of what fork gave it.
    pub off_by_bytes: Bytes,
    /// Its part of shared memory: all of it is divided in proportion to the shared memory in RSS.
    pub shmem_bytes: Bytes,
    /// Its huge pages of hugetlbfs, by its last reading.
    pub huge_bytes: Bytes,
    /// Its page tables, by its last reading.
    pub page_tables_bytes: Bytes,
    /// What devices and io_uring have pinned for it, by its last reading, mapped or not: a part of other
    /// figures, and in no sum.
    pub pinned_bytes: Bytes,
}

impl Share {
    /// What no RSS counts.
    pub fn beside_bytes(&self) -> Bytes {
        self.huge_bytes + self.page_tables_bytes
    }

    /// Whether it can be off by so much that it must be said.
    pub fn is_estimate(&self) -> bool {
        matters(self.off_by_bytes, self.bytes())
    }

    /// All of it.
    pub fn bytes(&self) -> Bytes {
        self.anon_bytes + self.shmem_bytes + self.beside_bytes()
    }
}

/// Whether a sum can be off by so much that it must be said.
pub(super) fn matters(off_by: Bytes, sum: Bytes) -> bool {
    off_by.0 > sum.0 / 100 && off_by.0 > 1 << 20
}
