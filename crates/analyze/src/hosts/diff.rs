//! Two runs against each other: what their reports say of the job, of roles, of growth from step to
//! step and of hosts, and what moved by more than both can be off.

mod chapters;
mod compared;
mod report;

use super::run::{HostStatus, RunReport};
use crate::comparison::{
    Change, Changes, DiffReport, Difference, Excess, MIN_RISE_BYTES, MIN_SHARE,
};
use memtrace_model::Bytes;
use memtrace_report::{Chapter, Table};
use report::ComparedSide;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

pub(crate) use report::Object;

/// What two runs have in common, and what not.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunDiff {
    /// In the second processes ended unexpectedly, or hosts fell silent or are missing, and nothing
    /// of that was in the first: what they did not get to do costs no memory.
    pub is_newly_failed: bool,
    /// Their hosts were not observed in the same way: some saw every peak and others only what they
    /// polled, or polled at another pace. Then only what is on GPUs is in `excesses`.
    pub has_other_basis: bool,
    /// They do not have the same number of hosts of which memory is known, or a host of the first
    /// fell silent: the sum over hosts is of something else, and is not in `excesses`.
    pub has_other_hosts: bool,
    /// The most that all hosts held at one time.
    pub peak: Bounded,
    /// The most that was held on any one host.
    pub host_peak: Bounded,
    /// The most that was in use on the GPUs of any one host.
    pub gpu_peak: Change,
    /// Every role that is in either, the one that changed most on a host first.
    pub roles: Vec<JobRoleChange>,
    /// What ranks grow by from step to step, by role and step, those that rise more than before
    /// first.
    pub stages: Vec<RankStageChange>,
    /// The hosts that are in both by their names, the one whose peak changed most first.
    pub hosts: Vec<HostChange>,
    /// The hosts that only the first has.
    pub only_before: Vec<String>,
    /// The hosts that only the second has.
    pub only_after: Vec<String>,
}

/// A figure before and after, each of which is known within bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Bounded {
    /// Before and after.
    #[serde(flatten)]
    pub change: Change,
    /// Whether it moved by more than both can be off.
    pub is_sure: bool,
    #[serde(skip)]
    before: Span,
    #[serde(skip)]
    after: Span,
}

/// No less than one amount, no more than another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    least: Bytes,
    most: Bytes,
}

/// A role over all hosts, before and after. Of a run that does not have it, amounts are zero.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct JobRoleChange {
    /// What its processes are called.
    pub name: String,
    /// On how many hosts it was in the first; null where the role is missing.
    pub host_count_before: Option<usize>,
    /// The same in the second.
    pub host_count_after: Option<usize>,
    /// How many processes it had in the first; null where the role is missing.
    pub process_count_before: Option<usize>,
    /// The same in the second.
    pub process_count_after: Option<usize>,
    /// The highest sum of its anonymous memory on one host.
    pub highest: Bounded,
    /// The median of these over its hosts.
    pub median: Bounded,
    /// What it held at the peak of the job, which can have been at another time.
    pub at_job_peak: Change,
    /// The fastest of its steady growths on a host in an hour; zero where there is none, unknown
    /// where some host is too short to tell and none grows.
    pub bytes_per_hour: Change,
}

/// What the ranks of a role grow by in each of their steps.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RankStageChange {
    /// What they are.
    pub role: String,
    /// The name of the steps.
    pub stage: String,
    /// How many ranks have them in the first.
    pub rank_count_before: usize,
    /// The same in the second.
    pub rank_count_after: usize,
    /// The median of what ranks grow by; zero where that is not sure.
    pub median: Change,
    /// The fastest of them.
    pub fastest: Change,
    /// Which of them that is in the second.
    pub fastest_rank: Option<String>,
    /// The host of that rank; null where there is none.
    pub fastest_host: Option<String>,
    /// Whether the fastest surely grows by more than before.
    pub has_risen: bool,
    #[serde(skip)]
    before: Fastest,
    #[serde(skip)]
    after: Fastest,
}

/// The bounds of the fastest growth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fastest {
    /// No less than this.
    low: Option<i64>,
    /// No more than this: the highest that any of them can have.
    high: Option<i64>,
    /// Over so many steps.
    steps: i64,
}

/// A host that is in both, before and after.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HostChange {
    /// The name of the host.
    pub host: String,
    /// How it stood with it in the first.
    pub status_before: HostStatus,
    /// The same in the second.
    pub status_after: HostStatus,
    /// The most that was held on it.
    pub peak: Bounded,
    /// What was left of its limit at its peak.
    pub headroom: Change,
    /// That limit, in the first and in the second.
    pub limit: Change,
    /// The most that was in use on its GPUs.
    pub gpu_peak: Change,
    /// Whether it was not observed in the same way.
    pub has_other_basis: bool,
}

