//! What stands in the way of a full recording on this host: a list of checks, each an
//! ordinary function of the facts.

mod checks;
#[cfg(test)]
mod tests;

use super::facts::HostFacts;
use serde::Serialize;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing is missing.
    Pass,
    /// A recording works and sees less, or costs more.
    Warn,
    /// No recording is possible.
    Fail,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How it came out.
    pub verdict: Verdict,
    /// What was found, as a fragment.
    pub reason: String,
    /// What the person can do: a command where there is one.
    pub remedy: Option<String>,
}

/// One question to the host.
#[derive(Debug)]
pub struct Check {
    /// Its name; unique.
    pub name: &'static str,
    /// What the thing asked for is good for.
    pub purpose: &'static str,
    /// Looks at the facts.
    pub examine: fn(&HostFacts) -> Finding,
}

/// A check with what it found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Name of the check.
    pub check: &'static str,
    /// What the thing asked for is good for.
    pub purpose: &'static str,
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
}

/// Every check, in the order in which a person would ask.
pub static CHECKS: &[Check] = &[
    Check {
        name: "kernel",
        purpose: "memtrace is made for Linux; elsewhere it sees the platform's process list",
        examine: checks::kernel,
    },
    Check {
        name: "proc",
        purpose: "which processes run, and the memory of each where BPF is not available",
        examine: checks::proc,
    },
    Check {
        name: "kernel types (BTF)",
        purpose: "where the kernel keeps what the BPF programs read",
        examine: checks::btf,
    },
    Check {
        name: "capabilities for BPF",
        purpose: "exact peaks, short-lived processes, exit codes: what polling can't see",
        examine: checks::bpf_capabilities,
    },
    Check {
        name: "capabilities to see",
        purpose: "other users' processes, and which program they run",
        examine: checks::seeing_capabilities,
    },
    Check {
        name: "capabilities to last",
        purpose: "keeping the recorder's memory from the OOM killer and from being reclaimed",
        examine: checks::lasting_capabilities,
    },
    Check {
        name: "user namespace",
        purpose: "capabilities reach BPF only from the machine's own",
        examine: checks::user_namespace,
    },
    Check {
        name: "pid namespace",
        purpose: "events name processes by their ids in the machine's own",
        examine: checks::pid_namespace,
    },
    Check {
        name: "lockdown",
        purpose: "BPF programs must be allowed to read kernel memory",
        examine: checks::lockdown,
    },
    Check {
        name: "mmap and brk",
        purpose: "who reserves address space, maps which file, grows the heap, gives memory back",
        examine: checks::probes,
    },
    Check {
        name: "tracefs",
        purpose: "where perf and bpftrace look; no probe of memtrace needs it",
        examine: checks::tracefs,
    },
    Check {
        name: "memory cgroups",
        purpose: "usage, limit and kinds of memory of each group",
        examine: checks::memory_cgroups,
    },
    Check {
        name: "kernel log",
        purpose: "the limit, the cgroup and the reason of an OOM kill",
        examine: checks::kernel_log,
    },
    Check {
        name: "pressure (PSI)",
        purpose: "time lost waiting for memory",
        examine: checks::pressure,
    },
    Check {
        name: "BPF statistics",
        purpose: "what memtrace's own programs cost; memtrace switches them on for moments",
        examine: checks::bpf_statistics,
    },
    Check {
        name: "open files",
        purpose: "a descriptor kept for each process makes polling five times cheaper",
        examine: checks::open_files,
    },
    Check {
        name: "user",
        purpose: "who runs the traced command and owns the recording",
        examine: checks::user,
    },
    Check {
        name: "NVIDIA library (NVML)",
        purpose: "GPU memory of each process",
        examine: checks::nvml,
    },
];

/// Asks every check.
pub fn diagnose(facts: &HostFacts) -> Vec<Diagnosis> {
    let ask = |check: &Check| Diagnosis {
        check: check.name,
        purpose: check.purpose,
        finding: (check.examine)(facts),
    };
    CHECKS.iter().map(ask).collect()
}

impl Finding {
    /// Nothing is missing.
    pub fn pass(reason: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Pass,
            reason: reason.into(),
            remedy: None,
        }
    }

    /// Something degrades, and there is a remedy.
    pub fn warn(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Warn,
            reason: reason.into(),
            remedy: Some(remedy.into()),
        }
    }

    /// Nothing works, and there is a remedy.
    pub fn fail(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Fail,
            ..Self::warn(reason, remedy)
        }
    }

    /// Something degrades, and nothing can be done about it here.
    fn warn_only(reason: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Warn,
            ..Self::pass(reason)
        }
    }
}
