//! Where a process comes from.

use super::COMM_LEN;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Length of the arguments that are kept, in bytes.
pub const ORIGIN_ARGS_LEN: usize = 64;

/// What the kernel side knows of a member besides its memory, for as long as it lives: so
/// that its end tells it all, also where the ring had no room for its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Origin {
    /// Start of the process that forked it.
    pub parent_start_boot_ns: u64,
    /// Id of its memory cgroup at its start or exec (kernfs id); 0 when unknown.
    pub cgroup_id: u64,
    /// The process that forked it; where that was not seen, its parent when it was entered.
    pub parent_tgid: u32,
    /// Real user id at its start or exec.
    pub uid: u32,
    /// Process id in its own pid namespace; 0 when unknown.
    pub ns_tgid: u32,
    /// How many execs of it were seen; past 65,535 it goes on from 1.
    pub execs: u16,
    /// 1 when its fork was seen.
    pub was_fork_seen: u8,
    /// Length of the whole argument area of its last exec, 255 where it is longer; 0 when it could
    /// not be read. What is longer than `args` is not kept.
    pub args_len: u8,
    /// Name, NUL-terminated.
    pub comm: [u8; COMM_LEN],
    /// The beginning of the argument area.
    pub args: [u8; ORIGIN_ARGS_LEN],
}
