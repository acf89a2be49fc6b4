//! Addresses that the driver hands out.

use crate::PIECE_BYTES;
use std::collections::BTreeMap;

/// Addresses of the device. What was freed last is handed out first, as the driver does, so that an
/// address is soon another allocation's.
#[derive(Default)]
pub(crate) struct Addresses {
    used: u64,
    free: BTreeMap<u64, Vec<u64>>,
}

/// Where addresses of the device begin.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;

impl Addresses {
    pub(crate) fn take(&mut self, bytes: u64) -> u64 {
        if let Some(address) = self.free.get_mut(&bytes).and_then(Vec::pop) {
            return address;
        }
        let address = FIRST_ADDRESS + self.used;
        self.used += bytes.next_multiple_of(PIECE_BYTES);
        address
    }

    pub(crate) fn give_back(&mut self, address: u64, bytes: u64) {
        self.free.entry(bytes).or_default().push(address);
    }
}
