//! A call of the CUDA driver, as a probe on its function saw it enter and return. What it means is
//! for user space to say; here stands what was read.

use super::EventHeader;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Arguments that are taken along.
pub const CUDA_ARGS: usize = 5;

/// Longest structure that is read behind an argument when the call enters.
pub const CUDA_IN_BYTES: usize = 40;

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
    /// Which argument points to a structure that is read when the call enters.
    pub in_arg: u8,
    /// Length of that structure in bytes, at most [`CUDA_IN_BYTES`]; 0 for none.
    pub in_bytes: u8,
}

impl CudaCookie {
    /// The cookie as one number.
    #[inline(always)]
    pub const fn pack(self) -> u64 {
        self.call as u64
            | (self.out_words as u64) << 8
            | (self.reads_second as u64) << 10
            | (self.wakes as u64) << 11
            | (self.in_arg as u64) << 16
            | (self.in_bytes as u64) << 24
    }

    /// What a cookie says.
    #[inline(always)]
    pub const fn unpack(cookie: u64) -> Self {
        Self {
            call: cookie as u8,
            out_words: (cookie >> 8) as u8 & 3,
            reads_second: cookie >> 10 & 1 != 0,
            wakes: cookie >> 11 & 1 != 0,
            in_arg: (cookie >> 16) as u8,
            in_bytes: (cookie >> 24) as u8,
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
    /// The structure behind an argument when it entered; else zeroes.
    pub structure: [u64; CUDA_IN_BYTES / 8],
    /// The thread that called.
    pub tid: u32,
    /// [`CudaCookie::call`]
    pub call: u32,
    /// CUresult.
    pub result: i32,
    /// Zero.
    pub reserved: u32,
}
