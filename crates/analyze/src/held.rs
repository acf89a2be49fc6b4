//! What all recorded processes hold together at an instant, every page once: anonymous memory,
//! shared memory, files of a tmpfs. A running sum, moved along by the pass over `mem`.

mod account;
mod beside;
mod charges;
mod families;
mod highest;
mod levels;
mod objects;
mod parts;
mod stays;

use super::process_table::ProcessTable;
use super::sharing::Execs;
use account::{Account, Counted};
use beside::Beside;
use charges::Sockets;
pub(super) use charges::Whole;
use families::{ForkFamilies, Reading};
use levels::Levels;
pub use memtrace_model::tables::HeldBasis;
use memtrace_model::tables::{NodeMemRow, PssRow, ShmObjectRow};
use memtrace_model::{BootNs, Bytes, MappingKind, RowSource, Upid};
use memtrace_report::words::bytes;
use memtrace_timeline::{Amounts, Change};
use objects::{ObjectHistories, Objects};
pub(super) use parts::{Once, Part, Parts};
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

    /// Whether the bounds are so far apart that they must be reported beside the figure: by more than
    /// one part in a hundred, to either side.
    pub fn is_uncertain(&self) -> bool {
        let far = (self.at_most - self.bytes).max(self.bytes - self.at_least);
        far.0 > self.bytes.0 / 100 && far.0 > 1 << 20
    }
}

/// What the kernel charges to a group and counts as no kind.
pub const UNNAMED: &str = "pinned and mapped nowhere";

/// Memory that is held, every page once, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldKinds {
    /// Anonymous memory of processes.
    pub anon: Held,
    /// Shared memory and files of a tmpfs.
    pub shared: Held,
    /// Huge pages of hugetlbfs, which no RSS counts.
    pub huge: Held,
    /// Kernel memory: page tables, slab, stacks, socket buffers.
    pub kernel: Held,
    /// What the groups are charged for and no kind tells: pages that are pinned and mapped nowhere.
    pub unnamed: Held,
    /// Where it is known from.
    pub basis: HeldBasis,
}

impl HeldKinds {
    /// What no counter of a process tells, and what each is called.
    pub(super) fn beside(&self) -> [(&'static str, Held); 3] {
        [
            ("huge pages", self.huge),
            ("kernel memory", self.kernel),
            (UNNAMED, self.unnamed),
        ]
    }

    /// All of it.
    pub fn all(&self) -> Held {
        let mapped = self.anon.plus(self.shared).plus(self.huge);
        mapped.plus(self.kernel).plus(self.unnamed)
    }
}

const PSS_COLUMNS: &[&str] = &[
    "boot_ns",
    "upid",
    "pss_anon_bytes",
    "uss_anon_bytes",
    "rss_anon_bytes",
    "sampled_share",
    "is_anon_unshared",
    "hugetlb_bytes",
    "page_tables_bytes",
    "span_ns",
];

/// The running sum. Nobody holds anything at first.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldSum {
    families: ForkFamilies,
    objects: Objects,
    beside: Beside,
    account: Account,
    /// When it changes next without a row of `mem`.
    next: Option<BootNs>,
}

