//! Reads `gpu_device` before the pass over memory, for the devices, their peaks and falls;
//! and both tables after it, for who held what at the instants that are known by then.
//! Memory grows with the number of processes and devices, not with the rows.

use super::cuda::Calls;
use super::falls::{Fall, Watch, together};
use super::ledger::GpuLedger;
use super::sleep::{Audit, Holders, Sleeps, has_moments};
use super::track::{HeldOnGpus, Tracks};
use super::{Contexts, GpuDevice, Gpus};
use crate::RunClock;
use crate::groups::Groups;
use crate::memory_tables::RoleOnGpusStep;
use crate::pass::Snapshot;
use crate::phases::Named;
use crate::process_table::ProcessTable;
use memtrace_model::tables::{GpuDeviceRow, GpuProcessRow, GpuSource};
use memtrace_model::{BootNs, Bytes, DurationNs, Instant, Order, RowSource};
use memtrace_timeline::Totals;
use std::collections::HashMap;
use std::sync::Arc;

/// Marks reported with a fall.
const MARKS_MAX: usize = 3;

/// The devices, before it is known who held their memory.
#[derive(Debug, Default)]
pub(crate) struct GpuTimeline {
    devices: Vec<GpuDevice>,
    places: HashMap<String, usize>,
    peaks: Vec<Option<High>>,
    falls: Vec<Fall>,
    audits: Vec<Audit>,
    known_from: Option<BootNs>,
    calls: Option<(DurationNs, i64)>,
}

/// What the recording knows of GPUs.
#[derive(Debug, Default)]
pub(crate) struct OnGpus {
    /// `None` for a recording without GPUs.
    pub(crate) gpus: Option<Gpus>,
    /// The ledgers of the devices at each state; none for a recording without GPUs.
    pub(crate) ledgers: Vec<Vec<GpuLedger>>,
    /// What each role held.
    pub(crate) by_role: Vec<RoleOnGpusStep>,
}

/// A device's highest, and until when it stayed so.
#[derive(Clone, Copy, Debug)]
struct High {
    used: Bytes,
    at: BootNs,
    until: Option<BootNs>,
}

impl High {
    /// The last instant at which it stayed so, of a recording that ends at `end`.
    fn last_held(self, end: BootNs) -> BootNs {
        let last = self.until.map_or(end, |until| BootNs(until.0 - 1));
        last.max(self.at)
    }
}

impl GpuTimeline {
    /// Reads `gpu_device`. `named` is what marks say happened.
    pub(crate) fn read<S: RowSource>(
        source: &S,
        table: &ProcessTable,
        end: BootNs,
        named: impl Iterator<Item = Named>,
    ) -> Result<Self, S::Error> {
        let mut timeline = Self::default();
        let named: Vec<Named> = named.collect();
        let holders = match has_moments(&named) {
            true => holders(source, table)?,
            false => Holders::default(),
        };
        let mut sleeps = Sleeps::of(&named, &holders, end);
        let mut watches: Vec<Watch> = Vec::new();
        source.scan(&[], |row: GpuDeviceRow| {
            let place = timeline.place(&row);
            if place == watches.len() {
                watches.push(Watch::default());
            }
            watches[place].take(row.boot_ns, row.used_bytes, row.total_bytes);
            if row.parent_device.is_none() {
                sleeps.take(place, row.boot_ns, row.used_bytes);
            }
            timeline.take(place, &row);
        })?;
        for device in &mut timeline.devices {
            let parent = device.parent_device.take();
            device.parent_device = parent.filter(|name| timeline.places.contains_key(&**name));
        }
        let devices = &timeline.devices;
        let found = watches.into_iter().enumerate().flat_map(|(place, watch)| {
            let device = &devices[place];
            let found = watch.finish(device.total_bytes);
            // The instances of a device tell of its falls.
            let is_divided = devices.iter().any(|one| one.is_part_of(device));
            let found = if is_divided { Vec::new() } else { found };
            let found = found.into_iter();
            found.map(|fall| ((Arc::clone(&device.device), device.index), fall))
        });
        let falls = together(found, end);
        timeline.falls = falls;
        timeline.audits = sleeps.finish(end);
        Ok(timeline)
    }

