//! The end of a process.

use super::{Counts, EventHeader, Origin, SentSignal, Termination};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The last thread of a member ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Exit {
    /// About the process.
    pub header: EventHeader,
    /// Who it was and how it ended.
    pub ended: Ended,
    /// Memory at the end, per-CPU parts added in; zero without an own address space.
    pub counts: Counts,
    /// A local maximum that was not sent yet when the process ended: anonymous, file and
    /// shared pages; zero when there is none.
    pub pending_peak: [i64; 3],
    /// When that was.
    pub pending_peak_boot_ns: u64,
    /// The last signal that was sent to it and ends a process by default.
    pub sent_signal: SentSignal,
    /// The last termination signal that another sent it.
    pub termination: Termination,
    /// Its soft RLIMIT_AS in bytes; [`Exit::NO_LIMIT`] without one.
    pub rlimit_as_bytes: u64,
    /// Its soft RLIMIT_DATA.
    pub rlimit_data_bytes: u64,
}

impl Exit {
    /// RLIM_INFINITY.
    pub const NO_LIMIT: u64 = u64::MAX;
}

/// Who a process was and how it ended: complete without any other event. An end that finds
/// the ring full is kept in a map, as this, by its [`EndedKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Ended {
    /// Who it was.
    pub origin: Origin,
    /// When it ended.
    pub boot_ns: u64,
    /// Wait status as wait(2) encodes it.
    pub wait_status: i32,
    /// 1 when the address space could be read at the end and is the process's own;
    /// `rss_pages` and `hiwater_pages` are zero otherwise. Before 6.16 the kernel drops it
    /// earlier.
    pub has_own_mm: u32,
    /// RSS at the end, per-CPU parts added in.
    pub rss_pages: i64,
    /// mm->hiwater_rss: the kernel's own high-water mark of the last address space, as far
    /// as it was kept up; the peak is the larger of this and `rss_pages`.
    pub hiwater_pages: i64,
    /// Highest RSS that the rss_stat program saw in the process's own address spaces that
    /// are gone by now, of a copy that fork made only what it grew by since; zero when there
    /// is none.
    pub earlier_peak_pages: i64,
    /// When that was; 0 when there is none.
    pub earlier_peak_boot_ns: u64,
    /// Highest RSS that the rss_stat program saw in the last address space.
    pub seen_peak_pages: i64,
    /// When that was; 0 when the program never ran for it.
    pub seen_peak_boot_ns: u64,
    /// The larger of signal->maxrss, the highest RSS of every address space that the process
    /// used, and signal->cmaxrss, the same of the children it waited for; in pages.
    pub maxrss_pages: i64,
}

/// Which process ended: ids are used again within seconds on a busy machine.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct EndedKey {
    /// Its start.
    pub start_boot_ns: u64,
    /// Its process id.
    pub tgid: u32,
    /// Zero.
    pub reserved: u32,
}

/// What the kernel adds to key and value of an element of a hash that is allocated as it
/// fills: its own header and the allocator's link (kernel/bpf/hashtab.c, memalloc.c).
const ELEMENT_OVERHEAD: usize = 56;

/// The kernel allocates in powers of two.
const _: () = assert!(size_of::<EndedKey>() + size_of::<Ended>() + ELEMENT_OVERHEAD <= 256);
