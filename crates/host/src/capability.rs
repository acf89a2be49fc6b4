//! Linux capabilities by name.

use serde::{Serialize, Serializer};
use std::fmt;

/// Every capability in the order of its bit (include/uapi/linux/capability.h of 6.18).
const NAMES: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// One capability, as the number of its bit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability(u8);

impl Capability {
    /// Reading files past their permission bits: other users' /proc entries, cgroup files.
    pub const DAC_READ_SEARCH: Self = Self(2);
    /// Locking memory past RLIMIT_MEMLOCK.
    pub const IPC_LOCK: Self = Self(14);
    /// Reading what ptrace access guards: other users' exe links, smaps, hidepid.
    pub const SYS_PTRACE: Self = Self(19);
    /// Everything that BPF, PERFMON and CHECKPOINT_RESTORE were split from.
    pub const SYS_ADMIN: Self = Self(21);
    /// Raising the recorder's own scheduling priority.
    pub const SYS_NICE: Self = Self(23);
    /// Lowering oom_score_adj and raising hard limits.
    pub const SYS_RESOURCE: Self = Self(24);
    /// Reading the kernel log and kernel addresses.
    pub const SYSLOG: Self = Self(34);
    /// Loading tracing programs and reading kernel memory from them (5.8).
    pub const PERFMON: Self = Self(38);
    /// Creating BPF maps and loading BPF programs (5.8).
    pub const BPF: Self = Self(39);
    /// Reading /proc/PID/map_files (5.9).
    pub const CHECKPOINT_RESTORE: Self = Self(40);

    /// Its name as capabilities(7) spells it.
    pub fn name(self) -> &'static str {
        NAMES.get(usize::from(self.0)).copied().unwrap_or("CAP_?")
    }
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// The set as the kernel writes it into the Cap… lines of /proc/PID/status.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether the capability is in the set.
    pub fn has(self, capability: Capability) -> bool {
        self.0 & (1 << capability.0) != 0
    }

    /// The set with one more.
    #[must_use]
    pub fn with(self, capability: Capability) -> Self {
        Self(self.0 | (1 << capability.0))
    }

    /// The set with one less.
    #[must_use]
    pub fn without(self, capability: Capability) -> Self {
        Self(self.0 & !(1 << capability.0))
    }

    /// Those of `wanted` that are not in the set.
    pub fn missing(self, wanted: &[Capability]) -> Vec<Capability> {
        let is_missing = |capability: &Capability| !self.has(*capability);
        wanted.iter().copied().filter(is_missing).collect()
    }

    /// Whether it is in the set, or CAP_SYS_ADMIN, which stands in for those that were split
    /// off from it (bpf_capable(), perfmon_capable(), checkpoint_restore_ns_capable()).
    pub fn covers(self, capability: Capability) -> bool {
        let was_split_off = matches!(
            capability,
            Capability::BPF | Capability::PERFMON | Capability::CHECKPOINT_RESTORE
        );
        self.has(capability) || (was_split_off && self.has(Capability::SYS_ADMIN))
    }

    /// Whether BPF programs that trace can be loaded (5.8).
    pub fn can_trace_with_bpf(self) -> bool {
        self.covers(Capability::BPF) && self.covers(Capability::PERFMON)
    }

    /// The names of those in the set, in the order of their bits. A bit that is newer than
    /// this program's list has no name and is left out.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES
            .iter()
            .enumerate()
            .filter(move |(bit, _)| self.0 & (1 << bit) != 0)
            .map(|(_, name)| *name)
    }
}

impl Serialize for Capabilities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.names())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_carry_the_names_they_stand_for() {
        for (capability, name) in [
            (Capability::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
            (Capability::IPC_LOCK, "CAP_IPC_LOCK"),
            (Capability::SYS_PTRACE, "CAP_SYS_PTRACE"),
            (Capability::SYS_ADMIN, "CAP_SYS_ADMIN"),
            (Capability::SYS_NICE, "CAP_SYS_NICE"),
            (Capability::SYS_RESOURCE, "CAP_SYS_RESOURCE"),
            (Capability::SYSLOG, "CAP_SYSLOG"),
            (Capability::PERFMON, "CAP_PERFMON"),
            (Capability::BPF, "CAP_BPF"),
            (Capability::CHECKPOINT_RESTORE, "CAP_CHECKPOINT_RESTORE"),
        ] {
            assert_eq!(capability.name(), name);
        }
    }

    #[test]
    fn a_full_set_of_6_18_names_all_41() {
        let all = Capabilities::from_bits(0x1ff_ffff_ffff);
        assert_eq!(all.names().count(), 41);
        assert!(all.can_trace_with_bpf());
    }

    #[test]
    fn bpf_without_perfmon_cannot_trace() {
        let bpf = Capabilities::default().with(Capability::BPF);
        assert!(!bpf.can_trace_with_bpf());
        assert!(bpf.with(Capability::PERFMON).can_trace_with_bpf());
        assert_eq!(
            bpf.missing(&[Capability::BPF, Capability::PERFMON]),
            [Capability::PERFMON]
        );
    }
}
