//! Physical memory that a program maps by hand: cuMemCreate and what goes with it.

use super::arguments::{bytes, entered, location, returned};
use super::{Device, Effect, Ledger, Shared};
use crate::cuda::functions::Does;
use memtrace_abi::CudaCall;
use memtrace_model::{BootNs, CudaKind};

/// Physical memory behind a handle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Physical {
    device: Device,
    size: i64,
    references: i64,
    mappings: i64,
    is_imported: bool,
    since: BootNs,
    pub(super) has_row: bool,
}

/// A mapping of physical memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    size: i64,
    handle: u64,
    since: BootNs,
}

impl Ledger {
    /// Physical memory and a handle of it: it is there until the last handle and the last mapping
    /// are gone.
    pub(super) fn create(&mut self, does: Does, call: &CudaCall, shared: &mut Shared) -> Effect {
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
            since: returned(call),
            has_row: false,
        };
        if shared.room > 0 {
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
    pub(super) fn refer(&mut self, does: Does, call: &CudaCall, device: Device) -> Effect {
        let entered = entered(call);
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

    pub(super) fn map(&mut self, call: &CudaCall, device: Device, shared: &mut Shared) -> Effect {
        let (place, handle) = (call.args[0], call.args[3]);
        let size = bytes(call.args[1]);
        let mut effect = Effect {
            kind: Some(CudaKind::Vmm),
            device,
            size: Some(size),
            address: Some(place),
            taken: None,
        };
        if shared.room == 0 {
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
            since: returned(call),
        };
        if let Some(before) = self.mappings.insert(place, mapping) {
            self.end_mapping(before);
        }
        effect
    }

    pub(super) fn unmap(&mut self, call: &CudaCall, device: Device) -> Effect {
        let start = call.args[0];
        let entered = entered(call);
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
}
