//! What a process holds and what is charged to it, added up.

use crate::driver::{Driver, Kind};
use crate::held::{DeviceHeld, Held};
use crate::{CONTEXT_BYTES, uuid_text};

impl Driver {
    /// What NVML would say: charged to this process.
    fn charged(&self, device: usize) -> u64 {
        let mut sum = self.vmm.charged(device);
        for context in self
            .contexts
            .values()
            .filter(|context| context.device == device)
        {
            sum += CONTEXT_BYTES + context.pieces.bytes() + context.local_bytes;
        }
        for object in self
            .objects
            .values()
            .filter(|object| object.device == Some(device))
        {
            sum += object.taken;
        }
        for pool in self.pools.values().filter(|pool| pool.device == device) {
            sum += pool.reserved;
        }
        sum
    }

    /// What is gone of the device: that, and memory that only imports keep.
    pub(crate) fn used(&self, device: usize) -> u64 {
        self.charged(device) + self.vmm.kept_by_imports(device)
    }

    /// What this process holds, added up.
    pub(crate) fn held(&self) -> Held {
        if self.pid != std::process::id() {
            return Held::default();
        }
        let mut devices: Vec<Option<usize>> = (0..self.devices.len()).map(Some).collect();
        let of_none = self.objects.values().any(|object| object.device.is_none());
        if of_none || self.refused.keys().any(|(device, _)| device.is_none()) {
            devices.push(None);
        }
        let calls = self.calls.iter();
        Held {
            devices: devices
                .into_iter()
                .map(|device| self.held_of(device))
                .collect(),
            calls: calls
                .map(|(name, count)| ((*name).to_owned(), *count))
                .collect(),
        }
    }

    fn held_of(&self, device: Option<usize>) -> DeviceHeld {
        let mut held = DeviceHeld {
            cuda_device: device.map(|device| device as i32),
            device_uuid: device.map(|device| uuid_text(self.devices[device].physical)),
            ..DeviceHeld::default()
        };
        let mut direct_taken = 0;
        for object in self
            .objects
            .values()
            .filter(|object| object.device == device)
        {
            let bytes = object.bytes as i64;
            match object.kind {
                Kind::Direct | Kind::Array => {
                    held.direct_bytes += bytes;
                    direct_taken += object.taken;
                }
                Kind::Managed => held.managed_bytes += bytes,
                Kind::Pool(_) => held.pool_bytes += bytes,
                Kind::Pinned => held.pinned_bytes += bytes,
                Kind::Registered => held.registered_bytes += bytes,
                Kind::Ipc => held.imported_bytes += bytes,
                Kind::Library | Kind::Module => held.library_count += 1,
                Kind::Graph => held.graph_count += 1,
            }
        }
        for (of, name) in self.refused.keys().filter(|(of, _)| *of == device) {
            held.refused
                .insert((*name).to_owned(), self.refused[&(*of, *name)]);
        }
        let Some(device) = device else {
            return held;
        };
        held.vmm_bytes = self.vmm.charged(device) as i64;
        held.imported_bytes += self.vmm.imported(device) as i64;
        for context in self
            .contexts
            .values()
            .filter(|context| context.device == device)
        {
            held.context_count += 1;
            direct_taken += context.pieces.bytes();
        }
        held.padding_bytes = direct_taken as i64 - held.direct_bytes;
        held.charged_bytes = self.charged(device) as i64;
        held
    }
}
