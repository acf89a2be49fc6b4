//! Reads `gpu_device` before the pass over memory, for the devices, their peaks and falls;
//! and both tables after it, for who held what at the instants that are known by then.
//! Memory grows with the number of processes and devices, not with the rows.

use super::falls::{Fall, Watch, together};
use super::ledger::GpuLedger;
use super::sleep::{Audit, Holders, Named, Sleeps, has_moments};
use super::track::{Books, Tracks};
use super::{Contexts, GpuDevice, Gpus};
use crate::analyze::RowSource;
use crate::analyze::composition::Composition;
use crate::analyze::groups::Groups;
use crate::analyze::roster::Roster;
use crate::model::tables::{GpuDeviceRow, GpuProcessRow, GpuSource};
use crate::model::{BootNs, Bytes, DurationNs};
use std::collections::HashMap;
use std::sync::Arc;

/// Marks told with a fall.
const MARKS_MAX: usize = 3;

/// The devices, before it is known who held their memory.
#[derive(Debug, Default)]
pub(in crate::analyze) struct GpuTimeline {
    devices: Vec<GpuDevice>,
    places: HashMap<String, usize>,
    peaks: Vec<Option<High>>,
    falls: Vec<Fall>,
    audits: Vec<Audit>,
    known_from: Option<BootNs>,
    calls: Option<(DurationNs, i64)>,
}

/// A device's highest, and until when it stayed so.
#[derive(Clone, Copy, Debug)]
struct High {
    used: Bytes,
    at: BootNs,
    until: Option<BootNs>,
}

impl GpuTimeline {
    /// Reads `gpu_device`. `named` is what marks say happened.
    pub(in crate::analyze) fn read<S: RowSource>(
        source: &S,
        roster: &Roster,
        end: BootNs,
        named: impl Iterator<Item = Named>,
    ) -> Result<Self, S::Error> {
        let mut timeline = Self::default();
        let named: Vec<Named> = named.collect();
        let holders = match has_moments(&named) {
            true => holders(source, roster)?,
            false => Holders::default(),
        };
        let mut sleeps = Sleeps::of(&named, &holders, end);
        let mut watches: Vec<Watch> = Vec::new();
        let mut parents: Vec<Option<String>> = Vec::new();
        source.scan(&[], |row: GpuDeviceRow| {
            let place = timeline.place(&row);
            if place == watches.len() {
                watches.push(Watch::default());
                parents.push(row.parent_device.clone());
            }
            watches[place].take(row.boot_ns, row.used_bytes, row.total_bytes);
            if row.parent_device.is_none() {
                sleeps.take(place, row.boot_ns, row.used_bytes);
            }
            timeline.take(place, &row);
        })?;
        for (device, parent) in timeline.devices.iter_mut().zip(&parents) {
            device.parent = parent
                .as_ref()
                .and_then(|name| timeline.places.get(name))
                .copied();
        }
        let devices = &timeline.devices;
        let found = watches.into_iter().enumerate().flat_map(|(place, watch)| {
            let found = watch.finish(devices[place].total_bytes);
            // The instances of a device tell of its falls.
            let is_divided = devices.iter().any(|device| device.parent == Some(place));
            let found = if is_divided { Vec::new() } else { found };
            found.into_iter().map(move |fall| (place, fall))
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
            device: row.device.clone(),
            parent: None,
            index: row.device_index,
            name: row.name.clone(),
            total_bytes: None,
            is_unified: false,
            numa_node: None,
            peak: None,
            at_end: None,
            error: None,
            memory_call: None,
            process_call: None,
        });
        place
    }

