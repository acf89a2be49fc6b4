//! What is reported of a recording that goes on: who holds what at an instant, peaks, roles, limits, and
//! what the report finds.

use super::engine;
use super::{Live, named_rows};
use crate::clock::RunClock;
use crate::growth::{self, Growth};
use crate::held::Held;
use crate::keys::PeakAt;
use crate::phases::PhaseLine;
use crate::process::Process;
use crate::process_tree::ProcessTree;
use crate::run::{Options, analyze};
use crate::sections::{Report, allocations, gpus, ledger};
use crate::{Moment, Who, roles};
use memtrace_model::tables::OomRow;
use memtrace_model::{BootNs, Bytes, Kind, Order, RunInfo};
use memtrace_report::Chapter;
use memtrace_timeline::{Amounts, Totals};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

/// What everybody held at an instant.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// The instant on CLOCK_BOOTTIME.
    pub at: BootNs,
    /// All of it, every page once.
    pub held: Held,
    /// The sum of RSS of those of whom it is known.
    pub rss: Option<Bytes>,
    /// By process, in the order of positions: those who were there.
    pub held_by: Vec<(u32, Amounts)>,
}

impl Frame {
    /// What a process held; `None` where it was not there.
    pub fn held_by(&self, process: usize) -> Option<&Amounts> {
        let process = u32::try_from(process).ok()?;
        let place = self.held_by.binary_search_by_key(&process, |held| held.0);
        self.held_by.get(place.ok()?).map(|(_, held)| held)
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.held_by.len() * size_of::<(u32, Amounts)>()
    }
}

/// The processes of one role at an instant.
#[derive(Clone, Debug)]
pub struct RoleNow {
    /// What they are called.
    pub name: Arc<str>,
    /// How many of them are there.
    pub process_count: usize,
    /// How many ever were one.
    pub ever_count: usize,
    /// What they hold, shared pages in each.
    pub totals: Totals,
    /// The highest sum of RSS so far, and when; `None` where nothing was ever known.
    pub peak: Option<PeakAt>,
}

/// The limit that is nearest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The cgroup; `None` for the memory of the machine.
    pub cgroup: Option<String>,
    /// What is in use of it.
    pub used: Bytes,
    /// The part of that which the kernel would not reclaim first; `None` where it is not known.
    pub working_set: Option<Bytes>,
    /// How much there is.
    pub limit: Bytes,
}

impl Limit {
    /// What is in use, as a share of it.
    pub fn share(&self) -> f64 {
        self.used.0 as f64 / self.limit.0 as f64
    }

    /// The working set, as a share of it.
    pub fn working_set_share(&self) -> Option<f64> {
        Some(self.working_set?.0 as f64 / self.limit.0 as f64)
    }
}

/// What takes longer to find out, as the report does.
#[derive(Debug)]
pub struct Deep {
    /// The report of what is kept: its instant of interest is the newest one.
    pub report: Report,
    /// Which one that was.
    pub at: BootNs,
}

impl Deep {
    /// The ledger of the cgroup that holds most, or of the node; `None` where nothing is known of
    /// what is in use.
    pub fn ledger(&self, top: usize) -> Option<Chapter> {
        let analysis = &self.report.analysis;
        ledger::ledger(analysis, analysis.at.as_ref()?, top.min(ledger::MAX_LINES))
    }

    /// The memory of GPUs and who holds it; `None` without a GPU.
    pub fn gpus(&self, top: usize) -> Option<Chapter> {
        let analysis = &self.report.analysis;
        gpus::at(analysis, analysis.at.as_ref()?, top)
    }

    /// Which lines allocated what the processes hold that are there and wanted, so many at most; `None`
    /// where nothing that was sampled is held.
    pub fn stacks(&self, top: usize, is_wanted: impl Fn(&Who) -> bool) -> Option<Chapter> {
        allocations::held_now(&self.report.analysis, top, is_wanted)
    }

