//! What the recording knows of GPUs: per device a ledger that closes, per process host and
//! device side by side and what it asked the CUDA driver for, and what left a device at a sharp fall.

mod cuda;
mod falls;
mod ledger;
mod read;
mod sleep;
mod sums;
#[cfg(test)]
mod tests;
mod track;

pub use cuda::{Cuda, CudaParts, CudaRefusal, CudaUnplaced};
pub use falls::{Fall, HostGain};
pub use ledger::{GpuHolder, GpuLedger, GpuLine, GpuPart};
pub(super) use read::{GpuTimeline, OnGpus};
pub use sleep::{Audit, CudaMoved};
pub use sums::GpuPeak;

use memtrace_model::{Bytes, DurationNs, Instant};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// So much more that no process explains is reported: less is the driver's own.
const LEFT_LEAST: Bytes = Bytes(256 << 20);

/// The GPUs of a recording.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Gpus {
    /// Every device, in the order of first sight.
    pub devices: Vec<GpuDevice>,
    /// Every process that held memory of a device or may have, the highest peak first.
    pub processes: Vec<GpuProcess>,
    /// The highest that all recorded processes held on all GPUs together.
    #[serde(rename = "recorded_peak")]
    pub recorded: GpuPeak,
    /// The same of each role, by its place among the groups; `None` for one that was on no GPU.
    #[serde(skip)]
    pub(super) roles: Vec<Option<GpuPeak>>,
    /// When a device was first read; `None` where none ever was.
    pub known_from: Option<Instant>,
    /// What marks that name a sleep did, the names in the order of time.
    #[serde(rename = "sleeps")]
    pub audits: Vec<Audit>,
    /// What contexts alone take; `None` where no process held anything long enough.
    pub contexts: Option<Contexts>,
    /// Sharp falls, in order of time; the largest of them.
    pub falls: Vec<Fall>,
    /// What calls of the CUDA driver tell beside that; absent where they were not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda: Option<Cuda>,
    /// Time spent in calls of the driver's library.
    pub call_time_ns: Option<DurationNs>,
    /// How many calls.
    pub call_count: Option<i64>,
}

/// A device of the recording.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct GpuDevice {
    /// What `gpu_device` calls it.
    pub device: Arc<str>,
    /// The device that this is a MIG instance of.
    pub parent_device: Option<Arc<str>>,
    /// The driver's number for it.
    pub index: Option<i32>,
    /// The product's name.
    pub name: Option<String>,
    /// Memory in all.
    pub total_bytes: Option<Bytes>,
    /// Whether its memory is the machine's and stands in the node's ledger too.
    pub is_unified: bool,
    /// The NUMA node that its memory is.
    pub numa_node: Option<i32>,
    /// Its ledger at its own peak; `None` where its memory is unknown.
    pub peak: Option<GpuLedger>,
    /// The same when the recording ended; `None` where nothing was ever known of it. What is
    /// unattributed then and was not before, somebody left.
    pub at_end: Option<GpuLedger>,
    /// Its last error, if it had not answered again by the end.
    pub error: Option<String>,
    /// The longest call for its memory.
    pub longest_memory_call_ns: Option<DurationNs>,
    /// The longest call for a list of its processes.
    pub longest_process_call_ns: Option<DurationNs>,
}

impl GpuDevice {
    fn is_part_of(&self, other: &Self) -> bool {
        self.parent_device.as_ref() == Some(&other.device)
    }

    /// The ledger at the end, where much more is used that no process explains than at the
    /// device's peak: memory that somebody left.
    pub fn left_at_end(&self) -> Option<&GpuLedger> {
        let at_end = self.at_end.as_ref().filter(|ledger| !ledger.is_divided)?;
        let at_peak = self.peak.as_ref()?.unattributed_bytes?;
        let more = at_end.unattributed_bytes? - at_peak;
        (more > LEFT_LEAST && at_end.unknown_process_count == 0).then_some(at_end)
    }
}

/// A process on GPUs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GpuProcess {
    /// The process that uses them.
    #[serde(flatten)]
    pub holder: GpuHolder,
    /// The devices that it was seen on.
    pub devices: Vec<Arc<str>>,
    /// The driver's numbers for them, in the same order; null where it gave none.
    pub device_indices: Vec<Option<i32>>,
    /// The highest it held on all devices together; `None` where the driver never reported.
    pub peak_bytes: Option<Bytes>,
    /// Whether it can have been more: on some device, for some time, the driver did not tell.
    pub peak_is_lower_bound: bool,
    /// When; `None` where only accounting mode knows.
    pub peak_at: Option<Instant>,
    /// What it held by the end of the recording; `None` when unknown.
    pub at_end_bytes: Option<Bytes>,
    /// Its peak RSS on the host; `None` when unknown.
    pub host_peak_bytes: Option<Bytes>,
}

/// What contexts alone take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Contexts {
    /// A process that computes on a device counts one, at the device's peak.
    pub count: usize,
    /// The smallest amount that any process held on a device for a second: a context takes
    /// no more than that.
    pub smallest_bytes: Bytes,
    /// What they take together, at most.
    pub at_most_bytes: Bytes,
}

impl Gpus {
    /// Of a recording in which no device was read.
    fn of_calls(cuda: Cuda) -> Self {
        Self {
            devices: Vec::new(),
            processes: Vec::new(),
            recorded: GpuPeak {
                is_lower_bound: true,
                ..GpuPeak::default()
            },
            roles: Vec::new(),
            known_from: None,
            audits: Vec::new(),
            contexts: None,
            falls: Vec::new(),
            cuda: Some(cuda),
            call_time_ns: None,
            call_count: None,
        }
    }

    /// What a process of the recording was still reported to hold on GPUs by the end: for the
    /// account of who survived. `None` where it held nothing; `Some(None)` when unknown.
    pub fn held_at_end(&self, process: usize) -> Option<Option<Bytes>> {
        let held = self.process(process)?;
        (held.at_end_bytes != Some(Bytes(0))).then_some(held.at_end_bytes)
    }

    /// Whether any recorded process was ever on one of them.
    pub fn has_recorded(&self) -> bool {
        let mut processes = self.processes.iter();
        processes.any(|process| process.holder.process.is_some())
    }

    /// The highest that a process held on GPUs; `None` also where it can have been more than
    /// the driver reported.
    pub fn peak_of(&self, process: usize) -> Option<Bytes> {
        let held = self.process(process)?;
        held.peak_bytes.filter(|_| !held.peak_is_lower_bound)
    }

    fn process(&self, process: usize) -> Option<&GpuProcess> {
        let mut processes = self.processes.iter();
        processes.find(|held| held.holder.process == Some(process))
    }
}
