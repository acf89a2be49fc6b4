//! Memory of each GPU over time: what processes hold of it, what is reserved, and what nothing
//! explains, by the rules of the ledger.

use super::coded::{CurveSeries, Gaps};
use super::drawing::REST;
use super::known::Known;
use super::readings::{Reading, Readings};
use super::{GPU_VALUES, GpuCurves};
use crate::RunClock;
use crate::gpu::{GpuDevice, GpuHolder, Gpus};
use crate::process_table::ProcessTable;
use memtrace_model::tables::{GpuDeviceRow, GpuProcessRow, GpuSource};
use memtrace_model::{BootNs, Bytes, Order, RowSource, Tgid, Upid};
use memtrace_timeline::Thinned;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

/// So many processes of a device have a curve of their own.
const PROCESSES_MAX: usize = 12;
/// So many readings of devices are followed; of more those that are extremes.
const READINGS_MAX: usize = 1_000_000;

/// The functions of a device before those of processes.
const USED: usize = 0;
const RESERVED: usize = 1;
const UNATTRIBUTED: usize = 2;
const OTHERS: usize = 3;
const FIRST_PROCESS: usize = 4;

/// One piece of memory of a process on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    tgid: Tgid,
    upid: Option<Upid>,
    gpu_instance: Option<i32>,
    compute_instance: Option<i32>,
    client: Option<i64>,
}

/// Who holds it, and how much.
#[derive(Clone, Copy, Debug)]
struct Holding {
    /// The place of its function among those of the device.
    function: usize,
    bytes: Option<Bytes>,
}

/// A device while it is followed.
struct Followed {
    thinned: Thinned,
    /// Processes with a curve of their own.
    chosen: Vec<GpuHolder>,
    others: usize,
    by_upid: HashMap<Upid, usize>,
    by_tgid: HashMap<Tgid, usize>,
    pieces: BTreeMap<Piece, Holding>,
    /// The devices whose memory it is part of: itself, and the one that it is an instance of.
    counted_in: Vec<usize>,
    used: Option<Bytes>,
    reserved: Option<Bytes>,
    /// Since when it differs from what was drawn.
    changed_at: Option<BootNs>,
}

/// Reads `gpu_device` and `gpu_process`.
pub(super) fn read<S: RowSource>(
    source: &S,
    known: &Known<'_>,
) -> Result<Vec<GpuCurves>, S::Error> {
    let Some(gpus) = known.gpus else {
        return Ok(Vec::new());
    };
    let (table, clock) = (known.table, known.clock);
    let devices = &gpus.devices;
    let places = devices.iter().enumerate();
    let places: HashMap<&str, usize> = places
        .map(|(place, device)| (&*device.device, place))
        .collect();
    let room = GPU_VALUES / devices.len().max(1);
    let thinned = |count| Thinned::of_unknown(count, room, clock.duration(), known.foci.to_vec());
    let mut all: Vec<Followed> = (0..devices.len())
        .map(|place| Followed::new(gpus, place, &places, &thinned))
        .collect();
    let mut readings = Readings::new(devices.len(), READINGS_MAX, clock.duration());
    let columns = ["ts", "boot_ns", "device", "used_bytes", "reserved_bytes"];
    source.scan(&columns, |row: GpuDeviceRow| {
        if let Some(&device) = places.get(&*row.device) {
            readings.take(Reading {
                at: row.boot_ns,
                device,
                used: row.used_bytes,
                reserved: row.reserved_bytes,
            });
        }
    })?;
    let mut readings = readings.in_order().into_iter().peekable();
    source.scan(&[], |row: GpuProcessRow| {
        take_readings(&mut all, &mut readings, row.boot_ns);
        let Some(&device) = places.get(&*row.device) else {
            return;
        };
        let is_held = !matches!(
            row.source,
            Some(GpuSource::Descriptor | GpuSource::Accounting)
        );
        if is_held {
            for place in all[device].counted_in.clone() {
                all[place].take(&row, table);
            }
        }
    })?;
    take_readings(&mut all, &mut readings, BootNs(i64::MAX));
    let reported = devices.iter().zip(all);
    Ok(reported
        .map(|(device, followed)| followed.reported(device, clock))
        .collect())
}

fn take_readings(all: &mut [Followed], readings: &mut Peekable<IntoIter<Reading>>, until: BootNs) {
    while let Some(reading) = readings.next_if(|reading| reading.at <= until) {
        let followed = &mut all[reading.device];
        followed.move_to(reading.at);
        followed.used = reading.used;
        followed.reserved = reading.reserved;
        followed.changed_at = Some(reading.at);
    }
}

