//! A new program in a process.

use super::{COMM_LEN, Counts, EventHeader};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Longest part of the argument area that is taken along, in bytes.
pub const ARGS_MAX: usize = 4096;

/// Longest file name that is taken along, in bytes (PATH_MAX in the kernel).
pub const PATH_MAX: usize = 4096;

/// A member of the recording called exec. Followed in the ring by `path_len` bytes of the
/// executed file's name, then `args_len` bytes of the argument area (arguments separated
/// by NUL), nothing after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Exec {
    /// About the process.
    pub header: EventHeader,
    /// The new address space as execve left it.
    pub counts: Counts,
    /// Real user id.
    pub uid: u32,
    /// Process id in its own pid namespace; 0 when unknown.
    pub ns_tgid: u32,
    /// Id of its memory cgroup (kernfs id); 0 when unknown.
    pub cgroup_id: u64,
    /// Name, NUL-terminated.
    pub comm: [u8; COMM_LEN],
    /// 1 when the process is a member; 0 when the event is only offered to `--match`.
    pub is_member: u32,
    /// The process that forked it, as far as the kernel still knows (real_parent).
    pub parent_tgid: u32,
    /// Length of the file name that follows, at most [`PATH_MAX`].
    pub path_len: u16,
    /// Length of the arguments that follow it, at most [`ARGS_MAX`].
    pub args_len: u16,
    /// Which exec of the member it is, as in [`Origin::execs`](super::Origin::execs).
    pub execs: u32,
}
