//! Reads `cuda_memory` and `cuda_call` before it is known who held what: which ledgers there are, when
//! contexts were made, and what was refused.

use super::CudaParts;
use crate::allocations::Taken;
use crate::process_table::ProcessTable;
use memtrace_model::tables::{CudaCallRow, CudaMemoryRow, GpuProcessRow, GpuSource};
use memtrace_model::{BootNs, Bytes, DurationNs, Order, RowSource};
use std::collections::{BTreeSet, HashMap};

/// A reading that comes later after a context was made tells of more than the context.
const SOON: DurationNs = DurationNs(200_000_000);
/// Devices of one process, as the recorder has them.
const LEDGERS_MAX: usize = 65;
/// Of a process more contexts on a device are not measured.
const CONTEXTS_MAX: usize = 64;
/// So many refusals are reported, the last ones.
const REFUSALS_MAX: usize = 64;

/// What the tables of calls say before it is known who held what.
#[derive(Debug, Default)]
pub(in crate::gpu) struct Calls {
    pub(super) ledgers: Vec<Ledger>,
    /// By process and its number of the device.
    pub(super) places: HashMap<(usize, Option<i32>), usize>,
    /// The ledgers of each process.
    pub(super) by_process: HashMap<usize, Vec<usize>>,
    /// The devices on which the driver lists each process that has ledgers.
    pub(super) listed_on: HashMap<usize, BTreeSet<usize>>,
    /// In the order of time.
    pub(super) refusals: Vec<Refusal>,
    /// What lines of code took.
    pub(super) taken: Taken,
}

/// What a process holds of one device as it counts.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) process: usize,
    pub(super) cuda_device: Option<i32>,
    pub(super) device_uuid: Option<String>,
    /// Its row at the time at which it held most.
    pub(super) highest: Option<State>,
    pub(super) contexts: Vec<Context>,
}

/// A row of `cuda_memory`.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) boot: BootNs,
    pub(super) context_boot: Option<BootNs>,
    /// Without what the driver reports.
    pub(super) parts: CudaParts,
}

/// A context, and what the driver reported first after it was made.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) boot: BootNs,
    /// Whether its process had no other on that device.
    is_only: bool,
    /// When GPU code began to be loaded after it.
    next_load: Option<BootNs>,
    /// By device: when it was read first, and what the process held.
    readings: Vec<(usize, BootNs, Bytes)>,
}

/// Calls of one function that a process made on one device and that were refused.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) process: usize,
    pub(super) cuda_device: Option<i32>,
    pub(super) call: String,
    pub(super) boot: BootNs,
    pub(super) size: Option<Bytes>,
    pub(super) count: usize,
}

impl Calls {
    pub(in crate::gpu) fn read<S: RowSource>(
        source: &S,
        table: &ProcessTable,
    ) -> Result<Self, S::Error> {
        let mut calls = Self::default();
        source.scan(&[], |row: CudaMemoryRow| {
            if let Some(process) = table.find(row.upid) {
                calls.take(process, &row);
            }
        })?;
        let columns = [
            "boot_ns",
            "upid",
            "call",
            "kind",
            "cuda_device",
            "size_bytes",
            "result",
            "duration_ns",
            "taken_boot_ns",
            "stack_id",
        ];
        let mut refusals = HashMap::new();
        source.scan(&columns, |row: CudaCallRow| {
            let Some(process) = table.find(row.upid) else {
                return;
            };
            calls.taken.note(&row);
            match row.result {
                0 if is_load(&row.call) => {
                    calls.note_load(
                        process,
                        BootNs(row.boot_ns.0.saturating_sub(row.duration_ns.0)),
                    );
                }
                CudaCallRow::OUT_OF_MEMORY => note_refusal(&mut refusals, process, row),
                _ => {}
            }
        })?;
        calls.refusals = refusals.into_values().collect();
        calls.refusals.order_by(|a, b| {
            let order = |one: &Refusal| (one.boot, one.process, one.cuda_device);
            order(a).cmp(&order(b)).then_with(|| a.call.cmp(&b.call))
        });
        let more = calls.refusals.len().saturating_sub(REFUSALS_MAX);
        calls.refusals.drain(..more);
        Ok(calls)
    }

    /// Whether the recording has neither.
    pub(in crate::gpu) fn is_empty(&self) -> bool {
        self.ledgers.is_empty() && self.refusals.is_empty()
    }

    /// Instants at which it matters what was free.
    pub(in crate::gpu) fn instants(&self) -> impl Iterator<Item = BootNs> {
        self.refusals.iter().map(|refusal| refusal.boot)
    }

