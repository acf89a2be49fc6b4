//! What one recording adds to the answer for its run: all that crosses hosts. Its lists are bounded,
//! whatever was recorded.

use super::coded::{Coded, HeldCurve};
use memtrace_model::{Bytes, DurationNs, RunState, SchemaVersion, Tgid, WallNs};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const FORMAT: &str = "memtrace-host-part";
const VERSION: u32 = 1;

/// Where a recording stands among those of its run; parts are merged in this order.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Place {
    /// The name of the run.
    pub run: String,
    /// What reports call the host.
    pub host: String,
    /// The recording: when it began, in UTC.
    pub rec: String,
}

/// What `memtrace report RECORDING --reduce` writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostPart {
    /// What object this is.
    #[schemars(extend("const" = FORMAT))]
    pub(super) format: String,
    /// A reader refuses another version: it would add up what it does not know.
    #[schemars(extend("const" = VERSION))]
    pub(super) version: u32,
    /// The run, the host and the recording.
    #[serde(flatten)]
    pub place: Place,
    /// The hosts that the run should have, where somebody reported.
    pub(super) expected_hosts: Option<Vec<String>>,
    /// The host that was recorded.
    pub(super) machine: Machine,
    /// How far the recording got.
    pub(super) state: RunState,
    /// Whether a recorder was writing to it.
    pub(super) is_live: bool,
    /// How long nothing is heard of a host that is recorded: its parts close so often.
    pub(super) rotate_ns: Option<DurationNs>,
    /// Its start; null without a reading of the clocks.
    pub(super) start_wall_ns: Option<WallNs>,
    /// When it was last heard of: its end.
    pub(super) end_wall_ns: Option<WallNs>,
    /// What is wrong with its files, one sentence each; the first of them.
    pub(super) problems: Vec<String>,
    /// How many there are.
    pub(super) problem_count: usize,
    /// What was lost, one sentence each; the first of them.
    pub(super) losses: Vec<String>,
    /// How many there are.
    pub(super) loss_count: usize,
    /// Its wall clock.
    pub(super) clock: PartClock,
    /// What was held over time; null without a row of memory.
    pub(super) held: Option<HeldCurve>,
    /// Its peak; null without a row of memory.
    pub(super) peak: Option<PartPeak>,
    /// The limit that it meets first; null where none is known.
    pub(super) limit: Option<PartLimit>,
    /// The roles that held most.
    pub(super) roles: Vec<PartRole>,
    /// How many there are.
    pub(super) role_count: usize,
    /// Processes that are one of several, in the order of their ranks.
    pub(super) ranks: Vec<PartRank>,
    /// How many there are.
    pub(super) rank_count: usize,
    /// The phases of each process, those that took longest.
    pub(super) phases: Vec<PartPhase>,
    /// How many there are.
    pub(super) phase_count: usize,
    /// When steps began, by the name of the step.
    pub(super) marks: Vec<PartMarks>,
    /// OOM kills, and unexpected ends, in the order of time.
    pub(super) ends: Vec<PartEnd>,
    /// How many there are.
    pub(super) end_count: usize,
    /// The GPUs of the host.
    pub(super) gpus: Vec<PartGpu>,
}

/// The host as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Machine {
    /// What it calls itself.
    pub(super) hostname: String,
    /// Release of its kernel, or of its OS.
    pub(super) kernel: String,
    /// How many CPUs it has.
    pub(super) cpu_count: u32,
    /// Its memory; null when unknown.
    pub(super) mem_total_bytes: Option<Bytes>,
    /// Version of the recording's tables.
    pub(super) schema_version: SchemaVersion,
    /// The memtrace that recorded it.
    pub(super) memtrace_version: String,
    /// Whether its peaks are lower bounds, for it was polled.
    pub(super) is_polled: bool,
    /// How often it was polled; null where it was not, and of a memtrace that did not tell.
    #[serde(default)]
    pub(super) interval_ns: Option<DurationNs>,
}

