//! The memory of processes of one role together: what they held at the peak of all, and over
//! the recording their highest, their mean and their growth, kind by kind.

use super::clock::RunClock;
use super::composition::Composition;
use super::gpu::{GpuPeak, Gpus};
use super::groups::Groups;
use super::growth::{self, Growth};
use super::ledger::{CURVE_AFTER_NS, High, raise};
use super::peak::Bound;
use super::phases::RoleGauges;
use super::process::Process;
use super::shares::Share;
use crate::model::{BootNs, Bytes, Kind, Label, PerKind, Role};
use crate::sweep::{Amounts, Series, Totals};
use std::sync::Arc;

const BUCKETS: usize = 64;

/// What was found out about one kind over the recording. A page that several processes share
/// counts in each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KindFigures {
    /// The highest simultaneous sum, and when; `None` when it was never known.
    pub peak: Option<(Bytes, BootNs)>,
    /// The mean over the whole recording, so that the means of all roles add up; `None` when it
    /// was never known. The recording of a command counts up to the command's end: what is left
    /// behind says nothing about how it ran.
    pub mean_bytes: Option<Bytes>,
    /// How the sum grew; `None` when that is too short to tell.
    pub growth: Option<Growth>,
}

/// The processes of one role.
#[derive(Clone, Debug)]
pub struct RoleFinding {
    /// What they are called: "vLLM worker"; the program for those without a role.
    pub name: Arc<str>,
    /// The role, without a rank; `None` for those that no rule knew.
    pub role: Option<Role>,
    /// Who ever was one, in the order in which they started.
    pub members: Vec<usize>,
    /// What they held at the peak of all processes; `None` without a peak.
    pub at_peak: Option<RoleAtPeak>,
    /// What was found out about each kind.
    pub kinds: PerKind<KindFigures>,
    /// What they held on GPUs; `None` where none of them was on one.
    pub gpu: Option<RoleOnGpus>,
}

/// What the processes of a role held on all GPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleOnGpus {
    /// The highest over the recording, at its own time.
    pub highest: GpuPeak,
    /// What they held at the peak of all processes, which is one of RSS, each piece of memory
    /// once; `None` when unknown.
    pub at_peak_bytes: Option<Bytes>,
}

/// What the processes of a role held at one instant.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoleAtPeak {
    /// How many of them held anything.
    pub process_count: usize,
    /// What they held, shared pages in each.
    pub totals: Totals,
    /// Their part of memory with each page once; `None` where the recording does not know what
    /// is shared.
    pub shares: Option<RoleShares>,
}

/// What the processes of a role held of what exists, each page once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleShares {
    /// Anonymous memory; `None` when that of any is unknown.
    pub anon_bytes: Option<Bytes>,
    /// Shared objects; `None` when that of any is unknown.
    pub shmem_bytes: Option<Bytes>,
    /// What is known of both.
    pub known_bytes: Bytes,
}

impl RoleShares {
    const NOTHING: Self = Self {
        anon_bytes: Some(Bytes(0)),
        shmem_bytes: Some(Bytes(0)),
        known_bytes: Bytes(0),
    };

    fn add(&mut self, share: &Share) {
        let sum = |sum: Option<Bytes>, part: Option<Bytes>| Some(sum? + part?);
        self.anon_bytes = sum(self.anon_bytes, share.anon_bytes);
        self.shmem_bytes = sum(self.shmem_bytes, share.shmem_bytes);
        for known in [share.anon_bytes, share.shmem_bytes].into_iter().flatten() {
            self.known_bytes = self.known_bytes + known;
        }
    }

    /// Anonymous and shared memory together; `None` when a part is unknown.
    pub fn host_bytes(&self) -> Option<Bytes> {
        Some(self.anon_bytes? + self.shmem_bytes?)
    }
}

impl RoleAtPeak {
    /// Anonymous and shared memory together, each page once; `None` when unknown.
    pub fn host_bytes(&self) -> Option<Bytes> {
        self.shares?.host_bytes()
    }
}

impl RoleFinding {
    /// What was found out about a kind.
    pub fn kind(&self, kind: Kind) -> &KindFigures {
        &self.kinds[kind]
    }
}

/// The sums of every role during the pass over memory.
#[derive(Debug, Default)]
pub(super) struct RoleSums {
    group_of: Vec<u32>,
    sums: Vec<RoleSum>,
    touched: Vec<u32>,
    /// Where means end.
    until: Option<BootNs>,
    /// What they held where phases begin and end.
    gauges: RoleGauges,
}

