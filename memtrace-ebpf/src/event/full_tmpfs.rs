//! A page of a file in memory that could not be had.

use super::EventHeader;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// How full a tmpfs was when the kernel sent a member SIGBUS for a page of one of its files.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct FullTmpfs {
    /// About the member.
    pub header: EventHeader,
    /// super_block.s_dev: the major number, and 20 bits of the minor one.
    pub device: u32,
    /// Zero.
    pub reserved: u32,
    /// What it may hold at most.
    pub size_pages: u64,
    /// What it holds.
    pub used_pages: i64,
}
