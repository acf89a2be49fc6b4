//! Memory of GPUs as counters: what is in use of each device, and what each process holds on it.

use super::counter::Counter;
use crate::analyze::RowSource;
use crate::analyze::on_gpus::{Devices, HeldOnGpu, Holders, NamedGpu};
use crate::analyze::process::Process;
use crate::model::tables::{GpuDeviceRow, GpuProcessRow};
use crate::model::{BootNs, Tgid};
use crate::perfetto::{Trace, Track};
use std::collections::BTreeMap;

/// Reads `gpu_device` and `gpu_process` and writes them.
pub(super) fn write<S: RowSource>(
    trace: &mut Trace<'_>,
    source: &S,
    processes: &[Process],
) -> Result<(), S::Error> {
    let mut devices = Devices::default();
    let mut tracks = DeviceTracks::default();
    let mut used: Vec<Counter> = Vec::new();
    source.scan(&[], |row: GpuDeviceRow| {
        let at = row.boot_ns;
        let place = devices.take(row);
        used.resize(devices.gpus.len(), Counter::default());
        used[place].note(trace, at, devices.now[place].used, |trace| {
            let parent = tracks.of(trace, &devices.gpus, place);
            trace.counter(Some(parent), "in use", None)
        });
    })?;
    let mut held = HeldCounters {
        holders: Holders::of(processes, devices),
        tracks,
        counters: BTreeMap::new(),
        now: None,
    };
    source.scan(&[], |row: GpuProcessRow| {
        if held.now.is_some_and(|now| now != row.boot_ns) {
            held.note(trace, processes);
        }
        held.now = Some(row.boot_ns);
        held.holders.take(row);
    })?;
    held.note(trace, processes);
    Ok(())
}

/// The track of each device, under which its counters stand.
#[derive(Debug, Default)]
struct DeviceTracks(BTreeMap<usize, Track>);

impl DeviceTracks {
    fn of(&mut self, trace: &mut Trace<'_>, gpus: &[NamedGpu], place: usize) -> Track {
        let declare = || {
            let gpu = &gpus[place];
            let which = gpu.index.as_ref().unwrap_or(&gpu.device);
            let name = gpu.name.as_deref().unwrap_or_default();
            trace.track(None, format!("GPU {which} {name}").trim_end())
        };
        *self.0.entry(place).or_insert_with(declare)
    }
}

/// Who it is: the device, the process by the driver's id, and by position where it is recorded.
type Who = (usize, Tgid, Option<usize>);

/// What each process holds on each device.
struct HeldCounters {
    holders: Holders,
    tracks: DeviceTracks,
    counters: BTreeMap<Who, Counter>,
    /// The time whose rows come in.
    now: Option<BootNs>,
}

impl HeldCounters {
    /// All rows of a time are in.
    fn note(&mut self, trace: &mut Trace<'_>, processes: &[Process]) {
        let Some(at) = self.now else { return };
        let held: BTreeMap<Who, HeldOnGpu<'_>> = self
            .holders
            .now()
            .map(|held| ((held.device, held.tgid, held.holder.process), held))
            .collect();
        for (who, counter) in &mut self.counters {
            if !held.contains_key(who) {
                counter.end(trace, at);
            }
        }
        let gpus = &self.holders.devices.gpus;
        for (who, held) in &held {
            let counter = self.counters.entry(*who).or_default();
            counter.note(trace, at, held.bytes, |trace| {
                let parent = self.tracks.of(trace, gpus, held.device);
                let process = held.holder.process.map(|place| &*processes[place].name);
                let name = process.or(held.holder.comm.as_deref());
                let name = format!("{} ({})", name.unwrap_or("[unknown]"), held.tgid);
                trace.counter(Some(parent), &name, None)
            });
        }
    }
}
