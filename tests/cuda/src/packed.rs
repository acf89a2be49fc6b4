//! Allocations below 2 MiB, which share pieces of that size.

use crate::PIECE_BYTES;
use std::collections::BTreeMap;

/// Where small allocations begin.
const ALIGNMENT: u64 = 512;

/// The pieces of one context, by address, with the allocations in each by offset.
#[derive(Default)]
pub(crate) struct Pieces(BTreeMap<u64, BTreeMap<u64, u64>>);

impl Pieces {
    /// A place in a piece that has room.
    pub(crate) fn place(&mut self, bytes: u64) -> Option<u64> {
        let length = bytes.next_multiple_of(ALIGNMENT);
        self.0.iter_mut().find_map(|(base, inside)| {
            let mut offset = 0;
            for (start, taken) in inside.iter() {
                if start - offset >= length {
                    break;
                }
                offset = start + taken;
            }
            (offset + length <= PIECE_BYTES).then(|| {
                inside.insert(offset, length);
                base + offset
            })
        })
    }

    /// A new piece with room for anything below its size.
    pub(crate) fn add(&mut self, base: u64) {
        self.0.insert(base, BTreeMap::new());
    }

    /// Gives a place back, and the piece where nothing else is in it.
    pub(crate) fn free(&mut self, address: u64) -> Option<u64> {
        let (base, inside) = self.0.range_mut(..=address).next_back()?;
        let base = *base;
        inside.remove(&(address - base));
        let is_empty = inside.is_empty();
        is_empty.then(|| self.0.remove(&base)).map(|_| base)
    }

    /// What the pieces take of the device.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.len() as u64 * PIECE_BYTES
    }
}
