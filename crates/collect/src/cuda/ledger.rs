//! What one process holds of the driver, from its calls.

use super::functions::{Does, Function};
use memtrace_abi::CudaCall;
use memtrace_abi::event::CUDA_STRUCTURE_BYTES;
use memtrace_model::{BootNs, CudaKind, Label};
use std::collections::{BTreeMap, HashMap};

/// The driver hands out device memory in pieces of so many bytes, and packs allocations below that
/// size into them (measured on an H200, driver 580).
const PIECE: i64 = 2 << 20;

/// CUresult of calls that come after the driver has ended.
pub(super) const CUDA_ERROR_DEINITIALIZED: i32 = 4;

/// A device as the process counts; `None` where it is not known.
pub(super) type Device = Option<i32>;

/// What a call did, for its row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    pub(super) kind: Option<CudaKind>,
    pub(super) device: Device,
    pub(super) size: Option<i64>,
    pub(super) address: Option<u64>,
    /// Of what was given back: when it was taken, and whether that has a row.
    pub(super) taken: Option<(BootNs, bool)>,
}

/// What is held on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    bytes: [i64; CudaKind::ALL.len()],
    /// What large direct allocations take beyond their size.
    rounded: i64,
    /// Direct allocations below the size of a piece.
    packed: i64,
    pub(super) contexts: i64,
    pub(super) context_at: Option<BootNs>,
    pub(super) libraries: i64,
    pub(super) graphs: i64,
    pub(super) calls: i64,
    pub(super) failed: i64,
}

impl Held {
    pub(super) fn of(&self, kind: CudaKind) -> i64 {
        self.bytes[kind as usize]
    }

    /// Whether nothing worth a row has happened there.
    pub(super) fn is_empty(&self) -> bool {
        let calls = self.calls;
        *self
            == Self {
                calls,
                ..Self::default()
            }
    }

    /// What is left when the process has ended: the counts of its calls.
    pub(super) fn at_the_end(&self) -> Self {
        Self {
            calls: self.calls,
            failed: self.failed,
            ..Self::default()
        }
    }

    pub(super) fn padding(&self) -> i64 {
        let packed = up(self.packed).saturating_sub(self.packed);
        self.rounded.saturating_add(packed)
    }

    fn add(&mut self, kind: CudaKind, size: i64, sign: i64) {
        let moved = |sum: &mut i64, by: i64| *sum = sum.saturating_add(sign * by);
        moved(&mut self.bytes[kind as usize], size);
        if kind == CudaKind::Direct {
            if size < PIECE {
                moved(&mut self.packed, size);
            } else {
                moved(&mut self.rounded, up(size).saturating_sub(size));
            }
        }
    }
}

/// One fewer; what was there before is not known, and not counted.
fn less(count: &mut i64) {
    *count = (*count - 1).max(0);
}

fn up(size: i64) -> i64 {
    size.saturating_add(PIECE - 1) / PIECE * PIECE
}

/// An allocation, by its address or handle.
#[derive(Clone, Copy, Debug)]
struct Block {
    kind: CudaKind,
    device: Device,
    size: i64,
    /// The context that it goes with; 0 where that is not known.
    context: u64,
    /// When the call that made it returned.
    since: BootNs,
    /// Memory of another process that is opened again is at the same address.
    opens: i64,
    /// Whether the call that made it has a row.
    has_row: bool,
}

/// Physical memory behind a handle.
#[derive(Clone, Copy, Debug)]
struct Physical {
    device: Device,
    size: i64,
    references: i64,
    mappings: i64,
    is_imported: bool,
    since: BootNs,
    has_row: bool,
}

/// A mapping of physical memory.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    size: i64,
    handle: u64,
    since: BootNs,
}

/// What all ledgers share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Things that can still be remembered.
    pub(super) room: usize,
    /// Those for which there was none.
    pub(super) left_out: i64,
    /// Sizes of the memory behind handles that processes made for others.
    exports: HashMap<[u64; CUDA_STRUCTURE_BYTES / 8], i64>,
}

impl Shared {
    pub(super) fn new(room: usize) -> Self {
        Self {
            room,
            left_out: 0,
            exports: HashMap::new(),
        }
    }
}

