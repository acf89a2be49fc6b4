//! The memory counters of one address space.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What one `mm_struct` accounts, in pages but for `heap_bytes`. All zero for a task
/// without an address space of its own.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Counts {
    /// MM_ANONPAGES.
    pub anon_pages: i64,
    /// MM_FILEPAGES.
    pub file_pages: i64,
    /// MM_SHMEMPAGES.
    pub shmem_pages: i64,
    /// MM_SWAPENTS.
    pub swap_pages: i64,
    /// mm->total_vm.
    pub vm_pages: i64,
    /// mm->brk - mm->start_brk.
    pub heap_bytes: i64,
}

impl Counts {
    /// Resident pages in all, as get_mm_rss() adds them up.
    pub const fn rss_pages(&self) -> i64 {
        self.anon_pages + self.file_pages + self.shmem_pages
    }
}
