//! What the recording knows of GPUs: per device a ledger that closes, per process host and
//! device side by side, and what left a device at a sharp fall.

mod falls;
mod ledger;
mod read;
mod sleep;
mod sums;
#[cfg(test)]
mod tests;
mod track;

pub use falls::Fall;
pub use ledger::{GpuHolder, GpuLedger, GpuLine};
pub(super) use read::GpuTimeline;
pub use sleep::Audit;
pub(super) use sleep::Named;
pub use sums::GpuPeak;

use crate::model::{BootNs, Bytes, DurationNs};

/// So much more that no process explains is told: less is the driver's own.
const LEFT_LEAST: Bytes = Bytes(256 << 20);

/// The GPUs of a recording.
#[derive(Clone, Debug)]
pub struct Gpus {
    /// Every device, in the order of first sight.
    pub devices: Vec<GpuDevice>,
    /// Every process that held memory of a device or may have, the highest peak first.
    pub processes: Vec<GpuProcess>,
    /// The highest that all recorded processes held on all GPUs together.
    pub recorded: GpuPeak,
    /// The same of each role, by its place among the groups; `None` for one that was on no GPU.
    pub(super) roles: Vec<Option<GpuPeak>>,
    /// When a device was first read; `None` where none ever was.
    pub known_from: Option<BootNs>,
    /// What marks that name a sleep did, the names in the order of time.
    pub audits: Vec<Audit>,
    /// What contexts alone take; `None` where no process held anything long enough.
    pub contexts: Option<Contexts>,
    /// Sharp falls, in order of time; the largest of them.
    pub falls: Vec<Fall>,
    /// Time spent in calls of the driver's library.
    pub call_time: Option<DurationNs>,
    /// How many calls.
    pub call_count: Option<i64>,
}

/// A device.
#[derive(Clone, Debug)]
pub struct GpuDevice {
    /// As in `gpu_device`.
    pub device: String,
    /// The position of the device that this is a MIG instance of.
    pub parent: Option<usize>,
    /// The driver's number for it.
    pub index: Option<i32>,
    /// The product's name.
    pub name: Option<String>,
    /// Memory in all.
    pub total_bytes: Option<Bytes>,
    /// Whether its memory is the machine's and stands in the node's books too.
    pub is_unified: bool,
    /// The NUMA node that its memory is.
    pub numa_node: Option<i32>,
    /// Its books at its own peak; `None` where its memory is unknown.
    pub peak: Option<GpuLedger>,
    /// The same when the recording ended; `None` where nothing was ever known of it.
    pub at_end: Option<GpuLedger>,
    /// Its last error, if it had not answered again by the end.
    pub error: Option<String>,
    /// The longest call for its memory.
    pub memory_call: Option<DurationNs>,
    /// The longest call for a list of its processes.
    pub process_call: Option<DurationNs>,
}

impl GpuDevice {
    /// The books at the end, where much more is used that no process explains than at the
    /// device's peak: memory that somebody left.
    pub fn left_at_end(&self) -> Option<&GpuLedger> {
        let at_end = self.at_end.as_ref().filter(|ledger| !ledger.is_divided)?;
        let at_peak = self.peak.as_ref()?.unattributed_bytes?;
        let more = at_end.unattributed_bytes? - at_peak;
        (more > LEFT_LEAST && at_end.unknown_count() == 0).then_some(at_end)
    }
}

/// A process on GPUs.
#[derive(Clone, Debug)]
pub struct GpuProcess {
    /// Who.
    pub holder: GpuHolder,
    /// Positions of the devices that it was seen on.
    pub devices: Vec<usize>,
    /// The highest it held on all devices together; `None` where the driver never told.
    pub peak_bytes: Option<Bytes>,
    /// Whether it can have been more: on some device, for some time, the driver did not tell.
    pub is_lower_bound: bool,
    /// When; `None` where only accounting mode knows.
    pub peak_boot_ns: Option<BootNs>,
    /// What it held by the end of the recording; `None` when unknown.
    pub at_end_bytes: Option<Bytes>,
}

/// What contexts alone take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contexts {
    /// A process that computes on a device counts one, at the device's peak.
    pub count: usize,
    /// The smallest amount that any process held on a device for a second: a context takes
    /// no more than that.
    pub smallest_bytes: Bytes,
}

impl Contexts {
    /// What they take together, at most.
    pub fn at_most_bytes(&self) -> Bytes {
        let count = i64::try_from(self.count).unwrap_or(i64::MAX);
        Bytes(self.smallest_bytes.0.saturating_mul(count))
    }
}

impl Gpus {
    /// What a process of the recording was still told to hold on GPUs by the end: for the
    /// account of who survived. `None` where it held nothing; `Some(None)` when unknown.
    pub fn held_at_end(&self, process: usize) -> Option<Option<Bytes>> {
        let mut held = self.processes.iter();
        let held = held.find(|held| held.holder == GpuHolder::Process(process))?;
        (held.at_end_bytes != Some(Bytes(0))).then_some(held.at_end_bytes)
    }

    /// Whether any recorded process was ever on one of them.
    pub fn has_recorded(&self) -> bool {
        let mut holders = self.processes.iter().map(|process| &process.holder);
        holders.any(|holder| matches!(holder, GpuHolder::Process(_)))
    }

    /// The highest that a process held on GPUs; `None` also where it can have been more than
    /// the driver told.
    pub fn peak_of(&self, process: usize) -> Option<Bytes> {
        let mut held = self.processes.iter();
        let held = held.find(|held| held.holder == GpuHolder::Process(process))?;
        held.peak_bytes.filter(|_| !held.is_lower_bound)
    }
}
