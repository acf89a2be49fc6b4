//! Follows `gpu_process`: what each process held on each device at chosen instants, its
//! highest, and its last.

use super::ledger::{GpuHolder, GpuLine, is_context};
use super::sums::{GpuPeak, Sum, Sums};
use super::{GpuDevice, GpuProcess};
use crate::RunClock;
use crate::groups::Groups;
use crate::memory_tables::RoleOnGpusStep;
use crate::process_table::ProcessTable;
use crate::who::Who;
use memtrace_model::tables::{GpuProcessRow, GpuSource, GpuUse};
use memtrace_model::{BootNs, Bytes, DurationNs, Order, Tgid};
use std::collections::HashMap;
use std::sync::Arc;

/// An amount that was held for a shorter time can be that of a context in the making.
const HELD_NS: DurationNs = DurationNs(1_000_000_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    device: usize,
    tgid: Tgid,
    gpu_instance: Option<i32>,
    compute_instance: Option<i32>,
    client: Option<i64>,
    is_candidate: bool,
}

/// What a row says.
#[derive(Clone, Copy, Debug)]
struct Step {
    boot: BootNs,
    /// Position among the holders.
    holder: usize,
    used: Option<Bytes>,
    host: Option<Bytes>,
    kind: Option<GpuUse>,
}

#[derive(Debug)]
struct Track {
    now: Step,
    /// By instant; `None` before the first row.
    at: Vec<Option<Step>>,
}

/// A holder with what it holds on all devices.
#[derive(Debug)]
struct Held {
    holder: GpuHolder,
    devices: Vec<usize>,
    sum: Sum,
    accounted: Option<Bytes>,
}

/// During the scan. Rows of one process on one device come in the order of time.
#[derive(Debug)]
pub(super) struct Tracks {
    instants: Vec<BootNs>,
    tracks: HashMap<Key, Track>,
    holders: Vec<Held>,
    places: HashMap<GpuHolder, usize>,
    smallest: Option<Bytes>,
    sums: Sums,
    /// Holders that changed at this time: rows of one time belong together.
    pending: (BootNs, Vec<usize>),
}

/// What the scan found, once it is over.
#[derive(Debug)]
pub(super) struct HeldOnGpus {
    tracks: HashMap<Key, Track>,
    holders: Vec<GpuHolder>,
    pub(super) processes: Vec<GpuProcess>,
    pub(super) smallest: Option<Bytes>,
    /// The peak of every role, by its place among the groups.
    pub(super) roles: Vec<Option<GpuPeak>>,
    /// The peak of all recorded processes together.
    pub(super) recorded: GpuPeak,
    /// What each role held at the instants that were asked for.
    pub(super) by_role: Vec<RoleOnGpusStep>,
}

impl Tracks {
    /// `by_role` are instants, in order, at which what each role holds is wanted.
    pub(super) fn new(instants: Vec<BootNs>, groups: &Groups, by_role: &[BootNs]) -> Self {
        Self {
            instants,
            sums: Sums::of(groups, by_role.iter().copied()),
            tracks: HashMap::new(),
            holders: Vec::new(),
            places: HashMap::new(),
            smallest: None,
            pending: (BootNs(0), Vec::new()),
        }
    }

    fn holder(&mut self, row: &GpuProcessRow, table: &ProcessTable) -> usize {
        let recorded = row.upid.and_then(|upid| table.find(upid));
        let holder = GpuHolder {
            who: match recorded {
                Some(place) => Who::from(&table.processes[place]),
                None => Who {
                    pid: Some(row.tgid),
                    upid: None,
                    name: row.comm.as_deref().map(Arc::from),
                    is_main: false,
                },
            },
            process: recorded,
        };
        let next = self.holders.len();
        let place = *self.places.entry(holder.clone()).or_insert(next);
        if place == next {
            self.holders.push(Held {
                holder,
                devices: Vec::new(),
                sum: Sum::default(),
                accounted: None,
            });
        }
        place
    }

    pub(super) fn take(&mut self, device: usize, row: &GpuProcessRow, table: &ProcessTable) {
        let holder = self.holder(row, table);
        let held = &mut self.holders[holder];
        if row.source != Some(GpuSource::Descriptor) && !held.devices.contains(&device) {
            held.devices.push(device);
        }
        if row.source == Some(GpuSource::Accounting) {
            // It has ended and holds nothing; what it held at its highest is all there is.
            held.accounted = held.accounted.max(row.peak_bytes);
            return;
        }
        let step = Step {
            boot: row.boot_ns,
            holder,
            used: row.used_bytes,
            host: row.host_bytes,
            kind: row.kind,
        };
        let key = Key {
            device,
            tgid: row.tgid,
            gpu_instance: row.gpu_instance_id,
            compute_instance: row.compute_instance_id,
            client: row.client_id,
            is_candidate: row.source == Some(GpuSource::Descriptor),
        };
        self.settle(step.boot);
        let before = self.step(key, step);
        if !key.is_candidate {
            self.count(before, step);
        }
    }

    /// Enters a row. Answers what it replaces.
    fn step(&mut self, key: Key, step: Step) -> Option<Step> {
        let count = self.instants.len();
        let later = self.instants.partition_point(|at| *at < step.boot);
        let (track, before) = match self.tracks.entry(key) {
            std::collections::hash_map::Entry::Occupied(known) => {
                let track = known.into_mut();
                let before = std::mem::replace(&mut track.now, step);
                (track, Some(before))
            }
            std::collections::hash_map::Entry::Vacant(place) => {
                let at = vec![None; count];
                (place.insert(Track { now: step, at }), None)
            }
        };
        for at in track.at.iter_mut().skip(later) {
            *at = Some(step);
        }
        before
    }

