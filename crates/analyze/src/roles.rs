//! The memory of processes of one role together: what they held at the peak of all, and over
//! the recording their highest, their mean and their growth, kind by kind.

use super::clock::RunClock;
use super::composition::Composition;
use super::gpu::{GpuPeak, Gpus};
use super::groups::Groups;
use super::growth::{self, Growth};
use super::keys::{self, PeakAt};
use super::peak::Bound;
use super::process::Process;
use super::shares::{self, Share};
use memtrace_model::{Bytes, Instant, Kind, Order, PerKind, Role, Upid};
use memtrace_timeline::{Lane, Totals};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// What was found out about one kind over the recording, in the sum over processes. A page that
/// several share counts in each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct KindFigures {
    /// The highest simultaneous sum, and when; `None` when it was never known.
    #[serde(flatten, with = "keys::PeakAtKeys")]
    pub peak: Option<PeakAt>,
    /// The mean over the whole recording, so that the means of all roles add up; `None` when it
    /// was never known. The recording of a command counts up to the command's end: what is left
    /// behind says nothing about how it ran.
    pub mean_bytes: Option<Bytes>,
    /// How the sum grew; `None` when that is too short to tell.
    pub growth: Option<Growth>,
}

/// The processes of one role.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RoleFinding {
    /// What they are called: `vLLM worker`; of those without a role the program, or `others`.
    pub name: Arc<str>,
    /// The role, without a rank; `None` for those that no rule knew.
    #[serde(flatten, with = "RoleNameKeys")]
    pub role: Option<Role>,
    /// How many processes ever were one.
    pub process_count: usize,
    /// All that ever had the role, in the order in which they started.
    pub upids: Vec<Upid>,
    /// The same, as indices into [`super::Analysis::processes`].
    #[serde(skip)]
    pub members: Vec<usize>,
    /// What they held at the peak of all processes; `None` without a peak.
    pub at_peak: Option<RoleAtPeak>,
    /// What was found out about each kind.
    pub kinds: PerKind<KindFigures>,
    /// What they held on GPUs; `None` where none of them was on one.
    pub gpu: Option<RoleOnGpus>,
}

/// What the processes of a role held on all GPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RoleOnGpus {
    /// The highest over the recording, at its own time.
    #[serde(flatten, with = "HighestKeys")]
    pub highest: GpuPeak,
    /// What they held at the peak of all processes, each piece of memory once; `None` when unknown.
    pub at_peak_bytes: Option<Bytes>,
}

/// What the processes of a role held at one instant.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct RoleAtPeak {
    /// How many of them held memory, or may.
    pub process_count: usize,
    /// What they held, shared pages in each.
    #[serde(flatten, with = "keys::TotalsKeys")]
    pub totals: Totals,
    /// Their part of memory with each page once; `None` where the kinds of memory of one are unknown.
    #[serde(flatten, with = "ShareKeys")]
    pub shares: Option<RoleShares>,
}

memtrace_model::keys! {
    RoleNameKeys of role: Option<Role> {
        /// What it belongs to: Ray, vLLM; null when no rule knows it.
        framework: Option<String> = role.as_ref().and_then(|role| role.framework.clone()),
        /// The role, without a rank; null for those that no rule knew.
        role: Option<String> = role.as_ref().map(|role| role.role.clone()),
    }
}

memtrace_model::keys! {
    HighestKeys of highest: GpuPeak {
        /// The highest that they held at one time.
        peak_bytes: Option<Bytes> = highest.bytes,
        /// Whether it can have been more: for some time the driver did not tell of one of them.
        peak_is_lower_bound: bool = highest.is_lower_bound,
        /// When it was.
        peak_at: Option<Instant> = highest.at,
    }
}