    fn place(&mut self, row: &GpuDeviceRow) -> usize {
        if let Some(&place) = self.places.get(&row.device) {
            return place;
        }
        let place = self.devices.len();
        self.places.insert(row.device.clone(), place);
        self.peaks.push(None);
        self.devices.push(GpuDevice {
            device: Arc::from(row.device.as_str()),
            parent_device: row.parent_device.as_deref().map(Arc::from),
            index: row.device_index,
            name: row.name.clone(),
            ..GpuDevice::default()
        });
        place
    }

    fn take(&mut self, place: usize, row: &GpuDeviceRow) {
        let device = &mut self.devices[place];
        device.total_bytes = row.total_bytes.or(device.total_bytes);
        device.is_unified |= row.is_unified == Some(true);
        device.numa_node = row.numa_node.or(device.numa_node);
        device.error.clone_from(&row.error);
        let longest = &mut device.longest_memory_call_ns;
        *longest = row.memory_call_ns.max(*longest);
        let longest = &mut device.longest_process_call_ns;
        *longest = row.process_call_ns.max(*longest);
        self.calls = row.call_total_ns.zip(row.call_count).max(self.calls);
        self.known_from = self.known_from.or(Some(row.boot_ns)).min(Some(row.boot_ns));
        let peak = &mut self.peaks[place];
        match (peak.as_mut(), row.used_bytes) {
            (Some(high), used) if used.is_none_or(|used| used < high.used) => {
                high.until.get_or_insert(row.boot_ns);
            }
            (Some(high), Some(used)) if used == high.used => {}
            (_, Some(used)) => {
                *peak = Some(High {
                    used,
                    at: row.boot_ns,
                    until: None,
                });
            }
            (_, None) => {}
        }
    }

    /// Instants at which everybody's memory is wanted: around each fall and each sleep.
    pub(crate) fn instants(&self) -> impl Iterator<Item = BootNs> {
        let falls = self.falls.iter();
        let falls = falls.map(|fall| [fall.host_from, fall.from.boot_ns, fall.to.boot_ns]);
        let audits = self.audits.iter();
        let audits = audits.map(|audit| {
            let (from, to) = (audit.from.boot_ns, audit.to.boot_ns);
            [audit.host_from, from, to, audit.host_to]
        });
        falls.flatten().chain(audits.flatten())
    }

    /// Reads who held what: at the instants of the states, and of each role at those of `by_role`.
    pub(crate) fn reported<S: RowSource>(
        mut self,
        source: &S,
        (table, groups, by_role): (&ProcessTable, &Groups, &[BootNs]),
        marks: &[(BootNs, Arc<str>)],
        clock: &RunClock,
        states: &[&Snapshot],
    ) -> Result<OnGpus, S::Error> {
        let end = clock.end();
        let mut calls = Calls::read(source, table)?;
        let mut instants: Vec<BootNs> = states.iter().map(|state| state.boot_ns).collect();
        // Lists of processes are read after the device: those that were read while it still
        // held its highest tell best who held it.
        instants.extend(self.peaks.iter().flatten().map(|high| high.last_held(end)));
        instants.push(end);
        instants.extend(self.instants());
        instants.extend(calls.instants());
        instants.sort_unstable();
        instants.dedup();
        let mut tracks = Tracks::new(instants.clone(), groups, by_role);
        source.scan(&[], |row: GpuProcessRow| {
            // A device without a row of its own is one all the same.
            let device = match self.places.get(&row.device) {
                Some(&place) => place,
                None => self.place(&nameless(&row)),
            };
            tracks.take(device, &row, table);
            calls.take_reading(device, &row, table);
        })?;
        if self.devices.is_empty() {
            let cuda = calls.explain(source, &mut [], &[], (table, clock))?;
            return Ok(OnGpus {
                gpus: cuda.map(Gpus::of_calls),
                ..OnGpus::default()
            });
        }
        let tracks = tracks.finish(&self.devices, table, clock);
        let mut held_on_gpus = self.held_on_gpus(source, &instants, &tracks, clock)?;
        let known = (table, clock);
        let cuda = calls.explain(source, &mut held_on_gpus, &self.devices, known)?;
        let at = |boot: BootNs| {
            instants
                .binary_search(&boot)
                .ok()
                .and_then(|i| held_on_gpus.get(i))
        };
        let ledgers = states.iter().map(|state| at(state.boot_ns).cloned());
        let ledgers = ledgers.map(Option::unwrap_or_default).collect();
        for (place, high) in self.peaks.iter().enumerate() {
            let Some(high) = high else { continue };
            let mut ledgers = at(high.last_held(end)).into_iter().flatten();
            self.devices[place].peak = ledgers.find(|ledger| ledger.place == place).map(|ledger| {
                let mut ledger = ledger.clone();
                ledger.at = clock.at(high.at);
                ledger.age_ns = DurationNs(0);
                ledger
            });
        }
        for ledger in at(end).into_iter().flatten() {
            self.devices[ledger.place].at_end = Some(ledger.clone());
        }
        let falls = self.explained_falls(marks, states, &at, (table, clock));
        let audits = self.explained_audits(states, &at, (table, clock));
        let contexts = tracks.smallest.and_then(|smallest| self.contexts(smallest));
        let gpus = Gpus {
            processes: tracks.processes,
            contexts,
            recorded: tracks.recorded,
            roles: tracks.roles,
            known_from: self.known_from.map(|from| clock.at(from)),
            falls,
            cuda,
            audits,
            call_time_ns: self.calls.map(|(time, _)| time),
            call_count: self.calls.map(|(_, count)| count),
            devices: self.devices,
        };
        Ok(OnGpus {
            gpus: Some(gpus),
            ledgers,
            by_role: tracks.by_role,
        })
    }