impl HeldSum {
    /// Reads what is known beside counters: `pss`, `shm_object`, and the tables of the account. Again
    /// when there is more of them: what is later than `since` replaces what was known of that time, and
    /// what is earlier has passed. Before the first time nobody holds anything.
    pub(super) fn prepare<S: RowSource>(
        &mut self,
        source: &S,
        table: &ProcessTable,
        execs: &Execs,
        whole: Whole,
        since: Option<BootNs>,
    ) -> Result<(), S::Error> {
        let (mut used, mut sockets) = (Levels::default(), Levels::default());
        source.scan(
            &["boot_ns", "hugetlb_used_bytes", "sockets_bytes"],
            |row: NodeMemRow| {
                let levels = [&mut used, &mut sockets];
                let amounts = [row.hugetlb_used_bytes, row.sockets_bytes];
                for (levels, bytes) in levels.into_iter().zip(amounts) {
                    if let Some(bytes) = bytes {
                        levels.push(row.boot_ns, bytes.0);
                    }
                }
            },
        )?;
        let sockets = Sockets::of(sockets, whole);
        self.account
            .prepare(source, table, whole, &sockets, since)?;
        let (mut readings, mut beside) = (Vec::new(), Vec::new());
        source.scan(PSS_COLUMNS, |row: PssRow| {
            if let Some(process) = table.find(row.upid) {
                readings.extend(Reading::of(process, &row));
                beside.push(beside::Reading::of(process, &row));
            }
        })?;
        self.families
            .prepare(&table.processes, execs, &readings, since);
        let mut objects = [ObjectHistories::default(), ObjectHistories::default()];
        source.scan(ObjectHistories::COLUMNS, |row: ShmObjectRow| {
            let is_huge = row.kind == Some(MappingKind::Hugetlb);
            objects[usize::from(is_huge)].take(row, |upid| table.find(Upid(upid)));
        })?;
        let [objects, huge_objects] = objects;
        self.objects.prepare(objects, whole.start, since);
        let used = used.into_later(since);
        self.beside
            .prepare(beside, huge_objects, used, whole.start, since);
        self.look_ahead();
        Ok(())
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
            self.beside.pass(until);
            self.account.pass(until, self.counted());
            self.look_ahead();
        }
    }

    fn look_ahead(&mut self) {
        let next = [
            self.families.next_change(),
            self.objects.next_change(),
            self.beside.next_change(),
            self.account.next_change(),
        ];
        self.next = next.into_iter().flatten().min();
    }

    /// A process holds something else from now on. Where its kinds are unknown, all of it is taken to be
    /// anonymous, or what it moved by since they were known.
    #[inline]
    pub(super) fn change(&mut self, change: Change<'_>) {
        let anon = change.after.and_then(|held| {
            let moved = || Some(held.rss()? - change.before?.rss()?);
            let since = || self.families.anon(change.process).zip(moved());
            let since = || since().map(|(anon, moved)| (anon + moved).max(Bytes(0)));
            held.anon().or_else(since).or(held.rss())
        });
        self.families.set(change.process, anon);
        if change.after.is_none() {
            self.beside.end(change.process);
        }
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

    /// Adds those whose part may have moved although their counters did not.
    pub(super) fn take_touched(&mut self, touched: &mut Vec<usize>) {
        touched.extend(self.families.take_touched());
        touched.extend(self.beside.take_touched());
    }

    /// What counters and readings say of a process that has so much shared memory in its RSS.
    fn part(&self, process: usize, shmem: Bytes) -> Part {
        let (huge, tables) = self.beside.part(process);
        Part {
            shmem: shmem.0,
            huge,
            tables,
            ..self.families.part(process)
        }
    }

    /// What moves as the processes' counters do.
    #[inline]
    fn counted(&self) -> Counted {
        Counted {
            anon: self.families.grown(),
            shared: self.objects.largest(),
            in_rss: self.families.in_rss(),
            unread: self.families.unread(),
        }
    }

    /// The same of an instant, at which nothing more changes: what was read then is certain.
    pub(super) fn now_at(&self, at: BootNs) -> HeldKinds {
        self.account.settle_at(at, self.thought(), self.counted())
    }

    /// The highest that anything of it was, where it was `best` before and is this now. A reading of the
    /// groups is certain for its instant, whatever moved until the next one. And what their marks tell
    /// can have been held.
    pub(super) fn peak(&self, best: Option<Held>, now: &HeldKinds) -> Held {
        let mut peak = best.unwrap_or_default().highest(now.all());
        peak.at_least = peak.at_least.max(self.account.least_then().min(peak.bytes));
        let reached = self.account.reached_before();
        if let Some(reached) = reached.filter(|_| now.basis == HeldBasis::Cgroup) {
            peak.at_most = peak.at_most.max(reached);
        }
        peak
    }

    /// What the processes hold by what is known of them alone.
    #[inline]
    fn thought(&self) -> HeldKinds {
        HeldKinds {
            anon: self.families.held(),
            shared: self.objects.held(),
            huge: self.beside.huge(),
            kernel: self.beside.page_tables(),
            unnamed: Held::default(),
            basis: HeldBasis::Processes,
        }
    }
}

#[cfg(test)]
mod tests;