memtrace_model::keys! {
    ShareKeys of shares: Option<RoleShares> {
        /// Anonymous and shared memory, each page once, and their huge pages and page tables; null
        /// where the kinds of memory of one of its processes are unknown.
        host_bytes: Option<Bytes> = shares.map(|shares| shares.host_bytes()),
        /// Of that anonymous memory.
        own_anon_bytes: Option<Bytes> = shares.map(|shares| shares.anon_bytes),
        /// Of that shared memory.
        own_shmem_bytes: Option<Bytes> = shares.map(|shares| shares.shmem_bytes),
        /// Whether `host_bytes` is an estimate: it was not read in full by then how much their forks had
        /// copied of what they shared.
        is_estimate: Option<bool> = shares.map(|shares| shares.is_estimate()),
    }
}

/// What the processes of a role held of what exists, each page once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleShares {
    /// Anonymous memory that they held.
    pub anon_bytes: Bytes,
    /// Shared memory that they held.
    pub shmem_bytes: Bytes,
    /// Huge pages and page tables, which are in no RSS.
    pub beside_bytes: Bytes,
    /// What the anonymous memory can be off by, to either side.
    pub off_by_bytes: Bytes,
}

impl RoleShares {
    fn add(&mut self, share: &Share) {
        self.anon_bytes = self.anon_bytes + share.anon_bytes;
        self.shmem_bytes = self.shmem_bytes + share.shmem_bytes;
        self.beside_bytes = self.beside_bytes + share.beside_bytes();
        self.off_by_bytes = self.off_by_bytes + share.off_by_bytes;
    }

    /// All of it.
    pub fn host_bytes(&self) -> Bytes {
        self.anon_bytes + self.shmem_bytes + self.beside_bytes
    }

    /// Whether it can be off by so much that it must be said.
    pub fn is_estimate(&self) -> bool {
        shares::matters(self.off_by_bytes, self.host_bytes())
    }
}

impl RoleAtPeak {
    /// What they held, each page once; `None` when unknown.
    pub fn host_bytes(&self) -> Option<Bytes> {
        self.shares.map(|shares| shares.host_bytes())
    }
}

impl RoleFinding {
    /// What was found out about a kind.
    pub fn kind(&self, kind: Kind) -> &KindFigures {
        &self.kinds[kind]
    }
}

/// What was found out about each kind of what some processes held together, over a recording
/// whose means are of so many seconds.
pub(super) fn figures(lane: &Lane, seconds: f64, clock: &RunClock) -> PerKind<KindFigures> {
    let Some((course, first)) = lane.course.as_ref().zip(lane.first) else {
        return PerKind::default();
    };
    PerKind::of(|kind| {
        let of_kind = &course.kinds[kind];
        let highest = lane.highest[kind].map(|high| (high.bytes, clock.at(high.boot_ns)));
        let growth = of_kind.curve.as_ref().and_then(|curve| {
            let life = (first, course.there_until);
            growth::fit(curve.points(), life, course.change_count)
        });
        let mean = Bytes((of_kind.byte_ns as f64 / 1e9 / seconds) as i64);
        KindFigures {
            peak: highest.or(of_kind.is_known.then_some((Bytes(0), clock.at(first)))),
            mean_bytes: (of_kind.is_known && seconds > 0.0).then_some(mean),
            growth: growth.map(|growth| growth.settled(clock)),
        }
    })
}

/// What each role held at one instant, in the order of the groups.
fn held_by(groups: &Groups, at: &Composition) -> Vec<RoleAtPeak> {
    let nothing = RoleAtPeak {
        shares: Some(RoleShares::default()),
        ..RoleAtPeak::default()
    };
    let known: HashMap<usize, &Share> = at
        .shares
        .iter()
        .map(|share| (share.process, share))
        .collect();
    let mut roles = vec![nothing; groups.list.len()];
    let mut add = |process: usize, add: &dyn Fn(&mut RoleAtPeak)| {
        let place = groups.at(process, at.at.boot_ns);
        if let Some(role) = place.and_then(|place| roles.get_mut(place)) {
            add(role);
        }
    };
    for holder in &at.holders {
        add(holder.process, &|role| {
            role.process_count += 1;
            role.totals.add(&holder.amounts);
            match (&mut role.shares, known.get(&holder.process)) {
                (Some(shares), Some(share)) => shares.add(share),
                _ => role.shares = None,
            }
        });
    }
    roles
}

