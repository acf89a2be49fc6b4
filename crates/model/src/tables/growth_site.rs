//! `growth_site`: who touched new memory, and whether it is still there.

use crate::table::table;
use crate::{BootNs, Bytes, Upid, WallNs};

table! {
    /// What anonymous or shared memory a process touched anew at one stack, with `record --stacks`. From samples, drawn by bytes without bias. A row holds from its time until the next of the same process and stack; figures count from the start of the recording. There is one a second where something changed, and one of a moment between at which more was held, where 4 MiB or more of that were given back. Growth that a thread of the process itself brought, and pages that it copied because it shared them since a fork (Linux 6.0); whoever touches memory first is named, also where the allocator hands it to others later.
    pub struct GrowthSiteRow in "growth_site" {
        /// Wall-clock time (UTC).
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME.
        boot_ns: BootNs,
        /// The process that touched the memory.
        upid: Upid,
        /// The stack: its rows in `stack`. 0 for samples of which no stack is known.
        stack_id: i64,
        /// The number of samples.
        sample_count: i64,
        /// What they stand for: memory touched anew, whatever became of it.
        grown_bytes: Bytes,
        /// Standard error of `grown_bytes`.
        grown_error_bytes: Bytes,
        /// Of `grown_bytes`, what was resident or swapped when it was last looked at, without `shared_bytes`.
        resident_bytes: Bytes,
        /// Of `resident_bytes`, what lay in a block of malloc that was in use when its heap was last searched (glibc). Null where no heap was searched for it.
        live_bytes: Option<Bytes>,
        /// Of `resident_bytes`, what lay in a block that the program had freed and malloc kept. Null as `live_bytes` is. What is in neither is not known: memory of other allocators, mappings of their own, heaps that were not searched yet.
        kept_bytes: Option<Bytes>,
        /// Of `resident_bytes`, pages that the process copied as it wrote to them, because it shared them since a fork: its RSS did not grow by these. Null where copies are not seen (before Linux 6.0, recordings of older versions).
        copied_bytes: Option<Bytes>,
        /// Of `grown_bytes`, what was resident then in shared memory (of tmpfs, memfd, System V, or mapped to be shared) that was mapped more than once, as by other processes. Null where shared memory was not sampled (recordings of older versions).
        shared_bytes: Option<Bytes>,
        /// Of `grown_bytes`, what was seen to be given back to the kernel, also shared memory that was swapped out. The rest was not looked at, or its address is not known.
        returned_bytes: Bytes,
    }
}
