//! A kill by the OOM killer.

use super::{COMM_LEN, Counts, EventHeader};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The OOM killer chose a process; sent for members and strangers alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Oom {
    /// About the victim. `start_boot_ns` is 0 when the kernel tells only its id (< 6.9).
    pub header: EventHeader,
    /// The process whose allocation triggered the kill.
    pub trigger_tgid: u32,
    /// oom_score_adj of the victim.
    pub oom_score_adj: i32,
    /// 1 when `victim_comm`, `counts` and `oom_score_adj` were read (6.9).
    pub has_victim: u32,
    /// Zero.
    pub reserved: u32,
    /// The victim's memory.
    pub counts: Counts,
    /// The victim's name, NUL-terminated.
    pub victim_comm: [u8; COMM_LEN],
    /// The trigger's name, NUL-terminated.
    pub trigger_comm: [u8; COMM_LEN],
}
