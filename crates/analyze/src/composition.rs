//! Who holds the memory at one instant.

use super::allocations::RssThen;
use super::attribution::Attribution;
use super::attributor::Attributed;
use super::clock::RunClock;
use super::gpu::GpuLedger;
use super::held::{HeldBasis, HeldKinds};
use super::keys;
use super::pass::Snapshot;
use super::process::Process;
use super::process_tree::bundle_similar;
use super::shares::Share;
use super::surroundings::{CgroupUse, NodeUse, RecorderUse, Uses};
use super::who::{Bundle, Who};
use memtrace_model::{Bytes, Instant, Kind, Order};
use memtrace_timeline::{Amounts, Totals};
use schemars::JsonSchema;
use serde::Serialize;

/// The memory of all recorded processes at one instant.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Composition {
    /// The instant at which it was held.
    pub at: Instant,
    /// Whether it can have been more: the memory of some process is unknown, or peaks between two
    /// observations can be missing.
    pub is_lower_bound: bool,
    /// What they held, every page once; `None` where kinds of memory are unknown.
    #[serde(flatten, with = "HeldKeys")]
    pub held: Option<HeldKinds>,
    /// Mapped files, which the kernel can take back: no less than the largest part of any one
    /// process. `None` when that of some is unknown.
    pub mapped_files_at_least_bytes: Option<Bytes>,
    /// And no more than all of them together.
    pub mapped_files_at_most_bytes: Option<Bytes>,
    /// The sum over all processes, in which a shared page counts in every one that maps it.
    #[serde(flatten, with = "keys::TotalsKeys")]
    pub totals: Totals,
    /// How many processes hold memory, or may; `holders` may list fewer.
    pub holder_count: usize,
    /// Those processes, the largest first, those of unknown size last.
    pub holders: Vec<Holder>,
    /// The cgroups the holders live in, as they stood then, the one that holds most of them first.
    pub cgroups: Vec<CgroupUse>,
    /// The node as it stood then.
    pub node: Option<NodeUse>,
    /// The recorder as it stood then.
    #[serde(skip)]
    pub recorder: Option<RecorderUse>,
    /// The ledgers of those cgroups and of the node, in that order; empty for a recording that does
    /// not know what is shared.
    #[serde(rename = "ledgers")]
    pub attributions: Vec<Attribution>,
    /// What each holder has when shared pages are divided, as far as its kinds are known.
    #[serde(skip)]
    pub shares: Vec<Share>,
    /// The ledgers of each GPU as they stood then.
    pub gpus: Vec<GpuLedger>,
}

/// What is known of an instant beside who held memory; nothing by default.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) uses: Uses,
    /// `None` for a recording that does not know what is shared.
    pub(super) attributed: Option<Attributed>,
    pub(super) gpus: Vec<GpuLedger>,
}

memtrace_model::keys! {
    HeldKeys of held: Option<HeldKinds> {
        /// What they held, every page once: anonymous memory, shared memory and files of a tmpfs, huge
        /// pages, kernel memory; null where kinds of memory are unknown.
        held_bytes: Option<Bytes> = held.map(|held| held.all().bytes),
        /// No less than this.
        held_at_least_bytes: Option<Bytes> = held.map(|held| held.all().at_least),
        /// No more than this.
        held_at_most_bytes: Option<Bytes> = held.map(|held| held.all().at_most),
        /// Of that anonymous memory.
        held_anon_bytes: Option<Bytes> = held.map(|held| held.anon.bytes),
        /// Of that shared memory.
        held_shared_bytes: Option<Bytes> = held.map(|held| held.shared.bytes),
        /// Of that huge pages of hugetlbfs.
        held_huge_bytes: Option<Bytes> = held.map(|held| held.huge.bytes),
        /// Of that kernel memory: page tables, slab, stacks, socket buffers, as far as it is charged
        /// to groups of their own, and page tables as far as they were read else.
        held_kernel_bytes: Option<Bytes> = held.map(|held| held.kernel.bytes),
        /// Of that what their groups are charged for and no kind tells: pages that are pinned and
        /// mapped nowhere.
        held_unnamed_bytes: Option<Bytes> = held.map(|held| held.unnamed.bytes),
        /// Where it is known from: `cgroup` (what their memory cgroups are charged, in which nobody
        /// else lives), `bounds` (the processes, within what groups are charged in which others live
        /// too), `processes` (what was read of each).
        held_basis: Option<HeldBasis> = held.map(|held| held.basis),
    }
}

/// What one process held.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Holder {
    /// The process that held it.
    #[serde(flatten)]
    pub who: Who,
    /// The same, as an index into [`super::Analysis::processes`].
    #[serde(skip)]
    pub process: usize,
    /// What it held.
    #[serde(flatten)]
    pub amounts: Amounts,
}

/// One line of the table of holders.
#[derive(Clone, Debug)]
pub struct HolderGroup {
    /// Who, the largest first.
    pub who: Bundle,
    /// What the largest held.
    pub largest: Option<Bytes>,
    /// What they held together.
    pub totals: Totals,
}

impl From<&Composition> for RssThen {
    fn from(at: &Composition) -> Self {
        let bytes = at.holders.iter().filter_map(|holder| {
            let held = &holder.amounts;
            let parts = [held.shmem(), held.get(Kind::Swap)].into_iter().flatten();
            let own = held.anon().or(held.rss());
            // Of whom nothing is known there can be any amount.
            let all = own.map_or(Bytes(i64::MAX), |own| own + parts.sum());
            Some((holder.who.upid?, all))
        });
        Self {
            at: at.at,
            bytes: bytes.collect(),
        }
    }
}

