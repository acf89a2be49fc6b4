//! A new process.

use super::{COMM_LEN, Counts, EventHeader};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A member of the recording forked; the child is a member from here on. New threads make
/// no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Fork {
    /// About the child.
    pub header: EventHeader,
    /// The process that called fork (not the parent that CLONE_PARENT may have set).
    pub parent_tgid: u32,
    /// 1 when the child runs in its parent's address space (vfork, CLONE_VM): `counts` is
    /// then zero and nothing is charged to the child before it calls exec.
    pub is_mm_shared: u32,
    /// Start of the parent.
    pub parent_start_boot_ns: u64,
    /// The child's memory right after fork: pages it shares copy-on-write.
    pub counts: Counts,
    /// Real user id.
    pub uid: u32,
    /// The child's process id in its own pid namespace; 0 when unknown.
    pub ns_tgid: u32,
    /// Id of its memory cgroup (kernfs id); 0 when unknown.
    pub cgroup_id: u64,
    /// Name, NUL-terminated.
    pub comm: [u8; COMM_LEN],
}
