//! The facts about this machine that decide what a recording can see.
//!
//! Reading them never fails: a fact that could not be learned is `None`, and where the
//! reason is useful it stands in [`HostFacts::unread`]. How they are read is in `read`
//! (Linux) and `platform` (everything else).

use super::capability::Capabilities;
use super::cgroup::MemoryHierarchy;
use super::gpu::NvmlSurvey;
use memtrace_model::{Bytes, PageSize};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What is known about the host. Serialised into `run.json` and by `memtrace doctor`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostFacts {
    /// Name of the host.
    pub hostname: String,
    /// The operating system: "linux", "macos".
    pub os: String,
    /// Release of the kernel, or of the OS where that is what people name.
    pub kernel: String,
    /// Architecture of the machine.
    pub arch: String,
    /// Size of a base page.
    pub page_size_bytes: Bytes,
    /// CPUs that are online.
    pub online_cpu_count: Option<u32>,
    /// CPUs that could come online: the length of a per-CPU array in the kernel.
    pub possible_cpu_count: Option<u32>,
    /// The sysctl kernel.pid_max: the first process id that there can't be.
    pub pid_max: Option<u32>,
    /// The sysctl kernel.threads-max.
    pub threads_max: Option<u32>,
    /// MemTotal of /proc/meminfo, or what the platform has for it; `None` when unknown.
    pub mem_total_bytes: Option<Bytes>,
    /// Size of the kernel's own type information, /sys/kernel/btf/vmlinux; `None` when
    /// there is none.
    pub btf_bytes: Option<Bytes>,
    /// The file that this process runs, /proc/self/exe.
    pub program: Option<String>,
    /// Effective user id of this process.
    pub euid: Option<u32>,
    /// The user who called sudo, when memtrace runs under it.
    pub sudo: Option<SudoUser>,
    /// Effective capabilities of this process.
    pub capabilities: Option<Capabilities>,
    /// Whether this process is in the pid namespace of the machine itself, so that its
    /// process ids are the kernel's.
    pub is_initial_pid_ns: Option<bool>,
    /// Whether this process is in the user namespace of the machine itself. In any other
    /// one its capabilities do not reach BPF.
    pub is_initial_user_ns: Option<bool>,
    /// The sysctl kernel.unprivileged_bpf_disabled.
    pub unprivileged_bpf_disabled: Option<i32>,
    /// The sysctl kernel.bpf_stats_enabled.
    pub is_bpf_stats_enabled: Option<bool>,
    /// Whether BPF programs can go over the elements of a map (bpf_for_each_map_elem, Linux 5.13);
    /// `None` before [`HostFacts::try_kernel`].
    pub can_iterate_maps: Option<bool>,
    /// The sysctl kernel.perf_event_paranoid.
    pub perf_event_paranoid: Option<i32>,
    /// The lockdown mode; `None` also where the kernel was built without it.
    pub lockdown: Option<Lockdown>,
    /// Whether the kernel lets a program be attached to a function (fentry, fexit); `None`
    /// before [`HostFacts::try_kernel`].
    pub has_fentry: Option<bool>,
    /// Whether the kernel has kprobes that perf_event_open can reach.
    pub has_kprobes: Option<bool>,
    /// Where tracefs is mounted and readable.
    pub tracefs: Option<PathBuf>,
    /// Whether /proc/kallsyms shows addresses.
    pub is_kallsyms_readable: Option<bool>,
    /// Whether /dev/kmsg can be opened for reading.
    pub is_kmsg_readable: Option<bool>,
    /// The hidepid option of the mounted /proc.
    pub hidepid: Option<HidePid>,
    /// Where the memory controller lives; `None` when it is nowhere mounted.
    pub memory_hierarchy: Option<MemoryHierarchy>,
    /// Whether /proc/pressure/memory can be read.
    pub has_psi: Option<bool>,
    /// Soft limit on open descriptors; `u64::MAX` when there is none.
    pub nofile_soft: Option<u64>,
    /// Hard limit on open descriptors; `u64::MAX` when there is none.
    pub nofile_hard: Option<u64>,
    /// The container engine, when something says that this process runs inside one.
    pub container: Option<String>,
    /// What NVIDIA's management library answers; `None` where it was not asked.
    pub nvml: Option<NvmlSurvey>,
    /// Whether the NVIDIA driver has a device here.
    pub has_nvidia_device: Option<bool>,
    /// Why a fact is unknown, by the name of its field.
    pub unread: BTreeMap<&'static str, String>,
}

/// The user behind sudo: who owns the recording and runs the traced command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SudoUser {
    /// Their user id: SUDO_UID.
    pub uid: u32,
    /// Their group id: SUDO_GID.
    pub gid: u32,
    /// Their name: SUDO_USER; `None` where that is not set.
    pub name: Option<String>,
}

/// How much the kernel lets root do to itself (/sys/kernel/security/lockdown).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lockdown {
    /// Nothing is restricted.
    None,
    /// The running kernel cannot be changed; BPF can still read it.
    Integrity,
    /// Kernel memory cannot be read either: bpf_probe_read_kernel is refused
    /// (LOCKDOWN_BPF_READ_KERNEL).
    Confidentiality,
}

/// What /proc shows of other users' processes (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HidePid {
    /// Everything that file permissions allow.
    Off,
    /// Their directories are listed but cannot be entered.
    NoAccess,
    /// They are not listed at all.
    Invisible,
    /// Only processes that the reader may ptrace are listed (5.8).
    Ptraceable,
}

impl HidePid {
    /// The option's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::NoAccess => "noaccess",
            Self::Invisible => "invisible",
            Self::Ptraceable => "ptraceable",
        }
    }
}

impl HostFacts {
    /// A host about which nothing is known: where every reader starts, and what tests of
    /// decisions fill in.
    pub fn unknown() -> Self {
        Self {
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            page_size_bytes: Bytes(4096),
            ..Self::default()
        }
    }

    /// Asks the kernel by trying what no file tells. Takes privilege, time and memory, so
    /// it is no part of reading; without the privilege nothing is learned.
    pub fn try_kernel(&mut self) {
        #[cfg(target_os = "linux")]
        if self.btf_bytes.is_some() && self.may_trace_with_bpf() == Some(true) {
            self.can_iterate_maps = super::trial::has_map_iteration();
            let tried = super::trial::attach_to_function();
            self.has_fentry = Some(tried.is_ok());
            if let Err(reason) = tried {
                self.note_unread("has_fentry", reason);
            }
        }
    }

    /// The size of a base page.
    pub fn page_size(&self) -> PageSize {
        PageSize(self.page_size_bytes.0)
    }

    /// Whether this process may load tracing programs: the capabilities, in the user
    /// namespace where they count. `None` when either is unknown.
    pub fn may_trace_with_bpf(&self) -> Option<bool> {
        let is_capable = self.capabilities?.can_trace_with_bpf();
        Some(is_capable && self.is_initial_user_ns != Some(false))
    }

    /// Notes why a fact is unknown.
    pub(super) fn note_unread(&mut self, fact: &'static str, reason: impl ToString) {
        self.unread.insert(fact, reason.to_string());
    }
}
