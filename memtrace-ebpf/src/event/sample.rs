//! The memory of a process at one moment.

use super::{Counts, EventHeader};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Memory of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Sample {
    /// About the process.
    pub header: EventHeader,
    /// Its memory. In a sample of cause [`SampleCause::Peak`] only the three kinds of
    /// resident pages belong to that moment; the others are as last sampled.
    pub counts: Counts,
    /// The kernel's high-water mark so far: the larger of mm->hiwater_rss and the counters.
    pub hiwater_pages: i64,
    /// Highest RSS that the rss_stat program saw in this address space.
    pub seen_peak_pages: i64,
    /// When that was.
    pub seen_peak_boot_ns: u64,
    /// A [`SampleCause`].
    pub cause: u32,
    /// Zero.
    pub reserved: u32,
}

/// Why a sample was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SampleCause {
    /// RSS drifted by more than the threshold.
    Drift = 1,
    /// A local maximum, sent when RSS fell; `boot_ns` is the time of the maximum.
    Peak = 2,
    /// The periodic sweep found a change.
    Sweep = 3,
    /// The sweep was asked for every member.
    Keyframe = 4,
}

impl SampleCause {
    /// The cause for a number from the ring, if there is one.
    pub const fn from_u32(cause: u32) -> Option<Self> {
        Some(match cause {
            1 => Self::Drift,
            2 => Self::Peak,
            3 => Self::Sweep,
            4 => Self::Keyframe,
            _ => return None,
        })
    }
}