    /// The phases so far, in the order of their starts. What each held at most within is not known.
    pub fn phases(&self) -> &[PhaseLine] {
        let phases = self.report.analysis.phases.as_ref();
        phases.map_or(&[], |phases| &phases.lines)
    }
}

impl Live {
    /// What the recording says about itself.
    pub fn info(&self) -> &RunInfo {
        &self.info
    }

    /// When it was, so far.
    pub fn clock(&self) -> &RunClock {
        &self.clock
    }

    /// Every process, in the order in which they started.
    pub fn processes(&self) -> &[Process] {
        &self.known.table.processes
    }

    /// Who descends from whom.
    pub fn tree(&self) -> &ProcessTree {
        &self.tree
    }

    /// The newest state.
    pub fn now(&self) -> &Frame {
        &self.now
    }

    /// States of the last minutes, the oldest first; the last of them is the newest.
    pub fn history(&self) -> &VecDeque<Frame> {
        &self.history
    }

    /// When most was held so far, every page once, and how much; `None` before the first row.
    pub fn held_peak(&self) -> Option<(BootNs, Held)> {
        let watch = self.tip.watch();
        watch.peak.zip(watch.held_peak)
    }

    /// The state in which most was held so far, every page once; `None` before the first row.
    pub fn peak(&self) -> Option<Frame> {
        let (at, held) = self.held_peak()?;
        let held_by = self.tip.state().at_maximum().into_iter();
        let mut frame = Frame {
            at,
            held,
            rss: None,
            held_by: held_by.map(|(place, held)| (place as u32, held)).collect(),
        };
        let mut totals = Totals::default();
        frame.held_by.iter().for_each(|(_, held)| totals.add(held));
        frame.rss = totals[Kind::Rss].bytes();
        frame.held_by.order_by_key(|(place, _)| *place);
        Some(frame)
    }

    /// The highest sum of RSS so far, and when.
    pub fn rss_peak(&self) -> Option<PeakAt> {
        let high = self.tip.state().all.highest[Kind::Rss]?;
        Some((high.bytes, self.clock.at(high.boot_ns)))
    }

    /// The highest that was held in each second, the oldest first, as seconds on the boot clock; a
    /// second in which nothing changed is left out.
    pub fn seconds(&self) -> &[(i64, Bytes)] {
        &self.tip.watch().seconds
    }

    /// The roles at an instant, the one that holds most first. Sums of the newest one are those of
    /// the sweep.
    pub fn roles(&self, frame: &Frame) -> Vec<RoleNow> {
        let groups = &self.known.groups;
        let members = groups.members();
        let mut found: Vec<RoleNow> = groups
            .list
            .iter()
            .zip(&members)
            .map(|(group, members)| {
                let lane = self.tip.group(&group.name);
                let high = lane.and_then(|lane| lane.highest[Kind::Rss]);
                let high = high.map(|high| (high.bytes, self.clock.at(high.boot_ns)));
                let of_one = roles::peak_of_one(members, groups, self.processes());
                RoleNow {
                    name: Arc::clone(&group.name),
                    process_count: 0,
                    ever_count: members.len(),
                    totals: Totals::default(),
                    peak: of_one.or(high),
                }
            })
            .collect();
        for (process, held) in &frame.held_by {
            let place = groups.at(*process as usize, frame.at);
            if let Some(role) = place.and_then(|place| found.get_mut(place)) {
                role.process_count += 1;
                role.totals.add(held);
            }
        }
        if frame.at == self.now.at {
            for role in &mut found {
                if let Some(lane) = self.tip.group(&role.name) {
                    role.totals = lane.now;
                }
            }
        }
        found.retain(|role| role.ever_count > 0);
        found.order_by_key(|role| {
            let rss = role.totals[Kind::Rss].bytes();
            (Reverse(rss), Reverse(role.peak.map(|(bytes, _)| bytes)))
        });
        found
    }