    /// Adds a row to what its holder has on all devices.
    fn count(&mut self, before: Option<Step>, step: Step) {
        if let Some(before) = before {
            self.note_smallest(before, step.boot);
            self.holders[before.holder].sum.remove(before.used);
            if let Some(process) = self.holders[before.holder].holder.process {
                self.sums.change(process, Some(before.used), None);
            }
        }
        self.holders[step.holder].sum.add(step.used);
        if let Some(process) = self.holders[step.holder].holder.process {
            self.sums.change(process, None, Some(step.used));
        }
        self.pending.1.push(step.holder);
    }

    fn note_smallest(&mut self, step: Step, until: BootNs) {
        let is_held = is_context(step.kind) && until - step.boot >= HELD_NS;
        let Some(used) = step.used.filter(|used| used.0 > 0 && is_held) else {
            return;
        };
        self.smallest = Some(self.smallest.map_or(used, |smallest| smallest.min(used)));
    }

    /// When time moves on, what changed is compared with what was highest.
    fn settle(&mut self, boot: BootNs) {
        if boot == self.pending.0 {
            return;
        }
        for place in self.pending.1.drain(..) {
            self.holders[place].sum.note(self.pending.0);
        }
        self.sums.settle(self.pending.0);
        self.sums.move_to(boot);
        self.pending.0 = boot;
    }

    pub(super) fn finish(
        mut self,
        devices: &[GpuDevice],
        table: &ProcessTable,
        clock: &RunClock,
    ) -> HeldOnGpus {
        self.settle(BootNs(i64::MAX));
        let last: Vec<Step> = self
            .tracks
            .iter()
            .filter(|(key, _)| !key.is_candidate)
            .map(|(_, track)| track.now)
            .collect();
        for step in last {
            self.note_smallest(step, clock.end());
        }
        let seen = self.holders.iter().filter(|held| !held.devices.is_empty());
        let mut processes: Vec<GpuProcess> = seen
            .map(|held| {
                let peak = held.sum.peak.map(|(bytes, _)| bytes);
                let is_own = peak >= held.accounted;
                let at = held.sum.peak.filter(|_| is_own).map(|(_, boot)| boot);
                let on = held.devices.iter().map(|&place| &devices[place]);
                let (names, indices) = on
                    .map(|device| (Arc::clone(&device.device), device.index))
                    .unzip();
                let process = held.holder.process.map(|place| &table.processes[place]);
                GpuProcess {
                    holder: held.holder.clone(),
                    devices: names,
                    device_indices: indices,
                    peak_bytes: peak.max(held.accounted),
                    peak_is_lower_bound: held.sum.has_been_unknown,
                    peak_at: at.map(|at| clock.at(at)),
                    at_end_bytes: held.sum.now(),
                    host_peak_bytes: process.and_then(|process| process.peak.rss_bytes),
                }
            })
            .collect();
        processes.order_by_key(|process| std::cmp::Reverse(process.peak_bytes));
        let accounted = self.holders.iter();
        let accounted = accounted.filter_map(|held| Some((held.holder.process?, held.accounted?)));
        let by_role = std::mem::take(&mut self.sums.steps);
        let (roles, recorded) = self.sums.finish(accounted, clock);
        HeldOnGpus {
            by_role,
            roles,
            recorded,
            tracks: self.tracks,
            holders: self.holders.into_iter().map(|held| held.holder).collect(),
            processes,
            smallest: self.smallest,
        }
    }
}

impl HeldOnGpus {
    /// Who held memory of a device at an instant. A client that processes share counts for
    /// the one with the lowest id.
    pub(super) fn lines(&self, moment: usize, device: usize) -> Vec<GpuLine> {
        let mut standing: Vec<(Key, Step)> = self.standing(moment, device, false).collect();
        standing.order_by_key(|(key, _)| {
            (key.tgid, key.gpu_instance, key.compute_instance, key.client)
        });
        let mut clients = std::collections::HashSet::new();
        let lines = standing.into_iter().map(|(key, step)| GpuLine {
            holder: self.holders[step.holder].clone(),
            bytes: step.used,
            host_bytes: step.host,
            kind: step.kind,
            is_counted_elsewhere: key.client.is_some_and(|client| !clients.insert(client)),
            cuda: None,
            read_boot_ns: step.boot,
        });
        lines.collect()
    }

    /// Who had the device open then without being reported to hold anything.
    pub(super) fn candidates(&self, moment: usize, device: usize) -> Vec<GpuHolder> {
        let mut standing: Vec<(Key, Step)> = self.standing(moment, device, true).collect();
        standing.order_by_key(|(key, _)| key.tgid);
        let holders = standing.into_iter();
        holders
            .map(|(_, step)| self.holders[step.holder].clone())
            .collect()
    }

    /// What stood; zero bytes are nobody.
    fn standing(
        &self,
        moment: usize,
        device: usize,
        is_candidate: bool,
    ) -> impl Iterator<Item = (Key, Step)> {
        let tracks = self
            .tracks
            .iter()
            .filter(move |(key, _)| key.device == device && key.is_candidate == is_candidate);
        tracks.filter_map(move |(key, track)| {
            let step = track.at.get(moment).copied().flatten()?;
            let is_nothing = step.used == Some(Bytes(0)) && step.host.unwrap_or(Bytes(0)).0 == 0;
            (!is_nothing).then_some((*key, step))
        })
    }
}
