//! `vm_event`: large changes of address spaces, call by call.

use crate::labels;
use crate::table::table;
use crate::{BootNs, Bytes, Upid, WallNs};

table! {
    /// One call that changed an address space by at least `--vm-min-bytes`, as its process asked for it. Address space is not memory: what is mapped becomes resident when it is touched, see `mem`. Every call of a member is here or counted in `vm_summary`, never in both. Empty where nothing saw these calls, which `diag` tells.
    pub struct VmEventRow in "vm_event" {
        /// Wall-clock time (UTC) when the call returned.
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME when the call returned.
        boot_ns: BootNs,
        /// The process that called.
        upid: Upid,
        /// Id of the thread that called.
        tid: i32,
        /// Which call it was.
        op: Option<VmOp>,
        /// Where: for mmap the address of the new mapping (of a failed one the address that was asked for, often 0), for munmap, mremap and madvise the range's first byte, for brk the break that was asked for.
        addr: i64,
        /// Length of the range in whole pages; for mremap its new length. Null for brk.
        length_bytes: Option<Bytes>,
        /// For mremap the length before; null otherwise.
        old_length_bytes: Option<Bytes>,
        /// By how much the call made the address space grow, negative where it shrank, 0 where it failed. For brk against the break before. A mapping that replaces another (MAP_FIXED) is counted in full. Null for madvise.
        growth_bytes: Option<Bytes>,
        /// Protection that mmap asked for (PROT_NONE is 0); null otherwise.
        prot: Option<i32>,
        /// Flags of mmap (MAP_...) and mremap (MREMAP_...), the advice of madvise (MADV_...); null otherwise.
        flags: Option<i32>,
        /// Name of the file that mmap mapped, without directories, cut at 127 bytes; null for anonymous memory and where it could not be read.
        file: Option<String>,
        /// What the call returned: an address, 0, or a negative errno. Failed calls of munmap are in `vm_summary` alone.
        result: i64,
    }
}

labels! {
    /// A call that changes an address space.
    pub enum VmOp {
        /// A new mapping.
        Mmap = "mmap",
        /// The end of a mapping, or of a part of it.
        Munmap = "munmap",
        /// A mapping grew, shrank or moved.
        Mremap = "mremap",
        /// The heap behind malloc grew or shrank at its end.
        Brk = "brk",
        /// Advice about a range: give its memory back, use huge pages, and others.
        Madvise = "madvise",
    }
}
