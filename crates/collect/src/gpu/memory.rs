//! What "used" means: drivers differ on whether it includes what is reserved.
//!
//! Version 2 of the call tells reserved memory apart; by the header its `used` excludes it,
//! by some drivers' answers it does not. total = used + reserved + free decides, or total =
//! used + free. Nothing is subtracted that the identity does not allow.

use memtrace_model::Bytes;

/// Amounts that drivers round may miss the identity by so much.
const TOLERANCE: u64 = 2 << 20;

/// An answer of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) total: u64,
    pub(super) used: u64,
    pub(super) free: u64,
    /// Known by version 2 only.
    pub(super) reserved: Option<u64>,
}

/// The memory of a device. `used` is all that is not free, `reserved` a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceMemory {
    pub(super) total: Option<Bytes>,
    pub(super) used: Option<Bytes>,
    pub(super) reserved: Option<Bytes>,
    pub(super) free: Option<Bytes>,
}

/// Which identity an answer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// total = used + reserved + free.
    UsedExcludesReserved,
    /// total = used + free.
    UsedIncludesReserved,
    /// Neither: how much is reserved, and of what, can't be reported.
    Unclear,
}

impl Answer {
    pub(super) fn meaning(&self) -> Meaning {
        let misses = |sum: Option<u64>| sum.map_or(u64::MAX, |sum| self.total.abs_diff(sum));
        let plain = self.used.checked_add(self.free);
        let without = misses(plain);
        let with = misses(plain.and_then(|sum| sum.checked_add(self.reserved?)));
        // Both hold where nothing is reserved, and mean the same.
        if with.min(without) > TOLERANCE {
            Meaning::Unclear
        } else if with < without {
            Meaning::UsedExcludesReserved
        } else {
            Meaning::UsedIncludesReserved
        }
    }

    pub(super) fn memory(&self) -> DeviceMemory {
        let reserved = self.reserved.map(bytes);
        let (used, reserved) = match self.meaning() {
            Meaning::UsedExcludesReserved | Meaning::UsedIncludesReserved => {
                (self.total.saturating_sub(self.free), reserved)
            }
            Meaning::Unclear => (self.used, None),
        };
        DeviceMemory {
            total: Some(bytes(self.total)),
            used: Some(bytes(used)),
            reserved,
            free: Some(bytes(self.free)),
        }
    }
}

/// An amount; none is as large as an i64.
pub(super) fn bytes(amount: u64) -> Bytes {
    Bytes(i64::try_from(amount).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    fn reported(
        total: u64,
        used: u64,
        free: u64,
        reserved: Option<u64>,
    ) -> (Meaning, [Option<i64>; 2]) {
        let answer = Answer {
            total,
            used,
            free,
            reserved,
        };
        let memory = answer.memory();
        let amounts = [memory.used, memory.reserved].map(|amount| amount.map(|bytes| bytes.0));
        (answer.meaning(), amounts)
    }

    #[test]
    fn either_meaning_of_used_gives_the_same_amounts() {
        let (reserved, used, free) = (GIB / 2, 10 * GIB, 80 * GIB - 10 * GIB - GIB / 2);
        let amounts = [Some((used + reserved) as i64), Some(reserved as i64)];
        assert_eq!(
            reported(80 * GIB, used, free, Some(reserved)),
            (Meaning::UsedExcludesReserved, amounts)
        );
        assert_eq!(
            reported(80 * GIB, used + reserved, free, Some(reserved)),
            (Meaning::UsedIncludesReserved, amounts)
        );
        assert_eq!(
            reported(80 * GIB, used + reserved, free, None),
            (Meaning::UsedIncludesReserved, [amounts[0], None])
        );
    }

    #[test]
    fn what_keeps_no_identity_is_reported_as_it_was_and_nothing_is_subtracted() {
        assert_eq!(
            reported(80 * GIB, 5 * GIB, 40 * GIB, Some(GIB)),
            (Meaning::Unclear, [Some(5 * GIB as i64), None])
        );
        assert_eq!(
            reported(u64::MAX, u64::MAX, u64::MAX, Some(u64::MAX)).0,
            Meaning::Unclear
        );
    }

    proptest! {
        #[test]
        fn used_and_free_are_the_total_wherever_an_identity_holds(
            used in 0..200 * GIB, reserved in 0..2 * GIB, free in 0..200 * GIB,
            is_included in any::<bool>(),
        ) {
            let total = used + reserved + free;
            let used = if is_included { used + reserved } else { used };
            let memory = Answer { total, used, free, reserved: Some(reserved) }.memory();
            let sum = memory.used.zip(memory.free).map(|(used, free)| used + free);
            prop_assert_eq!(sum, memory.total);
        }
    }
}
