//! What one process holds of the driver, from its calls.

use super::functions::{Does, Function};
use memtrace_abi::CudaCall;
use memtrace_model::{BootNs, CudaKind, Label};
use std::collections::{BTreeMap, HashMap};

/// The driver hands out device memory in pieces of so many bytes, and packs allocations below that
/// size into them (measured on an H200, driver 580).
const PIECE: i64 = 2 << 20;

/// A device as the process counts; `None` where it is not known.
pub(super) type Device = Option<i32>;

/// What a call did, for its row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    pub(super) kind: Option<CudaKind>,
    pub(super) device: Device,
    pub(super) size: Option<i64>,
    pub(super) address: Option<u64>,
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

    pub(super) fn padding(&self) -> i64 {
        self.rounded + up(self.packed) - self.packed
    }

    fn add(&mut self, kind: CudaKind, size: i64, sign: i64) {
        self.bytes[kind as usize] += sign * size;
        if kind == CudaKind::Direct {
            if size < PIECE {
                self.packed += sign * size;
            } else {
                self.rounded += sign * (up(size) - size);
            }
        }
    }
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
}

/// Physical memory behind a handle.
#[derive(Clone, Copy, Debug)]
struct Physical {
    device: Device,
    size: i64,
    references: i64,
    mappings: i64,
    is_imported: bool,
}

/// What one process holds, and what it takes to follow that.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) devices: BTreeMap<Device, Held>,
    blocks: HashMap<u64, Block>,
    physical: HashMap<u64, Physical>,
    /// By address: length and handle.
    mappings: BTreeMap<u64, (i64, u64)>,
    contexts: HashMap<u64, i32>,
    /// Of each device: the primary context, and how often it is retained.
    primary: HashMap<i32, (u64, i64)>,
    /// The contexts that a thread has pushed, the current one last.
    current: HashMap<u32, Vec<u64>>,
    pools: HashMap<u64, i32>,
    pub(super) uuids: HashMap<i32, String>,
}

/// Threads, and contexts that one has pushed, that are remembered.
const THREADS_MAX: usize = 4_096;
const PUSHED_MAX: usize = 64;

impl Ledger {
    /// How many things are remembered.
    pub(super) fn len(&self) -> usize {
        self.blocks.len() + self.physical.len() + self.mappings.len()
    }

    /// Takes a call. Where there is no room for more, what it allocated is counted and its end
    /// will not be known: false.
    pub(super) fn take(
        &mut self,
        function: &Function,
        call: &CudaCall,
        at: BootNs,
        has_room: bool,
    ) -> (Effect, bool) {
        let device = self.device_of(call.tid);
        if call.result != 0 {
            let effect = self.refused(function, call, device);
            let held = self.devices.entry(effect.device).or_default();
            held.calls += 1;
            held.failed += 1;
            return (effect, true);
        }
        let (effect, is_kept) = self.did(function, call, device, at, has_room);
        self.devices.entry(effect.device).or_default().calls += 1;
        (effect, is_kept)
    }