/// What one process holds, and what it takes to follow that.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// A context was made since this was last looked at.
    pub(super) has_new_context: bool,
    pub(super) devices: BTreeMap<Device, Held>,
    /// Not everything was seen, or remembered.
    pub(super) is_partial: bool,
    blocks: HashMap<u64, Block>,
    physical: HashMap<u64, Physical>,
    mappings: BTreeMap<u64, Mapping>,
    contexts: HashMap<u64, i32>,
    /// Of each device: the primary context, and how often it is retained.
    primary: HashMap<i32, (u64, i64)>,
    /// The contexts that a thread has pushed, the current one last.
    current: HashMap<u32, Vec<u64>>,
    pools: HashMap<u64, i32>,
    pub(super) uuids: HashMap<i32, String>,
}

/// Devices of one process, whatever it says; and contexts.
const DEVICES_MAX: usize = 64;
/// Of threads, contexts that one has pushed, pools and exported handles no more are remembered.
const THREADS_MAX: usize = 4_096;
const PUSHED_MAX: usize = 64;

impl Ledger {
    /// Of a process that is seen from its first call on, or from a later one.
    pub(super) fn new(is_partial: bool) -> Self {
        Self {
            is_partial,
            ..Self::default()
        }
    }

    /// Takes a call that returned then.
    pub(super) fn take(
        &mut self,
        function: &Function,
        call: &CudaCall,
        at: BootNs,
        shared: &mut Shared,
    ) -> Effect {
        let before = self.len();
        let may_grow = shared.room > 0;
        // At the end of a program the driver is gone before those who still call it.
        if call.result == CUDA_ERROR_DEINITIALIZED {
            return Effect::default();
        }
        let has_failed = call.result != 0;
        let effect = match has_failed {
            true => self.refused(function, call),
            false => self.did(function, call, at, may_grow, shared),
        };
        let held = self.held(effect.device);
        held.calls += 1;
        held.failed += i64::from(has_failed);
        let after = self.len();
        shared.room = (shared.room + before).saturating_sub(after);
        effect
    }

    /// The call that took this has a row.
    pub(super) fn note_row(&mut self, taken: &Effect) {
        let Some(place) = taken.address else {
            return;
        };
        if taken.kind == Some(CudaKind::Vmm) {
            if let Some(physical) = self.physical.get_mut(&place) {
                physical.has_row = true;
            }
        } else if let Some(block) = self.blocks.get_mut(&place) {
            block.has_row = true;
        }
    }

    /// How many things are remembered.
    pub(super) fn len(&self) -> usize {
        self.blocks.len() + self.physical.len() + self.mappings.len()
    }

    /// What a call that failed had asked for.
    fn refused(&self, function: &Function, call: &CudaCall) -> Effect {
        let mut effect = Effect {
            device: self.device_of(call.tid),
            ..Effect::default()
        };
        let mut asked = |kind, size| (effect.kind, effect.size) = (Some(kind), size);
        let second = Some(bytes(call.args[1]));
        match function.does {
            Does::Alloc(kind) => asked(kind, second),
            Does::PoolAlloc => {
                asked(CudaKind::Pool, second);
                effect.device = self.pools.get(&call.args[2]).copied().or(effect.device);
            }
            Does::Pitch => asked(
                CudaKind::Direct,
                Some(product(&[call.args[2], call.args[3]])),
            ),
            Does::Array(_) | Does::Mipmap => asked(CudaKind::Direct, array(function.does, call)),
            Does::Create => {
                asked(CudaKind::Vmm, second);
                effect.device = location(call).or(effect.device);
            }
            Does::Register => asked(CudaKind::Registered, second),
            Does::RetainPrimary => effect.device = Some(call.args[1] as i32),
            Does::CreateContext(argument) => effect.device = Some(call.args[argument] as i32),
            _ => {}
        }
        effect
    }

