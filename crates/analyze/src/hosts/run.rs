//! The findings of a run over all its hosts: they are the JSON of its report.

use super::curves::RunCurves;
use super::part::StepBounds;
use memtrace_model::keys;
use memtrace_model::labels;
use memtrace_model::{Bytes, DurationNs, Tgid, WallNs};
use schemars::JsonSchema;
use serde::Serialize;

/// An instant of the wall clock, which hosts have in common as far as their clocks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallTime(pub WallNs);

keys! {
    as
    /// An instant of the wall clock.
    WallTimeKeys of at: WallTime {
        /// RFC 3339 in UTC.
        time: Option<String> = at.0.rfc3339(),
        /// In ns since the Unix epoch.
        wall_ns: WallNs = at.0,
    }
}

/// What there is to tell of a run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunReport {
    /// The name of the run.
    pub run: String,
    /// When the first of its recordings began.
    pub start: Option<WallTime>,
    /// When the last of them ended, or was heard of.
    pub end: Option<WallTime>,
    /// How many hosts have a recording.
    pub host_count: usize,
    /// How many recordings they have.
    pub recording_count: usize,
    /// How many hosts were expected; null where nobody reported.
    pub expected_host_count: Option<usize>,
    /// The most that all hosts held at one time; null without a row of memory.
    pub peak: Option<JobPeak>,
    /// The hosts: those that died, fell silent or are missing first, then those nearest to a limit.
    pub hosts: Vec<HostLine>,
    /// Who stands out from others that do the same, by the largest difference first.
    pub outliers: Vec<Outlier>,
    /// OOM kills and unexpected ends, over all hosts in the order of time.
    pub ends: Vec<ChainLink>,
    /// How many there are; `ends` may list fewer.
    pub end_count: usize,
    /// The roles over all hosts, the one that held most first.
    pub roles: Vec<JobRole>,
    /// The processes that are one of several, over all hosts in the order of their ranks.
    pub ranks: Vec<RankLine>,
    /// How many there are; `ranks` may list fewer.
    pub rank_count: usize,
    /// The phases by name, the longest first, and on which rank they took longest.
    pub phases: Vec<JobPhase>,
    /// How the clocks of hosts stand to each other.
    pub clocks: Vec<HostClockLine>,
    /// What could not be used, or only in part.
    pub problems: Vec<RunProblem>,
    /// Where the recording is that [`next`](Self::next) names, for a person to type; unknown where
    /// only parts are at hand.
    #[serde(skip)]
    pub next_path: Option<String>,
    /// Memory over time, where a page is asked for.
    #[serde(skip)]
    pub curves: Option<Box<RunCurves>>,
}

impl RunReport {
    /// How long the run was.
    pub(super) fn duration(&self) -> Option<DurationNs> {
        let (start, end) = self.start.zip(self.end)?;
        Some(DurationNs(end.0.0.saturating_sub(start.0.0)))
    }
}

/// The most that all hosts held at one time: added up at each instant, never by their own peaks.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct JobPeak {
    /// The start of the second, or of the longer bin, in which it was.
    pub at: WallTime,
    /// The length of that.
    pub bin_s: i64,
    /// They held no less than this at one instant.
    pub at_least_bytes: Bytes,
    /// So much was held by the best figures of all hosts.
    pub bytes: Bytes,
    /// They held no more than this at any instant.
    pub at_most_bytes: Bytes,
    /// What the peaks of hosts add up to, each at its own time: what is reported in error as the peak of
    /// a job.
    pub sum_of_peaks_bytes: Bytes,
    /// Whether it can have been more: a host was polled, or is not known at all times.
    pub is_lower_bound: bool,
    /// Hosts of whose clock nobody knows how far it is off: to `at_most_bytes` each adds the most that
    /// it ever held, and to `at_least_bytes` nothing.
    pub unsure_host_count: usize,
    /// How many hosts held anything then.
    pub host_count: usize,
    /// What roles held of it in anonymous memory, the largest first.
    pub roles: Vec<RoleShare>,
    /// What was shared of it, once a host; null where kinds of memory were not distinguished on some
    /// host.
    pub shared_bytes: Option<Bytes>,
}

/// What a role held at the peak of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RoleShare {
    /// The name of the role.
    pub name: String,
    /// On how many hosts.
    pub host_count: usize,
    /// How much, within a sixty-fourth of what it held at most on each.
    pub bytes: Bytes,
}

