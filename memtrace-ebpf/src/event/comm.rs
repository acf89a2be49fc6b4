//! A new name.

use super::{COMM_LEN, EventHeader};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A member's name changed. Followed in the ring by `args_len` bytes of its argument area,
/// which programs overwrite with their title (setproctitle); nothing after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Comm {
    /// About the process.
    pub header: EventHeader,
    /// The new name, NUL-terminated.
    pub comm: [u8; COMM_LEN],
    /// 1 when the process is a member; 0 when the event is only offered to `--match`.
    pub is_member: u32,
    /// Length of the argument area that follows; 0 when another task set the name, whose
    /// memory is not at hand.
    pub args_len: u32,
}
