//! `gpu_device`: the memory of each GPU over time.

use crate::labels;
use crate::table::table;
use crate::{BootNs, Bytes, DurationNs, WallNs};

table! {
    /// Memory of one GPU, or of one MIG instance of it. A row holds from its time until the next row of the same device (a step function); a device that does not change costs a row a second at most, for its utilisation, and a keyframe every 10 s. total = used + free.
    pub struct GpuDeviceRow in "gpu_device" {
        /// Wall-clock time (UTC) at the start of the reading; the rows of `gpu_process` of the same reading have the same.
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME at the start of the reading.
        boot_ns: BootNs,
        /// The device: NVML's UUID (`GPU-...`, `MIG-...`), or `pci:` and the address where there is no UUID.
        device: String,
        /// The device that a MIG instance is a part of; null for a device of its own.
        parent_device: Option<String>,
        /// NVML's index of the device (of a MIG instance: within its parent), or the number N of /dev/dri/cardN.
        device_index: Option<i32>,
        /// The product's name.
        name: Option<String>,
        /// Who reported it.
        source: Option<GpuSource>,
        /// Memory of the device in all.
        total_bytes: Option<Bytes>,
        /// Memory that is not free, what is reserved included, whatever the driver means by "used": decided by total = used + reserved + free. Null where the device can't tell, or has no memory of its own.
        used_bytes: Option<Bytes>,
        /// Part of it that driver and firmware keep for themselves; null where the driver does not tell it apart.
        reserved_bytes: Option<Bytes>,
        /// Memory that is free.
        free_bytes: Option<Bytes>,
        /// Whether the device's memory is the machine's, or a NUMA node of it: then it is in `node_mem` too and must be counted once. Null when unknown.
        is_unified: Option<bool>,
        /// The NUMA node that the device's memory is; null where it is none.
        numa_node: Option<i32>,
        /// Share of the last sample period in which a kernel ran on the device, in percent. Says nothing about memory.
        utilization_percent: Option<i32>,
        /// The longest call for the device's memory since its last row.
        memory_call_ns: Option<DurationNs>,
        /// The longest call for its list of processes since its last row; null when there was none.
        process_call_ns: Option<DurationNs>,
        /// Time spent in calls of the driver's library so far, all devices: the upper end of how long its lock was held for memtrace. Counts up.
        call_total_ns: Option<DurationNs>,
        /// Such calls so far, all devices. Counts up.
        call_count: Option<i64>,
        /// What the device answered instead of its memory, where it failed.
        error: Option<String>,
    }
}

labels! {
    /// Who tells of a GPU's memory.
    pub enum GpuSource {
        /// NVIDIA's management library.
        Nvml = "nvml",
        /// The kernel's DRM drivers: fdinfo of each descriptor, sysfs.
        Drm = "drm",
        /// NVML's accounting mode, which remembers processes that have ended.
        Accounting = "accounting",
        /// An open descriptor of the device: a candidate for memory that no list of processes explains.
        Descriptor = "descriptor",
    }
}