labels! {
    /// How it stands with a host.
    pub enum HostStatus {
        /// Its recording was not closed, and it was not heard from while others were.
        Silent = "silent" | "not heard from",
        /// The OOM killer ended some of its processes.
        OomKilled = "oom_killed" | "OOM kill",
        /// It was expected and has no recording.
        Missing = "missing" | "missing",
        /// Some of its processes ended unexpectedly.
        Failed = "failed" | "failed",
        /// Its recording is not closed.
        Open = "open" | "open",
        /// Its recording was closed.
        Closed = "closed" | "closed",
    }
}

/// How the memory of a host was observed: figures compare where that is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Observed {
    /// Whether it was polled, so that its peaks are lower bounds.
    pub is_polled: bool,
    /// How often; null where the kernel reported every peak, and where that is not known.
    pub interval_ns: Option<DurationNs>,
    /// Whether its peak is a sum of RSS: kinds of memory were not distinguished.
    pub is_sum_of_rss: bool,
}

/// One host of the run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HostLine {
    /// The name of the host.
    pub host: String,
    /// How it stands with it.
    pub status: HostStatus,
    /// Its recordings, one after the other; none for one that is missing.
    pub recs: Vec<String>,
    /// When the first of them began.
    pub start: Option<WallTime>,
    /// When the last of them ended, or was heard of.
    pub end: Option<WallTime>,
    /// How long before the last of all hosts that was; zero for one whose clock says later.
    pub silent_ns: Option<DurationNs>,
    /// How its memory was observed, by the recording of its peak; null without a row of memory.
    pub observed: Option<Observed>,
    /// Its memory in all; null when unknown.
    pub mem_total_bytes: Option<Bytes>,
    /// The most that was held on it.
    pub peak_bytes: Option<Bytes>,
    /// No less than this.
    pub peak_at_least_bytes: Option<Bytes>,
    /// No more than this.
    pub peak_at_most_bytes: Option<Bytes>,
    /// When that was; null when unknown.
    pub peak_at: Option<WallTime>,
    /// Who held most of that, by RSS.
    pub largest: Option<String>,
    /// What was held on it at the peak of the job, at most within that bin.
    pub at_job_peak_bytes: Option<Bytes>,
    /// The cgroup whose limit it meets first; null for the memory of the machine.
    pub limit_cgroup: Option<String>,
    /// The pod of Kubernetes that this is, or the container in one.
    pub limit_pod: Option<String>,
    /// That limit; null where none is known.
    pub limit_bytes: Option<Bytes>,
    /// What was left of it at its peak.
    pub headroom_bytes: Option<Bytes>,
    /// How fast it grows in an hour; null where that is not sure.
    pub bytes_per_hour: Option<i64>,
    /// When the limit is met if that goes on, counted from the end of the trend.
    pub left_ns: Option<DurationNs>,
    /// How many kills by the OOM killer, and other unexpected ends.
    pub end_count: usize,
    /// How many processes the OOM killer ended, of those that are reported.
    pub oom_kill_count: usize,
    /// How many kinds of losses its recordings tell of.
    pub loss_count: usize,
    /// The most that was in use on its GPUs, each at its own time.
    pub gpu_peak_bytes: Option<Bytes>,
}

labels! {
    /// In what somebody stands out.
    pub enum Measure {
        /// The most that it held.
        Peak = "peak",
        /// What it grows by in a step.
        PerStep = "per_step",
        /// What it grows by in an hour.
        PerHour = "per_hour",
    }
}

/// Somebody who stands out from others that do the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Outlier {
    /// What they all are.
    pub role: String,
    /// Which of them; null for all processes of the role on a host.
    pub rank: Option<String>,
    /// On which host.
    pub host: String,
    /// Its process id, where it is one.
    pub pid: Option<Tgid>,
    /// In what it stands out.
    pub measure: Measure,
    /// How much it is.
    pub bytes: i64,
    /// The median of all of them.
    pub median_bytes: i64,
    /// What it has to differ by to stand out: four times the median absolute deviation as a
    /// standard deviation, and a floor.
    pub threshold_bytes: i64,
    /// How many others there are.
    pub other_count: usize,
}