    fn take(&mut self, place: usize, row: &GpuDeviceRow) {
        let device = &mut self.devices[place];
        device.total_bytes = row.total_bytes.or(device.total_bytes);
        device.is_unified |= row.is_unified == Some(true);
        device.numa_node = row.numa_node.or(device.numa_node);
        device.error.clone_from(&row.error);
        device.memory_call = device.memory_call.max(row.memory_call_ns);
        device.process_call = device.process_call.max(row.process_call_ns);
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
    pub(in crate::analyze) fn instants(&self) -> impl Iterator<Item = BootNs> {
        let falls = self.falls.iter();
        let falls = falls.map(|fall| [fall.host_from, fall.from, fall.to]);
        let audits = self.audits.iter();
        let audits = audits.map(|audit| [audit.host_from, audit.from, audit.to, audit.host_to]);
        falls.flatten().chain(audits.flatten())
    }

    /// Reads who held what, and completes the states with the books of each device. `None`
    /// for a recording without GPUs.
    pub(in crate::analyze) fn told<S: RowSource>(
        mut self,
        source: &S,
        (roster, groups): (&Roster, &Groups),
        marks: &[(BootNs, Arc<str>)],
        end: BootNs,
        states: &mut [&mut Composition],
    ) -> Result<Option<Gpus>, S::Error> {
        let mut instants: Vec<BootNs> = states.iter().map(|state| state.boot_ns).collect();
        // Lists of processes are read after the device: those that were read while it still
        // held its highest tell best who held it.
        let at_peaks: Vec<BootNs> = self
            .peaks
            .iter()
            .flatten()
            .map(|high| {
                high.until
                    .map_or(end, |until| BootNs(until.0 - 1))
                    .max(high.at)
            })
            .collect();
        instants.extend(&at_peaks);
        instants.push(end);
        instants.extend(self.instants());
        instants.sort_unstable();
        instants.dedup();
        let mut tracks = Tracks::new(instants.clone(), groups);
        source.scan(&[], |row: GpuProcessRow| {
            // A device without a row of its own is one all the same.
            let device = match self.places.get(&row.device) {
                Some(&place) => place,
                None => self.place(&nameless(&row)),
            };
            tracks.take(device, &row, roster);
        })?;
        if self.devices.is_empty() {
            return Ok(None);
        }
        let tracks = tracks.finish(end);
        let books = self.books(source, &instants, &tracks)?;
        let at = |boot: BootNs| {
            instants
                .binary_search(&boot)
                .ok()
                .and_then(|i| books.get(i))
        };
        for state in states.iter_mut() {
            state.gpus = at(state.boot_ns).cloned().unwrap_or_default();
        }
        for (place, high) in self.peaks.iter().enumerate() {
            let Some(high) = high else { continue };
            let until = high
                .until
                .map_or(end, |until| BootNs(until.0 - 1))
                .max(high.at);
            let mut ledgers = at(until).into_iter().flatten();
            self.devices[place].peak =
                ledgers.find(|ledger| ledger.device == place).map(|ledger| {
                    let mut ledger = ledger.clone();
                    ledger.boot_ns = high.at;
                    ledger.age_ns = DurationNs(0);
                    ledger
                });
        }
        for ledger in at(end).into_iter().flatten() {
            self.devices[ledger.device].at_end = Some(ledger.clone());
        }
        let falls = self.explained_falls(marks, states, &at, roster);
        let audits = self.explained_audits(states, &at);
        let contexts = tracks.smallest.map(|smallest_bytes| {
            let peaks = self
                .devices
                .iter()
                .filter_map(|device| device.peak.as_ref());
            let whole = peaks.filter(|ledger| !ledger.is_divided);
            Contexts {
                count: whole
                    .flat_map(|ledger| &ledger.lines)
                    .filter(|line| line.is_context())
                    .count(),
                smallest_bytes,
            }
        });
        Ok(Some(Gpus {
            processes: tracks.processes,
            contexts: contexts.filter(|contexts| contexts.count > 0),
            recorded: tracks.recorded,
            roles: tracks.roles,
            known_from: self.known_from,
            falls,
            audits,
            call_time: self.calls.map(|(time, _)| time),
            call_count: self.calls.map(|(_, count)| count),
            devices: self.devices,
        }))
    }

    fn explained_falls<'b>(
        &self,
        marks: &[(BootNs, Arc<str>)],
        states: &[&mut Composition],
        at: &impl Fn(BootNs) -> Option<&'b Vec<GpuLedger>>,
        roster: &Roster,
    ) -> Vec<Fall> {
        let mut falls = self.falls.clone();
        for fall in &mut falls {
            let books = |boot| at(boot).map_or(&[][..], |books| books);
            let host = (host(states, fall.host_from), host(states, fall.to));
            fall.explain((books(fall.from), books(fall.to)), host, &roster.processes);
            let mut near = fall.near(marks).to_vec();
            near.sort_by_key(|(at, name)| ((*at - fall.from).0.abs(), Arc::clone(name)));
            let nearest = near.into_iter().take(MARKS_MAX);
            fall.marks = nearest.map(|(_, name)| name).collect();
            fall.marks.dedup();
        }
        falls
    }