    /// How many contexts are held at the devices' peaks, and what they take at most, if each takes no
    /// more than the smallest holder has.
    fn contexts(&self, smallest_bytes: Bytes) -> Option<Contexts> {
        let peaks = self
            .devices
            .iter()
            .filter_map(|device| device.peak.as_ref());
        let whole = peaks.filter(|ledger| !ledger.is_divided);
        let lines = whole.flat_map(|ledger| &ledger.lines);
        let count = lines.filter(|line| line.is_context()).count();
        let times = i64::try_from(count).unwrap_or(i64::MAX);
        (count > 0).then(|| Contexts {
            count,
            smallest_bytes,
            at_most_bytes: Bytes(smallest_bytes.0.saturating_mul(times)),
        })
    }

    fn explained_falls<'b>(
        &self,
        marks: &[(BootNs, Arc<str>)],
        states: &[&Snapshot],
        at: &impl Fn(BootNs) -> Option<&'b Vec<GpuLedger>>,
        (table, clock): (&ProcessTable, &RunClock),
    ) -> Vec<Fall> {
        let mut falls = self.falls.clone();
        for fall in &mut falls {
            let held_on_gpus = |boot| at(boot).map_or(&[][..], |held_on_gpus| held_on_gpus);
            let (from, to) = (fall.from.boot_ns, fall.to.boot_ns);
            (fall.from, fall.to) = (clock.at(from), clock.at(to));
            let host = (host(states, fall.host_from), host(states, to));
            fall.explain(
                (held_on_gpus(from), held_on_gpus(to)),
                host,
                &table.processes,
            );
            let mut near = fall.near(marks).to_vec();
            near.order_by_key(|(at, name)| ((*at - from).0.abs(), Arc::clone(name)));
            let nearest = near.into_iter().take(MARKS_MAX);
            fall.marks = nearest.map(|(_, name)| name).collect();
            fall.marks.dedup();
        }
        falls
    }

    fn explained_audits<'b>(
        &self,
        states: &[&Snapshot],
        at: &impl Fn(BootNs) -> Option<&'b Vec<GpuLedger>>,
        (table, clock): (&ProcessTable, &RunClock),
    ) -> Vec<Audit> {
        let mut audits = self.audits.clone();
        let held_on_gpus = |boot| at(boot).map_or(&[][..], |held_on_gpus| held_on_gpus);
        for audit in &mut audits {
            let (from, to) = (audit.from.boot_ns, audit.to.boot_ns);
            (audit.from, audit.to) = (clock.at(from), clock.at(to));
            audit.explain(
                (held_on_gpus(from), held_on_gpus(to)),
                (host(states, audit.host_from), host(states, audit.host_to)),
                &table.processes,
            );
        }
        // Memory of others is not what the mark is about.
        audits.retain(|audit| !audit.devices.is_empty());
        audits
    }

    /// The ledgers of every device at every instant: what the device reported last, and who held
    /// its memory. The processes of a divided device are those of its instances.
    fn held_on_gpus<S: RowSource>(
        &self,
        source: &S,
        instants: &[BootNs],
        tracks: &HeldOnGpus,
        clock: &RunClock,
    ) -> Result<Vec<Vec<GpuLedger>>, S::Error> {
        let mut standing = vec![vec![None; self.devices.len()]; instants.len()];
        source.scan(&[], |row: GpuDeviceRow| {
            let Some(&place) = self.places.get(&row.device) else {
                return;
            };
            let reported = DeviceReading {
                boot: row.boot_ns,
                total: row.total_bytes,
                used: row.used_bytes,
                reserved: row.reserved_bytes,
            };
            let later = instants.partition_point(|at| *at < row.boot_ns);
            for states in standing.iter_mut().skip(later) {
                states[place] = Some(reported);
            }
        })?;
        let moments = standing.iter().zip(instants).enumerate();
        let held_on_gpus = moments.map(|(moment, (reported, &at))| {
            let devices = reported.iter().enumerate();
            let ledgers = devices.filter_map(|(place, reported)| {
                self.ledger(place, *reported, (moment, clock.at(at)), tracks)
            });
            ledgers.collect()
        });
        Ok(held_on_gpus.collect())
    }

    /// `None` for a device of which nothing was known yet.
    fn ledger(
        &self,
        place: usize,
        reported: Option<DeviceReading>,
        (moment, at): (usize, Instant),
        tracks: &HeldOnGpus,
    ) -> Option<GpuLedger> {
        let mut lines = tracks.lines(moment, place);
        let device = &self.devices[place];
        let devices = self.devices.iter().enumerate();
        let instances = devices.filter(|(_, one)| one.is_part_of(device));
        let mut is_divided = false;
        for (instance, _) in instances {
            is_divided = true;
            lines.extend(tracks.lines(moment, instance));
        }
        if reported.is_none() && lines.is_empty() {
            return None;
        }
        let mut ledger = GpuLedger {
            device: Arc::clone(&device.device),
            device_index: device.index,
            place,
            is_divided,
            at,
            age_ns: reported.map_or(DurationNs(0), |reported| at.boot_ns - reported.boot),
            total_bytes: reported.and_then(|reported| reported.total),
            used_bytes: reported.and_then(|reported| reported.used),
            reserved_bytes: reported.and_then(|reported| reported.reserved),
            processes_bytes: Bytes(0),
            lines,
            unattributed_bytes: None,
            unexplained_bytes: None,
            unknown_process_count: 0,
            candidates: tracks.candidates(moment, place),
        };
        ledger.close();
        Some(ledger)
    }
}