#[derive(Debug, Default)]
struct RoleSum {
    now: Totals,
    first: Option<BootNs>,
    held_until: BootNs,
    /// Processes that are there, and until when one was.
    member_count: usize,
    there_until: BootNs,
    row_count: u32,
    is_touched: bool,
    kinds: PerKind<KindSum>,
}

#[derive(Debug, Default)]
struct KindSum {
    high: Option<High>,
    byte_seconds: f64,
    is_known: bool,
    curve: Option<Box<Series>>,
}

impl RoleSums {
    /// Means count up to `until`, where it is given; what each group holds is noted in `gauges`.
    pub(super) fn of(groups: &Groups, until: Option<BootNs>, gauges: RoleGauges) -> Self {
        let mut sums = Vec::new();
        sums.resize_with(groups.list.len(), RoleSum::default);
        Self {
            group_of: groups.first.clone(),
            sums,
            touched: Vec::new(),
            until,
            gauges,
        }
    }

    /// A process that holds `held` belongs to another group from `time` on.
    pub(super) fn turn(
        &mut self,
        process: usize,
        group: u32,
        held: Option<&Amounts>,
        time: BootNs,
    ) {
        if held.is_some() {
            self.change(process, held, None, time);
        }
        if let Some(now) = self.group_of.get_mut(process) {
            *now = group;
        }
        if held.is_some() {
            self.change(process, None, held, time);
        }
    }

    /// A process held `before` and holds `after` from `time` on; `None` when it is not there.
    pub(super) fn change(
        &mut self,
        process: usize,
        before: Option<&Amounts>,
        after: Option<&Amounts>,
        time: BootNs,
    ) {
        // One without a row of its own came after the groups were made.
        let Some(&group) = self.group_of.get(process) else {
            return;
        };
        let sum = &mut self.sums[group as usize];
        if !sum.is_touched {
            if let Some((from, held)) = sum.hold_until(time, self.until) {
                self.gauges.hold(group, from, time, held);
            }
            sum.is_touched = true;
            self.touched.push(group);
        }
        sum.first.get_or_insert(time);
        sum.row_count = sum.row_count.saturating_add(1);
        if let Some(before) = before {
            sum.now.remove(before);
            sum.member_count -= 1;
        }
        if let Some(after) = after {
            sum.now.add(after);
            sum.member_count += 1;
            for &kind in Kind::ALL {
                sum.kinds[kind].is_known |= after.get(kind).is_some();
            }
        }
    }

    /// All rows of one time are in.
    pub(super) fn settle(&mut self, now: BootNs) {
        for group in self.touched.drain(..) {
            let sum = &mut self.sums[group as usize];
            sum.is_touched = false;
            let amounts = sum.now.amounts();
            for &kind in Kind::ALL {
                if let Some(bytes) = amounts.get(kind) {
                    raise(&mut sum.kinds[kind].high, bytes.0, now);
                }
            }
        }
    }

    /// The figures of every group, and what was noted of them.
    pub(super) fn finish(
        mut self,
        start: BootNs,
        end: BootNs,
        clock: &RunClock,
    ) -> (Vec<PerKind<KindFigures>>, RoleGauges) {
        for (group, sum) in (0..).zip(&mut self.sums) {
            if let Some((from, held)) = sum.hold_until(end, self.until) {
                self.gauges.hold(group, from, BootNs(i64::MAX), held);
            }
        }
        let mean_end = self.until.map_or(end, |until| until.min(end));
        let seconds = (mean_end - start).as_secs_f64();
        let figures = self.sums.iter().map(|sum| sum.figures(seconds, clock));
        (figures.collect(), self.gauges)
    }
}