    fn explained_audits<'b>(
        &self,
        states: &[&mut Composition],
        at: &impl Fn(BootNs) -> Option<&'b Vec<GpuLedger>>,
    ) -> Vec<Audit> {
        let mut audits = self.audits.clone();
        let books = |boot| at(boot).map_or(&[][..], |books| books);
        for audit in &mut audits {
            let (from, to) = (audit.from, audit.to);
            audit.explain(
                (books(from), books(to)),
                (host(states, audit.host_from), host(states, audit.host_to)),
            );
        }
        // Memory of others is not what the mark is about.
        audits.retain(|audit| !audit.devices.is_empty());
        audits
    }

    /// The books of every device at every instant: what the device told last, and who held
    /// its memory. The processes of a divided device are those of its instances.
    fn books<S: RowSource>(
        &self,
        source: &S,
        instants: &[BootNs],
        tracks: &Books,
    ) -> Result<Vec<Vec<GpuLedger>>, S::Error> {
        let mut standing = vec![vec![None; self.devices.len()]; instants.len()];
        source.scan(&[], |row: GpuDeviceRow| {
            let Some(&place) = self.places.get(&row.device) else {
                return;
            };
            let told = Told {
                boot: row.boot_ns,
                total: row.total_bytes,
                used: row.used_bytes,
                reserved: row.reserved_bytes,
            };
            let later = instants.partition_point(|at| *at < row.boot_ns);
            for states in standing.iter_mut().skip(later) {
                states[place] = Some(told);
            }
        })?;
        let moments = standing.iter().zip(instants).enumerate();
        let books = moments.map(|(moment, (told, &at))| {
            let devices = told.iter().enumerate();
            let ledgers =
                devices.filter_map(|(place, told)| self.ledger(place, *told, (moment, at), tracks));
            ledgers.collect()
        });
        Ok(books.collect())
    }

    /// `None` for a device of which nothing was known yet.
    fn ledger(
        &self,
        place: usize,
        told: Option<Told>,
        (moment, at): (usize, BootNs),
        tracks: &Books,
    ) -> Option<GpuLedger> {
        let mut lines = tracks.lines(moment, place);
        let devices = self.devices.iter().enumerate();
        let instances = devices.filter(|(_, device)| device.parent == Some(place));
        let mut is_divided = false;
        for (instance, _) in instances {
            is_divided = true;
            lines.extend(tracks.lines(moment, instance));
        }
        if told.is_none() && lines.is_empty() {
            return None;
        }
        let mut ledger = GpuLedger {
            device: place,
            is_divided,
            boot_ns: at,
            age_ns: told.map_or(DurationNs(0), |told| at - told.boot),
            total_bytes: told.and_then(|told| told.total),
            used_bytes: told.and_then(|told| told.used),
            reserved_bytes: told.and_then(|told| told.reserved),
            lines,
            unattributed_bytes: None,
            candidates: tracks.candidates(moment, place),
        };
        ledger.close();
        Some(ledger)
    }
}

/// The recorded processes that were ever on a GPU.
fn holders<S: RowSource>(source: &S, roster: &Roster) -> Result<Holders, S::Error> {
    let mut holders = Holders::default();
    source.scan(&["upid", "source"], |row: GpuProcessRow| {
        let is_told = row.source != Some(GpuSource::Descriptor);
        if let Some(place) = row.upid.filter(|_| is_told).and_then(|id| roster.find(id)) {
            let exit = roster.processes[place].exit_boot_ns;
            holders.0.insert(place, exit);
        }
    })?;
    Ok(holders)
}

/// What everybody held on the host at an instant.
fn host<'s>(states: &'s [&mut Composition], boot: BootNs) -> Option<&'s Composition> {
    let state = states.iter().find(|state| state.boot_ns == boot);
    state.map(|state| &**state)
}

/// What a device told of itself.
#[derive(Clone, Copy, Debug)]
struct Told {
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
