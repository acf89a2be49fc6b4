//! What the library answers.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The whole of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Script {
    /// The devices by index.
    pub devices: Vec<Device>,
    /// Every call of these names fails with that code.
    pub fail: BTreeMap<String, u32>,
    /// Every call of these names takes so many microseconds.
    pub slow_us: BTreeMap<String, u64>,
}

/// A device, or a MIG instance of one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// The UUID that it reports.
    pub uuid: String,
    /// The name of the product.
    pub name: String,
    /// N of /dev/nvidiaN.
    pub minor: u32,
    /// Its memory; without it the calls are not supported.
    pub memory: Option<Memory>,
    /// Share of time in which kernels ran, in percent; not supported without it.
    pub utilization: Option<u32>,
    /// The NUMA node that its memory is.
    pub numa_node: Option<u32>,
    /// The list of compute processes.
    pub compute: Vec<Process>,
    /// The list of graphics processes.
    pub graphics: Vec<Process>,
    /// The list of MPS clients.
    pub mps: Vec<Process>,
    /// MIG instances; MIG mode is on where there are any.
    pub instances: Vec<Device>,
    /// What accounting mode remembers; it is off without.
    pub accounting: Option<Vec<Accounted>>,
    /// Calls of these names fail for this device with that code.
    pub fail: BTreeMap<String, u32>,
    /// So many entries more than fit are claimed in the first call for a list, as if the
    /// processes had come between two calls.
    pub sudden_processes: u32,
    /// Entries have a fourth word, as with early drivers of the series 535.
    pub has_long_entries: bool,
}

/// The memory of a device in bytes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Memory in all.
    pub total: u64,
    /// Allocated, without what is reserved.
    pub used: u64,
    /// Kept by the driver; the rest is free.
    pub reserved: u64,
    /// Whether version 2 of the call tells `used` with what is reserved.
    pub is_reserved_in_used: bool,
    /// Whether there is a version 2 of the call.
    pub has_v2: bool,
}

/// A process in a list.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// In bytes; `None` is "not available".
    pub used: Option<u64>,
    /// MIG: GPU instance and compute instance.
    pub instance: Option<(u32, u32)>,
}

/// A process that accounting mode remembers.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Accounted {
    /// Its process id.
    pub pid: u32,
    /// The highest it held, in bytes.
    pub peak: u64,
    /// Its start in microseconds since the epoch.
    pub start_us: u64,
    /// Whether it runs.
    pub is_running: bool,
}

/// NVML_ERROR_NOT_SUPPORTED of nvml.h.
pub const NOT_SUPPORTED: u32 = 3;
/// NVML_ERROR_GPU_IS_LOST of nvml.h.
pub const GPU_IS_LOST: u32 = 15;
/// NVML_ERROR_LIB_RM_VERSION_MISMATCH of nvml.h.
pub const DRIVER_MISMATCH: u32 = 18;
/// NVML_ERROR_UNKNOWN of nvml.h.
pub const UNKNOWN: u32 = 999;

impl Memory {
    /// Memory with version 2 of the call, which keeps total = used + reserved + free.
    pub fn new(total: u64, reserved: u64, used: u64) -> Self {
        Self {
            total,
            used,
            reserved,
            is_reserved_in_used: false,
            has_v2: true,
        }
    }

    /// What is neither used nor reserved.
    pub fn free(&self) -> u64 {
        self.total - self.used - self.reserved
    }
}

impl Process {
    /// A process that holds so many bytes.
    pub fn new(pid: u32, used: u64) -> Self {
        Self {
            pid,
            used: Some(used),
            instance: None,
        }
    }
}