    fn did(
        &mut self,
        function: &Function,
        call: &CudaCall,
        at: BootNs,
        may_grow: bool,
        shared: &mut Shared,
    ) -> Effect {
        let device = self.device_of(call.tid);
        let size = bytes(call.args[1]);
        let mut effect = Effect {
            device,
            ..Effect::default()
        };
        let mut made = |kind, device, size, place| {
            effect = Effect {
                kind: Some(kind),
                device,
                size: Some(size),
                address: Some(place),
                taken: None,
            };
        };
        match function.does {
            Does::Alloc(kind) => made(kind, device, size, call.out[0]),
            Does::PoolAlloc => {
                let device = self.pools.get(&call.args[2]).copied().or(device);
                made(CudaKind::Pool, device, size, call.out[0]);
            }
            Does::Pitch => {
                let size = product(&[call.out[1], call.args[3]]);
                made(CudaKind::Direct, device, size, call.out[0]);
            }
            Does::Array(_) | Does::Mipmap => {
                if let Some(size) = array(function.does, call) {
                    made(CudaKind::Direct, device, size, call.out[0]);
                }
            }
            Does::Register => made(CudaKind::Registered, device, size, call.args[0]),
            Does::IpcOpen => {
                let size = shared.exports.get(&call.structure).copied();
                made(CudaKind::Imported, device, size.unwrap_or(0), call.out[0]);
            }
            Does::IpcGet => {
                if let Some(block) = self.blocks.get(&call.args[1]) {
                    if shared.exports.len() >= THREADS_MAX {
                        shared.exports.clear();
                    }
                    shared.exports.insert(call.structure, block.size);
                    effect.size = Some(block.size);
                }
            }
            Does::Free => return self.free(call, device),
            Does::Create | Does::Import => {
                return self.create(function.does, call, at, may_grow, shared);
            }
            Does::Retain | Does::Release => return self.refer(function.does, call, device),
            Does::Map => return self.map(call, device, at, may_grow, shared),
            Does::Unmap => return self.unmap(call, device),
            Does::RetainPrimary
            | Does::ReleasePrimary
            | Does::ResetPrimary
            | Does::CreateContext(_)
            | Does::DestroyContext => {
                effect.device = self.change_contexts(function.does, call, at);
                return effect;
            }
            Does::SetCurrent => {
                self.pop(call.tid);
                self.push(call.tid, call.args[0]);
            }
            Does::PushCurrent => self.push(call.tid, call.args[0]),
            Does::PopCurrent => self.pop(call.tid),
            Does::CreatePool => {
                if let Some(device) = location(call) {
                    self.note_pool(call.out[0], device);
                }
            }
            Does::PoolOf => self.note_pool(call.out[0], call.args[1] as i32),
            Does::Uuid => {
                if self.uuids.len() < DEVICES_MAX {
                    self.uuids.insert(call.args[1] as i32, uuid(call.out));
                }
            }
            Does::Load => self.held(device).libraries += 1,
            Does::Unload => less(&mut self.held(device).libraries),
            Does::Instantiate => self.held(device).graphs += 1,
            Does::DestroyGraph => less(&mut self.held(device).graphs),
            Does::Other(has_size) => effect.size = has_size.then_some(size),
            Does::Init => {}
        }
        if let Effect {
            kind: Some(kind),
            size: Some(size),
            address: Some(place),
            ..
        } = effect
        {
            let block = Block {
                kind,
                device: effect.device,
                size,
                context: self.context_of(call.tid).unwrap_or(0),
                since: at,
                opens: 1,
                has_row: false,
            };
            self.enter(place, block, may_grow, shared);
        }
        effect
    }

    fn enter(&mut self, place: u64, block: Block, may_grow: bool, shared: &mut Shared) {
        match self.blocks.get_mut(&place) {
            Some(before)
                if (before.kind, block.kind) == (CudaKind::Imported, CudaKind::Imported) =>
            {
                before.opens += 1;
                return;
            }
            // It was given back by a call that has yet to return.
            Some(before) => {
                let before = std::mem::replace(before, block);
                self.held(before.device).add(before.kind, before.size, -1);
            }
            None if may_grow => {
                self.blocks.insert(place, block);
            }
            None => self.leave_out(shared),
        }
        self.held(block.device).add(block.kind, block.size, 1);
    }

    /// Counts what is not remembered: that it is given back will not be seen.
    fn leave_out(&mut self, shared: &mut Shared) {
        self.is_partial = true;
        shared.left_out += 1;
    }