/// The end of a process, or of a host, among those of all hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ChainLink {
    /// The host on which it happened.
    pub host: String,
    /// When, by the clock of that host and what is known of that; null when unknown.
    pub at: Option<WallTime>,
    /// How long after the first of them; below zero never.
    pub after_first_ns: Option<DurationNs>,
    /// By how much that can be off: what both clocks can; null where one of them can be anything.
    pub error_ns: Option<DurationNs>,
    /// Whether it came after the first for sure.
    pub is_after_first: bool,
    /// Whether the OOM killer did it.
    pub is_oom_kill: bool,
    /// Whether it is the host itself that was not heard from any more.
    pub is_host: bool,
    /// The cgroup whose limit was met.
    pub cgroup: Option<String>,
    /// The pod of Kubernetes that this is, or the container in one.
    pub pod: Option<String>,
    /// Who ended; null for a host.
    pub name: Option<String>,
    /// Its process id.
    pub pid: Option<Tgid>,
    /// Which of several it was.
    pub rank: Option<String>,
    /// How it ended, in words.
    pub how: String,
}

/// A role over all hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct JobRole {
    /// What its processes are called.
    pub name: String,
    /// On how many hosts.
    pub host_count: usize,
    /// How many processes.
    pub process_count: usize,
    /// The highest sum of anonymous memory on one host.
    pub highest_bytes: Option<Bytes>,
    /// By how much that can be off, by what the kernel's counters can.
    pub error_bytes: Bytes,
    /// The host with the highest; null when that is unknown.
    pub highest_host: Option<String>,
    /// The lowest of these.
    pub lowest_bytes: Option<Bytes>,
    /// The host with the lowest; null when that is unknown.
    pub lowest_host: Option<String>,
    /// The median of these.
    pub median_bytes: Option<Bytes>,
    /// What it held at the peak of the job; null where that is not kept.
    pub at_job_peak_bytes: Option<Bytes>,
    /// On how many hosts it grows steadily.
    pub growing_count: usize,
    /// The fastest of that in an hour.
    pub bytes_per_hour: Option<i64>,
    /// Whether on every host it lived long enough to tell.
    #[serde(skip)]
    pub is_growth_known: bool,
}

/// A process that is one of several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RankLine {
    /// What they are.
    pub role: String,
    /// Which of them.
    pub rank: String,
    /// The host on which it ran.
    pub host: String,
    /// Its process id.
    pub pid: Option<Tgid>,
    /// The highest RSS it had.
    pub peak_bytes: Option<Bytes>,
    /// What it grows by in an hour; zero where it does not, null where that is too short to tell.
    pub bytes_per_hour: Option<i64>,
    /// The steps by which it is measured.
    pub stage: Option<String>,
    /// What it grows by in each of these; zero where it does not, null with too few of them.
    pub bytes_per_step: Option<i64>,
    /// Between what and what the slope lies for sure, and over how many steps it was measured.
    #[serde(flatten)]
    pub step_bounds: StepBounds,
}

/// Phases of one name over all hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct JobPhase {
    /// The name; `<N>` stands for a number.
    pub name: String,
    /// On how many hosts.
    pub host_count: usize,
    /// In how many processes.
    pub process_count: usize,
    /// How many there are.
    pub count: usize,
    /// How many of them nobody ended.
    pub open_count: usize,
    /// The mean of one, in the median process.
    pub median_mean_ns: DurationNs,
    /// The mean of one in the slowest process.
    pub slowest_mean_ns: DurationNs,
    /// On which host that is.
    pub slowest_host: String,
    /// Which of several it is.
    pub slowest_rank: Option<String>,
    /// Its process id.
    pub slowest_pid: Option<Tgid>,
    /// The longest of all.
    pub longest_ns: DurationNs,
}

/// How the clock of a host stands to those of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HostClockLine {
    /// The host whose clock it is.
    pub host: String,
    /// Whether its kernel took it to be synchronized; null when nothing tells.
    pub is_synchronized: Option<bool>,
    /// By how much it is off at most by its kernel's account; null where nobody synchronizes it.
    pub error_ns: Option<DurationNs>,
    /// By how much it is ahead of `reference`, by steps that both began; null without such.
    pub skew_ns: Option<DurationNs>,
    /// By how much that differs between steps.
    pub skew_error_ns: Option<DurationNs>,
    /// The host that it is held against.
    pub reference: Option<String>,
    /// The name of these steps; null without such.
    pub stage: Option<String>,
    /// How many of them.
    pub step_count: usize,
    /// Whether times of this host are corrected by that, because it is known better than the clock.
    pub is_corrected: bool,
}

/// Something that could not be used, or only in part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct RunProblem {
    /// The host that it concerns.
    pub host: String,
    /// Its recording; null where it concerns no single one.
    pub rec: Option<String>,
    /// The problem in one sentence.
    pub text: String,
}

impl RunProblem {
    /// The host, and the recording where it concerns one.
    pub(super) fn place(&self) -> String {
        let names = [Some(&self.host), self.rec.as_ref()].into_iter().flatten();
        names.map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}
