//! Sets what calls say beside what the devices say: at the time of a reading of the driver, so that both
//! tell of the same moment.

use super::read::{Calls, Ledger, State};
use super::{Cuda, CudaParts, CudaRefusal, CudaUnplaced};
use crate::GpuLine;
use crate::RunClock;
use crate::gpu::{GpuDevice, GpuLedger};
use crate::process_table::ProcessTable;
use crate::who::Who;
use memtrace_model::tables::CudaMemoryRow;
use memtrace_model::{BootNs, Bytes, RowSource};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The ledgers of a process that are of one device, and their rows at chosen instants.
#[derive(Debug, Default)]
struct Followed {
    /// Positions of ledgers.
    ledgers: Vec<usize>,
    now: Vec<Option<State>>,
    /// In order, once the rows are read.
    wanted: Vec<BootNs>,
    /// As many as are wanted: the rows that stood then.
    stood: Vec<Vec<Option<State>>>,
}

impl Followed {
    fn move_to(&mut self, boot: BootNs) {
        while self
            .wanted
            .get(self.stood.len())
            .is_some_and(|at| *at < boot)
        {
            self.stood.push(self.now.clone());
        }
    }

    fn at(&self, boot: BootNs) -> &[Option<State>] {
        let place = self.wanted.binary_search(&boot);
        let stood = place.ok().and_then(|place| self.stood.get(place));
        stood.map_or(&[], Vec::as_slice)
    }
}

/// By process and device.
type AllFollowed = HashMap<(usize, usize), Followed>;

impl Calls {
    /// Gives each line of the ledgers of devices its parts. Answers what belongs to no line; `None` for
    /// a recording without calls.
    pub(in crate::gpu) fn explain<S: RowSource>(
        &self,
        source: &S,
        at_instants: &mut [Vec<GpuLedger>],
        devices: &[GpuDevice],
        (table, clock): (&ProcessTable, &RunClock),
    ) -> Result<Option<Cuda>, S::Error> {
        if self.is_empty() {
            return Ok(None);
        }
        let places: Vec<Option<usize>> = (0..self.ledgers.len())
            .map(|ledger| self.device_of(ledger, devices))
            .collect();
        let mut all = self.followed(&places);
        for ledger in at_instants.iter().flatten() {
            for (process, boot) in readings(ledger) {
                if let Some(followed) = all.get_mut(&(process, ledger.place)) {
                    followed.wanted.push(boot);
                }
            }
        }
        self.follow(source, table, &mut all)?;
        for ledger in at_instants.iter_mut().flatten() {
            self.explain_ledger(ledger, &all);
        }
        let known = (&*at_instants, devices, &*places);
        Ok(Some(Cuda {
            lines: self.taken.lines(source, table, |boot| clock.at(boot))?,
            refusals: self.refused(known, (table, clock)),
            unplaced: self.unplaced((&places, devices), (table, clock)),
            places: self
                .ledgers
                .iter()
                .zip(&places)
                .filter_map(|(ledger, place)| {
                    Some(((ledger.process, ledger.cuda_device), (*place)?))
                })
                .collect(),
        }))
    }

    /// `places` are the devices of the ledgers of processes.
    fn refused(
        &self,
        (at_instants, devices, places): (&[Vec<GpuLedger>], &[GpuDevice], &[Option<usize>]),
        (table, clock): (&ProcessTable, &RunClock),
    ) -> Vec<CudaRefusal> {
        let refusals = self.refusals.iter().map(|refusal| {
            let own = self.by_process.get(&refusal.process).into_iter().flatten();
            let own = own.filter(|ledger| {
                let cuda_device = self.ledgers[**ledger].cuda_device;
                refusal.cuda_device.is_none() || cuda_device == refusal.cuda_device
            });
            let on: BTreeSet<usize> = own.filter_map(|ledger| places[*ledger]).collect();
            let place = on.first().copied().filter(|_| on.len() == 1);
            let mut ledgers = at_instants.iter().flatten();
            let ledger = ledgers
                .find(|ledger| ledger.at.boot_ns == refusal.boot && Some(ledger.place) == place);
            let free = ledger.and_then(|ledger| Some(ledger.total_bytes? - ledger.used_bytes?));
            CudaRefusal {
                who: Who::from(&table.processes[refusal.process]),
                at: clock.at(refusal.boot),
                call: refusal.call.clone(),
                size_bytes: refusal.size,
                cuda_device: refusal.cuda_device,
                device: place.map(|place| Arc::clone(&devices[place].device)),
                device_index: place.and_then(|place| devices[place].index),
                free_bytes: free,
                age_ns: free.and_then(|_| Some(ledger?.age_ns)),
                refused_count: refusal.count,
            }
        });
        refusals.collect()
    }

