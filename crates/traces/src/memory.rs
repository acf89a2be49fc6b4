//! What the profiler says of memory (`profile_memory=True`): the highest of each device, and its operators.

use super::allocations::{self, Changes, OperatorMemories};
use super::event::Args;
use super::self_time::{Named, Sorted};
use memtrace_model::{Bytes, WallNs};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// So many devices are distinguished.
const DEVICES_MAX: usize = 256;

/// The memory of a device, as torch's allocator for it counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceMemory {
    /// torch's name for it: `cpu`, `cuda:0`.
    pub device: String,
    /// How many events tell of it.
    pub event_count: u64,
    /// The highest that tensors took.
    pub peak_allocated_bytes: Option<Bytes>,
    /// When, on the wall clock.
    pub peak_allocated_at_wall_ns: Option<WallNs>,
    /// The operator that allocated then; `None` outside of all, or where it is not known.
    pub peak_allocated_in: Option<String>,
    /// The highest that the allocator held for them; `None` for one that keeps nothing.
    pub peak_reserved_bytes: Option<Bytes>,
    /// When, on the wall clock.
    pub peak_reserved_at_wall_ns: Option<WallNs>,
    /// Which operators allocated and freed; `None` where there were too many events to keep.
    pub operators: Option<OperatorMemories>,
}

/// By kind and number of the device.
#[derive(Debug, Default)]
pub(super) struct Devices {
    list: BTreeMap<(i64, i64), Device>,
    changes: Changes,
}

/// The highest, and when.
type High = Option<(i64, i64)>;

#[derive(Debug, Default)]
struct Device {
    place: u16,
    event_count: u64,
    allocated: High,
    /// The place of the change that raised it to there, if it was kept.
    raised_by: Option<usize>,
    reserved: High,
}

impl Devices {
    /// Takes an event of a time and of a thread, by the thread's place if it has one.
    pub(super) fn take(&mut self, at: i64, thread: Option<u32>, args: &Args) {
        let (Some(kind), Some(number)) = (args.device_type, args.device_id) else {
            return;
        };
        let key = (kind as i64, number as i64);
        let place = self.list.len();
        if place == DEVICES_MAX && !self.list.contains_key(&key) {
            return;
        }
        let device = self.list.entry(key).or_insert_with(|| Device {
            place: place as u16,
            ..Device::default()
        });
        device.event_count += 1;
        let is_raised = raise(&mut device.allocated, args.total_allocated, at);
        raise(&mut device.reserved, args.total_reserved, at);
        let bytes = args.bytes.map(|bytes| bytes as i64);
        let change = bytes.zip(thread).and_then(|(bytes, thread)| {
            let change = self.changes.take(device.place, thread, at, bytes);
            change.filter(|_| bytes > 0)
        });
        if is_raised {
            device.raised_by = change;
        }
    }

    /// Each device, with so many of its operators. `name` knows the names of operators, `wall` gives the
    /// wall time of an event's.
    pub(super) fn reported(
        self,
        spans: Option<&Sorted>,
        top: usize,
        name: impl Fn(Named) -> String,
        wall: impl Fn(i64) -> Option<WallNs>,
    ) -> Vec<DeviceMemory> {
        let peaks = self.list.values().filter_map(|device| device.raised_by);
        let mut owned = spans.and_then(|spans| self.changes.owned(spans, peaks));
        let devices = self.list.into_iter().map(|((kind, number), device)| {
            let reserved = device.reserved.filter(|(bytes, _)| *bytes > 0);
            let of_device = owned.as_mut().map(|(owned, at_peak)| {
                let owned = owned.remove(&device.place).unwrap_or_default();
                (owned, at_peak.get(&device.place))
            });
            let peak_name = of_device.as_ref().and_then(|(_, at_peak)| *at_peak);
            DeviceMemory {
                device: device_name(kind, number),
                event_count: device.event_count,
                peak_allocated_bytes: device.allocated.map(|(bytes, _)| Bytes(bytes)),
                peak_allocated_at_wall_ns: device.allocated.and_then(|(_, at)| wall(at)),
                peak_allocated_in: peak_name.map(|named| name(*named)),
                peak_reserved_bytes: reserved.map(|(bytes, _)| Bytes(bytes)),
                peak_reserved_at_wall_ns: reserved.and_then(|(_, at)| wall(at)),
                operators: of_device.map(|(owned, _)| allocations::reported(owned, top, &name)),
            }
        });
        devices.collect()
    }
}

/// Whether it is higher now. Of two as high the earlier stays.
fn raise(high: &mut High, bytes: Option<f64>, at: i64) -> bool {
    let bytes = bytes.map(|bytes| bytes as i64);
    let is_higher = |bytes: &i64| {
        high.is_none_or(|(known, then)| (known, Reverse(then)) < (*bytes, Reverse(at)))
    };
    let Some(bytes) = bytes.filter(is_higher) else {
        return false;
    };
    *high = Some((bytes, at));
    true
}

/// Names a device by `c10/core/DeviceType.h`.
fn device_name(kind: i64, number: i64) -> String {
    let word = match kind {
        0 => return "cpu".to_owned(),
        1 => "cuda",
        6 => "hip",
        9 => "xla",
        12 => "xpu",
        13 => "mps",
        14 => "meta",
        15 => "hpu",
        20 => "privateuseone",
        _ => return format!("device type {kind}:{number}"),
    };
    format!("{word}:{number}")
}
