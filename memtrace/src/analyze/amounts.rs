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

    /// What there is beyond other amounts, by kind; nothing where there is less.
    pub(super) fn beyond(&self, other: &Self) -> Self {
        let rest = |amount: i64, other: i64| match (amount, other) {
            (UNKNOWN, _) | (_, UNKNOWN) => UNKNOWN,
            _ => (amount - other).max(0),
        };
        Self {
            rss: rest(self.rss, other.rss),
            anon: rest(self.anon, other.anon),
            file: rest(self.file, other.file),
            shmem: rest(self.shmem, other.shmem),
            swap: rest(self.swap, other.swap),
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

    /// The same with RSS, and what of it is anonymous, as the process itself measured them.
    /// Kinds that no longer add up to it are unknown.
    pub(super) fn measured(self, rss: Bytes, anon: Option<Bytes>) -> Self {
        /// The probe notes a smaller move only at the next snapshot.
        const NEAR: i64 = 1 << 20;
        let is_near = |a: i64, b: i64| a != UNKNOWN && a.abs_diff(b) <= NEAR as u64;
        let shared = match self {
            Self { file, shmem, .. } if file == UNKNOWN || shmem == UNKNOWN => UNKNOWN,
            Self { file, shmem, .. } => file + shmem,
        };
        let (is_as_it_was, anon) = match anon {
            Some(anon) => (is_near(shared, rss.0 - anon.0), anon.0),
            None if is_near(self.rss, rss.0) => (true, self.anon),
            None => (false, UNKNOWN),
        };
        let kept = |kind: i64| if is_as_it_was { kind } else { UNKNOWN };
        Self {
            rss: rss.0,
            anon,
            file: kept(self.file),
            shmem: kept(self.shmem),
            swap: self.swap,
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

    /// The sums of what is known, as amounts. A kind that is unknown of a process whose RSS is in
    /// the sum is unknown of all together.
    pub(super) fn amounts(&self) -> Amounts {
        let pack = |sum: Sum| sum.bytes().map_or(UNKNOWN, |bytes| bytes.0);
        let kind = |sum: Sum| match sum.unknown_count > self.rss.unknown_count {
            true => UNKNOWN,
            false => pack(sum),
        };
        Amounts {
            rss: pack(self.rss),
            anon: kind(self.anon),
            file: kind(self.file),
            shmem: kind(self.shmem),
            swap: kind(self.swap),
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
    fn a_kind_that_is_unknown_of_one_process_is_unknown_of_the_sum() {
        let mut totals = Totals::default();
        totals.add(&Amounts::UNKNOWN.measured(Bytes(5), Some(Bytes(3))));
        totals.add(&Amounts::UNKNOWN);
        assert_eq!(totals.amounts().anon(), Some(Bytes(3)));
        totals.add(&Amounts::UNKNOWN.measured(Bytes(7), None));
        assert_eq!(totals.amounts().rss(), Some(Bytes(12)));
        assert_eq!(totals.amounts().anon(), None);
    }

    #[test]
    fn what_a_process_measured_keeps_the_kinds_that_still_add_up() {
        const MIB: i64 = 1 << 20;
        let held = Amounts {
            rss: 110 * MIB,
            anon: 100 * MIB,
            file: 8 * MIB,
            shmem: 2 * MIB,
            swap: MIB,
        };
        let kinds = |held: Amounts| [held.anon(), held.file(), held.shmem(), held.swap()];
        let mib = |mib: i64| Some(Bytes(mib * MIB));
        let freed = held.measured(Bytes(30 * MIB), mib(20));
        assert_eq!(freed.rss(), mib(30));
        assert_eq!(kinds(freed), [mib(20), mib(8), mib(2), mib(1)]);
        let unmapped = held.measured(Bytes(30 * MIB), mib(29));
        assert_eq!(kinds(unmapped), [mib(29), None, None, mib(1)]);
        let untold = held.measured(Bytes(30 * MIB), None);
        assert_eq!(kinds(untold), [None, None, None, mib(1)]);
        let near = held.measured(Bytes(110 * MIB + 4_096), None);
        assert_eq!(kinds(near), kinds(held));
    }

    #[test]
    fn a_counter_below_zero_counts_as_zero() {
        assert_eq!(Amounts::of(&row(Some(-4096))).rss(), Some(Bytes(0)));
    }
}