/// How well the wall clock of the host was known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct PartClock {
    /// How often it was read.
    pub(super) reading_count: usize,
    /// Whether the kernel took it to be synchronized all the time; null when nothing tells.
    pub(super) is_synchronized: Option<bool>,
    /// By how much it was off at most, by the kernel's account; null where nobody synchronizes it.
    pub(super) error_ns: Option<DurationNs>,
    /// How often it was set.
    pub(super) step_count: usize,
}

/// The most that was held on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct PartPeak {
    /// When; null without a reading of the clocks.
    pub(super) wall_ns: Option<WallNs>,
    /// What was held, every page once, no less than this.
    pub(super) at_least_bytes: Bytes,
    /// The best figure there is; the sum of RSS where kinds of memory are unknown.
    pub(super) bytes: Bytes,
    /// No more than this.
    pub(super) at_most_bytes: Bytes,
    /// Of it anonymous memory; null where kinds are unknown.
    pub(super) anon_bytes: Option<Bytes>,
    /// Of it shared memory.
    pub(super) shared_bytes: Option<Bytes>,
    /// Whether it can have been more.
    pub(super) is_lower_bound: bool,
    /// The processes that held most.
    pub(super) holders: Vec<PartHolder>,
}

/// A process that held memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct PartHolder {
    /// Its process id.
    pub(super) pid: Option<Tgid>,
    /// What it is called.
    pub(super) name: String,
    /// Its RSS; null when unknown.
    pub(super) rss_bytes: Option<Bytes>,
}

/// The limit that a host meets first, as it stood at the peak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct PartLimit {
    /// The cgroup that sets it; null for the memory of the machine.
    pub(super) cgroup: Option<String>,
    /// The pod of Kubernetes that it is, or the container in one.
    pub(super) pod: Option<String>,
    /// How much it is.
    pub(super) limit_bytes: Bytes,
    /// How much of it was left at the peak.
    pub(super) headroom_bytes: Bytes,
    /// How fast all of the host grows in an hour; null where it does not, or nothing is sure.
    pub(super) bytes_per_hour: Option<i64>,
    /// When it is full if that goes on, counted from the end of the trend.
    pub(super) left_ns: Option<DurationNs>,
}

/// The processes of one role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct PartRole {
    /// What they are called.
    pub(super) name: String,
    /// Whether a rule knows it; else it is a program.
    pub(super) is_known: bool,
    /// How many processes ever were one.
    pub(super) process_count: usize,
    /// What they held at the host's peak, each page once where that is known, else anonymous memory.
    pub(super) at_peak_bytes: Option<Bytes>,
    /// The highest sum of their anonymous memory at any time.
    pub(super) peak_bytes: Option<Bytes>,
    /// By how much that can be off, by what the kernel's counters can.
    #[serde(default)]
    pub(super) error_bytes: Bytes,
    /// How fast that grows in an hour; zero where it does not, null where that is too short to tell.
    pub(super) bytes_per_hour: Option<i64>,
}

/// Between what and what the slope of a process from step to step lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepBounds {
    /// No less than this; null with too few steps, and of a memtrace that did not tell.
    #[serde(default)]
    pub low_bytes_per_step: Option<i64>,
    /// No more than this.
    #[serde(default)]
    pub high_bytes_per_step: Option<i64>,
    /// Over how many steps.
    #[serde(default)]
    pub step_count: Option<i64>,
}

/// A process that is one of several that do the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct PartRank {
    /// Which of them.
    pub(super) rank: String,
    /// What they are: `PyTorch rank`.
    pub(super) role: String,
    /// Its process id.
    pub(super) pid: Option<Tgid>,
    /// The highest RSS it had.
    pub(super) peak_bytes: Option<Bytes>,
    /// What it held at the host's peak; RSS.
    pub(super) at_peak_bytes: Option<Bytes>,
    /// How fast its RSS grows in an hour; zero where it does not, null where that is too short to tell.
    pub(super) bytes_per_hour: Option<i64>,
    /// The step by which its growth was measured best.
    pub(super) stage: Option<String>,
    /// How much it grows in each of these; zero where that is not sure, null with too few steps.
    pub(super) bytes_per_step: Option<i64>,
    /// The bounds of that.
    #[serde(flatten)]
    pub(super) step_bounds: StepBounds,
}