/// One of two runs that are compared.
#[derive(Debug)]
pub struct ComparedRun {
    /// Where it is, as the person named it.
    pub path: String,
    /// What its report says.
    pub report: RunReport,
}

impl Bounded {
    fn of(before: Option<(Bytes, Span)>, after: Option<(Bytes, Span)>) -> Self {
        let span = |figure: Option<(Bytes, Span)>| figure.map_or_else(Span::default, |of| of.1);
        let (one, other) = (span(before), span(after));
        let are_known = before.is_some() && after.is_some();
        Self {
            change: Change::of([before, after], |figure| Some(figure?.0)),
            is_sure: are_known && (other.least > one.most || other.most < one.least),
            before: one,
            after: other,
        }
    }

    fn exceeds(&self, allowed: f64) -> bool {
        let (Some(before), Some(after)) = (self.change.before, self.change.after) else {
            return false;
        };
        let errors = (self.before.most - before, after - self.after.least);
        self.change.exceeds(allowed, errors)
    }
}

/// A figure that can be off by so much to both sides.
fn within(bytes: Bytes, error: Bytes) -> (Bytes, Span) {
    let (least, most) = (bytes - error, bytes + error);
    (bytes, Span { least, most })
}

impl RankStageChange {
    /// Whether the fastest surely grows by more than before, by a part of what it was, and by enough
    /// to matter over its steps.
    fn has_risen_by(&self, allowed: f64) -> bool {
        let (Some(high), Some(low)) = (self.before.high, self.after.low) else {
            return false;
        };
        let rise = self.fastest.after.map_or(0, |after| after.0) as f64 * self.after.steps as f64;
        rise >= MIN_RISE_BYTES && low as f64 > high.max(0) as f64 * (1.0 + allowed)
    }

    fn difference(&self) -> Bytes {
        self.fastest.difference().unwrap_or_default()
    }
}

impl HostChange {
    /// Whether what was left of a limit is known.
    fn has_limit(&self) -> bool {
        self.headroom != Change::default()
    }
}

impl Difference for RunDiff {
    const FORMAT: &'static str = "memtrace-run-diff";
    const VERSION: u32 = 1;
    const HEAD: fn(&DiffReport<Self>) -> Chapter = chapters::head;
    const TABLE: fn(&DiffReport<Self>, usize) -> Table = chapters::figures;
    const CHANGES: &'static [Changes<Self>] = chapters::CHANGES;
    type Of = ComparedRun;
    type Side<'a> = ComparedSide<'a>;

    fn between(before: &ComparedRun, after: &ComparedRun) -> Self {
        Self::of(&before.report, &after.report)
    }

    /// The peak of all hosts where both runs have as many, the most on one host, of every role that
    /// holds a twentieth of that the most on one host and the median over its hosts, what the
    /// fastest rank grows by in a step, and the most on GPUs. Where hosts were not observed in the
    /// same way, only what is on GPUs. The peaks of hosts by their names are not in it: which ranks
    /// a host has is up to whoever places them.
    fn excesses(&self, allowed: f64) -> Vec<Excess> {
        let all = Arc::from("all");
        let mut found = Vec::new();
        let mut judge = |name: &Arc<str>, figure, shown, of: &Bounded| {
            if of.exceeds(allowed) {
                found.push(Excess::of(name, figure, shown, of.change));
            }
        };
        if !self.has_other_basis {
            if !self.has_other_hosts {
                judge(&all, "peak", "peak of all hosts", &self.peak);
            }
            judge(&all, "host_peak", "most on one host", &self.host_peak);
            let least = self.host_peak.change.highest() / MIN_SHARE;
            let roles = self.roles.iter();
            for role in roles.filter(|role| role.highest.change.highest() >= least) {
                let name = Arc::from(&*role.name);
                judge(&name, "role_peak", "most on one host", &role.highest);
                judge(&name, "role_median", "median over its hosts", &role.median);
            }
            let risen = self.stages.iter().filter(|one| one.has_risen_by(allowed));
            found.extend(risen.map(|stage| Excess {
                name: Arc::from(format!("{}, {}", stage.role, stage.stage)),
                figure: "per_step",
                words: chapters::per_step(&stage.fastest),
                change: stage.fastest,
            }));
        }
        if self.gpu_peak.exceeds(allowed, (Bytes(0), Bytes(0))) {
            let shown = "most on the GPUs of one host";
            found.push(Excess::of(&all, "gpu_peak", shown, self.gpu_peak));
        }
        found
    }

    fn is_newly_failed(&self) -> bool {
        self.is_newly_failed
    }

    fn cut(&mut self, top: usize) {
        self.roles.truncate(top);
        self.stages.truncate(top);
        self.hosts.truncate(top);
    }

    fn side(of: &ComparedRun) -> ComparedSide<'_> {
        ComparedSide::of(of)
    }
}

#[cfg(test)]
mod tests;
