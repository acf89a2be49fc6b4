//! Who holds the memory at one instant.

use super::balance::Balance;
use super::endings::common_name;
use super::family::bundle_similar;
use super::gpu::GpuLedger;
use super::held::HeldKinds;
use super::near::Around;
use super::pass::Snapshot;
use super::process::Process;
use super::shares::Share;
use super::surroundings::{CgroupUse, NodeUse, RecorderUse};
use crate::model::{BootNs, Bytes, Kind};
use crate::sweep::{Amounts, Totals};
use std::sync::Arc;

/// The memory of all recorded processes at one instant.
#[derive(Clone, Debug)]
pub struct Composition {
    /// The instant.
    pub boot_ns: BootNs,
    /// What they held, every page once; `None` where kinds of memory are unknown.
    pub held: Option<HeldKinds>,
    /// The sum over all processes, in which a shared page counts in every one that maps it.
    pub totals: Totals,
    /// Who holds memory, or may: the largest first, those of unknown size last.
    pub holders: Vec<Holder>,
    /// The cgroups the holders live in, as they stood then.
    pub cgroups: Vec<CgroupUse>,
    /// The node as it stood then.
    pub node: Option<NodeUse>,
    /// The recorder as it stood then.
    pub recorder: Option<RecorderUse>,
    /// The books of those cgroups and of the node; empty for a recording that does not know
    /// what is shared.
    pub balances: Vec<Balance>,
    /// What each holder has when shared pages are divided; `None` for the same recordings.
    pub shares: Option<Vec<Share>>,
    /// The books of each GPU as they stood then.
    pub gpus: Vec<GpuLedger>,
    around: Option<Around>,
}

/// What one process held.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    /// Which process.
    pub process: usize,
    /// What it held.
    pub amounts: Amounts,
}

/// One line of the table of holders: a process, or several that do the same thing.
#[derive(Clone, Debug)]
pub struct HolderGroup {
    /// What they are called.
    pub label: Arc<str>,
    /// Who, the largest first.
    pub members: Vec<Holder>,
    /// What they held together.
    pub totals: Totals,
}

impl Composition {
    pub(super) fn of(snapshot: Snapshot) -> Self {
        let mut holders: Vec<Holder> = snapshot
            .held
            .into_iter()
            .map(|(process, amounts)| Holder { process, amounts })
            .collect();
        holders.sort_by(|a, b| {
            let order = b.amounts.rss().cmp(&a.amounts.rss());
            order.then(a.process.cmp(&b.process))
        });
        Self {
            boot_ns: snapshot.boot_ns,
            held: snapshot.totals[Kind::Anon].bytes().map(|_| snapshot.once),
            totals: snapshot.totals,
            holders,
            cgroups: Vec::new(),
            node: None,
            recorder: None,
            balances: Vec::new(),
            shares: None,
            gpus: Vec::new(),
            around: snapshot.around,
        }
    }

    /// Who held memory at an instant near this one, in no order; `None` where that is not known.
    pub(super) fn holders_at(&self, at: BootNs) -> Option<Vec<Holder>> {
        let held = self
            .holders
            .iter()
            .map(|holder| (holder.process, holder.amounts));
        let around = self.around.as_ref()?;
        let held = around.held_at(held, self.boot_ns, at)?.into_iter();
        let holder = |(process, amounts)| Holder { process, amounts };
        Some(held.map(holder).collect())
    }

    /// Mapped files, which the kernel can take back: no less than the largest part of any one
    /// process, no more than all of them together. `None` when that of some is unknown.
    pub fn mapped_files(&self) -> Option<(Bytes, Bytes)> {
        if self.totals[Kind::File].unknown_count() > 0 {
            return None;
        }
        let files = self
            .holders
            .iter()
            .filter_map(|holder| holder.amounts.file());
        Some((
            files.max().unwrap_or(Bytes(0)),
            self.totals[Kind::File].bytes()?,
        ))
    }

    /// Leaves at most so many lines in each list.
    pub(super) fn cut(&mut self, top: usize) {
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
        let (main, others): (Vec<Holder>, Vec<Holder>) = self
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
            .map(|members| HolderGroup::of(processes, members))
            .collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.totals[Kind::Rss].bytes()));
        groups
    }
}

impl HolderGroup {
    fn of(processes: &[Process], members: Vec<Holder>) -> Self {
        let mut totals = Totals::default();
        for holder in &members {
            totals.add(&holder.amounts);
        }
        let positions: Vec<usize> = members.iter().map(|holder| holder.process).collect();
        Self {
            label: common_name(processes, &positions),
            members,
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
