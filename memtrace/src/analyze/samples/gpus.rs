//! The memory of GPUs at the instants of the samples: each device, and who holds it. One pass over
//! `gpu_device` and one over `gpu_process`; what is kept grows with devices and their processes.

use super::Samples;
use crate::analyze::{Process, RowSource};
use crate::model::tables::{GpuDeviceRow, GpuProcessRow, GpuSource};
use crate::model::{BootNs, Bytes, DurationNs, Tgid, Upid};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A device.
#[derive(Debug)]
pub struct SampledGpu {
    /// What `gpu_device` calls it.
    pub device: String,
    /// The driver's number for it: `0`, or `0:1` for an instance of it; `None` where that is
    /// unknown.
    pub index: Option<String>,
    /// The product's name.
    pub name: Option<String>,
}

/// A device at an instant.
#[derive(Debug)]
pub struct GpuPlace<'a> {
    /// When.
    pub boot_ns: BootNs,
    /// The mark that the sample was taken for, or "interval".
    pub label: &'a str,
    /// Which device.
    pub gpu: &'a SampledGpu,
}

/// A device's memory at an instant.
#[derive(Debug)]
pub struct GpuSample<'a> {
    /// When, and which device.
    pub at: GpuPlace<'a>,
    /// Memory that is not free.
    pub used: Option<Bytes>,
    /// Memory in all.
    pub total: Option<Bytes>,
}

/// What a process held on a device at an instant.
#[derive(Debug)]
pub struct GpuProcessSample<'a> {
    /// When, and on which device.
    pub at: GpuPlace<'a>,
    /// Its process id, as the driver tells it.
    pub tgid: Tgid,
    /// Who it is; `None` for one that is not recorded otherwise.
    pub process: Option<&'a Process>,
    /// The kernel's name of one that is not recorded otherwise.
    pub comm: Option<&'a str>,
    /// The command line of one that is not recorded otherwise.
    pub cmdline: Option<&'a str>,
    /// What it holds; `None` where the driver can't tell. A client of the driver that processes
    /// share counts for the one with the lowest id.
    pub used: Option<Bytes>,
}