impl Composition {
    pub(super) fn of(
        snapshot: Snapshot,
        known: Known,
        processes: &[Process],
        clock: &RunClock,
        is_polled: bool,
    ) -> Self {
        let holder = |(process, amounts)| Holder {
            who: Who::from(&processes[process]),
            process,
            amounts,
        };
        let mut holders: Vec<Holder> = snapshot.held.into_iter().map(holder).collect();
        holders.order_by(|a, b| {
            let order = b.amounts.rss().cmp(&a.amounts.rss());
            order.then(a.process.cmp(&b.process))
        });
        let totals = snapshot.totals;
        let files = holders.iter().filter_map(|holder| holder.amounts.file());
        let files = (files.max().unwrap_or_default(), totals[Kind::File].bytes());
        let files = Some(files).filter(|_| totals[Kind::File].unknown_count() == 0);
        let (attributions, shares) = known.attributed.unzip();
        Self {
            at: clock.at(snapshot.boot_ns),
            is_lower_bound: is_polled || totals[Kind::Rss].unknown_count() > 0,
            held: totals[Kind::Anon].bytes().map(|_| snapshot.once),
            mapped_files_at_least_bytes: files.map(|(least, _)| least),
            mapped_files_at_most_bytes: files.and_then(|(_, most)| most),
            totals,
            holder_count: holders.len(),
            holders,
            cgroups: known.uses.cgroups,
            node: known.uses.node,
            recorder: known.uses.recorder,
            attributions: attributions.unwrap_or_default(),
            shares: shares.unwrap_or_default(),
            gpus: known.gpus,
        }
    }

    /// Leaves at most so many lines in each list.
    pub(super) fn cut(&mut self, top: usize) {
        self.holders.truncate(top);
        for attribution in &mut self.attributions {
            attribution.cut(top);
        }
        for ledger in &mut self.gpus {
            ledger.lines.truncate(top);
        }
    }

    /// What they held, every page once; the sum of RSS where that is unknown.
    pub fn bytes(&self) -> Option<Bytes> {
        match &self.held {
            Some(held) => Some(held.all().bytes),
            None => self.totals[Kind::Rss].bytes(),
        }
    }

    /// What a process held on GPUs then. `None` where it held nothing; `Some(None)` when
    /// unknown, as everything is before the first reading.
    pub fn gpu_held_by(&self, process: usize) -> Option<Option<Bytes>> {
        if self.gpus.is_empty() {
            return Some(None);
        }
        let mut held = self
            .gpus
            .iter()
            .filter(|ledger| !ledger.is_divided)
            .filter_map(|ledger| ledger.held_by(process))
            .peekable();
        held.peek()?;
        Some(held.sum())
    }

    /// What some processes of the recording held on GPUs then, all together; `None` where nothing
    /// was known yet, or of any of them.
    pub(super) fn gpu_held_by_those(&self, is_wanted: impl Fn(usize) -> bool) -> Option<Bytes> {
        let ledgers = self.gpus.iter().filter(|ledger| !ledger.is_divided);
        let lines = ledgers.flat_map(|ledger| &ledger.lines);
        let is_wanted = |process: Option<usize>| process.is_some_and(&is_wanted);
        let wanted =
            lines.filter(|line| !line.is_counted_elsewhere && is_wanted(line.holder.process));
        let held: Option<Bytes> = wanted.map(|line| line.bytes).sum();
        held.filter(|_| !self.gpus.is_empty())
    }

    /// The holders as lines of a table, similar ones together, the largest first.
    pub fn groups(&self, processes: &[Process]) -> Vec<HolderGroup> {
        let (main, others): (Vec<&Holder>, Vec<&Holder>) = self
            .holders
            .iter()
            .partition(|holder| processes[holder.process].is_main);
        let (single, bundles) = bundle_similar(
            &others,
            |holder| &processes[holder.process].shape,
            |holder| holder.amounts.rss_or_zero(),
            self.totals[Kind::Rss].bytes(),
        );
        let single = main.into_iter().chain(single).map(|holder| vec![holder]);
        let mut groups: Vec<HolderGroup> = single
            .chain(bundles)
            .map(|members| HolderGroup::of(processes, &members))
            .collect();
        groups.order_by_key(|group| std::cmp::Reverse(group.totals[Kind::Rss].bytes()));
        groups
    }
}

impl HolderGroup {
    pub(super) fn of(processes: &[Process], members: &[&Holder]) -> Self {
        let mut totals = Totals::default();
        for holder in members {
            totals.add(&holder.amounts);
        }
        let places = members.iter().map(|holder| holder.process).collect();
        Self {
            who: Bundle::of(processes, places),
            largest: members.first().and_then(|holder| holder.amounts.rss()),
            totals,
        }
    }
}

/// What several lines hold together; `None` when that of any is unknown.
pub fn together(amounts: impl IntoIterator<Item = Option<Bytes>>) -> Option<Bytes> {
    amounts.into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_part_makes_the_sum_unknown() {
        let parts = [Some(Bytes(1)), Some(Bytes(2))];
        assert_eq!(together(parts), Some(Bytes(3)));
        assert_eq!(together(parts.into_iter().chain([None])), None);
    }
}