/// The phases of one name of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct PartPhase {
    /// The name; `<N>` stands for a number.
    pub(super) name: String,
    /// Its process; null for those of a person.
    pub(super) process_name: Option<String>,
    /// Its process id.
    pub(super) pid: Option<Tgid>,
    /// Which of several its process is.
    pub(super) rank: Option<String>,
    /// How many there are.
    pub(super) count: usize,
    /// How many of them nobody ended.
    pub(super) open_count: usize,
    /// How many of them took a known time; null in lines of older versions: all.
    #[serde(default)]
    pub(super) timed_count: Option<usize>,
    /// The durations of those together.
    pub(super) total_ns: DurationNs,
    /// The longest of these durations.
    pub(super) longest_ns: DurationNs,
}

/// When phases of one name began on the host, the first process of each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct PartMarks {
    /// The name; `<N>` stands for the number.
    pub(super) name: String,
    /// Two integers for each: by how much its number is more than the one before, and its start
    /// later, in ns of the wall clock. Of very many every second, fourth, eighth and so on.
    pub(super) begins: Coded,
}

/// The unexpected end of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct PartEnd {
    /// When; null without a reading of the clocks.
    pub(super) wall_ns: Option<WallNs>,
    /// Whether the OOM killer ended it.
    pub(super) is_oom_kill: bool,
    /// The cgroup whose limit was met, at an OOM kill; null where the machine was out of memory, or
    /// that is unknown.
    pub(super) cgroup: Option<String>,
    /// The pod of Kubernetes that it is, or the container in one.
    pub(super) pod: Option<String>,
    /// What the process is called.
    pub(super) name: String,
    /// Its process id.
    pub(super) pid: Option<Tgid>,
    /// Which of several it was.
    pub(super) rank: Option<String>,
    /// How it ended: `SIGKILL`, `exit 1`, `OOM kill`.
    pub(super) how: String,
}

/// A GPU of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct PartGpu {
    /// What the driver calls it.
    pub(super) device: String,
    /// The driver's number for it.
    pub(super) index: Option<i32>,
    /// The product's name.
    pub(super) name: Option<String>,
    /// Memory in all.
    pub(super) total_bytes: Option<Bytes>,
    /// The most that was in use.
    pub(super) peak_bytes: Option<Bytes>,
}

/// A text that is no part of a run's report.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// It is no such object.
    #[error("it is not what `memtrace report RECORDING --reduce` writes: {0}")]
    Json(#[from] serde_json::Error),
    /// It is another one.
    #[error(
        "it is a {format} of version {version}, and this memtrace merges version {VERSION} of {FORMAT}"
    )]
    Version {
        /// What it says that it is.
        format: String,
        /// The version that it says it has.
        version: u64,
    },
    /// It says what no recording can be.
    #[error("it is not a part of a recording: {0}")]
    Bounds(&'static str),
}

/// What is asked before anything else.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u64,
}

impl HostPart {
    pub(super) fn head() -> (String, u32) {
        (FORMAT.to_owned(), VERSION)
    }

    /// Reads one.
    ///
    /// # Errors
    /// When the text is something else, or of another version, or says what no recording can be.
    pub fn parse(text: &str) -> Result<Self, PartError> {
        let Head { format, version } = serde_json::from_str(text)?;
        if format != FORMAT || version != u64::from(VERSION) {
            return Err(PartError::Version { format, version });
        }
        serde_json::from_str::<Self>(text)?.checked()
    }

    /// The same, where it can be what a recording adds.
    ///
    /// # Errors
    /// When it says what no recording can be.
    pub fn checked(self) -> Result<Self, PartError> {
        match self.out_of_bounds() {
            None => Ok(self),
            Some(what) => Err(PartError::Bounds(what)),
        }
    }
}
