//! What one process holds of the driver, from its calls.

mod arguments;
mod by_hand;
mod contexts;
mod held;

use super::functions::{Does, Function};
use arguments::{array, bytes, entered, location, product, returned, uuid};
use by_hand::{Mapping, Physical};
pub(super) use held::Held;
use held::less;
use memtrace_abi::CudaCall;
use memtrace_abi::event::CUDA_STRUCTURE_BYTES;
use memtrace_model::{BootNs, CudaCallRow, CudaKind};
use std::collections::{BTreeMap, HashMap};

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

    /// Takes a call that has returned.
    pub(super) fn take(
        &mut self,
        function: &Function,
        call: &CudaCall,
        shared: &mut Shared,
    ) -> Effect {
        let before = self.len();
        // At the end of a program the driver is gone before those who still call it.
        if call.result == CudaCallRow::DEINITIALIZED {
            return Effect::default();
        }
        let has_failed = call.result != 0;
        let effect = match has_failed {
            true => self.refused(function, call),
            false => self.did(function, call, shared),
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
        let second = i64::try_from(call.args[1]).ok();
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

    fn did(&mut self, function: &Function, call: &CudaCall, shared: &mut Shared) -> Effect {
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
                return self.create(function.does, call, shared);
            }
            Does::Retain | Does::Release => return self.refer(function.does, call, device),
            Does::Map => return self.map(call, device, shared),
            Does::Unmap => return self.unmap(call, device),
            Does::RetainPrimary
            | Does::ReleasePrimary
            | Does::ResetPrimary
            | Does::CreateContext(_)
            | Does::DestroyContext => {
                effect.device = self.change_contexts(function.does, call);
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
            // Of an unknown size no byte is counted, and none is said.
            let is_unknown = function.does == Does::IpcOpen && size == 0;
            effect.size = Some(size).filter(|_| !is_unknown);
            let block = Block {
                kind,
                device: effect.device,
                size,
                context: self.context_of(call.tid).unwrap_or(0),
                since: returned(call),
                opens: 1,
                has_row: false,
            };
            self.enter(place, block, shared);
        }
        effect
    }

    fn enter(&mut self, place: u64, block: Block, shared: &mut Shared) {
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
            None if shared.room > 0 => {
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
        let entered = entered(call);
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

    fn held(&mut self, device: Device) -> &mut Held {
        let is_known = self.devices.len() < DEVICES_MAX || self.devices.contains_key(&device);
        let device = device.filter(|_| is_known);
        self.devices.entry(device).or_default()
    }
}

#[cfg(test)]
mod tests;
