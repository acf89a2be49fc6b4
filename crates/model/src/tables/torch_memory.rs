//! `torch_memory`: what torch's caching allocator had of a GPU, from its own snapshots.

use crate::labels;
use crate::table::table;
use crate::{BootNs, Bytes, Upid, WallNs};

table! {
    /// Memory of torch's CUDA caching allocator at one moment: the blocks of one segment that are in one state and were allocated at one stack. `memtrace import torch` makes the rows from a snapshot; those of one snapshot add up to what torch reserved.
    pub struct TorchMemoryRow in "torch_memory" {
        /// Wall-clock time (UTC) of the snapshot.
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME of the snapshot; of a file that does not say it, when the file was written.
        boot_ns: BootNs,
        /// The process; null where it is not known.
        upid: Option<Upid>,
        /// Name of the file.
        snapshot: String,
        /// The device as the process counts (CUDA_VISIBLE_DEVICES).
        cuda_device: i32,
        /// Address of the segment: what torch took from the driver in one piece, or in neighbouring pieces where it is expandable. The calls of `cuda_call` that made it have an address within.
        segment_address: i64,
        /// Size of the whole segment, the same in each of its rows.
        segment_bytes: Bytes,
        /// Whether torch maps the segment by hand and can extend it (expandable_segments).
        is_expandable: bool,
        /// The private pool that the segment belongs to, as of CUDA graphs; null for the common pool.
        pool: Option<String>,
        /// State of the blocks.
        state: Option<TorchBlockState>,
        /// The stack that allocated the blocks: its rows in `stack`. 0 for inactive blocks, and where torch recorded no history.
        stack_id: i64,
        /// The number of blocks.
        block_count: i64,
        /// What they take together.
        size_bytes: Bytes,
        /// Of it, what the program asked for; the rest is rounding. 0 for inactive blocks.
        requested_bytes: Bytes,
        /// Size of the largest of the blocks.
        largest_block_bytes: Bytes,
    }
}

labels! {
    /// What torch does with a block.
    pub enum TorchBlockState {
        /// A tensor has it.
        Allocated = "allocated",
        /// Freed by the program; another stream may still use it.
        AwaitingFree = "awaiting_free" | "awaiting free",
        /// Free: torch keeps it for the next tensor.
        Inactive = "inactive",
    }
}
