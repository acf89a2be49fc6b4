//! Amounts of one process's memory at an instant, and their sum over many processes.
//! Unknown stays apart from zero in both.

use crate::model::Bytes;
use crate::model::tables::MemRow;

/// Stands for "unknown" inside [`Amounts`]. `Option<i64>` would double the size of what is
/// kept three times for each process.
const UNKNOWN: i64 = i64::MIN;

/// What one process holds, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amounts {
    rss: i64,
    anon: i64,
    file: i64,
    shmem: i64,
    swap: i64,
}

impl Amounts {
    /// Nothing: before the first row and after the end.
    pub const NONE: Self = Self {
        rss: 0,
        anon: 0,
        file: 0,
        shmem: 0,
        swap: 0,
    };

    /// Nothing is known.
    pub const UNKNOWN: Self = Self {
        rss: UNKNOWN,
        anon: UNKNOWN,
        file: UNKNOWN,
        shmem: UNKNOWN,
        swap: UNKNOWN,
    };

    /// The amounts of a row. The kernel's per-CPU counters can read below zero for a moment;
    /// that counts as zero.
    pub fn of(row: &MemRow) -> Self {
        let pack = |bytes: Option<Bytes>| bytes.map_or(UNKNOWN, |bytes| bytes.0.max(0));
        Self {
            rss: pack(row.rss_bytes),
            anon: pack(row.rss_anon_bytes),
            file: pack(row.rss_file_bytes),
            shmem: pack(row.rss_shmem_bytes),
            swap: pack(row.swap_bytes),
        }
    }

    /// Resident memory in all.
    pub fn rss(&self) -> Option<Bytes> {
        unpack(self.rss)
    }

    /// Resident anonymous memory.
    pub fn anon(&self) -> Option<Bytes> {
        unpack(self.anon)
    }

    /// Resident pages of mapped files.
    pub fn file(&self) -> Option<Bytes> {
        unpack(self.file)
    }

    /// Resident shared memory.
    pub fn shmem(&self) -> Option<Bytes> {
        unpack(self.shmem)
    }

    /// Memory swapped out.
    pub fn swap(&self) -> Option<Bytes> {
        unpack(self.swap)
    }

    /// The same with RSS as the process itself measured it. Kinds that no longer add up to it
    /// are unknown.
    pub(super) fn measured(self, rss: Option<Bytes>) -> Self {
        /// The probe notes a smaller move only at the next snapshot.
        const NEAR: i64 = 1 << 20;
        match rss {
            None => self,
            Some(Bytes(rss)) if self.rss != UNKNOWN && (self.rss - rss).abs() <= NEAR => {
                Self { rss, ..self }
            }
            Some(Bytes(rss)) => Self {
                rss,
                ..Self::UNKNOWN
            },
        }
    }

    /// The same as a sum of which one part turned out to be another amount.
    pub(super) fn moved(self, from: Self, to: Self) -> Self {
        match (unpack(self.rss), from.rss(), to.rss()) {
            (Some(Bytes(sum)), Some(Bytes(from)), Some(Bytes(to))) => Self {
                rss: sum - from + to,
                ..self
            },
            _ => self,
        }
    }

    /// A sum without one of its parts; what is unknown was no part of it.
    pub(super) fn less(self, part: &Self) -> Self {
        let less = |sum: i64, part: i64| match sum {
            UNKNOWN => UNKNOWN,
            sum => sum - known(part),
        };
        Self {
            rss: less(self.rss, part.rss),
            anon: less(self.anon, part.anon),
            file: less(self.file, part.file),
            shmem: less(self.shmem, part.shmem),
            swap: less(self.swap, part.swap),
        }
    }

    /// Resident memory, with unknown taken as zero: for running sums only, where the unknown
    /// are counted beside.
    pub(super) fn rss_or_zero(&self) -> i64 {
        known(self.rss)
    }
}

fn unpack(value: i64) -> Option<Bytes> {
    (value != UNKNOWN).then_some(Bytes(value))
}

fn known(value: i64) -> i64 {
    if value == UNKNOWN { 0 } else { value }
}

/// A sum over processes of which some may be unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    bytes: i64,
    known_count: u32,
    unknown_count: u32,
}

impl Sum {
    /// The sum of what is known; `None` when nothing is.
    pub fn bytes(&self) -> Option<Bytes> {
        (self.known_count > 0 || self.unknown_count == 0).then_some(Bytes(self.bytes))
    }

    /// How many processes' amounts are missing from the sum.
    pub fn unknown_count(&self) -> u32 {
        self.unknown_count
    }

    fn add(&mut self, value: i64) {
        if value == UNKNOWN {
            self.unknown_count += 1;
        } else {
            self.known_count += 1;
            self.bytes = self.bytes.saturating_add(value);
        }
    }

    fn remove(&mut self, value: i64) {
        if value == UNKNOWN {
            self.unknown_count = self.unknown_count.saturating_sub(1);
        } else {
            self.known_count = self.known_count.saturating_sub(1);
            self.bytes = self.bytes.saturating_sub(value);
        }
    }
}

/// The sum of the amounts of several processes, kind by kind. Shared pages count once in
/// every process that maps them, as RSS does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Resident memory in all.
    pub rss: Sum,
    /// Resident anonymous memory.
    pub anon: Sum,
    /// Resident pages of mapped files.
    pub file: Sum,
    /// Resident shared memory.
    pub shmem: Sum,
    /// Memory swapped out.
    pub swap: Sum,
}

impl Totals {
    /// Adds one process.
    pub fn add(&mut self, amounts: &Amounts) {
        self.rss.add(amounts.rss);
        self.anon.add(amounts.anon);
        self.file.add(amounts.file);
        self.shmem.add(amounts.shmem);
        self.swap.add(amounts.swap);
    }

    /// Takes one process away that was added with the same amounts.
    pub(super) fn remove(&mut self, amounts: &Amounts) {
        self.rss.remove(amounts.rss);
        self.anon.remove(amounts.anon);
        self.file.remove(amounts.file);
        self.shmem.remove(amounts.shmem);
        self.swap.remove(amounts.swap);
    }

    /// The sums of what is known, as amounts.
    pub(super) fn amounts(&self) -> Amounts {
        let pack = |sum: Sum| sum.bytes().map_or(UNKNOWN, |bytes| bytes.0);
        Amounts {
            rss: pack(self.rss),
            anon: pack(self.anon),
            file: pack(self.file),
            shmem: pack(self.shmem),
            swap: pack(self.swap),
        }
    }

    /// The sum of the known RSS, zero when none is: for comparing instants.
    pub(super) fn rss_or_zero(&self) -> i64 {
        self.rss.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rss: Option<i64>) -> MemRow {
        crate::analyze::golden::mem_row(1, 0, rss)
    }

    #[test]
    fn an_unknown_amount_is_counted_and_not_summed_as_zero() {
        let mut totals = Totals::default();
        totals.add(&Amounts::of(&row(None)));
        assert_eq!(totals.rss.bytes(), None);
        totals.add(&Amounts::of(&row(Some(5))));
        assert_eq!(totals.rss.bytes(), Some(Bytes(5)));
        assert_eq!(totals.rss.unknown_count(), 1);
        totals.remove(&Amounts::of(&row(None)));
        assert_eq!(totals.rss.unknown_count(), 0);
    }

    #[test]
    fn a_counter_below_zero_counts_as_zero() {
        assert_eq!(Amounts::of(&row(Some(-4096))).rss(), Some(Bytes(0)));
    }
}
