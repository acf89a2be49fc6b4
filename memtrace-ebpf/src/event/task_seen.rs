//! A process that was already running.

use super::{COMM_LEN, Counts};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// One process as the task iterator found it. Not an event: it is read from the iterator's
/// descriptor, which loses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct TaskSeen {
    /// Process id in the initial pid namespace.
    pub tgid: u32,
    /// The process that forked it where that was seen; else its present parent, which after
    /// reparenting is another.
    pub parent_tgid: u32,
    /// Start of the process.
    pub start_boot_ns: u64,
    /// Start of that parent.
    pub parent_start_boot_ns: u64,
    /// When it was read.
    pub boot_ns: u64,
    /// When the last of its execs that were seen was; 0 where none was.
    pub exec_boot_ns: u64,
    /// Its memory.
    pub counts: Counts,
    /// The larger of mm->hiwater_rss and the counters.
    pub hiwater_pages: i64,
    /// Id of its memory cgroup (kernfs id); 0 when unknown.
    pub cgroup_id: u64,
    /// Real user id.
    pub uid: u32,
    /// Process id in its own pid namespace; 0 when unknown.
    pub ns_tgid: u32,
    /// Name, NUL-terminated.
    pub comm: [u8; COMM_LEN],
    /// 1 when it is a member.
    pub is_member: u32,
    /// 1 when this visit made it one.
    pub is_adopted: u32,
    /// 1 when its fork was seen.
    pub was_fork_seen: u32,
    /// How many execs of it were seen, as in [`Origin::execs`](super::Origin::execs).
    pub execs: u32,
}
