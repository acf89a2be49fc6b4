//! A sample of growth: who touched new memory, with what it takes to name them.

use super::EventHeader;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most frames of Python in one sample.
pub const PYTHON_FRAMES_MAX: usize = 64;

/// Most bytes of the user stack in one sample.
pub const STACK_BYTES_MAX: usize = 32 << 10;
/// So many faults of single pages are looked at for each sample, by chance. One that brings more pages than
/// that weighs more than a sample of these.
pub const LOOKS: u32 = 32;

/// The stack is copied in pieces of so many bytes; of the last one that can't be read nothing is.
pub const STACK_PIECE: usize = 1 << 10;

/// A frame of Python, as addresses in the process.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct PythonFrame {
    /// Its code object, perhaps with tag bits.
    pub code: u64,
    /// Where it is in that code.
    pub instruction: u64,
}

/// Growth of anonymous and shared memory of a member, by a thread of its own: by a page fault, by its
/// counters, or by a page that it copied because it shared it since a fork.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct StackSample {
    /// About the process.
    pub header: EventHeader,
    /// Address of its mm_struct.
    pub mm: u64,
    /// What the page fault brought, or the counters grew by, or the copied page.
    pub grown_pages: u64,
    /// What the sample stands for: `grown_pages` by the chance of being sampled.
    pub weight_pages: u64,
    /// The address that the thread touched; 0 where the growth came from no page fault.
    pub address: u64,
    /// The thread's registers in user space.
    pub instruction: u64,
    /// The stack pointer.
    pub stack: u64,
    /// The frame pointer.
    pub frame: u64,
    /// The thread, as the initial pid namespace counts it.
    pub tid: u32,
    /// Zero.
    pub reserved: u32,
    /// How many of `python` are filled.
    pub python_count: u32,
    /// How many of `stack_bytes` are filled.
    pub stack_len: u32,
    /// Frames of Python, innermost first.
    pub python: [PythonFrame; PYTHON_FRAMES_MAX],
    /// Of each, the byte at [`crate::config::PythonLayout::frame_mark`].
    pub python_marks: [u8; PYTHON_FRAMES_MAX],
    /// The stack from `stack` upwards.
    pub stack_bytes: [u8; STACK_BYTES_MAX],
}
