//! Which backend a recording takes, and why: an ordinary function of the facts.

use super::facts::{HostFacts, Lockdown};
use super::probes::{ProbeChoice, ProbeObstacle, ProbeWay};
use super::remedy::record_as_root;
use serde::Serialize;
use std::fmt;

/// The ways to observe processes, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// Probes in the kernel.
    Bpf,
    /// Polling of /proc.
    Procfs,
    /// Polling the platform's process list.
    Sysinfo,
}

impl Backend {
    /// Every backend, best first.
    pub const ALL: [Self; 3] = [Self::Bpf, Self::Procfs, Self::Sysinfo];

    /// Its name on the command line and in a recording.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bpf => "bpf",
            Self::Procfs => "procfs",
            Self::Sysinfo => "sysinfo",
        }
    }

    /// What it is, in a few words.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Bpf => "Kernel probes: no process is missed, peaks are exact",
            Self::Procfs => "Polling /proc: needs no privilege",
            Self::Sysinfo => "Polling the platform's process list: any platform",
        }
    }

    /// What stands against it on this host; `None` when nothing does.
    pub fn obstacle(self, facts: &HostFacts) -> Option<Obstacle> {
        let is_linux = facts.os == "linux";
        match self {
            Self::Sysinfo => None,
            Self::Procfs => (!is_linux).then_some(Obstacle::NotLinux),
            Self::Bpf if !is_linux => Some(Obstacle::NotLinux),
            Self::Bpf => bpf_obstacle(facts),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn bpf_obstacle(facts: &HostFacts) -> Option<Obstacle> {
    // An unknown fact is no obstacle: the kernel's answer to loading decides.
    if facts.btf_bytes.is_none() {
        Some(Obstacle::NoBtf)
    } else if facts.is_initial_user_ns == Some(false) {
        Some(Obstacle::UserNamespace)
    } else if facts.may_trace_with_bpf() == Some(false) {
        Some(Obstacle::NoCapability)
    } else if facts.is_initial_pid_ns == Some(false) {
        Some(Obstacle::PidNamespace)
    } else if facts.lockdown == Some(Lockdown::Confidentiality) {
        Some(Obstacle::Lockdown)
    } else if facts.can_iterate_maps == Some(false) {
        Some(Obstacle::OldKernel)
    } else {
        None
    }
}

/// Why a backend can't be taken, and the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// The platform is not Linux.
    NotLinux,
    /// The kernel offers no BTF.
    NoBtf,
    /// The capabilities are missing.
    NoCapability,
    /// Process ids here are not the kernel's.
    PidNamespace,
    /// Capabilities in this user namespace do not reach BPF.
    UserNamespace,
    /// The kernel is locked down.
    Lockdown,
    /// The kernel has no bpf_for_each_map_elem.
    OldKernel,
}

impl Obstacle {
    /// What is in the way, as a fragment.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotLinux => "this is not Linux",
            Self::NoBtf => "the kernel has no BTF (/sys/kernel/btf/vmlinux)",
            Self::NoCapability => "CAP_BPF and CAP_PERFMON are missing",
            Self::PidNamespace => "memtrace runs inside a pid namespace",
            Self::UserNamespace => "memtrace runs inside a user namespace",
            Self::Lockdown => "the kernel is locked down (confidentiality)",
            Self::OldKernel => "the kernel is too old (it has no bpf_for_each_map_elem)",
        }
    }

    /// What the person can do about it on this host.
    pub fn remedy(self, facts: &HostFacts) -> String {
        let remedy = match self {
            Self::NotLinux => "there is none",
            Self::NoBtf => "boot a kernel built with CONFIG_DEBUG_INFO_BTF",
            Self::NoCapability => return record_as_root(facts),
            Self::PidNamespace => "run memtrace on the host, or in a container with hostPID",
            Self::UserNamespace => {
                "run memtrace on the host, or in a container without its own user namespace"
            }
            Self::Lockdown => "boot without lockdown=confidentiality",
            Self::OldKernel => "boot Linux 5.13 or newer",
        };
        remedy.to_owned()
    }
}

