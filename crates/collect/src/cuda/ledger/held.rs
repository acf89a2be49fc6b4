//! What is held on one device.

use memtrace_model::{BootNs, CudaKind, Label};

/// The driver hands out device memory in pieces of so many bytes, and packs allocations below that
/// size into them (measured on an H200, driver 580).
const PIECE: i64 = 2 << 20;

/// What is held on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::cuda) struct Held {
    bytes: [i64; CudaKind::ALL.len()],
    /// What large direct allocations take beyond their size.
    rounded: i64,
    /// Direct allocations below the size of a piece.
    packed: i64,
    pub(in crate::cuda) contexts: i64,
    pub(in crate::cuda) context_at: Option<BootNs>,
    pub(in crate::cuda) libraries: i64,
    pub(in crate::cuda) graphs: i64,
    pub(in crate::cuda) calls: i64,
    pub(in crate::cuda) failed: i64,
}

impl Held {
    pub(in crate::cuda) fn of(&self, kind: CudaKind) -> i64 {
        self.bytes[kind as usize]
    }

    /// Whether nothing worth a row has happened there.
    pub(in crate::cuda) fn is_empty(&self) -> bool {
        let calls = self.calls;
        *self
            == Self {
                calls,
                ..Self::default()
            }
    }

    /// What is left when the process has ended: the counts of its calls.
    pub(in crate::cuda) fn at_the_end(&self) -> Self {
        Self {
            calls: self.calls,
            failed: self.failed,
            ..Self::default()
        }
    }

    pub(in crate::cuda) fn padding(&self) -> i64 {
        let packed = up(self.packed).saturating_sub(self.packed);
        self.rounded.saturating_add(packed)
    }

    pub(in crate::cuda) fn add(&mut self, kind: CudaKind, size: i64, sign: i64) {
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
pub(in crate::cuda) fn less(count: &mut i64) {
    *count = (*count - 1).max(0);
}

fn up(size: i64) -> i64 {
    size.saturating_add(PIECE - 1) / PIECE * PIECE
}
