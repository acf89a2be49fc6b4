//! Memory that the program maps by hand: handles, reserved addresses, mappings.
//!
//! Memory lives until its last handle and its last mapping are gone, and is charged to who created
//! it. A handle that was imported keeps memory, but is charged to nobody.

use crate::PIECE_BYTES;
use crate::driver::{Answer, INVALID_HANDLE, INVALID_VALUE, Refused};
use std::collections::BTreeMap;

/// Physical memory, as one process knows it.
pub(crate) struct Memory {
    pub(crate) device: usize,
    pub(crate) bytes: u64,
    /// Which memory it is on the machine, for exports.
    pub(crate) number: u64,
    pub(crate) is_imported: bool,
    handles: u64,
    mappings: u64,
}

struct Mapping {
    bytes: u64,
    handle: u64,
}

/// All of it.
#[derive(Default)]
pub(crate) struct Vmm {
    /// By the value of the handle, also after the last of them was released.
    memory: BTreeMap<u64, Memory>,
    reserved: BTreeMap<u64, u64>,
    mappings: BTreeMap<u64, Mapping>,
}

impl Vmm {
    /// Notes new memory under a handle.
    pub(crate) fn add(
        &mut self,
        handle: u64,
        device: usize,
        bytes: u64,
        number: u64,
        is_imported: bool,
    ) {
        let memory = Memory {
            device,
            bytes,
            number,
            is_imported,
            handles: 1,
            mappings: 0,
        };
        self.memory.insert(handle, memory);
    }

    /// The memory of a handle that was not released.
    pub(crate) fn memory(&self, handle: u64) -> Result<&Memory, Refused> {
        match self.memory.get(&handle) {
            Some(memory) if memory.handles > 0 => Ok(memory),
            _ => Err(INVALID_HANDLE),
        }
    }

    pub(crate) fn release(&mut self, handle: u64) -> Answer {
        self.memory(handle)?;
        self.change(handle, |memory| memory.handles -= 1);
        Ok(())
    }

    /// One more handle, of the same value, of what is mapped at an address.
    pub(crate) fn retain_at(&mut self, address: u64) -> Result<u64, Refused> {
        let (start, mapping) = self
            .mappings
            .range(..=address)
            .next_back()
            .ok_or(INVALID_VALUE)?;
        if address >= start + mapping.bytes {
            return Err(INVALID_VALUE);
        }
        let handle = mapping.handle;
        self.change(handle, |memory| memory.handles += 1);
        Ok(handle)
    }

    fn change(&mut self, handle: u64, change: impl FnOnce(&mut Memory)) {
        let Some(memory) = self.memory.get_mut(&handle) else {
            return;
        };
        change(memory);
        if memory.handles == 0 && memory.mappings == 0 {
            self.memory.remove(&handle);
        }
    }

    pub(crate) fn reserve(&mut self, address: u64, bytes: u64) {
        self.reserved.insert(address, bytes);
    }

    /// Gives reserved addresses back, in which nothing may be mapped.
    pub(crate) fn free_addresses(&mut self, address: u64, bytes: u64) -> Answer {
        let is_empty = self
            .mappings
            .range(address..address + bytes)
            .next()
            .is_none();
        match self.reserved.get(&address) {
            Some(length) if *length == bytes && is_empty => {
                self.reserved.remove(&address);
                Ok(())
            }
            _ => Err(INVALID_VALUE),
        }
    }

    pub(crate) fn map(&mut self, address: u64, bytes: u64, offset: u64, handle: u64) -> Answer {
        let fits = self.memory(handle)?.bytes >= bytes && offset == 0 && bytes > 0;
        let is_aligned = address.is_multiple_of(PIECE_BYTES) && bytes.is_multiple_of(PIECE_BYTES);
        let room = self.reserved.range(..=address).next_back();
        let is_reserved = room.is_some_and(|(start, length)| address + bytes <= start + length);
        let is_taken = self.mappings.range(..address + bytes).next_back();
        let is_taken = is_taken.is_some_and(|(start, mapping)| start + mapping.bytes > address);
        if !fits || !is_aligned || !is_reserved || is_taken {
            return Err(INVALID_VALUE);
        }
        self.mappings.insert(address, Mapping { bytes, handle });
        self.change(handle, |memory| memory.mappings += 1);
        Ok(())
    }

    /// Removes the mappings that fill a range, each of them whole.
    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) -> Answer {
        let inside = self.mappings.range(address..address + bytes);
        let inside: Vec<(u64, u64)> = inside
            .map(|(start, mapping)| (*start, mapping.bytes))
            .collect();
        if inside.is_empty() || inside.iter().map(|(_, bytes)| bytes).sum::<u64>() != bytes {
            return Err(INVALID_VALUE);
        }
        for (start, _) in inside {
            if let Some(mapping) = self.mappings.remove(&start) {
                self.change(mapping.handle, |memory| memory.mappings -= 1);
            }
        }
        Ok(())
    }

    /// The device of what is mapped at an address.
    pub(crate) fn device_at(&self, address: u64) -> Option<usize> {
        let mapping = self.mappings.get(&address)?;
        Some(self.memory.get(&mapping.handle)?.device)
    }

    /// What was created on a device, and lives.
    pub(crate) fn charged(&self, device: usize) -> u64 {
        let memory = self.memory.values();
        let own = memory.filter(|memory| memory.device == device && !memory.is_imported);
        own.map(|memory| memory.bytes).sum()
    }

    /// What is mapped of imported memory.
    pub(crate) fn imported(&self, device: usize) -> u64 {
        let mappings = self.mappings.values();
        let imported = mappings.filter(|mapping| {
            let memory = self.memory.get(&mapping.handle);
            memory.is_some_and(|memory| memory.is_imported && memory.device == device)
        });
        imported.map(|mapping| mapping.bytes).sum()
    }

    /// Memory of this process's own that only its imports keep.
    pub(crate) fn kept_by_imports(&self, device: usize) -> u64 {
        let of_device = |memory: &&Memory| memory.device == device;
        let all = self.memory.values().filter(of_device);
        let (imported, own): (Vec<_>, Vec<_>) = all.partition(|memory| memory.is_imported);
        let pid = u64::from(std::process::id());
        let mut kept: Vec<_> = imported
            .iter()
            .filter(|memory| memory.number >> 32 == pid)
            .filter(|memory| own.iter().all(|own| own.number != memory.number))
            .map(|memory| (memory.number, memory.bytes))
            .collect();
        kept.sort_unstable();
        kept.dedup();
        kept.iter().map(|(_, bytes)| bytes).sum()
    }
}
