//! One recording, from the command that is held to the Parquet that is closed: starts the
//! collectors, drains them, stops them in order.

mod alarm;
mod course;
mod gpu_only;
mod gpus;
mod held;
mod limits;
mod marks;
mod outcome;
mod output;
mod pace;
mod record;
mod redaction;
#[cfg(target_os = "linux")]
mod relay;
mod scope;
mod self_cost;
mod signals;
mod sink;
mod start;
#[cfg(target_os = "linux")]
mod survivors;
mod trial;
mod user;

pub use course::record;
pub use gpus::survey_gpus;
pub use held::{CommandError, Held};
pub use marks::Marks;
pub use outcome::{Leftovers, Outcome, Outlived, Progress, RecordError};
pub use output::{OutputError, name_by_start};
pub use scope::{Scope, ScopeChoice, ScopeError};
pub(crate) use signals::{Request, Signals};
pub use start::StartError;
pub use trial::probe_costs;
pub use user::CommandUser;

#[cfg(target_os = "linux")]
pub use memtrace_collect::bpf::object_hash as bpf_object_hash;
use memtrace_host::{Backend, ProbeChoice};
use memtrace_model::{Bytes, DurationNs, Rules, RunPlace, Target};
use std::path::PathBuf;

/// What the person asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whom to record; for [`Target::Command`] the command is given as [`Held`].
    pub target: Target,
    /// Where to write; a new directory is named after host and time when `None`.
    pub output: Option<PathBuf>,
    /// Where it stands among recordings of many hosts.
    pub place: Option<RunPlace>,
    /// Whether what looks like a secret is left out of command lines, titles and marks.
    pub redacts: bool,
    /// After how long rows become parts, which others can carry away; when the recording ends, or a
    /// part is full, if `None`.
    pub rotate: Option<DurationNs>,
    /// When to stop; when the target ends, or on a signal, if `None`.
    pub duration: Option<DurationNs>,
    /// Time between two snapshots.
    pub interval: DurationNs,
    /// The backend; the best one if `None`.
    pub backend: Option<Backend>,
    /// How mmap, munmap, mremap, brk and madvise are seen.
    pub probes: ProbeChoice,
    /// Such calls of fewer bytes are summed and have no row.
    pub vm_min: Bytes,
    /// Whether growth is sampled with stacks.
    pub has_stacks: bool,
    /// Where the kernel counts memory by CPU: how many CPUs are few, and have their parts added at
    /// every small step of a maximum. As the backend knows it if `None`; a test asks for another.
    pub few_cpus: Option<u32>,
    /// What processes are reported to be.
    pub roles: Rules,
    /// Time between two readings of the memory of GPUs.
    pub gpu_interval: DurationNs,
    /// GPUs by index, UUID or PCI address (`pci:...`); all where none is named.
    pub gpus: Vec<String>,
    /// Whether nothing but GPUs, and who holds their memory, is recorded.
    pub is_gpu_only: bool,
    /// Share of one CPU that the recorder may take before it slows down, 0 to 1.
    pub cpu_budget: f64,
    /// Whether to end, at the end of the recording, the processes that outlived their root.
    pub kills_survivors: bool,
    /// Whether the recording ends when standard input does.
    pub ends_with_stdin: bool,
}
