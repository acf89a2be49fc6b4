//! What a process holds by the library's own account.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What `memtrace_fake_cuda_held` writes, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Each device of the process; without a device what was asked for before there was a context.
    pub devices: Vec<DeviceHeld>,
    /// How often each function was called.
    pub calls: BTreeMap<String, u64>,
}

/// What the process holds of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceHeld {
    /// The device as the process counts.
    pub cuda_device: Option<i32>,
    /// Its id as NVML writes it.
    pub device_uuid: Option<String>,
    /// What cuMemAlloc and the arrays were asked for; of cuMemAllocPitch pitch × height.
    pub direct_bytes: i64,
    /// Physical memory of cuMemCreate.
    pub vmm_bytes: i64,
    /// What is in use of pools.
    pub pool_bytes: i64,
    /// What cuMemAllocManaged was asked for.
    pub managed_bytes: i64,
    /// Memory of another process: opened by IPC, or imported and mapped.
    pub imported_bytes: i64,
    /// Host memory of the driver.
    pub pinned_bytes: i64,
    /// Host memory of the program that is registered.
    pub registered_bytes: i64,
    /// What direct allocations take beyond what was asked for.
    pub padding_bytes: i64,
    /// How many contexts there are.
    pub context_count: i64,
    /// Libraries and modules of GPU code.
    pub library_count: i64,
    /// Graphs that are instantiated.
    pub graph_count: i64,
    /// How often each function refused.
    pub refused: BTreeMap<String, u64>,
    /// What NVML would report for the process: all of the above that is charged to it, contexts, GPU code,
    /// and what pools keep.
    pub charged_bytes: i64,
}