    /// What a call that failed had asked for.
    fn refused(&self, function: &Function, call: &CudaCall, device: Device) -> Effect {
        let mut effect = Effect {
            device,
            ..Effect::default()
        };
        let second = Some(call.args[1].cast_signed());
        match function.does {
            Does::Alloc(kind) => (effect.kind, effect.size) = (Some(kind), second),
            Does::PoolAlloc => {
                (effect.kind, effect.size) = (Some(CudaKind::Pool), second);
                effect.device = self.pools.get(&call.args[2]).copied().or(device);
            }
            Does::Pitch => {
                effect.kind = Some(CudaKind::Direct);
                effect.size = Some(product(&[call.args[2], call.args[3]]));
            }
            Does::Array(_) | Does::Mipmap => {
                (effect.kind, effect.size) = (Some(CudaKind::Direct), array(function.does, call));
            }
            Does::Create => {
                (effect.kind, effect.size) = (Some(CudaKind::Vmm), second);
                effect.device = location(call).or(device);
            }
            Does::Register => (effect.kind, effect.size) = (Some(CudaKind::Registered), second),
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
        device: Device,
        at: BootNs,
        has_room: bool,
    ) -> (Effect, bool) {
        let mut effect = Effect {
            device,
            ..Effect::default()
        };
        let mut is_kept = true;
        let size = call.args[1].cast_signed();
        match function.does {
            Does::Alloc(kind) => {
                (effect, is_kept) = self.allocate(call, kind, device, size, has_room);
            }
            Does::PoolAlloc => {
                let device = self.pools.get(&call.args[2]).copied().or(device);
                (effect, is_kept) = self.allocate(call, CudaKind::Pool, device, size, has_room);
            }
            Does::Pitch => {
                let size = product(&[call.out[1], call.args[3]]);
                (effect, is_kept) = self.allocate(call, CudaKind::Direct, device, size, has_room);
            }
            Does::Array(_) | Does::Mipmap => {
                if let Some(size) = array(function.does, call) {
                    (effect, is_kept) =
                        self.allocate(call, CudaKind::Direct, device, size, has_room);
                }
            }
            Does::Register => {
                let place = call.args[0];
                let kind = CudaKind::Registered;
                (effect, is_kept) = self.enter(place, call.tid, kind, device, size, has_room);
            }
            Does::IpcOpen => {
                let kind = CudaKind::Imported;
                (effect, is_kept) = self.enter(call.out[0], call.tid, kind, device, 0, has_room);
                effect.size = None;
            }
            Does::Free => effect = self.free(call.args[0], device),
            Does::Create
            | Does::Import
            | Does::Retain
            | Does::Release
            | Does::Map
            | Does::Unmap => {
                (effect, is_kept) = self.by_hand(function.does, call, device, has_room);
            }
            Does::RetainPrimary => {
                let device = call.args[1] as i32;
                let primary = self.primary.entry(device).or_default();
                primary.0 = call.out[0];
                primary.1 += 1;
                effect.device = Some(device);
                if primary.1 == 1 {
                    self.begin_context(call.out[0], device, at);
                }
            }
            Does::ReleasePrimary | Does::ResetPrimary => {
                let device = call.args[0] as i32;
                effect.device = Some(device);
                let is_reset = function.does == Does::ResetPrimary;
                if let Some(primary) = self.primary.get_mut(&device) {
                    primary.1 -= 1;
                    let context = primary.0;
                    if is_reset || primary.1 <= 0 {
                        self.primary.remove(&device);
                        self.end_context(context);
                    }
                }
            }
            Does::CreateContext(argument) => {
                let device = call.args[argument] as i32;
                effect.device = Some(device);
                self.begin_context(call.out[0], device, at);
                self.push(call.tid, call.out[0]);
            }
            Does::DestroyContext => {
                effect.device = self.contexts.get(&call.args[0]).copied();
                self.end_context(call.args[0]);
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
                self.uuids.insert(call.args[1] as i32, uuid(call.out));
            }
            Does::Load => self.held(device).libraries += 1,
            Does::Unload => self.held(device).libraries -= 1,
            Does::Instantiate => self.held(device).graphs += 1,
            Does::DestroyGraph => self.held(device).graphs -= 1,
            Does::Other(has_size) => effect.size = has_size.then_some(size),
            Does::Init => {}
        }
        (effect, is_kept)
    }

    /// Memory whose address stands in the first argument.
    fn allocate(
        &mut self,
        call: &CudaCall,
        kind: CudaKind,
        device: Device,
        size: i64,
        has_room: bool,
    ) -> (Effect, bool) {
        self.enter(call.out[0], call.tid, kind, device, size, has_room)
    }

    fn enter(
        &mut self,
        place: u64,
        tid: u32,
        kind: CudaKind,
        device: Device,
        size: i64,
        has_room: bool,
    ) -> (Effect, bool) {
        let size = size.max(0);
        if has_room {
            let block = Block {
                kind,
                device,
                size,
                context: self.context_of(tid).unwrap_or(0),
            };
            // Whatever stood there has gone without a call that was seen.
            if let Some(before) = self.blocks.insert(place, block) {
                self.held(before.device).add(before.kind, before.size, -1);
            }
        }
        self.held(device).add(kind, size, 1);
        let effect = Effect {
            kind: Some(kind),
            device,
            size: Some(size),
            address: Some(place),
        };
        (effect, has_room)
    }

    fn free(&mut self, place: u64, device: Device) -> Effect {
        match self.blocks.remove(&place) {
            Some(block) => {
                self.held(block.device).add(block.kind, block.size, -1);
                Effect {
                    kind: Some(block.kind),
                    device: block.device,
                    size: Some(block.size),
                    address: Some(place),
                }
            }
            None => Effect {
                device,
                address: Some(place),
                ..Effect::default()
            },
        }
    }

    /// Memory that a program maps by hand: it is there until the last handle and the last mapping
    /// are gone.
    fn by_hand(
        &mut self,
        does: Does,
        call: &CudaCall,
        device: Device,
        has_room: bool,
    ) -> (Effect, bool) {
        let mut effect = Effect {
            kind: Some(CudaKind::Vmm),
            device,
            ..Effect::default()
        };
        match does {
            Does::Create => {
                let size = call.args[1].cast_signed().max(0);
                effect.device = location(call).or(device);
                effect.size = Some(size);
                effect.address = Some(call.out[0]);
                self.held(effect.device).add(CudaKind::Vmm, size, 1);
                if !has_room {
                    return (effect, false);
                }
                self.note_physical(call.out[0], effect.device, size, false);
            }
            Does::Import => {
                effect.kind = Some(CudaKind::Imported);
                effect.address = Some(call.out[0]);
                if !has_room {
                    return (effect, false);
                }
                self.note_physical(call.out[0], device, 0, true);
            }
            Does::Retain => {
                effect.address = Some(call.out[0]);
                if let Some(physical) = self.physical.get_mut(&call.out[0]) {
                    physical.references += 1;
                    effect.device = physical.device;
                }
            }
            Does::Release => {
                effect.address = Some(call.args[0]);
                if let Some(physical) = self.physical.get_mut(&call.args[0]) {
                    physical.references -= 1;
                    effect.device = physical.device;
                }
                effect.size = self.let_go(call.args[0]);
            }
            Does::Map => {
                let (place, size, handle) = (call.args[0], call.args[1], call.args[3]);
                effect.address = Some(place);
                effect.size = Some(size.cast_signed());
                if let Some(physical) = self.physical.get_mut(&handle) {
                    physical.mappings += 1;
                    effect.device = physical.device;
                    if physical.is_imported {
                        effect.kind = Some(CudaKind::Imported);
                        let device = physical.device;
                        self.held(device)
                            .add(CudaKind::Imported, size.cast_signed(), 1);
                    }
                    self.mappings.insert(place, (size.cast_signed(), handle));
                    return (effect, has_room);
                }
            }
            _ => {
                let (start, size) = (call.args[0], call.args[1]);
                effect.address = Some(start);
                let end = start.saturating_add(size);
                let ended: Vec<_> = self
                    .mappings
                    .range(start..end)
                    .map(|(place, mapping)| (*place, *mapping))
                    .collect();
                let mut freed = 0;
                for (place, (size, handle)) in ended {
                    self.mappings.remove(&place);
                    if let Some(physical) = self.physical.get_mut(&handle) {
                        physical.mappings -= 1;
                        effect.device = physical.device;
                        if physical.is_imported {
                            let device = physical.device;
                            self.held(device).add(CudaKind::Imported, size, -1);
                        }
                    }
                    freed += self.let_go(handle).unwrap_or(0);
                }
                effect.size = Some(freed);
            }
        }
        (effect, true)
    }

    fn note_physical(&mut self, handle: u64, device: Device, size: i64, is_imported: bool) {
        let physical = Physical {
            device,
            size,
            references: 1,
            mappings: 0,
            is_imported,
        };
        self.physical.insert(handle, physical);
    }

    /// Forgets physical memory that nothing holds any more, and gives its size.
    fn let_go(&mut self, handle: u64) -> Option<i64> {
        let physical = self.physical.get(&handle)?;
        if physical.references > 0 || physical.mappings > 0 {
            return None;
        }
        let physical = self.physical.remove(&handle)?;
        if !physical.is_imported {
            let held = self.held(physical.device);
            held.add(CudaKind::Vmm, physical.size, -1);
        }
        Some(physical.size)
    }

    fn begin_context(&mut self, context: u64, device: i32, at: BootNs) {
        self.contexts.insert(context, device);
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
        self.devices.entry(device).or_default()
    }
}

/// CUmemAllocationProp and CUmemPoolProps: two integers, then the location, whose type 1 is a
/// device.
fn location(call: &CudaCall) -> Device {
    let word = call.structure[1];
    (word as u32 == 1).then_some((word >> 32) as i32)
}

fn product(factors: &[u64]) -> i64 {
    let product = factors
        .iter()
        .try_fold(1_u64, |product, factor| product.checked_mul(*factor));
    product
        .and_then(|product| i64::try_from(product).ok())
        .unwrap_or(i64::MAX)
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