    /// What a process is called together with those that do the same.
    pub fn role_of(&self, process: usize, at: BootNs) -> Option<&str> {
        let place = self.known.groups.at(process, at)?;
        let group = self.known.groups.list.get(place)?;
        Some(&group.name)
    }

    /// The limit that is nearest, of the cgroups that hold recorded processes; where none has one,
    /// the memory of the machine.
    pub fn limit(&self) -> Option<Limit> {
        let nearest = self
            .cgroup_limits()
            .max_by(|a, b| a.share().total_cmp(&b.share()));
        nearest.or_else(|| self.node_limit())
    }

    /// The limits of cgroups, and the memory of the machine.
    pub fn limits(&self) -> impl Iterator<Item = Limit> {
        self.cgroup_limits().chain(self.node_limit())
    }

    fn cgroup_limits(&self) -> impl Iterator<Item = Limit> {
        self.kept.cgroups().filter_map(|row| {
            Some(Limit {
                cgroup: Some(row.cgroup.clone()),
                used: row.current_bytes?,
                working_set: row.working_set_bytes(),
                limit: row.limit_bytes.filter(|limit| limit.0 > 0)?,
            })
        })
    }

    fn node_limit(&self) -> Option<Limit> {
        let node = self.kept.node()?;
        let limit = node.mem_total_bytes.filter(|limit| limit.0 > 0)?;
        let used = limit - node.mem_available_bytes?;
        Some(Limit {
            cgroup: None,
            used,
            working_set: Some(used),
            limit,
        })
    }

    /// How a process has grown so far, by the rows that no others can come before; `None` where it is too
    /// young to tell, and of one without a curve.
    pub fn growth(&self, process: usize) -> Option<Growth> {
        let track = self.settled.track(process)?.until(self.now.at);
        let growth = growth::of(&track, self.now.at)?;
        Some(growth.settled(&self.clock))
    }

    /// The kills by the OOM killer, in the order of time.
    pub fn kills(&self) -> &[OomRow] {
        self.kept.kills()
    }

    /// What was lost, in a sentence each; none where nothing was.
    pub fn losses(&self) -> Vec<Cow<'_, str>> {
        let reported = self.losses.iter().map(|loss| Cow::Borrowed(loss.as_str()));
        reported
            .chain(self.settled.left_out().map(Cow::Owned))
            .collect()
    }

    /// What the report finds at the newest instant: ledgers, GPUs, phases, lines that allocated. It takes
    /// as long as a report of a recording of a few seconds. `None` before the first row, and where there are no
    /// findings.
    pub fn deep(&mut self) -> Option<Deep> {
        let at = self.now.at;
        let last = self.last?;
        let processes = &self.known.table.processes;
        let mut rows = self.noted.clone();
        rows.extend(named_rows(self.tip.watch().noted.clone(), processes));
        let holders = processes.iter().enumerate();
        let holders = holders.filter_map(|(place, one)| Some((one, self.now.held_by(place)?)));
        // Also since the last phase began or ended, as far as each was there: readings of it, and of its
        // group, come in between.
        let boundaries = self.known.boundaries.iter().copied();
        let boundary = boundaries.filter(|boundary| *boundary < at).max();
        let since = boundary.map_or(BootNs(0), |boundary| BootNs(boundary.0 + 1));
        rows.extend(holders.flat_map(|(process, held)| {
            let met = process.first_seen.boot_ns.max(since).min(at);
            [met, at].map(|at| engine::row(process.upid, at, held))
        }));
        rows.order_by_key(|row| (row.boot_ns, row.upid));
        self.kept.mem = rows;
        let options = Options {
            at: Some(Moment::Offset(self.clock.offset(at))),
            is_unfolded: true,
            is_live: true,
            last_boot_ns: Some(last),
            zone: self.zone.clone(),
            ..Options::default()
        };
        let report = analyze(&self.info, &self.kept, options).ok();
        self.kept.mem = Vec::new();
        Some(Deep {
            report: report?,
            at,
        })
    }
}
