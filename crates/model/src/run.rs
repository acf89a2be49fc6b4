//! `run.json`: what a recording says about itself beside its tables.

use super::clock::ClockReading;
use super::place::RunPlace;
use super::units::{Bytes, DurationNs, Tgid};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What the resident memory of a recorder stays under, whatever it records.
pub const RECORDER_BYTES_MAX: Bytes = Bytes(256 << 20);

/// The version of the tables this build writes. A new nullable column, or one that is gone, raises the minor
/// part, a changed meaning the major part.
pub const SCHEMA_VERSION: SchemaVersion = SchemaVersion { major: 2, minor: 9 };

/// A version of the recording's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SchemaVersion {
    /// A reader refuses a major version that it does not know.
    pub major: u32,
    /// A reader ignores what a newer minor version added.
    pub minor: u32,
}

impl fmt::Display for SchemaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Which processes a recording is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Target {
    /// A command that memtrace started, and its descendants.
    Command {
        /// The command with its arguments.
        argv: Vec<String>,
    },
    /// Running processes and their descendants.
    Pids {
        /// The ids that were asked for.
        tgids: Vec<Tgid>,
    },
    /// Processes whose comm, title or command line matches, and their descendants.
    Match {
        /// The regular expression.
        regex: String,
    },
    /// Processes of a cgroup and of the groups below it, and their descendants.
    Cgroup {
        /// The path of the group below its hierarchy's mount point.
        path: String,
    },
    /// The processes of a framework, wherever they run, and their descendants.
    Framework {
        /// Which framework it is.
        framework: Framework,
        /// One cluster of several, by the directory of its session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
    },
    /// Every process of the machine.
    All,
}

/// A framework whose processes can be asked for by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Framework {
    /// Ray clusters, as far as they run on this node.
    Ray,
    /// Servers of vLLM.
    Vllm,
}

impl Framework {
    /// What the names of its processes match that are not descendants of others: with
    /// `ray start`, a cluster's sit under process 1.
    pub fn pattern(self) -> &'static str {
        match self {
            Self::Ray => {
                r"^ray::|^\S*/(?:gcs/gcs_server|raylet/raylet)\b|^\S*python\S* (?:-\S+ )*\S*/ray/(?:dashboard|_private|autoscaler)/\S+\.py|^\S*python\S* (?:-\S+ )*?-m ray\.util\.client\.server\b"
            }
            Self::Vllm => r"^VLLM::|^VllmWorker|(?:^|/)vllm serve\b|-m vllm\.entrypoints\.",
        }
    }

    /// Its name as people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ray => "Ray",
            Self::Vllm => "vLLM",
        }
    }
}

/// A GPU as a recording meets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuInfo {
    /// As in the tables: NVML's UUID, or `pci:` and the address.
    pub device: String,
    /// The device that a MIG instance is a part of.
    #[serde(default)]
    pub parent_device: Option<String>,
    /// NVML's index (of a MIG instance: within its parent), or the number of the DRM card.
    pub index: Option<u32>,
    /// The product's name.
    pub name: Option<String>,
    /// Memory in all; unknown where the device has none of its own.
    pub total_bytes: Option<Bytes>,
    /// Whether its memory is the machine's, or a NUMA node of it.
    pub is_unified: bool,
}

impl GpuInfo {
    /// Whether that is a name of it: its UUID, or, but for a MIG instance, its index.
    pub fn is_named(&self, name: &str) -> bool {
        let index = self.index.filter(|_| self.parent_device.is_none());
        name.eq_ignore_ascii_case(&self.device)
            || index.is_some_and(|index| name == index.to_string())
    }

    /// The names by which it can be asked for: `0 (GPU-6f3c…)`.
    pub fn names(&self) -> String {
        let index = self.index.filter(|_| self.parent_device.is_none());
        match index {
            Some(index) => format!("{index} ({})", self.device),
            None => self.device.clone(),
        }
    }
}

