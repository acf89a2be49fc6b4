//! A signal that can end a process, and who sent it.

use super::COMM_LEN;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The last signal that was sent to a member and ends a process by default, as its end tells it.
/// It need not be the one that ended it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct SentSignal {
    /// Start of the process that ran on the CPU when the signal was sent.
    pub current_start_boot_ns: u64,
    /// Its id in the initial pid namespace. It sent the signal only where `code` says that a
    /// process did.
    pub current_tgid: u32,
    /// si_code: above 0 the kernel sent it of its own accord. No process can give it a value that
    /// has no room here and a meaning.
    pub code: i16,
    /// Number of the signal; 0 where none was sent.
    pub signal: u8,
    /// [`SentSignal::KERNEL_THREAD`] and [`SentSignal::EXITING`].
    pub current_is: u8,
    /// Name of that process, NUL-terminated.
    pub current_comm: [u8; COMM_LEN],
}

impl SentSignal {
    /// The running thread is one of the kernel's.
    pub const KERNEL_THREAD: u8 = 1;
    /// It is ending.
    pub const EXITING: u8 = 2;
}

/// The last termination signal that another process or the kernel sent to a member and it did not
/// ignore: SIGHUP, SIGINT, SIGQUIT or SIGTERM. It can have handled it, and ended later, otherwise.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Termination {
    /// When it was sent.
    pub boot_ns: u64,
    /// The signal, and who sent it.
    pub sent: SentSignal,
}

/// Members are copied on the stack of a program, which has 512 bytes with all that it calls.
const _: () = assert!(size_of::<SentSignal>() == 32);
