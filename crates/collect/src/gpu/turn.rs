//! What was seen of one device, and the rows that follow from it.

use super::device::Gpu;
use super::list::Entry;
use super::memory::DeviceMemory;
use super::merge::Listed;
use super::pace::{Counts, KEYFRAME_PERIOD, LIST_PERIOD};
use super::steps::Stamp;
use memtrace_model::tables::{GpuDeviceRow, GpuSource};
use memtrace_model::{BootNs, Bytes, DurationNs};
use std::sync::Arc;

/// So much memory that no process explains is worth a look at who has the device open; more
/// where the driver does not say what it reserves.
const UNEXPLAINED: Bytes = Bytes(256 << 20);
const UNEXPLAINED_WITH_RESERVED: Bytes = Bytes(1 << 30);

/// A device with what was seen of it.
#[derive(Debug)]
pub(super) struct Turn<'n> {
    pub(super) gpu: Gpu<'n>,
    pub(super) device: Arc<str>,
    /// What the last row said.
    last: Option<(Option<DeviceMemory>, Option<i32>, Option<String>)>,
    last_row: Option<BootNs>,
    pub(super) memory: Option<DeviceMemory>,
    pub(super) utilization: Option<i32>,
    pub(super) error: Option<String>,
    pub(super) memory_call: Option<DurationNs>,
    pub(super) process_call: Option<DurationNs>,
    /// The three lists as they were last read; `None` for one that is not to be had.
    pub(super) lists: [Option<Vec<Entry>>; 3],
    pub(super) is_listed: bool,
    pub(super) has_moved: bool,
    /// The next look at lists that were empty.
    pub(super) next_full_list: BootNs,
    pub(super) next_try: BootNs,
    pub(super) holds_candidates: bool,
    /// What no process explained when its lists were last read.
    pub(super) last_rest: Option<Bytes>,
}

impl<'n> Turn<'n> {
    pub(super) fn new(gpu: Gpu<'n>) -> Self {
        Self {
            device: Arc::from(gpu.info.device.as_str()),
            gpu,
            last: None,
            last_row: None,
            memory: None,
            utilization: None,
            error: None,
            memory_call: None,
            process_call: None,
            lists: [const { Some(Vec::new()) }; 3],
            is_listed: false,
            has_moved: false,
            next_full_list: BootNs(0),
            next_try: BootNs(0),
            holds_candidates: false,
            last_rest: None,
        }
    }

    /// What was reported of it is no longer so: the next reading is reported whatever it says.
    pub(super) fn forget(&mut self) {
        self.last = None;
        self.has_moved = true;
    }

    /// The row, where there is something to tell.
    pub(super) fn row(&mut self, stamp: Stamp, calls: &Counts, must: bool) -> Option<GpuDeviceRow> {
        let now = (self.memory, self.utilization, self.error.clone());
        let age = self.last_row.map(|last| stamp.boot - last);
        let has_changed = self.last.as_ref().is_none_or(|last| {
            last.0 != now.0 || last.2 != now.2 || (last.1 != now.1 && age >= Some(LIST_PERIOD))
        });
        if !has_changed && !must && age < Some(KEYFRAME_PERIOD) {
            return None;
        }
        self.last = Some(now);
        self.last_row = Some(stamp.boot);
        let info = &self.gpu.info;
        let memory = self.memory.unwrap_or_default();
        Some(GpuDeviceRow {
            ts: stamp.ts,
            boot_ns: stamp.boot,
            device: info.device.clone(),
            parent_device: info.parent_device.clone(),
            device_index: info.index.and_then(|index| i32::try_from(index).ok()),
            name: info.name.clone(),
            source: Some(GpuSource::Nvml),
            total_bytes: memory.total,
            used_bytes: memory.used,
            reserved_bytes: memory.reserved,
            free_bytes: memory.free,
            is_unified: Some(info.is_unified),
            numa_node: self.gpu.numa_node,
            utilization_percent: self.utilization,
            memory_call_ns: self.memory_call.take(),
            process_call_ns: self.process_call.take(),
            call_total_ns: Some(calls.total),
            call_count: Some(calls.count),
            error: self.error.clone(),
        })
    }

    /// Memory that no process explains, where that can be reported.
    pub(super) fn rest(&self, listed: &[Listed]) -> Option<Bytes> {
        let memory = self.memory?;
        let known: Option<Bytes> = listed.iter().map(|process| process.used).sum();
        Some(memory.used? - memory.reserved.unwrap_or(Bytes(0)) - known?)
    }

    /// The same where it is worth a look at who has the device open.
    pub(super) fn unexplained(&self, listed: &[Listed]) -> Option<Bytes> {
        let threshold = match self.memory?.reserved {
            Some(_) => UNEXPLAINED,
            None => UNEXPLAINED_WITH_RESERVED,
        };
        self.rest(listed).filter(|rest| *rest >= threshold)
    }
}
