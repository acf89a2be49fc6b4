//! What processes hold on all GPUs together, and the highest of it: each process, the
//! processes of each role, and all that are recorded.

use crate::RunClock;
use crate::groups::Groups;
use crate::memory_tables::RoleOnGpusStep;
use memtrace_model::{BootNs, Bytes, Instant};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};

/// A sum that changes with time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    known: i64,
    unknown: usize,
    pub(super) has_been_unknown: bool,
    pub(super) peak: Option<(Bytes, BootNs)>,
}

impl Sum {
    pub(super) fn add(&mut self, used: Option<Bytes>) {
        match used {
            Some(used) => self.known += used.0,
            None => self.unknown += 1,
        }
    }

    pub(super) fn remove(&mut self, used: Option<Bytes>) {
        match used {
            Some(used) => self.known -= used.0,
            None => self.unknown -= 1,
        }
    }

    /// Everything of one time is in.
    pub(super) fn note(&mut self, boot: BootNs) {
        self.has_been_unknown |= self.unknown > 0;
        let sum = Bytes(self.known);
        if self.known > 0 && self.peak.is_none_or(|(peak, _)| sum > peak) {
            self.peak = Some((sum, boot));
        }
    }

    /// What it is now; `None` when a part is unknown.
    pub(super) fn now(&self) -> Option<Bytes> {
        (self.unknown == 0).then_some(Bytes(self.known))
    }
}

/// The highest that some processes held on all GPUs together. Memory of a DRM client that
/// several of them share counts in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GpuPeak {
    /// How much; `None` where they were never reported to hold anything.
    pub bytes: Option<Bytes>,
    /// When that was; `None` where `bytes` is.
    pub at: Option<Instant>,
    /// Whether it can have been more: for some time the driver did not tell of a process, or
    /// accounting mode knows a higher peak of one than was seen.
    pub is_lower_bound: bool,
}

impl GpuPeak {
    /// How much; `None` where it can have been more.
    pub fn certain_bytes(&self) -> Option<Bytes> {
        (!self.is_lower_bound).then_some(self.bytes.unwrap_or_default())
    }
}

/// The sums of the recorded processes, by role and in all. Rows come in the order of time.
#[derive(Debug)]
pub(super) struct Sums {
    group_of: Vec<u32>,
    /// Changes of role, the latest first.
    role_changes: Vec<(BootNs, usize, u32)>,
    processes: HashMap<usize, Sum>,
    /// By group; `None` for one that was on no GPU.
    groups: Vec<Option<Sum>>,
    all: Sum,
    touched: Vec<u32>,
    /// Instants at which what each role holds is wanted, the latest first.
    asked: Vec<BootNs>,
    /// Roles that changed since the last of them.
    changed: BTreeSet<u32>,
    pub(super) steps: Vec<RoleOnGpusStep>,
}

impl Sums {
    /// `asked` are instants in order.
    pub(super) fn of(groups: &Groups, asked: impl DoubleEndedIterator<Item = BootNs>) -> Self {
        Self {
            asked: asked.rev().collect(),
            changed: BTreeSet::new(),
            steps: Vec::new(),
            group_of: groups.first.clone(),
            role_changes: groups.role_changes(),
            processes: HashMap::new(),
            groups: vec![None; groups.list.len()],
            all: Sum::default(),
            touched: Vec::new(),
        }
    }

    /// A process held `before` of a device and holds `after` from now on; `None` stands for
    /// nothing.
    pub(super) fn change(
        &mut self,
        process: usize,
        before: Option<Option<Bytes>>,
        after: Option<Option<Bytes>>,
    ) {
        let group = self.group_of.get(process).copied();
        let in_group = group.and_then(|group| {
            self.touched.push(group);
            self.changed.insert(group);
            let sum = self.groups.get_mut(group as usize)?;
            Some(sum.get_or_insert_default())
        });
        let own = self.processes.entry(process).or_default();
        for sum in [Some(own), in_group, Some(&mut self.all)] {
            let Some(sum) = sum else { continue };
            if let Some(before) = before {
                sum.remove(before);
            }
            if let Some(after) = after {
                sum.add(after);
            }
        }
    }

    /// Everything of one time is in.
    pub(super) fn settle(&mut self, boot: BootNs) {
        self.all.note(boot);
        for group in self.touched.drain(..) {
            if let Some(Some(sum)) = self.groups.get_mut(group as usize) {
                sum.note(boot);
            }
        }
    }

    /// Time moves on.
    pub(super) fn move_to(&mut self, boot: BootNs) {
        while let Some(at) = self.asked.pop_if(|at| *at < boot) {
            self.change_roles_until(at);
            for role in std::mem::take(&mut self.changed) {
                let role = role as usize;
                let sum = self.groups.get(role).copied().flatten();
                self.steps.push(RoleOnGpusStep {
                    boot_ns: at,
                    role,
                    bytes: sum.unwrap_or_default().now(),
                });
            }
        }
        self.change_roles_until(boot);
    }

    /// Who has another role by then takes along what it holds.
    fn change_roles_until(&mut self, boot: BootNs) {
        while let Some((at, process, group)) = self.role_changes.pop_if(|(at, ..)| *at <= boot) {
            let Some(own) = self.group_of.get_mut(process) else {
                continue;
            };
            let before = std::mem::replace(own, group);
            self.changed.extend([before, group]);
            let Some(held) = self.processes.get(&process).copied() else {
                continue;
            };
            if held.known == 0 && held.unknown == 0 {
                continue;
            }
            if let Some(Some(sum)) = self.groups.get_mut(before as usize) {
                sum.known -= held.known;
                sum.unknown -= held.unknown;
            }
            if let Some(sum) = self.groups.get_mut(group as usize) {
                let sum = sum.get_or_insert_default();
                sum.known += held.known;
                sum.unknown += held.unknown;
                sum.note(at);
            }
        }
    }

    /// The peaks of every group and of all. `accounted` has the peaks that accounting mode
    /// knows.
    pub(super) fn finish(
        self,
        accounted: impl Iterator<Item = (usize, Bytes)>,
        clock: &RunClock,
    ) -> (Vec<Option<GpuPeak>>, GpuPeak) {
        let reported = |sum: Sum| GpuPeak {
            bytes: sum.peak.map(|(bytes, _)| bytes),
            at: sum.peak.map(|(_, at)| clock.at(at)),
            is_lower_bound: sum.has_been_unknown,
        };
        let mut groups: Vec<Option<GpuPeak>> =
            self.groups.iter().map(|sum| sum.map(reported)).collect();
        let mut all = reported(self.all);
        for (process, highest) in accounted {
            let group = self.group_of.get(process).copied();
            let in_group = group.and_then(|group| groups.get_mut(group as usize));
            let in_group = in_group.map(Option::get_or_insert_default);
            for peak in in_group.into_iter().chain([&mut all]) {
                peak.is_lower_bound |= peak.bytes.is_none_or(|bytes| bytes < highest);
            }
        }
        (groups, all)
    }
}