/// What a recording is going to do on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The backend to start with.
    pub backend: Backend,
    /// Whether a worse one may be taken when the kernel refuses this one after all.
    pub may_fall_back: bool,
    /// Better backends that were passed over, and why.
    pub passed_over: Vec<(Backend, Obstacle)>,
    /// Most processes that can belong to the recording at once.
    pub members_max: u32,
    /// Most ends of processes that the kernel keeps while nobody reads its events.
    pub ended_max: u32,
    /// The ways to see mmap, munmap, mremap, brk and madvise, in the order in which they are
    /// tried; empty for none.
    pub probes: Vec<ProbeWay>,
    /// Whether the one way there is was asked for by name, so that nothing may replace it.
    pub are_probes_named: bool,
    /// Ways that were passed over, and why.
    pub probes_passed_over: Vec<(ProbeWay, ProbeObstacle)>,
}

/// What was asked for by name can't be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The backend that was asked for.
    #[error("the {backend} backend can't be used: {}; {remedy}", .obstacle.reason())]
    Backend {
        /// The backend that can't be used.
        backend: Backend,
        /// What stands against it.
        obstacle: Obstacle,
        /// What the person can do about it.
        remedy: String,
    },
    /// A way to see mmap and brk.
    #[error("--probes {way} is not available: {}; {}", .obstacle.reason(), .obstacle.remedy())]
    Probes {
        /// The way that is not available.
        way: ProbeWay,
        /// What stands against it.
        obstacle: ProbeObstacle,
    },
}

/// Most processes that are followed at once, where the machine can have as many. The kernel
/// allocates what it keeps of one (256 bytes each for process and address space, 512 for its
/// calls where these are watched) when it comes; what a larger table costs is its buckets, 16
/// bytes each, which a full sweep walks, filled or not.
const MEMBERS_MAX: u32 = 64 * 1024;

/// Ends that are kept while the recorder is stopped, 256 bytes each, allocated as they come.
const ENDED_MAX: u32 = 64 * 1024;

impl Plan {
    /// Decides. `asked` is a backend given by name; `None` takes the best.
    ///
    /// # Errors
    /// When what was asked for by name, a backend or probes, can't be had on this host.
    pub fn from_facts(
        facts: &HostFacts,
        asked: Option<Backend>,
        probes: ProbeChoice,
    ) -> Result<Self, PlanError> {
        let mut passed_over = Vec::new();
        let backend = match asked {
            Some(backend) => match backend.obstacle(facts) {
                Some(obstacle) => {
                    return Err(PlanError::Backend {
                        backend,
                        obstacle,
                        remedy: obstacle.remedy(facts),
                    });
                }
                None => backend,
            },
            None => Self::best(facts, &mut passed_over),
        };
        let mut probes_passed_over = Vec::new();
        Ok(Self {
            backend,
            may_fall_back: asked.is_none(),
            passed_over,
            members_max: members_max(facts),
            ended_max: ENDED_MAX,
            probes: ways(facts, backend, probes, &mut probes_passed_over)?,
            are_probes_named: matches!(probes, ProbeChoice::Way(_)),
            probes_passed_over,
        })
    }

    fn best(facts: &HostFacts, passed_over: &mut Vec<(Backend, Obstacle)>) -> Backend {
        for backend in Backend::ALL {
            match backend.obstacle(facts) {
                None => return backend,
                Some(obstacle) => passed_over.push((backend, obstacle)),
            }
        }
        Backend::Sysinfo
    }

    /// One line for the person: what was taken and why nothing better on this host.
    pub fn reason(&self, facts: &HostFacts) -> String {
        match self.passed_over.first() {
            _ if !self.may_fall_back => "asked for by name".to_owned(),
            None => "the best available".to_owned(),
            Some((better, obstacle)) => format!(
                "{better} is not available: {} ({})",
                obstacle.reason(),
                obstacle.remedy(facts)
            ),
        }
    }
}

/// No more than there can be: every process has an id, and a thread. The pids.max of our own
/// cgroup is no bound, for whom we record may live in another one.
fn members_max(facts: &HostFacts) -> u32 {
    [facts.pid_max, facts.threads_max]
        .into_iter()
        .flatten()
        .fold(MEMBERS_MAX, u32::min)
        .max(1)
}