    fn unplaced(
        &self,
        (places, devices): (&[Option<usize>], &[GpuDevice]),
        (table, clock): (&ProcessTable, &RunClock),
    ) -> Vec<CudaUnplaced> {
        // On a device on which the driver lists it, a ledger is part of a line.
        let is_listed = |ledger: &Ledger, place: usize| {
            let listed_on = self.listed_on.get(&ledger.process);
            listed_on.is_some_and(|listed_on| listed_on.contains(&place))
        };
        let unplaced = self.ledgers.iter().zip(places);
        let unplaced =
            unplaced.filter(|(ledger, place)| !place.is_some_and(|place| is_listed(ledger, place)));
        let unplaced = unplaced.filter_map(|(ledger, place)| {
            let highest = ledger.highest.filter(State::holds_anything)?;
            Some(CudaUnplaced {
                who: Who::from(&table.processes[ledger.process]),
                cuda_device: ledger.cuda_device,
                device: place.map(|place| Arc::clone(&devices[place].device)),
                at: clock.at(highest.boot),
                parts: highest.parts,
            })
        });
        unplaced.collect()
    }

    /// Which device a ledger is of: the one whose id the program asked for, else the only one on which
    /// the driver lists the process, unless it counts several. Of a device that is divided the driver
    /// lists processes on its instances.
    fn device_of(&self, ledger: usize, devices: &[GpuDevice]) -> Option<usize> {
        let ledger = &self.ledgers[ledger];
        if let Some(uuid) = &ledger.device_uuid {
            let place = devices.iter().position(|one| *one.device == **uuid)?;
            if !devices.iter().any(|one| one.is_part_of(&devices[place])) {
                return Some(place);
            }
        }
        let own = self.by_process.get(&ledger.process)?.iter();
        let numbers = own.filter(|place| self.ledgers[**place].cuda_device.is_some());
        let listed_on = self.listed_on.get(&ledger.process)?;
        let is_only =
            listed_on.len() == 1 && (ledger.cuda_device.is_none() || numbers.count() == 1);
        listed_on.first().copied().filter(|_| is_only)
    }

    fn followed(&self, places: &[Option<usize>]) -> AllFollowed {
        let mut all = AllFollowed::new();
        for (place, (ledger, device)) in self.ledgers.iter().zip(places).enumerate() {
            let Some(device) = *device else { continue };
            let followed = all.entry((ledger.process, device)).or_default();
            followed.ledgers.push(place);
            followed.now.push(None);
            let readings = ledger.contexts.iter();
            let readings = readings.filter_map(|context| context.reading(device));
            followed.wanted.extend(readings.map(|(boot, _)| boot));
        }
        all
    }

    /// Reads what stood at the instants that are wanted.
    fn follow<S: RowSource>(
        &self,
        source: &S,
        table: &ProcessTable,
        all: &mut AllFollowed,
    ) -> Result<(), S::Error> {
        let mut of = HashMap::new();
        for (key, followed) in all.iter_mut() {
            followed.wanted.sort_unstable();
            followed.wanted.dedup();
            for (position, ledger) in followed.ledgers.iter().enumerate() {
                of.insert(*ledger, (*key, position));
            }
        }
        source.scan(&[], |row: CudaMemoryRow| {
            let process = table.find(row.upid);
            let ledger = process.and_then(|process| self.places.get(&(process, row.cuda_device)));
            let found = ledger.and_then(|ledger| of.get(ledger));
            let Some((key, position)) = found else { return };
            if let Some(followed) = all.get_mut(key) {
                followed.move_to(row.boot_ns);
                followed.now[*position] = Some(State::from(&row));
            }
        })?;
        for followed in all.values_mut() {
            followed.move_to(BootNs(i64::MAX));
        }
        Ok(())
    }

