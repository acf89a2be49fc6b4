//! What all recorded processes hold together at an instant, every page once: anonymous memory,
//! shared memory, files of a tmpfs. A running sum, moved along by the pass over `mem`.

mod account;
mod families;
mod highest;
mod histories;
mod newcomers;
mod objects;
mod readings;
mod stays;

use super::RowSource;
use super::process_table::ProcessTable;
use super::sharing::Execs;
use crate::model::tables::{CowRow, PssRow, ShmObjectRow};
use crate::model::{BootNs, Bytes, DurationNs, Upid};
use crate::report::words::bytes;
use crate::sweep::{Amounts, Change};
use account::{Account, Counted};
use families::ForkFamilies;
use histories::{ObjectHistories, ReadTimes};
use newcomers::Newcomers;
use objects::Objects;
use readings::{Copied, Reading};
use schemars::JsonSchema;
use serde::Serialize;

/// Memory that is held, every page once, and how well that is known (docs/concepts.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Held {
    /// It is no less.
    #[serde(rename = "at_least_bytes")]
    pub at_least: Bytes,
    /// The best figure there is.
    pub bytes: Bytes,
    /// It is no more.
    #[serde(rename = "at_most_bytes")]
    pub at_most: Bytes,
}

impl Held {
    pub(super) fn exact(bytes: i64) -> Self {
        let bytes = Bytes(bytes);
        Self {
            at_least: bytes,
            bytes,
            at_most: bytes,
        }
    }

    /// `52.8 GiB (at most 68.8 GiB)`: with its bounds where they matter.
    pub fn in_words(&self) -> String {
        let figure = bytes(self.bytes);
        if !self.is_uncertain() {
            return figure;
        }
        let (least, most) = (bytes(self.at_least), bytes(self.at_most));
        match (least == figure, most == figure) {
            (true, true) => figure,
            (true, false) => format!("{figure} (at most {most})"),
            (false, true) => format!("{figure} (at least {least})"),
            (false, false) => format!("{figure} (between {least} and {most})"),
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            at_least: self.at_least + other.at_least,
            bytes: self.bytes + other.bytes,
            at_most: self.at_most + other.at_most,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            at_least: self.at_least - other.at_least,
            bytes: self.bytes - other.bytes,
            at_most: self.at_most - other.at_most,
        }
    }

    /// The figure of this, within the bounds of both.
    fn hull(self, other: Self) -> Self {
        Self {
            at_least: self.at_least.min(other.at_least),
            bytes: self.bytes,
            at_most: self.at_most.max(other.at_most),
        }
    }

    /// The highest of each.
    pub(super) fn highest(self, other: Self) -> Self {
        Self {
            at_least: self.at_least.max(other.at_least),
            bytes: self.bytes.max(other.bytes),
            at_most: self.at_most.max(other.at_most),
        }
    }

    /// Whether the bounds are so far apart that they must be told beside the figure: by more than
    /// one part in a hundred, to either side.
    pub fn is_uncertain(&self) -> bool {
        let far = (self.at_most - self.bytes).max(self.bytes - self.at_least);
        far.0 > self.bytes.0 / 100 && far.0 > 1 << 20
    }
}

/// Memory that is held, every page once, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldKinds {
    /// Anonymous memory.
    pub anon: Held,
    /// Shared memory and files of a tmpfs.
    pub shared: Held,
    /// Where it is known from.
    pub basis: HeldBasis,
}

/// Where it is known from what is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeldBasis {
    /// The processes alone: their counters, and what was read of them.
    #[default]
    Processes,
    /// The processes, within what their memory cgroups are charged: others live there too.
    Bounds,
    /// What their memory cgroups are charged, in which nobody else lives.
    Cgroup,
}

impl HeldKinds {
    /// All of it.
    pub fn all(&self) -> Held {
        self.anon.plus(self.shared)
    }
}

/// The running sum. Nobody holds anything at first.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldSum {
    families: ForkFamilies,
    objects: Objects,
    account: Account,
    /// When it changes next without a row of `mem`.
    next: Option<BootNs>,
}

/// What was read of what processes share.
struct Readings {
    readings: Vec<Reading>,
    times: ReadTimes,
    copies: Vec<Copied>,
    objects: ObjectHistories,
}

impl Readings {
    fn read<S: RowSource>(source: &S, table: &ProcessTable) -> Result<Self, S::Error> {
        let (mut readings, mut times) = (Vec::new(), ReadTimes::default());
        source.scan(Reading::COLUMNS, |row: PssRow| {
            if let Some(process) = table.find(row.upid) {
                times.take(process, &row);
                readings.extend(Reading::of(process, &row));
            }
        })?;
        let mut copies = Vec::new();
        source.scan(&[], |row: CowRow| {
            copies.extend(
                table
                    .find(row.upid)
                    .map(|process| Copied::of(process, &row)),
            );
        })?;
        let mut objects = ObjectHistories::default();
        source.scan(ObjectHistories::COLUMNS, |row: ShmObjectRow| {
            objects.take(row, |upid| table.find(Upid(upid)));
        })?;
        Ok(Self {
            readings,
            times,
            copies,
            objects,
        })
    }
}

