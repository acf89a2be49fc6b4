//! What the profiler says of memory (`profile_memory=True`): the highest of each device.

use super::event::Args;
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
    /// The highest that the allocator held for them; `None` for one that keeps nothing.
    pub peak_reserved_bytes: Option<Bytes>,
    /// When, on the wall clock.
    pub peak_reserved_at_wall_ns: Option<WallNs>,
}

/// By kind and number of the device.
#[derive(Debug, Default)]
pub(super) struct Devices(BTreeMap<(i64, i64), Device>);

/// The highest, and when.
type High = Option<(i64, i64)>;

#[derive(Debug, Default)]
struct Device {
    event_count: u64,
    allocated: High,
    reserved: High,
}

impl Devices {
    /// Takes an event of a time.
    pub(super) fn take(&mut self, at: i64, args: &Args) {
        let (Some(kind), Some(number)) = (args.device_type, args.device_id) else {
            return;
        };
        let key = (kind as i64, number as i64);
        if self.0.len() == DEVICES_MAX && !self.0.contains_key(&key) {
            return;
        }
        let device = self.0.entry(key).or_default();
        device.event_count += 1;
        raise(&mut device.allocated, args.total_allocated, at);
        raise(&mut device.reserved, args.total_reserved, at);
    }

    /// Each device. `wall` gives the wall time of an event's.
    pub(super) fn reported(self, wall: impl Fn(i64) -> Option<WallNs>) -> Vec<DeviceMemory> {
        let devices = self.0.into_iter().map(|((kind, number), device)| {
            let reserved = device.reserved.filter(|(bytes, _)| *bytes > 0);
            DeviceMemory {
                device: name(kind, number),
                event_count: device.event_count,
                peak_allocated_bytes: device.allocated.map(|(bytes, _)| Bytes(bytes)),
                peak_allocated_at_wall_ns: device.allocated.and_then(|(_, at)| wall(at)),
                peak_reserved_bytes: reserved.map(|(bytes, _)| Bytes(bytes)),
                peak_reserved_at_wall_ns: reserved.and_then(|(_, at)| wall(at)),
            }
        });
        devices.collect()
    }
}

/// Of two as high the earlier stays.
fn raise(high: &mut High, bytes: Option<f64>, at: i64) {
    let Some(bytes) = bytes.map(|bytes| bytes as i64) else {
        return;
    };
    if high.is_none_or(|(known, then)| (known, Reverse(then)) < (bytes, Reverse(at))) {
        *high = Some((bytes, at));
    }
}

/// Names a device by `c10/core/DeviceType.h`.
fn name(kind: i64, number: i64) -> String {
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
