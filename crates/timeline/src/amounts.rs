//! Amounts of one process's memory at an instant, and their sum over many processes.
//! Unknown stays apart from zero in both.

use memtrace_model::tables::MemRow;
use memtrace_model::{Bytes, Kind, Label, PerKind};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::ops::Index;

/// Stands for "unknown" inside [`Amounts`]. `Option<i64>` would double the size of what is
/// kept three times for each process.
const UNKNOWN: i64 = i64::MIN;

/// What one process holds, by kind: nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts(PerKind<i64>);

impl Amounts {
    /// Nothing: before the first row and after the end.
    pub const NONE: Self = Self(PerKind::all(0));

    /// Nothing is known.
    pub const UNKNOWN: Self = Self(PerKind::all(UNKNOWN));

    /// The amounts of a row. The kernel's per-CPU counters can read below zero for a moment;
    /// that counts as zero.
    #[inline]
    pub fn of(row: &MemRow) -> Self {
        Self::by(|kind| Some(kind.of(row)?.max(Bytes(0))))
    }

    #[inline]
    fn by(amount: impl Fn(Kind) -> Option<Bytes>) -> Self {
        Self(PerKind::of(|kind| {
            amount(kind).map_or(UNKNOWN, |bytes| bytes.0)
        }))
    }

    /// Of one kind.
    pub fn get(&self, kind: Kind) -> Option<Bytes> {
        let amount = self.0[kind];
        (amount != UNKNOWN).then_some(Bytes(amount))
    }

    /// Resident memory in all.
    pub fn rss(&self) -> Option<Bytes> {
        self.get(Kind::Rss)
    }

    /// Resident anonymous memory.
    pub fn anon(&self) -> Option<Bytes> {
        self.get(Kind::Anon)
    }

    /// Resident pages of mapped files.
    pub fn file(&self) -> Option<Bytes> {
        self.get(Kind::File)
    }

    /// Resident shared memory.
    pub fn shmem(&self) -> Option<Bytes> {
        self.get(Kind::Shmem)
    }

    /// What they grew by since they were others.
    pub fn since(&self, before: &Self) -> Self {
        Self::by(|kind| Some(self.get(kind)? - before.get(kind)?))
    }

    /// What there is beyond other amounts, by kind; nothing where there is less.
    pub fn beyond(&self, other: &Self) -> Self {
        let more = self.since(other);
        Self::by(|kind| Some(more.get(kind)?.max(Bytes(0))))
    }

    /// The same with RSS, and what of it is anonymous, as the process itself measured them.
    /// Kinds that no longer add up to it are unknown.
    pub fn measured(self, rss: Bytes, anon: Option<Bytes>) -> Self {
        /// The probe notes a smaller move only at the next snapshot.
        const NEAR: i64 = 1 << 20;
        let is_near = |a: Option<Bytes>, b: Bytes| a.is_some_and(|a| (a - b).0.abs() <= NEAR);
        let shared = self.file().zip(self.shmem()).map(|(a, b)| a + b);
        let (is_as_it_was, anon) = match anon {
            Some(anon) => (is_near(shared, rss - anon), Some(anon)),
            None if is_near(self.rss(), rss) => (true, self.anon()),
            None => (false, None),
        };
        Self::by(|kind| match kind {
            Kind::Rss => Some(rss),
            Kind::Anon => anon,
            Kind::File | Kind::Shmem => self.get(kind).filter(|_| is_as_it_was),
            Kind::Swap => self.get(kind),
        })
    }

    /// A sum without one of its parts; what is unknown was no part of it.
    pub fn less(self, part: &Self) -> Self {
        Self::by(|kind| Some(self.get(kind)? - part.get(kind).unwrap_or_default()))
    }

    /// Resident memory, with unknown taken as zero: for running sums only, where the unknown
    /// are counted beside.
    pub fn rss_or_zero(&self) -> i64 {
        self.rss().unwrap_or_default().0
    }
}

impl JsonSchema for Amounts {
    fn schema_name() -> Cow<'static, str> {
        "Amounts".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let bytes = generator.subschema_for::<Option<Bytes>>();
        Kind::schema(
            "Amounts by kind of memory.",
            |kind| kind.key().to_owned(),
            bytes,
        )
    }
}

impl Serialize for Amounts {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(Kind::ALL.iter().map(|kind| (kind.key(), self.get(*kind))))
    }
}

/// What a process held, and what it is going to hold; `None` when it is not there. Most sums of
/// which it is part need no more than the difference, which is worked out once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn<'a> {
    pub(super) before: Option<&'a Amounts>,
    pub(super) after: Option<&'a Amounts>,
    /// How much more it holds of each kind; `None` where it comes or goes, or a kind comes to be
    /// known or unknown.
    pub(super) more: Option<PerKind<i64>>,
}

