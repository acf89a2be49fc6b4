//! The ways to see mmap, munmap, mremap, brk and madvise, and which of them this host has.

use super::facts::HostFacts;
use memtrace_model::Order;
use serde::Serialize;
use std::fmt;

/// A way to see the calls, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeWay {
    /// fexit programs on the functions behind the calls.
    Fentry,
    /// Kretprobes on the same functions.
    Kprobe,
    /// The tracepoint at the end of every system call.
    Syscalls,
}

impl ProbeWay {
    /// Every way, best first.
    pub const ALL: [Self; 3] = [Self::Fentry, Self::Kprobe, Self::Syscalls];

    /// Its name on the command line and in a recording.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fentry => "fentry",
            Self::Kprobe => "kprobe",
            Self::Syscalls => "syscalls",
        }
    }

    /// What it is and what it costs, in a few words.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Fentry => "fexit programs on these five calls alone; other calls cost nothing",
            Self::Kprobe => {
                "Kretprobes on these five calls alone; each call costs more than by fentry"
            }
            Self::Syscalls => {
                "The tracepoint at the end of every system call: slows every system call of \
                 the machine while the recording runs"
            }
        }
    }

    /// What it does not see, as a fragment.
    pub fn unseen(self) -> &'static str {
        match self {
            Self::Fentry | Self::Syscalls => {
                "calls of 32-bit programs; what shmat, exec, io_uring and drivers map"
            }
            Self::Kprobe => {
                "calls of 32-bit programs; what shmat, exec, io_uring and drivers map; calls \
                 that come while many others wait in the kernel"
            }
        }
    }

    /// Whether it may be taken without being asked for by name: not what costs everybody on
    /// the machine.
    pub fn is_taken_unasked(self) -> bool {
        self != Self::Syscalls
    }

    /// What stands against it on this host; `None` when nothing does, or it is not known.
    pub fn obstacle(self, facts: &HostFacts) -> Option<ProbeObstacle> {
        if !matches!(facts.arch.as_str(), "x86_64" | "aarch64") {
            return Some(ProbeObstacle::Architecture);
        }
        let (is_offered, obstacle) = match self {
            Self::Fentry => (facts.has_fentry, ProbeObstacle::NoFentry),
            Self::Kprobe => (facts.has_kprobes, ProbeObstacle::NoKprobes),
            Self::Syscalls => (None, ProbeObstacle::Architecture),
        };
        (is_offered == Some(false)).then_some(obstacle)
    }
}

impl fmt::Display for ProbeWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeChoice {
    /// The best way that slows nobody else.
    #[default]
    Auto,
    /// This way and no other.
    Way(ProbeWay),
    /// No way at all.
    None,
}

/// Why a way can't be taken, and the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeObstacle {
    /// Another backend than bpf was taken or asked for.
    Backend,
    /// The kernel lets no program be attached to a function.
    NoFentry,
    /// The kernel has no kprobes.
    NoKprobes,
    /// System calls are known on x86-64 and arm64 only.
    Architecture,
}

impl ProbeObstacle {
    /// What is in the way, as a fragment.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Backend => "only the bpf backend has probes",
            Self::NoFentry => "this kernel can't attach a program to a function",
            Self::NoKprobes => "this kernel has no kprobes",
            Self::Architecture => "the system calls of this architecture are not known",
        }
    }

    /// What the person can do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Backend => "run memtrace where `memtrace doctor` says that it takes bpf",
            Self::NoFentry => {
                "leave out --probes to take the best way, or take --probes syscalls, which slows \
                 every system call of the machine"
            }
            Self::NoKprobes => {
                "boot a kernel built with CONFIG_KPROBE_EVENTS, or take --probes syscalls, which \
                 slows every system call of the machine"
            }
            Self::Architecture => "there is none",
        }
    }
}

impl fmt::Display for ProbeObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason(), self.remedy())
    }
}

/// What one way costs, as `memtrace doctor --measure` finds it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ProbeCosts {
    /// mmap and munmap of 1 MiB, in a recorded process.
    pub traced_mmap: Slowdown,
    /// brk by 1 MiB, in a recorded process.
    pub traced_brk: Slowdown,
    /// mmap and munmap, in a process outside of the recording.
    pub untraced_mmap: Slowdown,
    /// A system call of another kind that does nothing (getppid), in any process.
    pub other_call: Slowdown,
}

/// What a call takes with the probes and without, in CPU time. Both are the medians of a few
/// short runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Slowdown {
    /// Nanoseconds a call, without probes.
    pub without_ns: f64,
    /// Nanoseconds a call, with probes.
    pub with_ns: f64,
    /// The median of the ratios, with to without, of runs right after each other.
    pub ratio: f64,
}

impl Slowdown {
    /// From runs in the order in which they were made, as many with as without.
    pub fn between(without_ns: &[f64], with_ns: &[f64]) -> Self {
        let pairs = without_ns.iter().zip(with_ns);
        Self {
            without_ns: median(without_ns.to_vec()),
            with_ns: median(with_ns.to_vec()),
            ratio: median(pairs.map(|(without, with)| with / without).collect()),
        }
    }
}

/// The value in the middle; of none, no number.
fn median(mut values: Vec<f64>) -> f64 {
    values.order_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slowdown_is_the_middle_of_its_pairs() {
        let found = Slowdown::between(&[100.0, 200.0, 100.0], &[110.0, 300.0, 400.0]);
        assert_eq!(found.without_ns, 100.0);
        assert_eq!(found.with_ns, 300.0);
        assert_eq!(found.ratio, 1.5);
        assert!(Slowdown::between(&[], &[]).ratio.is_nan());
    }
}