    fn free(&mut self, call: &CudaCall, device: Device) -> Effect {
        let place = call.args[0];
        let mut effect = Effect {
            device,
            address: Some(place),
            ..Effect::default()
        };
        // What stands there since is another's: its call returned before this one.
        let entered = BootNs(call.entered_boot_ns.cast_signed());
        let Some(block) = self
            .blocks
            .get_mut(&place)
            .filter(|block| block.since < entered)
        else {
            return effect;
        };
        (effect.kind, effect.device) = (Some(block.kind), block.device);
        block.opens -= 1;
        if block.opens > 0 {
            return effect;
        }
        let block = *block;
        self.blocks.remove(&place);
        self.held(block.device).add(block.kind, block.size, -1);
        effect.size = Some(block.size);
        effect.taken = Some((block.since, block.has_row));
        effect
    }

    /// Physical memory and a handle of it: it is there until the last handle and the last mapping
    /// are gone.
    fn create(
        &mut self,
        does: Does,
        call: &CudaCall,
        at: BootNs,
        may_grow: bool,
        shared: &mut Shared,
    ) -> Effect {
        let is_imported = does == Does::Import;
        let size = match is_imported {
            true => 0,
            false => bytes(call.args[1]),
        };
        let device = location(call).or_else(|| self.device_of(call.tid));
        let kind = match is_imported {
            true => CudaKind::Imported,
            false => CudaKind::Vmm,
        };
        let physical = Physical {
            device,
            size,
            references: 1,
            mappings: 0,
            is_imported,
            since: at,
            has_row: false,
        };
        if may_grow {
            if let Some(before) = self.physical.insert(call.out[0], physical)
                && !before.is_imported
            {
                self.held(before.device).add(CudaKind::Vmm, before.size, -1);
            }
        } else {
            self.leave_out(shared);
        }
        self.held(device).add(kind, size, 1);
        Effect {
            kind: Some(kind),
            device,
            size: (!is_imported).then_some(size),
            address: Some(call.out[0]),
            taken: None,
        }
    }

    /// One more reference to a handle, or one fewer.
    fn refer(&mut self, does: Does, call: &CudaCall, device: Device) -> Effect {
        let entered = BootNs(call.entered_boot_ns.cast_signed());
        let (handle, more) = match does {
            Does::Retain => (call.out[0], 1),
            _ => (call.args[0], -1),
        };
        let mut effect = Effect {
            kind: Some(CudaKind::Vmm),
            device,
            address: Some(handle),
            ..Effect::default()
        };
        let physical = self.physical.get_mut(&handle);
        if let Some(physical) = physical.filter(|physical| physical.since < entered) {
            physical.references += more;
            effect.device = physical.device;
            if physical.is_imported {
                effect.kind = Some(CudaKind::Imported);
            }
            if let Some(freed) = self.let_go(handle) {
                effect.size = Some(freed.size);
                effect.taken = Some((freed.since, freed.has_row));
            }
        }
        effect
    }

    fn map(
        &mut self,
        call: &CudaCall,
        device: Device,
        at: BootNs,
        may_grow: bool,
        shared: &mut Shared,
    ) -> Effect {
        let (place, handle) = (call.args[0], call.args[3]);
        let size = bytes(call.args[1]);
        let mut effect = Effect {
            kind: Some(CudaKind::Vmm),
            device,
            size: Some(size),
            address: Some(place),
            taken: None,
        };
        if !may_grow {
            self.leave_out(shared);
            return effect;
        }
        let Some(physical) = self.physical.get_mut(&handle) else {
            return effect;
        };
        physical.mappings += 1;
        let physical = *physical;
        effect.device = physical.device;
        if physical.is_imported {
            effect.kind = Some(CudaKind::Imported);
            self.held(physical.device).add(CudaKind::Imported, size, 1);
        }
        let mapping = Mapping {
            size,
            handle,
            since: at,
        };
        if let Some(before) = self.mappings.insert(place, mapping) {
            self.end_mapping(before);
        }
        effect
    }

