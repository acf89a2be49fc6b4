//! What calls of the CUDA driver explain of the memory that NVML reports: what each process holds on a
//! device by its parts, and calls that were refused for lack of memory.

mod explain;
mod read;
#[cfg(test)]
mod tests;

pub(super) use read::Calls;

use crate::allocations::CudaLines;
use crate::who::Who;
use memtrace_model::{Bytes, DurationNs, Instant};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// What calls of the CUDA driver tell beside what the devices tell.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Cuda {
    /// Calls that were refused for lack of memory, in the order of time: of each process the last one
    /// of each function on each device. From `cuda_call`.
    pub refusals: Vec<CudaRefusal>,
    /// Which lines of code had taken it, of each process when they had taken most, the largest first.
    /// Empty without `record --stacks`.
    pub lines: Vec<CudaLines>,
    /// What processes held of devices of which it is not known which they are, or on which the driver
    /// does not list them, each at its highest.
    /// From `cuda_memory`.
    pub unplaced: Vec<CudaUnplaced>,
    /// The positions of devices, by process and by the device as it counts.
    #[serde(skip)]
    pub(crate) places: HashMap<(usize, Option<i32>), usize>,
}

/// What a process holds on a device, or several hold, by what they asked the CUDA driver for. On the
/// device: direct + vmm + pool + padding + remaining = what the driver reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CudaParts {
    /// cuMemAlloc, cuMemAllocPitch and arrays.
    pub direct_bytes: Bytes,
    /// cuMemCreate: physical memory that is mapped by hand.
    pub vmm_bytes: Bytes,
    /// What is in use of pools (cuMemAllocAsync).
    pub pool_bytes: Bytes,
    /// What direct allocations take beyond what was asked for.
    pub padding_bytes: Bytes,
    /// What the driver reports beyond these: contexts, the driver's own memory, and what was allocated
    /// before the calls were seen. Below zero where calls explain more than it reports; `None` where
    /// it does not report.
    pub remaining_bytes: Option<Bytes>,
    /// Of `remaining_bytes` the contexts: what the driver reported as soon as they were made. `None`
    /// where they are not known alone.
    pub context_bytes: Option<Bytes>,
    /// The rest of `remaining_bytes`, which is the driver's own: GPU code, graphs, local memory, and
    /// what pools keep. `None` where `context_bytes` is.
    pub driver_bytes: Option<Bytes>,
    /// Managed memory, which is in none of these.
    pub managed_bytes: Bytes,
    /// Memory of other processes that is mapped here, which is in none of these.
    pub imported_bytes: Bytes,
    /// Host memory that the driver allocated and pinned.
    pub pinned_bytes: Bytes,
    /// Host memory of the program that the driver pinned.
    pub registered_bytes: Bytes,
    /// How many contexts there are.
    pub context_count: i64,
    /// Libraries and modules of GPU code that are loaded.
    pub library_count: i64,
    /// Graphs that are instantiated.
    pub graph_count: i64,
    /// Whether every call since the start of each process is counted.
    pub is_whole: bool,
}

/// A call that the driver refused for lack of memory.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CudaRefusal {
    /// The process that called.
    #[serde(flatten)]
    pub who: Who,
    /// When the call returned; of several, the last one.
    pub at: Instant,
    /// The name of the function.
    pub call: String,
    /// Bytes that were asked for; `None` when unknown.
    pub size_bytes: Option<Bytes>,
    /// The device as the process counts; `None` when unknown.
    pub cuda_device: Option<i32>,
    /// The device, as `gpu_device` calls it; `None` where it is not known which it is.
    pub device: Option<Arc<str>>,
    /// The driver's number for it, as in `gpu_device`; null where it gave none.
    pub device_index: Option<i32>,
    /// What was free on it by its last reading before; `None` when unknown.
    pub free_bytes: Option<Bytes>,
    /// How much earlier it was read; `None` where `free_bytes` is.
    pub age_ns: Option<DurationNs>,
    /// How often that function was refused so, of this process on this device.
    pub refused_count: usize,
}

/// What a process held by its calls on a device of which it is not known which it is.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CudaUnplaced {
    /// The process that held it.
    #[serde(flatten)]
    pub who: Who,
    /// The device as the process counts; `None` when unknown.
    pub cuda_device: Option<i32>,
    /// The device, as `gpu_device` calls it, where the driver lists no process of this one; `None`
    /// where it is not known which it is.
    pub device: Option<Arc<str>>,
    /// When it held most by its calls.
    pub at: Instant,
    /// What it held then.
    #[serde(flatten)]
    pub parts: CudaParts,
}

impl CudaParts {
    /// What the calls explain of the memory that the driver reports, by kind.
    pub fn on_device(&self) -> [(&'static str, Bytes); 4] {
        [
            ("vmm", self.vmm_bytes),
            ("direct", self.direct_bytes),
            ("pool", self.pool_bytes),
            ("padding", self.padding_bytes),
        ]
    }

    /// What the driver does not charge to the process on the device.
    pub fn beside(&self) -> [(&'static str, Bytes); 4] {
        [
            ("pinned on the host", self.pinned_bytes),
            ("registered on the host", self.registered_bytes),
            ("managed", self.managed_bytes),
            ("imported", self.imported_bytes),
        ]
    }

    /// What the calls explain of the memory that the driver reports.
    pub fn by_calls(&self) -> Bytes {
        self.on_device().into_iter().map(|(_, bytes)| bytes).sum()
    }

    /// What neither calls nor contexts explain; where contexts are not known alone, they are part of it.
    pub fn unexplained(&self) -> Option<Bytes> {
        self.driver_bytes.or(self.remaining_bytes)
    }

    /// What several hold together.
    pub fn and(self, other: &Self) -> Self {
        let both = |a: Option<Bytes>, b: Option<Bytes>| Some(a? + b?);
        Self {
            direct_bytes: self.direct_bytes + other.direct_bytes,
            vmm_bytes: self.vmm_bytes + other.vmm_bytes,
            pool_bytes: self.pool_bytes + other.pool_bytes,
            padding_bytes: self.padding_bytes + other.padding_bytes,
            remaining_bytes: both(self.remaining_bytes, other.remaining_bytes),
            context_bytes: both(self.context_bytes, other.context_bytes),
            driver_bytes: both(self.driver_bytes, other.driver_bytes),
            managed_bytes: self.managed_bytes + other.managed_bytes,
            imported_bytes: self.imported_bytes + other.imported_bytes,
            pinned_bytes: self.pinned_bytes + other.pinned_bytes,
            registered_bytes: self.registered_bytes + other.registered_bytes,
            context_count: self.context_count + other.context_count,
            library_count: self.library_count + other.library_count,
            graph_count: self.graph_count + other.graph_count,
            is_whole: self.is_whole && other.is_whole,
        }
    }

    /// Works out what remains of what the driver reports, and which part of that is contexts.
    fn close(&mut self, held: Option<Bytes>, contexts: Option<Bytes>) {
        self.remaining_bytes = held.map(|held| held - self.by_calls());
        // A context that is larger than all that remains was not measured alone.
        let known = self.remaining_bytes.zip(contexts);
        let known = known.filter(|(remaining, contexts)| contexts <= remaining);
        self.context_bytes = known.map(|(_, contexts)| contexts);
        self.driver_bytes = known.map(|(remaining, contexts)| remaining - contexts);
    }
}
