//! What each GPU reported last, and what each process holds on it, while rows come in the order of time.
//! What is kept grows with devices and their processes.

use super::process::Process;
use memtrace_model::tables::{GpuDeviceRow, GpuProcessRow, GpuSource};
use memtrace_model::{Bytes, Tgid, Upid};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A device and its names.
#[derive(Debug)]
pub struct NamedGpu {
    /// What `gpu_device` calls it.
    pub device: String,
    /// The driver's number for it: `0`, or `0:1` for an instance of it; `None` where that is
    /// unknown.
    pub index: Option<String>,
    /// The product's name.
    pub name: Option<String>,
}

/// Every device that was met, and what its last row says.
#[derive(Debug, Default)]
pub(super) struct Devices {
    pub(super) gpus: Vec<NamedGpu>,
    pub(super) now: Vec<DeviceNow>,
    places: HashMap<String, usize>,
}

/// What the last row of a device says.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceNow {
    pub(super) used: Option<Bytes>,
    pub(super) total: Option<Bytes>,
    pub(super) utilization_percent: Option<i32>,
}

impl Devices {
    /// Takes the next row. Answers whose it is.
    pub(super) fn take(&mut self, row: GpuDeviceRow) -> usize {
        let now = DeviceNow {
            used: row.used_bytes,
            total: row.total_bytes,
            utilization_percent: row.utilization_percent,
        };
        match self.places.get(&row.device) {
            Some(&place) => {
                self.now[place] = now;
                place
            }
            None => {
                // Of an instance whose device was not met yet the number alone would be wrong.
                let index = match row.parent_device {
                    None => row.device_index.map(|own| own.to_string()),
                    Some(parent) => self.find(&parent).and_then(|parent| {
                        let device = parent.index.as_deref()?;
                        Some(format!("{device}:{}", row.device_index?))
                    }),
                };
                self.now.push(now);
                self.add(row.device, index, row.name)
            }
        }
    }

    fn find(&self, device: &str) -> Option<&NamedGpu> {
        self.gpus.get(*self.places.get(device)?)
    }

    fn add(&mut self, device: String, index: Option<String>, name: Option<String>) -> usize {
        let place = self.gpus.len();
        self.places.insert(device.clone(), place);
        self.gpus.push(NamedGpu {
            device,
            index,
            name,
        });
        place
    }
}

/// Which device, and which process by the driver's id.
pub(super) type Place = (usize, Tgid);
/// What the driver tells apart within a process: the instances of MIG, the client of DRM.
type Piece = (Option<i32>, Option<i32>, Option<i64>);

/// Everybody who holds memory of a device.
#[derive(Debug)]
pub(super) struct Holders {
    processes: HashMap<Upid, usize>,
    pub(super) devices: Devices,
    held: BTreeMap<Place, Holder>,
    /// By device and client: the processes that share it.
    sharers: HashMap<(usize, i64), BTreeSet<Tgid>>,
}

/// Who holds memory of a device.
#[derive(Debug, Default)]
pub(super) struct Holder {
    /// By position, where it is one of the recording.
    pub(super) process: Option<usize>,
    /// Of one that is not.
    pub(super) comm: Option<String>,
    /// Of one that is not.
    pub(super) cmdline: Option<String>,
    pieces: BTreeMap<Piece, Option<Bytes>>,
}

/// What somebody holds of a device.
#[derive(Debug)]
pub(super) struct HeldOnGpu<'a> {
    /// By place among the devices.
    pub(super) device: usize,
    pub(super) tgid: Tgid,
    pub(super) holder: &'a Holder,
    /// `None` where the driver can't tell. A client that processes share counts for the one with
    /// the lowest id, and the others are left out.
    pub(super) bytes: Option<Bytes>,
}

impl Holders {
    pub(super) fn new(processes: &[Process], devices: Devices) -> Self {
        let processes = processes.iter().enumerate();
        Self {
            processes: processes.map(|(place, one)| (one.upid, place)).collect(),
            devices,
            held: BTreeMap::new(),
            sharers: HashMap::new(),
        }
    }

    /// Takes the next row. Answers whose part it changes: beside its own that of those who share its
    /// client.
    pub(super) fn take(&mut self, row: GpuProcessRow) -> impl Iterator<Item = Place> + use<> {
        // The one tells of processes that have ended, the other of those that may hold something.
        if matches!(
            row.source,
            Some(GpuSource::Accounting | GpuSource::Descriptor)
        ) {
            return [None; 3].into_iter().flatten();
        }
        let known = self.devices.places.get(&row.device).copied();
        let device = known.unwrap_or_else(|| self.devices.add(row.device, None, None));
        let place = (device, row.tgid);
        let client = row.client_id.map(|client| (device, client));
        let first_before = self.first_of(client);
        let piece = (row.gpu_instance_id, row.compute_instance_id, row.client_id);
        let holder = self.held.entry(place).or_default();
        holder.process = row.upid.and_then(|upid| self.processes.get(&upid).copied());
        (holder.comm, holder.cmdline) = (row.comm, row.cmdline);
        if row.used_bytes == Some(Bytes(0)) {
            holder.pieces.remove(&piece);
        } else {
            holder.pieces.insert(piece, row.used_bytes);
        }
        if let Some(client) = client {
            let mut pieces = holder.pieces.keys();
            let has_client = pieces.any(|(.., one)| *one == Some(client.1));
            let sharers = self.sharers.entry(client).or_default();
            match has_client {
                true => sharers.insert(row.tgid),
                false => sharers.remove(&row.tgid),
            };
        }
        if holder.pieces.is_empty() {
            self.held.remove(&place);
        }
        let firsts = [first_before, self.first_of(client)];
        let firsts = firsts.map(|tgid| Some((device, tgid?)));
        [Some(place), firsts[0], firsts[1]].into_iter().flatten()
    }

    /// Of those who share a client the one with the lowest id, for whom it counts.
    fn first_of(&self, client: Option<(usize, i64)>) -> Option<Tgid> {
        self.sharers.get(&client?)?.first().copied()
    }

    /// What somebody holds now; `None` where that is nothing, or counts for another.
    pub(super) fn of(&self, place: Place) -> Option<HeldOnGpu<'_>> {
        let (device, tgid) = place;
        let holder = self.held.get(&place)?;
        let counts = |client: Option<i64>| {
            let client = client.map(|client| (device, client));
            client.is_none() || self.first_of(client) == Some(tgid)
        };
        let pieces = holder.pieces.iter();
        let mut own = pieces
            .filter(|((.., client), _)| counts(*client))
            .peekable();
        own.peek()?;
        Some(HeldOnGpu {
            device,
            tgid,
            holder,
            bytes: own.map(|(_, used)| *used).sum(),
        })
    }

    /// What everybody holds now.
    pub(super) fn now(&self) -> impl Iterator<Item = HeldOnGpu<'_>> {
        self.held.keys().filter_map(|place| self.of(*place))
    }
}