    fn take(&mut self, process: usize, row: &CudaMemoryRow) {
        let next = self.ledgers.len();
        let key = (process, row.cuda_device);
        let known = self.by_process.get(&process).map_or(0, Vec::len);
        if known >= LEDGERS_MAX && !self.places.contains_key(&key) {
            return;
        }
        let place = *self.places.entry(key).or_insert(next);
        if place == next {
            self.by_process.entry(process).or_default().push(place);
            self.ledgers.push(Ledger {
                process,
                cuda_device: row.cuda_device,
                device_uuid: None,
                highest: None,
                contexts: Vec::new(),
            });
        }
        let ledger = &mut self.ledgers[place];
        if row.device_uuid.is_some() {
            ledger.device_uuid.clone_from(&row.device_uuid);
        }
        let state = State::from(row);
        let known = ledger.highest.as_ref();
        if known.is_none_or(|known| amounts(&known.parts) < amounts(&state.parts)) {
            ledger.highest = Some(state);
        }
        let last = ledger.contexts.last().map(|context| context.boot);
        if let Some(boot) = row.context_boot_ns
            && last != Some(boot)
            && ledger.contexts.len() < CONTEXTS_MAX
        {
            ledger.contexts.push(Context {
                boot,
                is_only: row.context_count == 1,
                next_load: None,
                readings: Vec::new(),
            });
        }
    }

    /// Does something to each context of a process; nothing to one without ledgers.
    fn each_context(&mut self, process: usize, mut each: impl FnMut(&mut Context)) {
        for place in self.by_process.get(&process).into_iter().flatten() {
            self.ledgers[*place].contexts.iter_mut().for_each(&mut each);
        }
    }

    fn note_load(&mut self, process: usize, boot: BootNs) {
        self.each_context(process, |context| {
            let is_soon = boot > context.boot && boot - context.boot <= SOON;
            if is_soon && context.next_load.is_none_or(|next| boot < next) {
                context.next_load = Some(boot);
            }
        });
    }

    /// The driver reports a process on a device.
    pub(in crate::gpu) fn take_reading(
        &mut self,
        device: usize,
        row: &GpuProcessRow,
        table: &ProcessTable,
    ) {
        let process = row.upid.and_then(|upid| table.find(upid));
        let process = process.filter(|process| self.by_process.contains_key(process));
        let Some(process) = process.filter(|_| row.source == Some(GpuSource::Nvml)) else {
            return;
        };
        self.listed_on.entry(process).or_default().insert(device);
        let Some(used) = row.used_bytes else { return };
        self.each_context(process, |context| {
            let is_read = context.readings.iter().any(|(place, ..)| *place == device);
            if context.boot <= row.boot_ns && !is_read {
                context.readings.push((device, row.boot_ns, used));
            }
        });
    }
}

impl Context {
    /// The reading of a device that tells of nothing but the context and of what calls explain: when it
    /// was, and what the process held. `None` where it came too late, or GPU code was being loaded.
    pub(super) fn reading(&self, device: usize) -> Option<(BootNs, Bytes)> {
        let mut readings = self.readings.iter();
        let (_, boot, used) = *readings.find(|(place, ..)| *place == device)?;
        let is_soon = boot - self.boot <= SOON;
        let is_alone = self.next_load.is_none_or(|next| next > boot);
        (self.is_only && is_soon && is_alone).then_some((boot, used))
    }
}

impl State {
    pub(super) fn holds_anything(&self) -> bool {
        amounts(&self.parts).into_iter().any(|bytes| bytes.0 > 0)
    }
}

impl From<&CudaMemoryRow> for State {
    fn from(row: &CudaMemoryRow) -> Self {
        Self {
            boot: row.boot_ns,
            context_boot: row.context_boot_ns,
            parts: CudaParts {
                direct_bytes: row.direct_bytes.max(Bytes(0)),
                vmm_bytes: row.vmm_bytes.max(Bytes(0)),
                pool_bytes: row.pool_bytes.max(Bytes(0)),
                padding_bytes: row.padding_bytes.max(Bytes(0)),
                remaining_bytes: None,
                context_bytes: None,
                driver_bytes: None,
                managed_bytes: row.managed_bytes.max(Bytes(0)),
                imported_bytes: row.imported_bytes.max(Bytes(0)),
                pinned_bytes: row.pinned_bytes.max(Bytes(0)),
                registered_bytes: row.registered_bytes.max(Bytes(0)),
                context_count: row.context_count,
                library_count: row.library_count,
                graph_count: row.graph_count,
                is_whole: row.is_whole,
            },
        }
    }
}

/// Whether a function loads GPU code: the driver keeps that in memory of its own.
fn is_load(call: &str) -> bool {
    call.starts_with("cuLibraryLoad") || call.starts_with("cuModuleLoad")
}

/// What is compared to find the highest: memory of devices, then that of the host.
fn amounts(parts: &CudaParts) -> [Bytes; 2] {
    let beside = parts.beside().into_iter().map(|(_, bytes)| bytes);
    [parts.by_calls(), beside.sum()]
}

fn note_refusal(
    refusals: &mut HashMap<(usize, Option<i32>, String), Refusal>,
    process: usize,
    row: CudaCallRow,
) {
    let key = (process, row.cuda_device, row.call.clone());
    let known = refusals.entry(key).or_insert(Refusal {
        process,
        cuda_device: row.cuda_device,
        call: row.call,
        boot: row.boot_ns,
        size: row.size_bytes,
        count: 0,
    });
    (known.boot, known.size) = (row.boot_ns, row.size_bytes);
    known.count += 1;
}