/// Reads the memory of each device and of each process on it, at the instants of `samples`. Each
/// of the two gets its own in the order of time, until it says that it wants no more.
///
/// # Errors
/// When the rows can't be read.
pub fn sample_gpus<S: RowSource>(
    source: &S,
    samples: &Samples,
    mut each_device: impl FnMut(&GpuSample<'_>) -> bool,
    mut each_process: impl FnMut(&GpuProcessSample<'_>) -> bool,
) -> Result<(), S::Error> {
    let end = samples.clock.end() + DurationNs(1);
    let mut schedule = samples.schedule.clone();
    let mut devices = Devices::default();
    source.scan(&[], |row: GpuDeviceRow| {
        schedule.each_before(row.boot_ns, |at, label| {
            devices.give(at, label, &mut each_device)
        });
        devices.take(row);
    })?;
    schedule.each_before(end, |at, label| devices.give(at, label, &mut each_device));

    let mut schedule = samples.schedule.clone();
    let mut holders = Holders::of(samples, devices);
    source.scan(&[], |row: GpuProcessRow| {
        schedule.each_before(row.boot_ns, |at, label| {
            holders.give(at, label, &mut each_process)
        });
        holders.take(row);
    })?;
    schedule.each_before(end, |at, label| holders.give(at, label, &mut each_process));
    Ok(())
}

/// Every device that was met, and what its last row says.
#[derive(Debug, Default)]
struct Devices {
    gpus: Vec<SampledGpu>,
    now: Vec<Reading>,
    places: HashMap<String, usize>,
}

/// What the last row of a device says.
#[derive(Debug)]
struct Reading {
    used: Option<Bytes>,
    total: Option<Bytes>,
}

impl Devices {
    fn take(&mut self, row: GpuDeviceRow) {
        let reading = Reading {
            used: row.used_bytes,
            total: row.total_bytes,
        };
        match self.places.get(&row.device) {
            Some(&place) => self.now[place] = reading,
            None => {
                // Of an instance whose device was not met yet the number alone would be wrong.
                let index = match row.parent_device {
                    None => row.device_index.map(|own| own.to_string()),
                    Some(parent) => self.find(&parent).and_then(|parent| {
                        let device = parent.index.as_deref()?;
                        Some(format!("{device}:{}", row.device_index?))
                    }),
                };
                self.add(row.device, index, row.name);
                self.now.push(reading);
            }
        }
    }

    fn find(&self, device: &str) -> Option<&SampledGpu> {
        self.gpus.get(*self.places.get(device)?)
    }

    fn add(&mut self, device: String, index: Option<String>, name: Option<String>) -> usize {
        let place = self.gpus.len();
        self.places.insert(device.clone(), place);
        self.gpus.push(SampledGpu {
            device,
            index,
            name,
        });
        place
    }

    fn give(&self, at: BootNs, label: &str, each: &mut impl FnMut(&GpuSample<'_>) -> bool) -> bool {
        self.gpus.iter().zip(&self.now).all(|(gpu, now)| {
            each(&GpuSample {
                at: GpuPlace {
                    boot_ns: at,
                    label,
                    gpu,
                },
                used: now.used,
                total: now.total,
            })
        })
    }
}

/// Which device, and which process by the driver's id.
type Place = (usize, Tgid);
/// What the driver tells apart within a process: the instances of MIG, the client of DRM.
type Piece = (Option<i32>, Option<i32>, Option<i64>);

/// Everybody who holds memory of a device.
#[derive(Debug)]
struct Holders<'a> {
    samples: &'a Samples,
    processes: HashMap<Upid, usize>,
    devices: Devices,
    held: BTreeMap<Place, Holder>,
}

#[derive(Debug, Default)]
struct Holder {
    process: Option<usize>,
    comm: Option<String>,
    cmdline: Option<String>,
    pieces: BTreeMap<Piece, Option<Bytes>>,
}

impl<'a> Holders<'a> {
    fn of(samples: &'a Samples, devices: Devices) -> Self {
        let processes = samples.processes.iter().enumerate();
        Self {
            samples,
            processes: processes.map(|(place, one)| (one.upid, place)).collect(),
            devices,
            held: BTreeMap::new(),
        }
    }

    fn take(&mut self, row: GpuProcessRow) {
        // The one tells of processes that have ended, the other of those that may hold something.
        if matches!(
            row.source,
            Some(GpuSource::Accounting | GpuSource::Descriptor)
        ) {
            return;
        }
        let known = self.devices.places.get(&row.device).copied();
        let device = known.unwrap_or_else(|| self.devices.add(row.device, None, None));
        let place = (device, row.tgid);
        let piece = (row.gpu_instance_id, row.compute_instance_id, row.client_id);
        let holder = self.held.entry(place).or_default();
        holder.process = row.upid.and_then(|upid| self.processes.get(&upid).copied());
        (holder.comm, holder.cmdline) = (row.comm, row.cmdline);
        if row.used_bytes == Some(Bytes(0)) {
            holder.pieces.remove(&piece);
        } else {
            holder.pieces.insert(piece, row.used_bytes);
        }
        if holder.pieces.is_empty() {
            self.held.remove(&place);
        }
    }

    fn give(
        &self,
        at: BootNs,
        label: &str,
        each: &mut impl FnMut(&GpuProcessSample<'_>) -> bool,
    ) -> bool {
        let mut clients = HashSet::new();
        self.held.iter().all(|(&(device, tgid), holder)| {
            let pieces = holder.pieces.iter();
            let own: Vec<Option<Bytes>> = pieces
                .filter(|((_, _, client), _)| {
                    client.is_none_or(|client| clients.insert((device, client)))
                })
                .map(|(_, used)| *used)
                .collect();
            own.is_empty()
                || each(&GpuProcessSample {
                    at: GpuPlace {
                        boot_ns: at,
                        label,
                        gpu: &self.devices.gpus[device],
                    },
                    tgid,
                    process: holder.process.map(|place| &self.samples.processes[place]),
                    comm: holder.comm.as_deref(),
                    cmdline: holder.cmdline.as_deref(),
                    used: own.into_iter().sum(),
                })
        })
    }
}