    fn unmap(&mut self, call: &CudaCall, device: Device) -> Effect {
        let start = call.args[0];
        let entered = BootNs(call.entered_boot_ns.cast_signed());
        let range = start..start.saturating_add(call.args[1]);
        let ended = self.mappings.range(range);
        let ended = ended.filter(|(_, mapping)| mapping.since < entered);
        let ended: Vec<_> = ended.map(|(place, mapping)| (*place, *mapping)).collect();
        let mut effect = Effect {
            kind: Some(CudaKind::Vmm),
            device,
            size: Some(0),
            address: Some(start),
            taken: None,
        };
        let mut freed = Vec::new();
        for (place, mapping) in ended {
            self.mappings.remove(&place);
            if let Some(physical) = self.physical.get(&mapping.handle) {
                effect.device = physical.device;
            }
            freed.extend(self.end_mapping(mapping));
        }
        let sizes = freed.iter().map(|physical| physical.size);
        effect.size = Some(sizes.fold(0, i64::saturating_add));
        if let [one] = freed[..] {
            effect.taken = Some((one.since, one.has_row));
        }
        effect
    }

    /// What a mapping that has ended gave back.
    fn end_mapping(&mut self, mapping: Mapping) -> Option<Physical> {
        let physical = self.physical.get_mut(&mapping.handle)?;
        physical.mappings -= 1;
        let physical = *physical;
        if physical.is_imported {
            let held = self.held(physical.device);
            held.add(CudaKind::Imported, mapping.size, -1);
        }
        self.let_go(mapping.handle)
    }

    /// Forgets physical memory that nothing holds any more, and gives it.
    fn let_go(&mut self, handle: u64) -> Option<Physical> {
        let physical = self.physical.get(&handle)?;
        if physical.references > 0 || physical.mappings > 0 {
            return None;
        }
        let physical = self.physical.remove(&handle)?;
        if !physical.is_imported {
            let held = self.held(physical.device);
            held.add(CudaKind::Vmm, physical.size, -1);
        }
        Some(physical)
    }

    /// The device that a context was made or ended on.
    fn change_contexts(&mut self, does: Does, call: &CudaCall, at: BootNs) -> Device {
        match does {
            Does::RetainPrimary => {
                let device = call.args[1] as i32;
                let has_room = self.primary.len() < DEVICES_MAX;
                if !has_room && !self.primary.contains_key(&device) {
                    return None;
                }
                let primary = self.primary.entry(device).or_default();
                primary.0 = call.out[0];
                primary.1 += 1;
                if !self.contexts.contains_key(&call.out[0]) {
                    self.begin_context(call.out[0], device, at);
                }
                Some(device)
            }
            Does::CreateContext(argument) => {
                let device = call.args[argument] as i32;
                self.begin_context(call.out[0], device, at);
                self.push(call.tid, call.out[0]);
                Some(device)
            }
            Does::DestroyContext => {
                let device = self.contexts.get(&call.args[0]).copied();
                self.end_context(call.args[0]);
                device
            }
            _ => {
                let device = call.args[0] as i32;
                if let Some(primary) = self.primary.get_mut(&device) {
                    primary.1 -= 1;
                    let context = primary.0;
                    if does == Does::ResetPrimary {
                        // How often it is retained stays.
                        primary.1 += 1;
                        self.end_context(context);
                    } else if primary.1 <= 0 && !self.is_partial {
                        // Of a process that was there before it is not known how often.
                        self.primary.remove(&device);
                        self.end_context(context);
                    }
                }
                Some(device)
            }
        }
    }

    fn begin_context(&mut self, context: u64, device: i32, at: BootNs) {
        if self.contexts.len() >= THREADS_MAX {
            return;
        }
        self.contexts.insert(context, device);
        self.has_new_context = true;
        let held = self.held(Some(device));
        held.contexts += 1;
        held.context_at = Some(at);
    }

    /// With a context goes what was allocated in it. Memory that is mapped by hand belongs to none.
    fn end_context(&mut self, context: u64) {
        let Some(device) = self.contexts.remove(&context) else {
            return;
        };
        let is_last = self.contexts.is_empty();
        let mut gone = Vec::new();
        self.blocks.retain(|_, block| {
            let is_kept = block.context != context && !(is_last && block.context == 0);
            if !is_kept {
                gone.push(*block);
            }
            is_kept
        });
        for block in gone {
            self.held(block.device).add(block.kind, block.size, -1);
        }
        let held = self.held(Some(device));
        held.contexts -= 1;
        if held.contexts <= 0 {
            (held.libraries, held.graphs) = (0, 0);
        }
        for pushed in self.current.values_mut() {
            pushed.retain(|one| *one != context);
        }
    }