impl Followed {
    fn new(
        gpus: &Gpus,
        place: usize,
        places: &HashMap<&str, usize>,
        thinned: &impl Fn(usize) -> Thinned,
    ) -> Self {
        let device = &gpus.devices[place];
        let parent = device.parent_device.as_deref();
        let parent = parent.and_then(|parent| places.get(parent).copied());
        let is_part = |name: &str| {
            let one = gpus.devices.iter().find(|one| &*one.device == name);
            one.is_some_and(|one| one.parent_device.as_ref() == Some(&device.device))
        };
        let holders = gpus.processes.iter().filter(|process| {
            let mut devices = process.devices.iter();
            devices.any(|name| *name == device.device || is_part(name))
        });
        let mut chosen: Vec<GpuHolder> = holders.map(|process| process.holder.clone()).collect();
        let mut others = 0;
        if chosen.len() > PROCESSES_MAX + 1 {
            others = chosen.len() - PROCESSES_MAX;
            chosen.truncate(PROCESSES_MAX);
        }
        let functions = || chosen.iter().zip(FIRST_PROCESS..);
        let by_upid = functions().filter_map(|(holder, place)| Some((holder.who.upid?, place)));
        let unrecorded = functions().filter(|(holder, _)| holder.who.upid.is_none());
        let by_tgid = unrecorded.filter_map(|(holder, place)| Some((holder.who.pid?, place)));
        Self {
            thinned: thinned(FIRST_PROCESS + chosen.len()),
            by_upid: by_upid.collect(),
            by_tgid: by_tgid.collect(),
            chosen,
            others,
            pieces: BTreeMap::new(),
            counted_in: [Some(place), parent.filter(|parent| *parent != place)]
                .into_iter()
                .flatten()
                .collect(),
            used: None,
            reserved: None,
            changed_at: None,
        }
    }

    fn take(&mut self, row: &GpuProcessRow, table: &ProcessTable) {
        self.move_to(row.boot_ns);
        let upid = row.upid.filter(|upid| table.find(*upid).is_some());
        let function = match upid {
            Some(upid) => self.by_upid.get(&upid),
            None => self.by_tgid.get(&row.tgid),
        };
        let piece = Piece {
            tgid: row.tgid,
            upid,
            gpu_instance: row.gpu_instance_id,
            compute_instance: row.compute_instance_id,
            client: row.client_id,
        };
        match row.used_bytes {
            Some(Bytes(0)) => {
                self.pieces.remove(&piece);
            }
            bytes => {
                let holding = Holding {
                    function: function.copied().unwrap_or(OTHERS),
                    bytes,
                };
                self.pieces.insert(piece, holding);
            }
        }
        self.changed_at = Some(row.boot_ns);
    }

    /// When time moves on, what changed is drawn.
    fn move_to(&mut self, at: BootNs) {
        if self.changed_at.is_some_and(|changed| changed < at) {
            self.draw();
        }
    }

    fn draw(&mut self) {
        let Some(at) = self.changed_at.take() else {
            return;
        };
        let mut held = vec![Some(Bytes(0)); FIRST_PROCESS + self.chosen.len()];
        let mut clients = HashSet::new();
        let mut reported = Bytes(0);
        for (piece, holding) in &self.pieces {
            // A client that processes share counts for the one with the lowest id.
            if piece.client.is_some_and(|client| !clients.insert(client)) {
                continue;
            }
            let held = &mut held[holding.function];
            *held = (*held).zip(holding.bytes).map(|(sum, bytes)| sum + bytes);
            reported = reported + holding.bytes.unwrap_or_default();
        }
        let reserved = self.reserved.unwrap_or_default();
        held[USED] = self.used;
        held[RESERVED] = Some(reserved);
        held[UNATTRIBUTED] = self.used.map(|used| used - reserved - reported);
        for (function, bytes) in held.into_iter().enumerate() {
            self.thinned.set(at, function, bytes);
        }
    }

    fn reported(mut self, device: &GpuDevice, clock: &RunClock) -> GpuCurves {
        self.draw();
        let thin = self.thinned.finish();
        let series = |id: &str, name: &str, function: usize| {
            CurveSeries::new(id, name).with(&thin.steps[function])
        };
        let processes = self.chosen.iter().zip(FIRST_PROCESS..);
        let processes = processes.map(|(holder, function)| {
            let id = match holder.who.upid {
                Some(upid) => upid.to_string(),
                None => format!("pid {}", holder.who.pid.map_or(0, |pid| pid.0)),
            };
            let name = holder.who.name.as_deref().unwrap_or("[unknown]");
            CurveSeries {
                pid: holder.who.pid,
                upid: holder.who.upid,
                ..series(&id, name, function)
            }
        });
        let mut processes: Vec<CurveSeries> = processes.collect();
        processes.order_by_key(|series| Reverse(series.highest()));
        let others = format!("{} other processes", self.others);
        let rest = [
            series(REST, &others, OTHERS),
            series("reserved", "reserved by the driver", RESERVED),
            series("unattributed", "unattributed", UNATTRIBUTED),
        ];
        processes.extend(rest.into_iter().filter(|rest| !rest.is_nothing()));
        let name = device.name.as_deref().unwrap_or_default();
        let label = match device.index {
            Some(index) => format!("GPU {index} {name}"),
            None => format!("{} {name}", device.device),
        };
        GpuCurves {
            id: Arc::clone(&device.device),
            index: device.index,
            label: label.trim_end().to_owned(),
            total_bytes: device.total_bytes,
            time_ns: Gaps::of_instants(&thin.instants, clock.start()),
            used: series("used", "used", USED),
            series: processes,
        }
    }
}
