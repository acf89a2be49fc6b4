//! The events, one struct each.

mod comm;
mod counts;
mod cuda;
mod exec;
mod exit;
mod fork;
mod full_tmpfs;
mod oom;
mod origin;
mod sample;
mod sent_signal;
mod stack_sample;
mod task_seen;
mod vm;

pub use comm::Comm;
pub use counts::Counts;
pub use cuda::{CUDA_ARGS, CUDA_LIBRARY, CUDA_STRUCTURE_BYTES, CudaCall, CudaCookie, CudaPlace};
pub use exec::{ARGS_MAX, Exec, PATH_MAX};
pub use exit::{Ended, EndedKey, Exit};
pub use fork::Fork;
pub use full_tmpfs::FullTmpfs;
pub use oom::Oom;
pub use origin::{ORIGIN_ARGS_LEN, Origin};
pub use sample::{Sample, SampleCause};
pub use sent_signal::{SentSignal, Termination};
pub use stack_sample::{
    LOOKS, PYTHON_FRAMES_MAX, PythonFrame, STACK_BYTES_MAX, STACK_PIECE, StackSample,
};
pub use task_seen::TaskSeen;
pub use vm::{FILE_NAME_LEN, VmCall, VmOp, VmSum, VmTotals};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Length of the kernel's name of a task, terminating NUL included (TASK_COMM_LEN).
pub const COMM_LEN: usize = 16;

/// What an event is about. Zero is no kind, so that zeroed memory never decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EventKind {
    /// [`Fork`]
    Fork = 1,
    /// [`Exec`]
    Exec = 2,
    /// [`Exit`]
    Exit = 3,
    /// [`Comm`]
    Comm = 4,
    /// [`Sample`]
    Sample = 5,
    /// [`Oom`]
    Oom = 6,
    /// [`VmCall`]
    VmCall = 7,
    /// [`VmTotals`]
    VmTotals = 8,
    /// [`StackSample`], in a ring of its own.
    StackSample = 9,
    /// [`CudaCall`]
    CudaCall = 10,
    /// [`StackSample`] of a call of the CUDA driver, in the ring of those.
    CudaStack = 11,
    /// [`FullTmpfs`]
    FullTmpfs = 12,
    /// [`StackSample`] of a page that is copied, in the ring of those.
    StackCopy = 13,
}

impl EventKind {
    /// The kind for a number from the ring, if there is one.
    pub const fn from_u32(kind: u32) -> Option<Self> {
        Some(match kind {
            1 => Self::Fork,
            2 => Self::Exec,
            3 => Self::Exit,
            4 => Self::Comm,
            5 => Self::Sample,
            6 => Self::Oom,
            7 => Self::VmCall,
            8 => Self::VmTotals,
            9 => Self::StackSample,
            10 => Self::CudaCall,
            11 => Self::CudaStack,
            12 => Self::FullTmpfs,
            13 => Self::StackCopy,
            _ => return None,
        })
    }
}

/// The beginning of every event.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct EventHeader {
    /// An [`EventKind`].
    pub kind: u32,
    /// The process the event is about, as the initial pid namespace counts it.
    pub tgid: u32,
    /// When it happened: CLOCK_BOOTTIME in nanoseconds.
    pub boot_ns: u64,
    /// Start of that process on the same clock; with `tgid` its identity.
    pub start_boot_ns: u64,
}
