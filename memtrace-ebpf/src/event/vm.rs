//! Calls that change an address space: mmap, munmap, mremap, brk, madvise.
//!
//! Every call of a member is reported once: by a [`VmCall`] of its own, or as part of the next
//! [`VmTotals`].

use super::EventHeader;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Longest name of a mapped file that is taken along, terminating NUL included.
pub const FILE_NAME_LEN: usize = 128;

/// Which call it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum VmOp {
    /// mmap(2)
    Mmap = 0,
    /// munmap(2)
    Munmap = 1,
    /// mremap(2)
    Mremap = 2,
    /// brk(2)
    Brk = 3,
    /// madvise(2)
    Madvise = 4,
}

impl VmOp {
    /// How many there are.
    pub const COUNT: usize = 5;

    /// Every call, in the order of its number.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Mmap,
        Self::Munmap,
        Self::Mremap,
        Self::Brk,
        Self::Madvise,
    ];

    /// The call for a number from the ring, if there is one.
    pub const fn from_u32(op: u32) -> Option<Self> {
        Some(match op {
            0 => Self::Mmap,
            1 => Self::Munmap,
            2 => Self::Mremap,
            3 => Self::Brk,
            4 => Self::Madvise,
            _ => return None,
        })
    }
}

/// One call of a member, at its return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct VmCall {
    /// About the process.
    pub header: EventHeader,
    /// The thread that called.
    pub tid: u32,
    /// A [`VmOp`].
    pub op: u32,
    /// The first argument: an address, or for brk the break that was asked for.
    pub addr: u64,
    /// mmap, munmap, madvise: the length that was asked for. mremap: the new one. brk: zero.
    pub length: u64,
    /// mremap: the length before. Else zero.
    pub old_length: u64,
    /// brk: growth of the heap, negative where it shrank. Else zero.
    pub growth: i64,
    /// What the call returned: an address, zero, or a negative errno.
    pub result: i64,
    /// mmap: protection. Else zero.
    pub prot: u32,
    /// mmap, mremap: flags. madvise: the advice. Else zero.
    pub flags: u32,
    /// mmap of a file: its name without directories, NUL-terminated; empty otherwise.
    pub file_name: [u8; FILE_NAME_LEN],
}

/// What the calls of one kind that had no [`VmCall`] add up to.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct VmSum {
    /// Calls, failed ones included.
    pub calls: u64,
    /// Of those, calls that failed; their bytes are not counted.
    pub failed: u64,
    /// Of those, calls that were large enough for an event of their own but came too fast
    /// for one, or found the ring nearly full.
    pub large: u64,
    /// Bytes by which the address space grew.
    pub added_bytes: u64,
    /// Bytes by which it shrank; for madvise bytes that were advised away.
    pub removed_bytes: u64,
}

/// Sums over the life of one member, as far as it was recorded; only ever growing, so that
/// a lost event costs a delay and no amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct VmTotals {
    /// About the process.
    pub header: EventHeader,
    /// By [`VmOp`].
    pub sums: [VmSum; VmOp::COUNT],
}