impl<'a> Turn<'a> {
    #[inline]
    pub(super) fn new(before: Option<&'a Amounts>, after: Option<&'a Amounts>) -> Self {
        let more = before.zip(after).and_then(|(before, after)| {
            let is_known = |amounts: &Amounts, kind| amounts.0[kind] != UNKNOWN;
            // Without branches, because all rows come by here.
            let differs = Kind::ALL.iter().fold(false, |differs, &kind| {
                differs | (is_known(before, kind) != is_known(after, kind))
            });
            (!differs).then(|| PerKind::of(|kind| after.0[kind].wrapping_sub(before.0[kind])))
        });
        Self {
            before,
            after,
            more,
        }
    }
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

    /// Whether the amount of any process is known.
    pub fn is_known(&self) -> bool {
        self.known_count > 0
    }

    fn add(&mut self, value: Option<Bytes>) {
        match value {
            None => self.unknown_count += 1,
            Some(value) => {
                self.known_count += 1;
                self.bytes = self.bytes.saturating_add(value.0);
            }
        }
    }

    fn remove(&mut self, value: Option<Bytes>) {
        match value {
            None => self.unknown_count = self.unknown_count.saturating_sub(1),
            Some(value) => {
                self.known_count = self.known_count.saturating_sub(1);
                self.bytes = self.bytes.saturating_sub(value.0);
            }
        }
    }
}

/// The sum of the amounts of several processes, kind by kind. Shared pages count once in
/// every process that maps them, as RSS does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals(PerKind<Sum>);

impl Index<Kind> for Totals {
    type Output = Sum;

    fn index(&self, kind: Kind) -> &Sum {
        &self.0[kind]
    }
}

impl Totals {
    /// Adds one process.
    pub fn add(&mut self, amounts: &Amounts) {
        for &kind in Kind::ALL {
            self.0[kind].add(amounts.get(kind));
        }
    }

    /// A process of the sum holds so much more of a kind, or less.
    pub(super) fn grow(&mut self, kind: Kind, more: i64) {
        let sum = &mut self.0[kind];
        sum.bytes = sum.bytes.saturating_add(more);
    }

    /// A process that was added with `before` holds `after` of a kind; `None` when it is not
    /// there.
    pub(super) fn replace(
        &mut self,
        kind: Kind,
        before: Option<&Amounts>,
        after: Option<&Amounts>,
    ) {
        let sum = &mut self.0[kind];
        if let Some(before) = before {
            sum.remove(before.get(kind));
        }
        if let Some(after) = after {
            sum.add(after.get(kind));
        }
    }

    /// The sums of what is known, as amounts. A kind that is unknown of a process whose RSS is in
    /// the sum is unknown of all together.
    pub fn amounts(&self) -> Amounts {
        Amounts::by(|kind| self.known(kind))
    }

    /// The sum of one kind, by the same rule.
    pub fn known(&self, kind: Kind) -> Option<Bytes> {
        let sum = &self[kind];
        sum.bytes()
            .filter(|_| sum.unknown_count <= self[Kind::Rss].unknown_count)
    }

    /// The sum of the known RSS, zero when none is: for comparing instants.
    pub fn rss_or_zero(&self) -> i64 {
        self[Kind::Rss].bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rss: Option<i64>) -> MemRow {
        MemRow {
            rss_bytes: rss.map(Bytes),
            ..MemRow::default()
        }
    }

    #[test]
    fn an_unknown_amount_is_counted_and_not_summed_as_zero() {
        let mut totals = Totals::default();
        totals.add(&Amounts::of(&row(None)));
        assert_eq!(totals[Kind::Rss].bytes(), None);
        totals.add(&Amounts::of(&row(Some(5))));
        assert_eq!(totals[Kind::Rss].bytes(), Some(Bytes(5)));
        assert_eq!(totals[Kind::Rss].unknown_count(), 1);
        totals.replace(Kind::Rss, Some(&Amounts::of(&row(None))), None);
        assert_eq!(totals[Kind::Rss].unknown_count(), 0);
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
        let held = Amounts::of(&MemRow {
            rss_bytes: Some(Bytes(110 * MIB)),
            rss_anon_bytes: Some(Bytes(100 * MIB)),
            rss_file_bytes: Some(Bytes(8 * MIB)),
            rss_shmem_bytes: Some(Bytes(2 * MIB)),
            swap_bytes: Some(Bytes(MIB)),
            ..MemRow::default()
        });
        let kinds = |held: Amounts| [held.anon(), held.file(), held.shmem(), held.get(Kind::Swap)];
        let mib = |mib: i64| Some(Bytes(mib * MIB));
        let freed = held.measured(Bytes(30 * MIB), mib(20));
        assert_eq!(freed.rss(), mib(30));
        assert_eq!(kinds(freed), [mib(20), mib(8), mib(2), mib(1)]);
        let unmapped = held.measured(Bytes(30 * MIB), mib(29));
        assert_eq!(kinds(unmapped), [mib(29), None, None, mib(1)]);
        let unreported = held.measured(Bytes(30 * MIB), None);
        assert_eq!(kinds(unreported), [None, None, None, mib(1)]);
        let near = held.measured(Bytes(110 * MIB + 4_096), None);
        assert_eq!(kinds(near), kinds(held));
    }

    #[test]
    fn a_counter_below_zero_counts_as_zero() {
        assert_eq!(Amounts::of(&row(Some(-4096))).rss(), Some(Bytes(0)));
    }
}
