//! Memory of GPUs as counters: what is in use of each device, and what each process holds on it.

use super::counter::Counter;
use crate::on_gpus::{Devices, Holders, NamedGpu, Place};
use crate::process::Process;
use memtrace_model::tables::{GpuDeviceRow, GpuProcessRow};
use memtrace_model::{BootNs, RowSource};
use memtrace_perfetto::{Trace, Track};
use std::collections::{BTreeMap, BTreeSet, HashMap};

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
        holders: Holders::new(processes, devices),
        tracks,
        counters: HashMap::new(),
        changed: BTreeSet::new(),
        now: None,
    };
    source.scan(&[], |row: GpuProcessRow| {
        if held.now.is_some_and(|now| now != row.boot_ns) {
            held.note(trace, processes);
        }
        held.now = Some(row.boot_ns);
        held.changed.extend(held.holders.take(row));
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

/// What each process holds on each device.
struct HeldCounters {
    holders: Holders,
    tracks: DeviceTracks,
    /// With who it is, by position: a process id is used again.
    counters: HashMap<Place, (Option<usize>, Counter)>,
    /// Whose part changed at the time whose rows come in.
    changed: BTreeSet<Place>,
    now: Option<BootNs>,
}

impl HeldCounters {
    /// All rows of a time are in.
    fn note(&mut self, trace: &mut Trace<'_>, processes: &[Process]) {
        let Some(at) = self.now else { return };
        let gpus = &self.holders.devices.gpus;
        for place in std::mem::take(&mut self.changed) {
            let (who, counter) = self.counters.entry(place).or_default();
            let Some(held) = self.holders.of(place) else {
                counter.end(trace, at);
                continue;
            };
            if *who != held.holder.process {
                counter.end(trace, at);
                (*who, *counter) = (held.holder.process, Counter::default());
            }
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