/// The ways that are going to be tried.
fn ways(
    facts: &HostFacts,
    backend: Backend,
    choice: ProbeChoice,
    passed_over: &mut Vec<(ProbeWay, ProbeObstacle)>,
) -> Result<Vec<ProbeWay>, PlanError> {
    let obstacle = |way: ProbeWay| match backend {
        Backend::Bpf => way.obstacle(facts),
        Backend::Procfs | Backend::Sysinfo => Some(ProbeObstacle::Backend),
    };
    match choice {
        ProbeChoice::None => Ok(Vec::new()),
        ProbeChoice::Way(way) => match obstacle(way) {
            None => Ok(vec![way]),
            Some(obstacle) => Err(PlanError::Probes { way, obstacle }),
        },
        ProbeChoice::Auto => {
            let mut ways = Vec::new();
            for way in ProbeWay::ALL {
                match obstacle(way) {
                    _ if !way.is_taken_unasked() => {}
                    None => ways.push(way),
                    Some(obstacle) => passed_over.push((way, obstacle)),
                }
            }
            Ok(ways)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capabilities, Capability};
    use memtrace_model::Bytes;

    fn capable_linux() -> HostFacts {
        HostFacts {
            os: "linux".to_owned(),
            arch: "x86_64".to_owned(),
            btf_bytes: Some(Bytes(5_000_000)),
            capabilities: Some(
                Capabilities::default()
                    .with(Capability::BPF)
                    .with(Capability::PERFMON),
            ),
            is_initial_pid_ns: Some(true),
            is_initial_user_ns: Some(true),
            ..HostFacts::unknown()
        }
    }

    #[test]
    fn there_is_room_for_every_process_that_the_machine_can_have() {
        let mut facts = capable_linux();
        let mut room = |pid_max, threads_max| {
            (facts.pid_max, facts.threads_max) = (pid_max, threads_max);
            plan(&facts, None).unwrap().members_max
        };
        assert_eq!(room(Some(32_768), Some(190_000)), 32_768);
        assert_eq!(room(Some(4_194_304), Some(15_000)), 15_000);
        assert_eq!(room(Some(4_194_304), Some(4_000_000)), MEMBERS_MAX);
        assert_eq!(room(None, None), MEMBERS_MAX);
    }

    fn plan(facts: &HostFacts, asked: Option<Backend>) -> Result<Plan, PlanError> {
        Plan::from_facts(facts, asked, ProbeChoice::Auto)
    }

    #[test]
    fn probes_take_the_ways_that_slow_nobody_else_best_first() {
        let mut facts = capable_linux();
        facts.has_fentry = Some(true);
        facts.has_kprobes = Some(true);
        let all = plan(&facts, None).unwrap();
        assert_eq!(all.probes, [ProbeWay::Fentry, ProbeWay::Kprobe]);
        assert!(!all.are_probes_named);
        facts.has_fentry = Some(false);
        assert_eq!(plan(&facts, None).unwrap().probes, [ProbeWay::Kprobe]);
        facts.has_fentry = Some(true);
        facts.has_kprobes = Some(false);
        assert_eq!(plan(&facts, None).unwrap().probes, [ProbeWay::Fentry]);
        facts.has_fentry = Some(false);
        let none = plan(&facts, None).unwrap();
        assert_eq!(none.probes, []);
        let passed_over = [
            (ProbeWay::Fentry, ProbeObstacle::NoFentry),
            (ProbeWay::Kprobe, ProbeObstacle::NoKprobes),
        ];
        assert_eq!(none.probes_passed_over, passed_over);
    }

    #[test]
    fn what_is_not_known_of_the_kernel_is_tried() {
        let facts = capable_linux();
        assert_eq!((facts.has_fentry, facts.has_kprobes), (None, None));
        let ways = plan(&facts, None).unwrap().probes;
        assert_eq!(ways, [ProbeWay::Fentry, ProbeWay::Kprobe]);
    }

    #[test]
    fn the_way_that_slows_everybody_is_taken_by_name_only() {
        let mut facts = capable_linux();
        facts.has_fentry = Some(false);
        facts.has_kprobes = Some(false);
        let choice = ProbeChoice::Way(ProbeWay::Syscalls);
        let named = Plan::from_facts(&facts, None, choice).unwrap();
        assert_eq!(named.probes, [ProbeWay::Syscalls]);
        assert!(named.are_probes_named);
    }

    #[test]
    fn probes_asked_for_by_name_are_never_replaced() {
        let mut facts = capable_linux();
        facts.has_fentry = Some(false);
        let ask = |facts: &HostFacts, backend, way| {
            Plan::from_facts(facts, backend, ProbeChoice::Way(way)).unwrap_err()
        };
        let refused = ask(&facts, None, ProbeWay::Fentry);
        assert_eq!(
            refused.to_string(),
            "--probes fentry is not available: this kernel can't attach a program to a function; \
             leave out --probes to take the best way, or take --probes syscalls, which slows \
             every system call of the machine"
        );
        for way in ProbeWay::ALL {
            let refused = ask(&facts, Some(Backend::Procfs), way);
            let expected = PlanError::Probes {
                way,
                obstacle: ProbeObstacle::Backend,
            };
            assert_eq!(refused, expected);
        }
        facts.arch = "riscv64".to_owned();
        let refused = ask(&facts, None, ProbeWay::Syscalls);
        assert!(refused.to_string().contains("architecture"), "{refused}");
    }

    #[test]
    fn a_capable_linux_takes_bpf() {
        let plan = plan(&capable_linux(), None).unwrap();
        assert_eq!(plan.backend, Backend::Bpf);
        assert_eq!(plan.passed_over, []);
    }

    #[test]
    fn each_missing_fact_is_named_and_procfs_is_taken() {
        type TakeAway = fn(&mut HostFacts);
        let cases: [(Obstacle, TakeAway); 6] = [
            (Obstacle::NoBtf, |facts| facts.btf_bytes = None),
            (Obstacle::NoCapability, |facts| {
                facts.capabilities = Some(Capabilities::default())
            }),
            (Obstacle::PidNamespace, |facts| {
                facts.is_initial_pid_ns = Some(false)
            }),
            (Obstacle::UserNamespace, |facts| {
                facts.is_initial_user_ns = Some(false)
            }),
            (Obstacle::Lockdown, |facts| {
                facts.lockdown = Some(Lockdown::Confidentiality)
            }),
            (Obstacle::OldKernel, |facts| {
                facts.can_iterate_maps = Some(false)
            }),
        ];
        for (obstacle, take_away) in cases {
            let mut facts = capable_linux();
            take_away(&mut facts);
            let plan = plan(&facts, None).unwrap();
            assert_eq!(plan.backend, Backend::Procfs);
            assert_eq!(plan.passed_over, [(Backend::Bpf, obstacle)]);
            let reason = plan.reason(&facts);
            assert!(reason.contains(&obstacle.remedy(&facts)), "{reason}");
        }
    }

    #[test]
    fn who_lacks_the_rights_is_reported_the_command_that_has_them() {
        let facts = HostFacts {
            euid: Some(1000),
            capabilities: Some(Capabilities::default()),
            program: Some("/venv/bin/memtrace".to_owned()),
            ..capable_linux()
        };
        let command = "run `sudo /venv/bin/memtrace record …`";
        assert_eq!(
            plan(&facts, None).unwrap().reason(&facts),
            format!("bpf is not available: CAP_BPF and CAP_PERFMON are missing ({command})")
        );
        assert_eq!(
            plan(&facts, Some(Backend::Bpf)).unwrap_err().to_string(),
            format!(
                "the bpf backend can't be used: CAP_BPF and CAP_PERFMON are missing; {command}"
            )
        );
    }

    #[test]
    fn a_backend_asked_for_by_name_is_never_replaced() {
        let mut facts = capable_linux();
        facts.btf_bytes = None;
        let error = plan(&facts, Some(Backend::Bpf)).unwrap_err();
        let expected = PlanError::Backend {
            backend: Backend::Bpf,
            obstacle: Obstacle::NoBtf,
            remedy: Obstacle::NoBtf.remedy(&facts),
        };
        assert_eq!(error, expected);
    }

    #[test]
    fn elsewhere_than_on_linux_the_platform_is_asked() {
        let facts = HostFacts {
            os: "macos".to_owned(),
            ..HostFacts::unknown()
        };
        let plan = plan(&facts, None).unwrap();
        assert_eq!(plan.backend, Backend::Sysinfo);
        assert_eq!(plan.passed_over.len(), 2);
    }
}
