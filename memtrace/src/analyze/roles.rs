//! The memory of processes of one role together: what they held at the peak of all, and over
//! the recording their highest, their mean and their growth, kind by kind.

use super::amounts::{Amounts, Totals};
use super::composition::Composition;
use super::growth::{self, Growth};
use super::ledger::{High, raise};
use super::process::Process;
use super::series::Series;
use crate::model::{BootNs, Bytes, DurationNs, Role};
use std::collections::HashMap;
use std::sync::Arc;

const BUCKETS: usize = 64;

/// A kind of memory as the kernel counts it for each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Resident memory in all.
    Rss,
    /// Resident anonymous memory.
    Anon,
    /// Resident pages of mapped files.
    File,
    /// Resident shared memory.
    Shmem,
    /// Memory swapped out.
    Swap,
}

impl Kind {
    /// Every kind; resident memory in all comes first.
    pub const ALL: [Self; 5] = [Self::Rss, Self::Anon, Self::File, Self::Shmem, Self::Swap];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rss => "rss",
            Self::Anon => "anon",
            Self::File => "file",
            Self::Shmem => "shmem",
            Self::Swap => "swap",
        }
    }

    fn of(self, amounts: &Amounts) -> Option<Bytes> {
        match self {
            Self::Rss => amounts.rss(),
            Self::Anon => amounts.anon(),
            Self::File => amounts.file(),
            Self::Shmem => amounts.shmem(),
            Self::Swap => amounts.swap(),
        }
    }
}

/// What was found out about one kind over the recording. A page that several processes share
/// counts in each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KindFigures {
    /// The highest simultaneous sum, and when; `None` when it was never known.
    pub peak: Option<(Bytes, BootNs)>,
    /// The mean over the whole recording, so that the means of all roles add up; `None` when it
    /// was never known.
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
    /// Who, in the order in which they started.
    pub members: Vec<usize>,
    /// What they held at the peak of all processes; `None` without a peak.
    pub at_peak: Option<RoleAtPeak>,
    /// By [`Kind::ALL`].
    pub kinds: [KindFigures; Kind::ALL.len()],
}

/// What the processes of a role held at one instant.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoleAtPeak {
    /// How many of them held anything.
    pub process_count: usize,
    /// What they held, shared pages in each.
    pub totals: Totals,
    /// Their part of anonymous memory and of shared objects, each page once; `None` where the
    /// recording does not know what is shared.
    pub shares: Option<(Bytes, Bytes)>,
}

impl RoleAtPeak {
    /// Anonymous and shared memory together, each page once; `None` when unknown.
    pub fn host_bytes(&self) -> Option<Bytes> {
        self.shares.map(|(anon, shmem)| anon + shmem)
    }
}

impl RoleFinding {
    /// What was found out about a kind.
    pub fn kind(&self, kind: Kind) -> &KindFigures {
        &self.kinds[kind as usize]
    }
}

/// The sums of every role during the pass over memory.
#[derive(Debug, Default)]
pub(super) struct RoleSums {
    group_of: Vec<u32>,
    sums: Vec<RoleSum>,
    touched: Vec<u32>,
}

#[derive(Debug, Default)]
struct RoleSum {
    now: Totals,
    first: Option<BootNs>,
    held_until: BootNs,
    row_count: u32,
    is_touched: bool,
    kinds: [KindSum; Kind::ALL.len()],
}

#[derive(Debug, Default)]
struct KindSum {
    high: Option<High>,
    byte_seconds: f64,
    is_known: bool,
    curve: Option<Series>,
}

impl RoleSums {
    pub(super) fn of(processes: &[Process]) -> Self {
        let mut groups: HashMap<&str, u32> = HashMap::new();
        let mut sums = Self::default();
        for process in processes {
            let next = groups.len() as u32;
            let group = *groups.entry(&process.group).or_insert(next);
            if group == next {
                sums.sums.push(RoleSum::default());
            }
            sums.group_of.push(group);
        }
        sums
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
            sum.hold_until(time);
            sum.is_touched = true;
            self.touched.push(group);
        }
        sum.first.get_or_insert(time);
        sum.row_count = sum.row_count.saturating_add(1);
        if let Some(before) = before {
            sum.now.remove(before);
        }
        if let Some(after) = after {
            sum.now.add(after);
        }
    }

    /// All rows of one time are in.
    pub(super) fn settle(&mut self, now: BootNs) {
        for group in self.touched.drain(..) {
            let sum = &mut self.sums[group as usize];
            sum.is_touched = false;
            let amounts = sum.now.amounts();
            for kind in Kind::ALL {
                if let Some(bytes) = kind.of(&amounts) {
                    raise(&mut sum.kinds[kind as usize].high, bytes.0, now);
                }
            }
        }
    }

    /// The figures of every role by the name of its group.
    pub(super) fn finish(
        mut self,
        end: BootNs,
        length: DurationNs,
    ) -> Vec<[KindFigures; Kind::ALL.len()]> {
        for sum in &mut self.sums {
            sum.hold_until(end);
        }
        let seconds = length.as_secs_f64();
        self.sums
            .iter()
            .map(|sum| sum.figures(end, seconds))
            .collect()
    }
}