    fn explain_ledger(&self, ledger: &mut GpuLedger, all: &AllFollowed) {
        let read: Vec<(usize, BootNs)> = readings(ledger).collect();
        for (process, boot) in read {
            let Some(followed) = all.get(&(process, ledger.place)) else {
                continue;
            };
            let Some(mut parts) = sum(followed.at(boot)) else {
                continue;
            };
            // It has ended, or its contexts have: what the driver still lists is not made of calls.
            if parts.context_count == 0 && parts.by_calls().0 == 0 {
                continue;
            }
            let contexts = self.contexts_at(followed, ledger.place, boot);
            let lines = ledger.lines.iter_mut();
            for line in lines.filter(|line| line.holder.process == Some(process)) {
                parts.close(line.bytes, contexts);
                line.cuda = Some(parts);
            }
        }
        if ledger.lines.iter().any(|line| line.cuda.is_some()) {
            // What is held by processes of which no call is known, is explained by none. Of one whose
            // figure is unknown, what its calls add up to is part of what is unattributed.
            let unexplained = |line: &GpuLine| match line.cuda {
                None => line.bytes.unwrap_or_default(),
                Some(parts) => match line.bytes {
                    Some(_) => parts.unexplained().unwrap_or_default(),
                    None => Bytes(0) - parts.by_calls(),
                },
            };
            let own: Bytes = ledger.lines.iter().map(unexplained).sum();
            ledger.unexplained_bytes = ledger.unattributed_bytes.map(|rest| rest + own);
        }
    }

    /// What the contexts of a process take that stood at an instant; `None` where that of any is not
    /// known.
    fn contexts_at(&self, followed: &Followed, device: usize, boot: BootNs) -> Option<Bytes> {
        let stood = followed.at(boot).iter().zip(&followed.ledgers);
        let stood = stood.filter_map(|(state, ledger)| Some((state.as_ref()?, *ledger)));
        stood
            .map(|(state, ledger)| match state.parts.context_count {
                0 => state.parts.is_whole.then_some(Bytes(0)),
                _ => self.context(followed, (ledger, device), state.context_boot?),
            })
            .sum()
    }

    /// What a context took when it was made.
    fn context(
        &self,
        followed: &Followed,
        (ledger, device): (usize, usize),
        made: BootNs,
    ) -> Option<Bytes> {
        let mut contexts = self.ledgers[ledger].contexts.iter();
        let context = contexts.find(|context| context.boot == made)?;
        let (read, used) = context.reading(device)?;
        let stood = followed.at(read);
        let parts = sum(stood);
        // GPU code that was loaded by then is in the reading too.
        let is_alone = parts.is_none_or(|parts| parts.is_whole && parts.library_count == 0);
        let held = parts.map_or(Bytes(0), |parts| parts.by_calls());
        (is_alone && held <= used).then(|| used - held)
    }
}

/// What rows say together; `None` without any.
fn sum(states: &[Option<State>]) -> Option<CudaParts> {
    let parts = states.iter().flatten().map(|state| state.parts);
    parts.reduce(|sum, parts| sum.and(&parts))
}

/// When the driver was last asked for each process that has one line of a ledger: by its own line, or by
/// the device, whose processes are asked for when its memory moves.
fn readings(ledger: &GpuLedger) -> impl Iterator<Item = (usize, BootNs)> {
    let device = BootNs(ledger.at.boot_ns.0.saturating_sub(ledger.age_ns.0));
    let lines = ledger.lines.iter().filter(|_| !ledger.is_divided);
    lines.filter_map(move |line| {
        let process = line.holder.process?;
        let same = ledger.lines.iter();
        let same = same.filter(|one| one.holder.process == Some(process));
        (same.count() == 1).then(|| (process, line.read_boot_ns.max(device)))
    })
}
