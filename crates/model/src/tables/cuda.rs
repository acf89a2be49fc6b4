//! `cuda_call` and `cuda_memory`: what programs asked the CUDA driver for, as it was asked.

use crate::labels;
use crate::table::table;
use crate::{BootNs, Bytes, DurationNs, Upid, WallNs};

table! {
    /// A call of the CUDA driver about memory: one of at least 1 MiB, one that failed, one that made or ended a context, or one that loaded GPU code. Of one process at most 200 a second, after a burst of 2,000, and beyond that what gives back memory that has a row; all are in `cuda_memory`. Probes on libcuda's functions see them, so that also calls of libcudart, NCCL and others are here. Needs the bpf backend and Linux 6.6.
    pub struct CudaCallRow in "cuda_call" {
        /// Wall-clock time (UTC) when the call returned.
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME when the call returned.
        boot_ns: BootNs,
        /// The process that called.
        upid: Upid,
        /// Id of the thread that called.
        tid: i32,
        /// The function, without the suffix of its version.
        call: String,
        /// What kind of memory it was about; null for contexts, and where that is not known.
        kind: Option<CudaKind>,
        /// The device as the process counts (CUDA_VISIBLE_DEVICES); null where it is not known.
        cuda_device: Option<i32>,
        /// Bytes that were asked for; of a call that gives memory back, what it gave back. Null where it is not known.
        size_bytes: Option<Bytes>,
        /// Address of the memory, or the driver's handle of it (cuMemCreate, cuMemRelease). Null where it failed.
        address: Option<i64>,
        /// Of a call that gave memory back: when the call returned that took it, which is `boot_ns` of its row. Null otherwise, and where one call gave back what several took.
        taken_boot_ns: Option<BootNs>,
        /// What the driver answered (CUresult): 0 for success, 2 for out of memory.
        result: i32,
        /// How long the call took.
        duration_ns: DurationNs,
        /// With `record --stacks`, of a call that took at least 16 MiB: who called, its rows in `stack`. Null otherwise, and where the stack could not be had.
        stack_id: Option<i64>,
    }
}

table! {
    /// What a process holds of the CUDA driver, by kind: at the next tick after it changed, and at once where it moved by 2 MiB and a 64th of itself (as often as `cuda_call` has rows). Bytes as they were asked for. A row holds from its time until the next of the same process and device (a step function); a process that has ended has a last row that holds nothing.
    pub struct CudaMemoryRow in "cuda_memory" {
        /// Wall-clock time (UTC) of the last call that is counted.
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME of the last call that is counted.
        boot_ns: BootNs,
        /// The process that holds it.
        upid: Upid,
        /// The device as the process counts (CUDA_VISIBLE_DEVICES); null where it is not known.
        cuda_device: Option<i32>,
        /// Id of that device as the driver tells the program (cuDeviceGetUuid), as in `run.json`; null where the program did not ask.
        device_uuid: Option<String>,
        /// cuMemAlloc, cuMemAllocPitch and arrays.
        direct_bytes: Bytes,
        /// cuMemCreate: physical memory that is mapped by hand, as expandable segments, sleeping engines and NCCL do. Until the last handle and the last mapping are gone.
        vmm_bytes: Bytes,
        /// cuMemAllocAsync and cuMemAllocFromPoolAsync: what is in use of pools. What a pool keeps beyond that is not known.
        pool_bytes: Bytes,
        /// cuMemAllocManaged: moves between host and device. The driver counts it for no process.
        managed_bytes: Bytes,
        /// Memory of another process (cuIpcOpenMemHandle, cuMemImportFromShareableHandle); who created it has it in its own row. Imported handles count as far as they are mapped; memory opened by cuIpcOpenMemHandle where the process that made the handle is recorded too.
        imported_bytes: Bytes,
        /// Host memory that the driver allocated and pinned (cuMemHostAlloc, cuMemAllocHost).
        pinned_bytes: Bytes,
        /// Host memory of the program that it pinned (cuMemHostRegister).
        registered_bytes: Bytes,
        /// What direct allocations take beyond what was asked for: the driver hands out pieces of 2 MiB, and packs allocations below that size into them. Computed.
        padding_bytes: Bytes,
        /// The number of contexts.
        context_count: i64,
        /// When the last context was made, on CLOCK_BOOTTIME; null where none was seen.
        context_boot_ns: Option<BootNs>,
        /// Libraries and modules of GPU code that are loaded. The driver keeps them in memory of its own.
        library_count: i64,
        /// Graphs that are instantiated.
        graph_count: i64,
        /// Calls about memory so far.
        call_count: i64,
        /// Of these, how many the driver refused.
        failed_count: i64,
        /// Whether every call since the start of the process is counted. False for a process that was there before the probes, and where calls were lost.
        is_whole: bool,
    }
}

impl CudaCallRow {
    /// `result` of a call that succeeded (CUDA_SUCCESS).
    pub const SUCCESS: i32 = 0;
    /// `result` where there was no memory (CUDA_ERROR_OUT_OF_MEMORY).
    pub const OUT_OF_MEMORY: i32 = 2;
    /// `result` where the driver had ended before (CUDA_ERROR_DEINITIALIZED).
    pub const DEINITIALIZED: i32 = 4;
}

impl CudaMemoryRow {
    /// What the driver charges to the process on the device, by the names of the columns.
    pub fn on_device(&self) -> [(&'static str, Bytes); 4] {
        [
            ("direct", self.direct_bytes),
            ("vmm", self.vmm_bytes),
            ("pool", self.pool_bytes),
            ("padding", self.padding_bytes),
        ]
    }

    /// What it does not: of both memories, of another process, of the host.
    pub fn beside(&self) -> [(&'static str, Bytes); 4] {
        [
            ("managed", self.managed_bytes),
            ("imported", self.imported_bytes),
            ("pinned", self.pinned_bytes),
            ("registered", self.registered_bytes),
        ]
    }
}

labels! {
    /// A kind of memory that the CUDA driver hands out.
    pub enum CudaKind {
        /// cuMemAlloc, cuMemAllocPitch and arrays.
        Direct = "direct",
        /// Physical memory that is mapped by hand (cuMemCreate).
        Vmm = "vmm",
        /// Of a pool, in the order of a stream.
        Pool = "pool",
        /// Moves between host and device.
        Managed = "managed",
        /// Of another process.
        Imported = "imported",
        /// Pinned host memory of the driver.
        Pinned = "pinned",
        /// Host memory of the program that was pinned.
        Registered = "registered",
    }
}