impl RoleSum {
    /// Since when it held what until now.
    fn hold_until(&mut self, time: BootNs, until: Option<BootNs>) -> Option<(BootNs, Amounts)> {
        let from = std::mem::replace(&mut self.held_until, time);
        let first = self.first?;
        let amounts = self.now.amounts();
        let counted = until.map_or(time, |until| until.min(time));
        let seconds = (counted - from).as_secs_f64().max(0.0);
        // A build has thousands of programs that live for an instant.
        let is_old = (time - first).0 >= CURVE_AFTER_NS;
        for &kind in Kind::ALL {
            let Some(bytes) = amounts.get(kind) else {
                continue;
            };
            let sum = &mut self.kinds[kind];
            // Most roles never have a page of swap or of shared memory, and no curve of it.
            if is_old && bytes.0 > 0 && sum.curve.is_none() {
                let mut curve = Series::new(first, BUCKETS);
                if sum.byte_seconds == 0.0 {
                    curve.hold(first, from, 0);
                }
                sum.curve = Some(Box::new(curve));
            }
            sum.byte_seconds += bytes.0 as f64 * seconds;
            // Where nobody is there the curve has a gap: that is not a fall.
            if let Some(curve) = sum.curve.as_mut().filter(|_| self.member_count > 0) {
                curve.hold(from, counted, bytes.0);
            }
        }
        if self.member_count > 0 {
            self.there_until = counted;
        }
        Some((from, amounts))
    }

    fn figures(&self, seconds: f64, clock: &RunClock) -> PerKind<KindFigures> {
        PerKind::of(|kind| {
            let sum = &self.kinds[kind];
            let growth = self.first.zip(sum.curve.as_ref());
            let zero = self.first.filter(|_| sum.is_known).map(|at| (Bytes(0), at));
            KindFigures {
                peak: (sum.high.map(|high| (high.bytes, high.boot_ns))).or(zero),
                mean_bytes: (sum.is_known && seconds > 0.0)
                    .then(|| Bytes((sum.byte_seconds / seconds) as i64)),
                growth: growth.and_then(|(first, curve)| {
                    let life = (first, self.there_until);
                    let growth = growth::fit(curve.points(), life, self.row_count)?;
                    Some(growth.settled(clock))
                }),
            }
        })
    }
}

/// The roles of a recording, the one that held most at the peak first.
pub(super) fn findings(
    groups: &Groups,
    processes: &[Process],
    kinds: Vec<PerKind<KindFigures>>,
    peak: Option<&Composition>,
    gpus: Option<&Gpus>,
) -> Vec<RoleFinding> {
    let has_shares = peak.is_some_and(|peak| peak.shares.is_some());
    let nothing = RoleAtPeak {
        shares: has_shares.then_some(RoleShares::NOTHING),
        ..RoleAtPeak::default()
    };
    // Nothing was summed up for those who were met during the pass.
    let kinds = kinds
        .into_iter()
        .chain(std::iter::repeat(PerKind::default()));
    let found = groups.list.iter().zip(groups.members()).zip(kinds);
    let mut found: Vec<RoleFinding> = found
        .map(|((group, members), kinds)| RoleFinding {
            name: Arc::clone(&group.name),
            role: group.role.clone(),
            members,
            at_peak: peak.map(|_| nothing),
            kinds,
            gpu: None,
        })
        .collect();
    if let Some(peak) = peak {
        let mut at_peak = |process: usize, add: &dyn Fn(&mut RoleAtPeak)| {
            let place = groups.at(process, peak.boot_ns);
            let place = place.and_then(|place| found.get_mut(place));
            if let Some(at_peak) = place.and_then(|role| role.at_peak.as_mut()) {
                add(at_peak);
            }
        };
        for holder in &peak.holders {
            at_peak(holder.process, &|at_peak| {
                at_peak.process_count += 1;
                at_peak.totals.add(&holder.amounts);
            });
        }
        for share in peak.shares.iter().flatten() {
            at_peak(share.process, &|at_peak| {
                if let Some(shares) = &mut at_peak.shares {
                    shares.add(share);
                }
            });
        }
    }
    if let Some(gpus) = gpus {
        for (place, role) in found.iter_mut().enumerate() {
            let highest = gpus.roles.get(place).copied().flatten();
            role.gpu = highest.map(|highest| RoleOnGpus {
                highest,
                at_peak_bytes: peak.and_then(|peak| {
                    let is_of = |process| groups.at(process, peak.boot_ns) == Some(place);
                    peak.gpu_held_by_those(is_of)
                }),
            });
        }
    }
    for role in &mut found {
        // Of one process alone the peak is known better than by its rows.
        if let [only] = role.members[..]
            && groups.is_always_one(only)
            && let Some(peak) = processes.get(only).map(|process| process.peak)
            && let Some(of_process) = peak.rss_bytes.zip(peak.boot_ns)
            && matches!(peak.bound, Bound::Within(_))
        {
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
    found.sort_by(|a, b| order(b).cmp(&order(a)).then(a.name.cmp(&b.name)));
    found
}

#[cfg(test)]
mod tests;