    fn push(&mut self, tid: u32, context: u64) {
        if self.current.len() >= THREADS_MAX && !self.current.contains_key(&tid) {
            return;
        }
        let pushed = self.current.entry(tid).or_default();
        if pushed.len() < PUSHED_MAX {
            pushed.push(context);
        }
    }

    fn pop(&mut self, tid: u32) {
        if let Some(pushed) = self.current.get_mut(&tid) {
            pushed.pop();
        }
    }

    fn note_pool(&mut self, pool: u64, device: i32) {
        if self.pools.len() < THREADS_MAX {
            self.pools.insert(pool, device);
        }
    }

    /// The context of a thread: the one that it made current, or the only one that there is.
    fn context_of(&self, tid: u32) -> Option<u64> {
        let pushed = self.current.get(&tid).and_then(|pushed| pushed.last());
        let only = || match self.contexts.len() {
            1 => self.contexts.keys().next(),
            _ => None,
        };
        pushed.filter(|one| **one != 0).or_else(only).copied()
    }

    fn device_of(&self, tid: u32) -> Device {
        let known = self.context_of(tid);
        let mut devices = self.contexts.values();
        let first = devices.next().copied();
        known
            .and_then(|context| self.contexts.get(&context).copied())
            .or_else(|| first.filter(|first| devices.all(|device| device == first)))
    }

    fn held(&mut self, device: Device) -> &mut Held {
        let is_known = self.devices.len() < DEVICES_MAX || self.devices.contains_key(&device);
        let device = device.filter(|_| is_known);
        self.devices.entry(device).or_default()
    }
}

/// CUmemAllocationProp and CUmemPoolProps: two integers, then the location, whose type 1 is a
/// device.
fn location(call: &CudaCall) -> Device {
    let word = call.structure[1];
    (word as u32 == 1).then_some((word >> 32) as i32)
}

/// No device has more: a pebibyte. What a program says beyond that is not believed, so that sums of
/// thousands stay exact.
const SIZE_MAX: u64 = 1 << 50;

/// An argument that is a number of bytes.
fn bytes(argument: u64) -> i64 {
    argument.min(SIZE_MAX).cast_signed()
}

fn product(factors: &[u64]) -> i64 {
    let product = factors
        .iter()
        .try_fold(1_u64, |product, factor| product.checked_mul(*factor));
    bytes(product.unwrap_or(u64::MAX))
}

/// Flags of CUDA_ARRAY3D_DESCRIPTOR: memory is mapped later, by hand.
const ARRAY_SPARSE: u32 = 0x40;
const ARRAY_DEFERRED: u32 = 0x80;

/// Bytes of an array; `None` for a format that is not known, and for one that has no memory of its
/// own.
fn array(does: Does, call: &CudaCall) -> Option<i64> {
    let words = call.structure;
    let is_flat = does == Does::Array(2);
    let (depth, what) = if is_flat {
        (1, words[2])
    } else {
        (words[2], words[3])
    };
    let flags = if is_flat { 0 } else { words[4] as u32 };
    if flags & (ARRAY_SPARSE | ARRAY_DEFERRED) != 0 {
        return None;
    }
    // CUarray_format
    let element = match what as u32 {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => return None,
    };
    let channels = what >> 32;
    let of = |shift: u32| {
        let side = |side: u64| (side >> shift).max(1);
        product(&[
            side(words[0]),
            side(words[1]),
            side(depth),
            element * channels,
        ])
    };
    let levels = match does {
        Does::Mipmap => call.args[2].clamp(1, 32) as u32,
        _ => 1,
    };
    Some((0..levels).map(of).fold(0, i64::saturating_add))
}

/// A UUID as NVML writes it.
fn uuid(words: [u64; 2]) -> String {
    let bytes: String = words
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let parts = [
        &bytes[..8],
        &bytes[8..12],
        &bytes[12..16],
        &bytes[16..20],
        &bytes[20..],
    ];
    format!("GPU-{}", parts.join("-"))
}

#[cfg(test)]
mod tests;