impl RoleSum {
    fn hold_until(&mut self, time: BootNs) {
        let from = std::mem::replace(&mut self.held_until, time);
        let Some(first) = self.first else { return };
        let amounts = self.now.amounts();
        let seconds = (time - from).as_secs_f64();
        for kind in Kind::ALL {
            let Some(bytes) = kind.of(&amounts) else {
                continue;
            };
            let sum = &mut self.kinds[kind as usize];
            sum.is_known = true;
            sum.byte_seconds += bytes.0 as f64 * seconds;
            // Most roles never have a page of swap or of shared memory, and no curve of it.
            if bytes.0 > 0 && sum.curve.is_none() {
                let mut curve = Series::new(first, BUCKETS);
                curve.hold(first, from, 0);
                sum.curve = Some(curve);
            }
            if let Some(curve) = &mut sum.curve {
                curve.hold(from, time, bytes.0);
            }
        }
    }

    fn figures(&self, end: BootNs, seconds: f64) -> [KindFigures; Kind::ALL.len()] {
        Kind::ALL.map(|kind| {
            let sum = &self.kinds[kind as usize];
            let growth = self.first.zip(sum.curve.as_ref());
            let zero = self.first.filter(|_| sum.is_known).map(|at| (Bytes(0), at));
            KindFigures {
                peak: sum.high.map(|high| (high.bytes, high.boot_ns)).or(zero),
                mean_bytes: (sum.is_known && seconds > 0.0)
                    .then(|| Bytes((sum.byte_seconds / seconds) as i64)),
                growth: growth.and_then(|(first, curve)| {
                    growth::fit(curve.points(), (first, end), self.row_count)
                }),
            }
        })
    }
}

/// The roles of a recording, the one that held most at the peak first.
pub(super) fn findings(
    processes: &[Process],
    kinds: Vec<[KindFigures; Kind::ALL.len()]>,
    peak: Option<&Composition>,
) -> Vec<RoleFinding> {
    let mut found: Vec<RoleFinding> = Vec::with_capacity(kinds.len());
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut kinds = kinds.into_iter();
    for (position, process) in processes.iter().enumerate() {
        let place = *places.entry(&process.group).or_insert_with(|| {
            found.push(RoleFinding {
                name: Arc::clone(&process.group),
                role: process.role.clone().map(|role| Role { rank: None, ..role }),
                members: Vec::new(),
                at_peak: peak.map(|_| RoleAtPeak::default()),
                kinds: kinds.next().unwrap_or_default(),
            });
            found.len() - 1
        });
        found[place].members.push(position);
    }
    let place_of = |process: usize| places.get(processes[process].group.as_ref()).copied();
    for holder in peak.iter().flat_map(|peak| &peak.holders) {
        if let Some(at_peak) =
            place_of(holder.process).and_then(|place| found[place].at_peak.as_mut())
        {
            at_peak.process_count += 1;
            at_peak.totals.add(&holder.amounts);
        }
    }
    for share in peak
        .iter()
        .filter_map(|peak| peak.shares.as_ref())
        .flatten()
    {
        if let Some(at_peak) =
            place_of(share.process).and_then(|place| found[place].at_peak.as_mut())
        {
            let (anon, shmem) = at_peak.shares.unwrap_or_default();
            let own = share.anon_bytes.unwrap_or_default();
            at_peak.shares = Some((anon + own, shmem + share.shmem_bytes));
        }
    }
    let order = |finding: &RoleFinding| {
        let at_peak = finding.at_peak.as_ref().map(|at_peak| {
            let rss = at_peak.totals.rss.bytes();
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
