//! The ledgers of all processes, and their rows.

use super::functions::{Does, FUNCTIONS};
use super::ledger::{Effect, Held, Ledger, Shared};
use crate::{Pass, Tick};
use memtrace_abi::CudaCall;
use memtrace_model::{
    BootNs, Bytes, CudaCallRow, CudaKind, CudaMemoryRow, DurationNs, Label, Record, Tgid, Upid,
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Calls of at least so many bytes have a row of their own.
const ROW_MIN: i64 = 1 << 20;
/// What is held has a row at once where it moved by so much, and by this part of itself; else at the
/// next tick.
const STEP: i64 = 2 << 20;
const STEP_PART: i64 = 64;
/// Rows of either kind of one process come no more often than this, sustained ...
const ROW_INTERVAL: DurationNs = DurationNs(5_000_000);
/// ... after a burst of so many.
const ROW_BURST: i64 = 2_000;
/// Allocations that are remembered, of all processes together.
const ALLOCATIONS_MAX: usize = 400_000;

/// What the recorded processes hold of the driver.
pub struct Ledgers {
    processes: HashMap<Upid, OfProcess>,
    changed: Vec<Upid>,
    /// When the first library was probed.
    probed_since: Option<BootNs>,
    /// Who runs a program, or mapped a library, that was probed by then: whatever it does is seen.
    seen_from_the_start: HashSet<Tgid>,
    shared: Shared,
    /// A context was made since the last call.
    has_new_contexts: bool,
    /// Calls whose stack is not named yet.
    unnamed: Vec<CudaCallRow>,
}

impl Default for Ledgers {
    fn default() -> Self {
        Self {
            processes: HashMap::new(),
            changed: Vec::new(),
            probed_since: None,
            seen_from_the_start: HashSet::new(),
            shared: Shared::new(ALLOCATIONS_MAX),
            has_new_contexts: false,
            unnamed: Vec::new(),
        }
    }
}

struct OfProcess {
    ledger: Ledger,
    /// Time of the last call.
    at: BootNs,
    is_changed: bool,
    /// As last written.
    written: BTreeMap<Option<i32>, Held>,
    /// Whether it said that not everything is known.
    was_partial: bool,
    calls: Rate,
    failures: Rate,
    steps: Rate,
}

/// How often rows are written: when the next one would conform to the sustained rate (GCRA).
struct Rate(BootNs);

impl Rate {
    fn allows(&mut self, at: BootNs) -> bool {
        let conforms = self.0.max(at);
        if conforms - at > DurationNs(ROW_INTERVAL.0 * ROW_BURST) {
            return false;
        }
        self.0 = conforms + ROW_INTERVAL;
        true
    }
}

impl Ledgers {
    /// From now on the library is probed.
    pub fn note_probed(&mut self, at: BootNs) {
        self.probed_since.get_or_insert(at);
    }

    /// A process began a program, or mapped the library, and is seen from there on.
    pub fn note_beginning(&mut self, tgid: Tgid) {
        if self.probed_since.is_some() {
            self.seen_from_the_start.insert(tgid);
        }
    }

    /// Calls were lost, of whomever.
    pub fn note_loss(&mut self) {
        for (upid, process) in &mut self.processes {
            process.ledger.is_partial = true;
            if !process.is_changed {
                process.is_changed = true;
                self.changed.push(*upid);
            }
        }
    }

    /// Takes a call of a process that began then.
    pub fn take(&mut self, upid: Upid, began: BootNs, call: &CudaCall, pass: &mut Pass<'_>) {
        let Some(function) = FUNCTIONS.get(call.call as usize) else {
            return;
        };
        let at = BootNs(call.header.boot_ns.cast_signed());
        let is_first = function.does == Does::Init
            && (self.probed_since.is_some_and(|since| began >= since)
                || self.seen_from_the_start.contains(&Tgid(call.header.tgid)));
        let process = self.processes.entry(upid).or_insert_with(|| OfProcess {
            ledger: Ledger::new(!is_first),
            at,
            is_changed: false,
            written: BTreeMap::new(),
            was_partial: !is_first,
            calls: Rate(at),
            failures: Rate(at),
            steps: Rate(at),
        });
        let effect = process.ledger.take(function, call, &mut self.shared);
        process.at = at;
        self.has_new_contexts |= std::mem::take(&mut process.ledger.has_new_context);
        if !process.is_changed {
            process.is_changed = true;
            self.changed.push(upid);
        }
        let is_row = (call.result != 0 && call.result != CudaCallRow::DEINITIALIZED)
            || effect.size.is_some_and(|size| size >= ROW_MIN)
            || call.result == 0
                && matches!(
                    function.does,
                    Does::RetainPrimary
                        | Does::ReleasePrimary
                        | Does::ResetPrimary
                        | Does::CreateContext(_)
                        | Does::DestroyContext
                        | Does::Load
                        | Does::Other(_)
                );
        let gives_back_a_row = effect.taken.is_some_and(|(_, has_row)| has_row);
        let rate = match call.result {
            0 => &mut process.calls,
            _ => &mut process.failures,
        };
        if gives_back_a_row || (is_row && rate.allows(at)) {
            process.ledger.note_row(&effect);
            let row = call_row(upid, function.name, call, &effect, pass.tick);
            match call.has_stack {
                0 => pass.write(row),
                _ => self.unnamed.push(row),
            }
        }
        if process.has_moved_far(&effect) && process.steps.allows(at) {
            process.write(upid, pass);
        }
    }

    /// A process has ended, or runs another program: nothing is left of what it held.
    pub fn end(&mut self, upid: Upid, tgid: Tgid, at: BootNs, pass: &mut Pass<'_>) {
        self.seen_from_the_start.remove(&tgid);
        let Some(mut process) = self.processes.remove(&upid) else {
            return;
        };
        // What it did since the last tick, which may be all that it did.
        process.write(upid, pass);
        self.shared.room += process.ledger.len();
        for (device, held) in &process.written {
            pass.write(process.row(upid, *device, &held.at_the_end(), at, pass.tick));
        }
    }

    /// Writes what has changed.
    pub fn write(&mut self, pass: &mut Pass<'_>) {
        for upid in std::mem::take(&mut self.changed) {
            if let Some(process) = self.processes.get_mut(&upid) {
                process.is_changed = false;
                process.write(upid, pass);
            }
        }
    }

    /// Calls since the last one whose stack is still to be named.
    pub fn take_unnamed(&mut self) -> Vec<CudaCallRow> {
        std::mem::take(&mut self.unnamed)
    }

    /// Whether a context was made since the last call.
    pub fn take_new_contexts(&mut self) -> bool {
        std::mem::take(&mut self.has_new_contexts)
    }

    /// Allocations for which there was no room, since the last call.
    pub fn take_left_out(&mut self) -> i64 {
        std::mem::take(&mut self.shared.left_out)
    }
}

impl OfProcess {
    /// Whether the device that a call was about holds much more or less than its last row says.
    fn has_moved_far(&self, effect: &Effect) -> bool {
        let now = self.ledger.devices.get(&effect.device);
        let then = self.written.get(&effect.device);
        let of = |held: Option<&Held>, kind| held.map_or(0, |held| held.of(kind));
        let (mut moved, mut held) = (0_i64, 0_i64);
        for kind in CudaKind::ALL {
            let (now, then) = (of(now, *kind), of(then, *kind));
            moved = moved.saturating_add(now.saturating_sub(then).saturating_abs());
            held = held.saturating_add(now.max(then));
        }
        moved >= STEP.max(held / STEP_PART)
    }

    fn write(&mut self, upid: Upid, pass: &mut Pass<'_>) {
        let has_turned_partial = self.ledger.is_partial != self.was_partial;
        self.was_partial = self.ledger.is_partial;
        for (device, held) in &self.ledger.devices {
            let is_news = match self.written.get(device) {
                Some(written) => has_turned_partial || written != held,
                None => !held.is_empty(),
            };
            if !is_news {
                continue;
            }
            pass.write(self.row(upid, *device, held, self.at, pass.tick));
            self.written.insert(*device, *held);
        }
    }

    fn row(&self, upid: Upid, device: Option<i32>, held: &Held, at: BootNs, tick: &Tick) -> Record {
        let bytes = |kind| Bytes(held.of(kind));
        let uuid = device.and_then(|device| self.ledger.uuids.get(&device));
        CudaMemoryRow {
            ts: tick.clock.to_wall(at),
            boot_ns: at,
            upid,
            cuda_device: device,
            device_uuid: uuid.cloned(),
            direct_bytes: bytes(CudaKind::Direct),
            vmm_bytes: bytes(CudaKind::Vmm),
            pool_bytes: bytes(CudaKind::Pool),
            managed_bytes: bytes(CudaKind::Managed),
            imported_bytes: bytes(CudaKind::Imported),
            pinned_bytes: bytes(CudaKind::Pinned),
            registered_bytes: bytes(CudaKind::Registered),
            padding_bytes: Bytes(held.padding()),
            context_count: held.contexts,
            context_boot_ns: held.context_at,
            library_count: held.libraries,
            graph_count: held.graphs,
            call_count: held.calls,
            failed_count: held.failed,
            is_whole: !self.ledger.is_partial,
        }
        .into()
    }
}

fn call_row(upid: Upid, name: &str, call: &CudaCall, effect: &Effect, tick: &Tick) -> CudaCallRow {
    let at = BootNs(call.header.boot_ns.cast_signed());
    CudaCallRow {
        ts: tick.clock.to_wall(at),
        boot_ns: at,
        upid,
        tid: call.tid.cast_signed(),
        call: name.to_owned(),
        kind: effect.kind,
        cuda_device: effect.device,
        size_bytes: effect.size.map(Bytes),
        address: effect.address.map(u64::cast_signed),
        taken_boot_ns: effect.taken.map(|(at, _)| at),
        result: call.result,
        duration_ns: at - BootNs(call.entered_boot_ns.cast_signed()),
        stack_id: None,
    }
}