/// That a recording was reduced to some instants (`memtrace downsample`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Downsampled {
    /// Of each such time `mem` has the last value of a process and that at the highest sum of RSS, beside
    /// those where readings are and at instants that the report names, and all around kills and crashes.
    pub period_ns: DurationNs,
    /// Whether all of its files are so; false while they are written.
    pub is_complete: bool,
}

/// How far a recording came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Being written, or left behind by a recorder that was killed.
    Recording,
    /// Closed in order by the recorder.
    Closed,
    /// Closed later by `memtrace recover`.
    Recovered,
}

/// The contents of `run.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Version of the tables.
    pub schema_version: SchemaVersion,
    /// Version of the memtrace that recorded.
    pub memtrace_version: String,
    /// The id of the recording, which each of its files of rows has too: 32 hexadecimal digits. The
    /// first versions of memtrace gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// How far the recording came.
    pub state: RunState,
    /// Name of the host.
    pub hostname: String,
    /// Kernel or OS release.
    pub kernel: String,
    /// Architecture of the machine.
    pub arch: String,
    /// Size of a base page.
    pub page_size_bytes: Bytes,
    /// CPUs that were online.
    pub cpu_count: u32,
    /// Memory of the node; unknown where the platform does not tell.
    pub mem_total_bytes: Option<Bytes>,
    /// What was recorded.
    pub target: Target,
    /// The root of the tree where there is exactly one (a command, or one pid).
    pub root_tgid: Option<Tgid>,
    /// The backend that observed processes: "bpf", "procfs" or "sysinfo".
    pub backend: String,
    /// Why this backend and not a better one; one line.
    pub backend_reason: String,
    /// Time between two snapshots.
    pub interval_ns: DurationNs,
    /// Clock readings: the first at start, the last at stop.
    pub clocks: Vec<ClockReading>,
    /// Wait status of the command as a shell reports it (128 + n for a signal); unknown
    /// while it runs, and when memtrace did not start it.
    pub command_exit_code: Option<i32>,
    /// The socket that marks are sent to while the recording runs; none where it could not
    /// be made.
    #[serde(default)]
    pub mark_socket: Option<String>,
    /// The GPUs whose memory is recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuInfo>,
    /// Why NVIDIA GPUs are not, where that is so; one line.
    #[serde(default)]
    pub gpu_note: Option<String>,
    /// That it was downsampled since; absent where all rows are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub downsampled: Option<Downsampled>,
    /// Where it stands among the recordings of many hosts; absent where it is for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<RunPlace>,
    /// Facts read from the host at start, as `memtrace doctor --json` prints them.
    pub host: serde_json::Value,
    /// What was decided from them.
    pub plan: serde_json::Value,
}

impl RunInfo {
    /// Whether peaks between two observations can be missing.
    pub fn is_polled(&self) -> bool {
        self.backend != "bpf"
    }

    /// What reports call the host: its name in the run, else what it calls itself.
    pub fn host_name(&self) -> &str {
        let place = self.place.as_ref();
        place.map_or(&self.hostname, |place| place.host.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ray_start_leaves_behind_is_of_ray() {
        let pattern = regex::Regex::new(Framework::Ray.pattern()).expect("a pattern");
        for words in [
            "ray::Holder",
            "/lib/ray/core/src/ray/raylet/raylet --raylet_socket_name=/tmp/ray/s/sockets/raylet",
            "/usr/bin/python3 -u /lib/ray/_private/log_monitor.py --session-dir=/tmp/ray/s",
            "/venv/bin/python3 -m ray.util.client.server --address=10.0.0.1:6379 --mode=proxy",
        ] {
            assert!(pattern.is_match(words), "{words}");
        }
        for words in [
            "vi ray/util/client/server.py",
            "grep -m ray.util.client.server",
        ] {
            assert!(!pattern.is_match(words), "{words}");
        }
    }
}