impl HeldSum {
    /// Reads `pss`, `cow`, `shm_object` and `cgroup_mem`, and `mem` where it says more of them; `interval` is the
    /// time between two looks at a process. Nobody holds anything yet.
    pub(super) fn read<S: RowSource>(
        source: &S,
        table: &ProcessTable,
        execs: &Execs,
        start: BootNs,
        interval: DurationNs,
    ) -> Result<Self, S::Error> {
        let mut held = Self::default();
        held.account.prepare(source, table, start, None)?;
        let mut readings = Readings::read(source, table)?;
        let newcomers = readings.objects.newcomers(table, &readings.times, start);
        let newcomers = Newcomers::read(source, table, newcomers, interval)?;
        held.take(table, execs, readings, newcomers, start, None);
        Ok(held)
    }

    /// Reads them when there is more of them, but for `mem`. What is later than `since` replaces
    /// what was known of that time; what is earlier has passed, and only the last reading of each
    /// before it is needed.
    pub(super) fn prepare<S: RowSource>(
        &mut self,
        source: &S,
        table: &ProcessTable,
        execs: &Execs,
        start: BootNs,
        since: Option<BootNs>,
    ) -> Result<(), S::Error> {
        self.account.prepare(source, table, start, since)?;
        let readings = Readings::read(source, table)?;
        let newcomers = Newcomers::unread(readings.objects.first_mappers(start, since));
        self.take(table, execs, readings, newcomers, start, since);
        Ok(())
    }

    fn take(
        &mut self,
        table: &ProcessTable,
        execs: &Execs,
        readings: Readings,
        newcomers: Newcomers,
        start: BootNs,
        since: Option<BootNs>,
    ) {
        let of_families = (readings.readings.as_slice(), readings.copies.as_slice());
        self.families
            .prepare(&table.processes, execs, of_families, since);
        self.objects
            .prepare(readings.objects, newcomers, start, since);
        self.look_ahead();
    }

    /// When it changes next without a row of `mem`, if that is before `until`.
    pub(super) fn next_change(&self, until: BootNs) -> Option<BootNs> {
        self.next.filter(|next| *next < until)
    }

    /// Takes what changes without a row of `mem`, until and with an instant.
    #[inline]
    pub(super) fn pass(&mut self, until: BootNs) {
        if self.next.is_some_and(|next| next <= until) {
            self.families.pass(until);
            self.objects.pass(until);
            self.account.pass(until, self.counted());
            self.look_ahead();
        }
    }

    fn look_ahead(&mut self) {
        let next = [
            self.families.next_change(),
            self.objects.next_change(),
            self.account.next_change(),
        ];
        self.next = next.into_iter().flatten().min();
    }

    /// A process holds something else from now on. Where its kinds are unknown all of it is taken
    /// to be anonymous.
    #[inline]
    pub(super) fn change(&mut self, change: Change<'_>) {
        let anon = change.after.and_then(|held| held.anon().or(held.rss()));
        self.families.set(change.process, anon);
        let shmem = |held: Option<&Amounts>| held.and_then(Amounts::shmem).unwrap_or_default();
        let (before, after) = (shmem(change.before), shmem(change.after));
        if before != after {
            self.objects.set(change.process, after.0);
        }
    }

    /// What is held.
    #[inline]
    pub(super) fn now(&self) -> HeldKinds {
        self.account.settle(self.thought(), self.counted())
    }

    /// What moves as the processes' counters do.
    #[inline]
    fn counted(&self) -> Counted {
        Counted {
            anon: self.families.grown(),
            shared: self.objects.largest(),
        }
    }

    /// The highest that anything of it was, where it was `best` before and is this now. A reading of the
    /// groups is certain for its instant, whatever moved until the next one.
    pub(super) fn peak(&self, best: Option<Held>, now: Held) -> Held {
        let mut peak = best.unwrap_or_default().highest(now);
        peak.at_least = peak.at_least.max(self.account.least_then().min(peak.bytes));
        peak
    }

    /// What the processes hold by what is known of them alone.
    #[inline]
    fn thought(&self) -> HeldKinds {
        HeldKinds {
            anon: self.families.held(),
            shared: self.objects.held(),
            basis: HeldBasis::Processes,
        }
    }
}

#[cfg(test)]
mod tests;