/// What the processes of a role held at an instant that was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct RoleHolding {
    /// What they are called.
    pub name: Arc<str>,
    /// What they held.
    #[serde(flatten)]
    pub held: RoleAtPeak,
    /// What they held on all GPUs, each piece of memory once; `None` when unknown, and without GPUs.
    pub gpu_bytes: Option<Bytes>,
}

/// The roles that held something at an instant, the one of the highest sum of RSS first.
pub(super) fn at(groups: &Groups, at: &Composition) -> Vec<RoleHolding> {
    let held = groups.list.iter().zip(held_by(groups, at));
    let holding = held
        .enumerate()
        .filter(|(_, (_, held))| held.process_count > 0);
    let mut roles: Vec<RoleHolding> = holding
        .map(|(place, (group, held))| RoleHolding {
            name: Arc::clone(&group.name),
            held,
            gpu_bytes: at
                .gpu_held_by_those(|process| groups.at(process, at.at.boot_ns) == Some(place)),
        })
        .collect();
    roles.order_by_key(|role| std::cmp::Reverse(role.held.totals[Kind::Rss].bytes()));
    roles
}

/// The roles of a recording, the one that held most at the peak first.
pub(super) fn findings(
    groups: &Groups,
    processes: &[Process],
    kinds: Vec<PerKind<KindFigures>>,
    peak: Option<&Composition>,
    gpus: Option<&Gpus>,
) -> Vec<RoleFinding> {
    let at_peak = peak.map(|peak| held_by(groups, peak));
    // Nothing was summed up for those who were met during the pass.
    let kinds = kinds
        .into_iter()
        .chain(std::iter::repeat(PerKind::default()));
    let found = groups.list.iter().zip(groups.members()).zip(kinds);
    let mut found: Vec<RoleFinding> = found
        .enumerate()
        .map(|(place, ((group, members), kinds))| RoleFinding {
            name: Arc::clone(&group.name),
            role: group.role.clone(),
            process_count: members.len(),
            upids: members.iter().map(|&place| processes[place].upid).collect(),
            members,
            at_peak: at_peak.as_ref().and_then(|roles| roles.get(place).copied()),
            kinds,
            gpu: None,
        })
        .collect();
    if let Some(gpus) = gpus {
        for (place, role) in found.iter_mut().enumerate() {
            let highest = gpus.roles.get(place).copied().flatten();
            role.gpu = highest.map(|highest| RoleOnGpus {
                highest,
                at_peak_bytes: peak.and_then(|peak| {
                    let is_of = |process| groups.at(process, peak.at.boot_ns) == Some(place);
                    peak.gpu_held_by_those(is_of)
                }),
            });
        }
    }
    for role in &mut found {
        if let Some(of_process) = peak_of_one(&role.members, groups, processes) {
            role.kinds[Kind::Rss].peak = Some(of_process);
        }
    }
    // What a process became in the end counts only where it was that.
    found.retain(|role| !role.members.is_empty());
    let order = |finding: &RoleFinding| {
        let at_peak = finding.at_peak.as_ref().map(|at_peak| {
            let rss = at_peak.totals[Kind::Rss].bytes();
            at_peak.host_bytes().or(rss)
        });
        (
            at_peak,
            finding.kind(Kind::Rss).peak.map(|(bytes, _)| bytes),
        )
    };
    found.order_by(|a, b| order(b).cmp(&order(a)).then(a.name.cmp(&b.name)));
    found
}

/// The peak of a role that only one process ever had: that is known better than by its rows.
pub(super) fn peak_of_one(
    members: &[usize],
    groups: &Groups,
    processes: &[Process],
) -> Option<PeakAt> {
    let [only] = *members else {
        return None;
    };
    let peak = processes.get(only)?.peak;
    let is_known = groups.is_always_one(only) && matches!(peak.bound, Bound::Within(_));
    peak.rss_bytes.zip(peak.at).filter(|_| is_known)
}

#[cfg(test)]
mod tests;