/// The recorded processes that were ever on a GPU.
fn holders<S: RowSource>(source: &S, table: &ProcessTable) -> Result<Holders, S::Error> {
    let mut holders = Holders::default();
    source.scan(&["upid", "source"], |row: GpuProcessRow| {
        let is_reported = row.source != Some(GpuSource::Descriptor);
        if let Some(place) = row
            .upid
            .filter(|_| is_reported)
            .and_then(|id| table.find(id))
        {
            let exit = table.processes[place].exit_boot_ns();
            holders.0.insert(place, exit);
        }
    })?;
    Ok(holders)
}

/// What everybody held on the host at an instant.
fn host<'s>(states: &[&'s Snapshot], boot: BootNs) -> Option<&'s Totals> {
    let state = states.iter().find(|state| state.boot_ns == boot);
    state.map(|state| &state.totals)
}

/// What a device reported of itself.
#[derive(Clone, Copy, Debug)]
struct DeviceReading {
    boot: BootNs,
    total: Option<Bytes>,
    used: Option<Bytes>,
    reserved: Option<Bytes>,
}

/// The row of a device that only its processes tell of.
fn nameless(row: &GpuProcessRow) -> GpuDeviceRow {
    GpuDeviceRow {
        ts: row.ts,
        boot_ns: row.boot_ns,
        device: row.device.clone(),
        source: row.source,
        ..GpuDeviceRow::default()
    }
}
