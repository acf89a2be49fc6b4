//! A call of the CUDA driver, as a probe on its function saw it enter and return. What it means is
//! for user space to say; here stands what was read.

use super::EventHeader;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The driver's library is called so, and with the driver's version behind it.
pub const CUDA_LIBRARY: &str = "libcuda.so";

/// Arguments that are taken along.
pub const CUDA_ARGS: usize = 5;

/// Longest structure that is read.
pub const CUDA_STRUCTURE_BYTES: usize = 64;

/// Where the structure is that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CudaPlace {
    /// Behind the first argument, when the call returns.
    FirstAtReturn = 0,
    /// Behind the second argument, when it enters.
    Second = 1,
    /// Behind the third argument, when it enters.
    Third = 2,
    /// On the stack, above the return address, when it enters: passed by value on x86-64.
    Stack = 3,
}

/// What a probe knows of the function that it hangs on, packed into its cookie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CudaCookie {
    /// Which function: a number that user space gave it.
    pub call: u8,
    /// Words to be read behind the first argument when the call returns: 0, 1 or 2.
    pub out_words: u8,
    /// Whether a word behind the second argument is read then, as the second.
    pub reads_second: bool,
    /// Whether the reader is woken at once.
    pub wakes: bool,
    /// Whether the second argument is a number of bytes that are taken: then large calls have stacks.
    pub takes_second: bool,
    /// Where a structure is that is read: a [`CudaPlace`].
    pub place: u8,
    /// Length of that structure in bytes, at most [`CUDA_STRUCTURE_BYTES`]; 0 for none.
    pub bytes: u8,
}

impl CudaCookie {
    /// The cookie as one number.
    #[inline(always)]
    pub const fn pack(self) -> u64 {
        self.call as u64
            | (self.out_words as u64) << 8
            | (self.reads_second as u64) << 10
            | (self.wakes as u64) << 11
            | (self.takes_second as u64) << 12
            | (self.place as u64) << 16
            | (self.bytes as u64) << 24
    }

    /// What a cookie says.
    #[inline(always)]
    pub const fn unpack(cookie: u64) -> Self {
        Self {
            call: cookie as u8,
            out_words: (cookie >> 8) as u8 & 3,
            reads_second: cookie >> 10 & 1 != 0,
            wakes: cookie >> 11 & 1 != 0,
            takes_second: cookie >> 12 & 1 != 0,
            place: (cookie >> 16) as u8,
            bytes: (cookie >> 24) as u8,
        }
    }
}

/// One call of a member, at its return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CudaCall {
    /// About the process, at the return.
    pub header: EventHeader,
    /// When it entered, on the same clock.
    pub entered_boot_ns: u64,
    /// The first arguments.
    pub args: [u64; CUDA_ARGS],
    /// What stood behind the first argument at the return, as the cookie asked for; else zero.
    pub out: [u64; 2],
    /// The structure that the cookie asked for; else zeroes.
    pub structure: [u64; CUDA_STRUCTURE_BYTES / 8],
    /// The thread that called.
    pub tid: u32,
    /// [`CudaCookie::call`]
    pub call: u32,
    /// CUresult.
    pub result: i32,
    /// 1: its stack is sent as a [`super::StackSample`] of the same thread and time.
    pub has_stack: u32,
}
