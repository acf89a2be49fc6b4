//! The checks themselves: facts in, a finding out.
//!
//! A check fails only where nothing can be recorded; polling /proc needs no privilege, so
//! whatever stands against BPF is a warning.

use super::super::remedy::{CONFINED_ROOT, program, record_as_root_or_with, sudo_record};
use super::Finding;
use crate::{Capability, CgroupVersion, HidePid, HostFacts, Lockdown, NvmlSurvey, ProbeWay};

/// What a check of Linux says elsewhere.
const NOT_LINUX: &str = "not asked: this is not Linux";

fn is_linux(facts: &HostFacts) -> bool {
    facts.os == "linux"
}

/// Adds why a fact is unknown, where that was noted.
fn with_cause(reason: &str, fact: &str, facts: &HostFacts) -> String {
    match facts.unread.get(fact) {
        Some(cause) => format!("{reason}: {cause}"),
        None => reason.to_owned(),
    }
}

pub(super) fn kernel(facts: &HostFacts) -> Finding {
    let found = format!("{} {} on {}", facts.os, facts.kernel, facts.arch);
    if is_linux(facts) {
        Finding::pass(found)
    } else {
        Finding::warn_only(format!("{found}: no BPF, no /proc, no cgroups"))
    }
}

pub(super) fn proc(facts: &HostFacts) -> Finding {
    if !is_linux(facts) {
        return Finding::pass(NOT_LINUX);
    }
    let Some(hidepid) = facts.hidepid else {
        return Finding::fail(
            with_cause("not mounted at /proc", "hidepid", facts),
            "sudo mount -t proc proc /proc",
        );
    };
    let how = hidepid.as_str();
    match (hidepid, facts.hides_processes()) {
        (HidePid::Off, _) => Finding::pass("mounted, hides nothing"),
        (_, None) => Finding::pass(format!(
            "mounted with hidepid={how}, which CAP_SYS_PTRACE overrides"
        )),
        (_, Some(_)) => Finding::warn(
            format!("mounted with hidepid={how}: other users' processes are hidden"),
            facts.to_see_hidden(),
        ),
    }
}

pub(super) fn btf(facts: &HostFacts) -> Finding {
    match facts.btf_bytes {
        _ if !is_linux(facts) => Finding::pass(NOT_LINUX),
        Some(size) => Finding::pass(format!(
            "/sys/kernel/btf/vmlinux, {:.1} MiB",
            size.0 as f64 / f64::from(1 << 20)
        )),
        None => Finding::warn(
            with_cause("/sys/kernel/btf/vmlinux can't be found", "btf_bytes", facts),
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y",
        ),
    }
}

const FOR_BPF: [Capability; 2] = [Capability::BPF, Capability::PERFMON];
const TO_SEE: [Capability; 3] = [
    Capability::SYS_PTRACE,
    Capability::DAC_READ_SEARCH,
    Capability::CHECKPOINT_RESTORE,
];
const TO_LAST: [Capability; 2] = [Capability::SYS_RESOURCE, Capability::IPC_LOCK];
/// What the kernel log takes; asked for by trying.
const FOR_THE_LOG: [Capability; 1] = [Capability::SYSLOG];

pub(super) fn bpf_capabilities(facts: &HostFacts) -> Finding {
    capabilities(&FOR_BPF, facts)
}

pub(super) fn seeing_capabilities(facts: &HostFacts) -> Finding {
    capabilities(&TO_SEE, facts)
}

pub(super) fn lasting_capabilities(facts: &HostFacts) -> Finding {
    capabilities(&TO_LAST, facts)
}

fn capabilities(wanted: &[Capability], facts: &HostFacts) -> Finding {
    if !is_linux(facts) {
        return Finding::pass(NOT_LINUX);
    }
    let Some(held) = facts.capabilities else {
        return Finding::warn_only(with_cause("unknown", "capabilities", facts));
    };
    let names = |set: &mut dyn Iterator<Item = &Capability>| {
        let names: Vec<&str> = set.map(|capability| capability.name()).collect();
        names.join(", ")
    };
    let missing = names(&mut wanted.iter().filter(|wanted| !held.covers(**wanted)));
    if missing.is_empty() {
        Finding::pass(names(&mut wanted.iter()))
    } else {
        Finding::warn(format!("missing {missing}"), capability_remedy(facts))
    }
}

/// The one line that gives memtrace all it can use.
fn capability_remedy(facts: &HostFacts) -> String {
    if facts.euid == Some(0) {
        return CONFINED_ROOT.to_owned();
    }
    let all = FOR_BPF
        .iter()
        .chain(&TO_SEE)
        .chain(&TO_LAST)
        .chain(&FOR_THE_LOG);
    let names: Vec<String> = all
        .map(|capability| capability.name().to_lowercase())
        .collect();
    format!(
        "sudo setcap {}+ep {}, or {}",
        names.join(","),
        program(facts),
        sudo_record(facts)
    )
}

pub(super) fn user_namespace(facts: &HostFacts) -> Finding {
    match facts.is_initial_user_ns {
        _ if !is_linux(facts) => Finding::pass(NOT_LINUX),
        Some(true) => Finding::pass("the machine's own"),
        Some(false) => Finding::warn(
            "another one, as in a rootless container: BPF is refused",
            "run memtrace on the host, or in a container without its own user namespace",
        ),
        None => Finding::warn_only("unknown: /proc/self/ns/user can't be read"),
    }
}

pub(super) fn pid_namespace(facts: &HostFacts) -> Finding {
    let container = facts.container.as_deref();
    match facts.is_initial_pid_ns {
        _ if !is_linux(facts) => Finding::pass(NOT_LINUX),
        Some(true) => Finding::pass("the machine's own"),
        Some(false) => Finding::warn(
            format!(
                "another one{}: only its processes are seen, by polling",
                container.map_or(String::new(), |engine| format!(" ({engine})"))
            ),
            "run memtrace on the host, or the container with --pid=host (hostPID: true)",
        ),
        None => Finding::warn_only("unknown: /proc/self/ns/pid can't be read"),
    }
}

pub(super) fn lockdown(facts: &HostFacts) -> Finding {
    match facts.lockdown {
        _ if !is_linux(facts) => Finding::pass(NOT_LINUX),
        Some(Lockdown::None) => Finding::pass("none"),
        Some(Lockdown::Integrity) => Finding::pass("integrity: reading is allowed"),
        Some(Lockdown::Confidentiality) => Finding::warn(
            "confidentiality: BPF programs may not read kernel memory",
            "boot without lockdown=confidentiality",
        ),
        None => Finding::pass("none: the kernel was built without it, or does not say"),
    }
}

/// Which way the calls on address spaces are seen, and what that costs.
pub(super) fn probes(facts: &HostFacts) -> Finding {
    if !is_linux(facts) {
        return Finding::pass(NOT_LINUX);
    }
    let by = |way: ProbeWay| {
        let (summary, unseen) = (way.summary(), way.unseen());
        Finding::pass(format!(
            "{way}: {summary}. Not seen: {unseen}. What it costs here: --measure"
        ))
    };
    let arch = ProbeWay::Syscalls.obstacle(facts);
    match (facts.has_fentry, facts.has_kprobes) {
        _ if arch.is_some() => Finding::warn_only(arch.map_or("", |why| why.reason())),
        (Some(true), _) => by(ProbeWay::Fentry),
        (None, _) => Finding::warn_only("not tried: that takes the capabilities for BPF"),
        (Some(false), Some(true)) => by(ProbeWay::Kprobe),
        (Some(false), _) => Finding::warn(
            with_cause(
                "not seen: there are no kprobes, and fentry is refused",
                "has_fentry",
                facts,
            ),
            "memtrace record --probes syscalls sees them; it slows every system call of the \
             machine while the recording runs (memtrace doctor --measure says by how much)",
        ),
    }
}

pub(super) fn tracefs(facts: &HostFacts) -> Finding {
    match &facts.tracefs {
        _ if !is_linux(facts) => Finding::pass(NOT_LINUX),
        Some(directory) => Finding::pass(directory.display().to_string()),
        None => Finding::pass(with_cause(
            "not usable; memtrace does without",
            "tracefs",
            facts,
        )),
    }
}

pub(super) fn memory_cgroups(facts: &HostFacts) -> Finding {
    match &facts.memory_hierarchy {
        _ if !is_linux(facts) => Finding::pass(NOT_LINUX),
        Some(hierarchy) => {
            let at = hierarchy.mount_point.display();
            match hierarchy.version {
                CgroupVersion::V2 => Finding::pass(format!("v2 at {at}")),
                CgroupVersion::V1 => Finding::pass(format!(
                    "v1 at {at}: no slab, page tables or pressure of each group"
                )),
            }
        }
        None => Finding::warn(
            with_cause("none", "memory_hierarchy", facts),
            "boot without cgroup_disable=memory, and mount the hierarchy: \
             sudo mount -t cgroup2 none /sys/fs/cgroup",
        ),
    }
}

pub(super) fn kernel_log(facts: &HostFacts) -> Finding {
    match facts.is_kmsg_readable {
        _ if !is_linux(facts) => Finding::pass(NOT_LINUX),
        Some(true) => Finding::pass("/dev/kmsg can be read"),
        _ => Finding::warn(
            with_cause("/dev/kmsg can't be read", "is_kmsg_readable", facts),
            format!(
                "{}; in a container: --device /dev/kmsg",
                record_as_root_or_with("cap_syslog", facts)
            ),
        ),
    }
}

pub(super) fn pressure(facts: &HostFacts) -> Finding {
    match facts.has_psi {
        _ if !is_linux(facts) => Finding::pass(NOT_LINUX),
        Some(true) => Finding::pass("/proc/pressure/memory can be read"),
        _ => Finding::warn(
            with_cause("/proc/pressure/memory can't be read", "has_psi", facts),
            "boot with psi=1 a kernel built with CONFIG_PSI=y",
        ),
    }
}

pub(super) fn bpf_statistics(facts: &HostFacts) -> Finding {
    match facts.is_bpf_stats_enabled {
        _ if !is_linux(facts) => Finding::pass(NOT_LINUX),
        Some(true) => Finding::warn(
            "switched on for every BPF program on this machine: each run costs more",
            "sudo sysctl kernel.bpf_stats_enabled=0",
        ),
        Some(false) => Finding::pass("off until they are needed"),
        None => Finding::pass("not offered before 5.1, or not readable"),
    }
}

/// Below this memtrace would keep too few descriptors to be worth it.
const NOFILE_USEFUL: u64 = 1024;

pub(super) fn open_files(facts: &HostFacts) -> Finding {
    match (facts.nofile_soft, facts.nofile_hard) {
        (Some(_), Some(hard)) if hard >= NOFILE_USEFUL => Finding::pass(format!(
            "up to {}",
            if hard == u64::MAX {
                "any number".to_owned()
            } else {
                hard.to_string()
            }
        )),
        (Some(_), Some(hard)) => Finding::warn(
            format!("at most {hard}"),
            format!("ulimit -Hn {NOFILE_USEFUL}"),
        ),
        _ => Finding::pass("not asked on this platform"),
    }
}

pub(super) fn user(facts: &HostFacts) -> Finding {
    let who = match facts.euid {
        Some(0) => "root".to_owned(),
        Some(uid) => format!("uid {uid}"),
        None => return Finding::warn_only("unknown"),
    };
    Finding::pass(match &facts.sudo {
        Some(sudo) => {
            let name = sudo.name.clone().unwrap_or_else(|| sudo.uid.to_string());
            format!("{who} for {name}, who called sudo")
        }
        None => who,
    })
}

pub(super) fn nvml(facts: &HostFacts) -> Finding {
    let Some(survey) = &facts.nvml else {
        return Finding::pass("not asked");
    };
    let has_device = facts.has_nvidia_device == Some(true);
    match &survey.failure {
        None => Finding::pass(nvml_answers(survey)),
        Some(reason) if survey.is_absent && !has_device => {
            Finding::pass(format!("no NVIDIA device here, and no library ({reason})"))
        }
        Some(reason) if survey.is_absent => Finding::warn(
            format!("there is an NVIDIA device, but no library: {reason}"),
            "install the driver's libraries; in a container set NVIDIA_DRIVER_CAPABILITIES=utility",
        ),
        Some(reason) => Finding::warn_only(reason.clone()),
    }
}

/// The devices, and each call with its cost.
fn nvml_answers(survey: &NvmlSurvey) -> String {
    let driver = survey.driver.as_deref().unwrap_or("of unknown version");
    let devices = survey.devices.iter().map(|device| {
        let index = device
            .index
            .map_or(String::new(), |index| format!("{index} "));
        let name = device.name.as_deref().unwrap_or("without a name");
        let memory = match device.total_bytes {
            Some(total) => format!("{:.1} GiB", total.0 as f64 / f64::from(1 << 30)),
            None => "no memory of its own".to_owned(),
        };
        let unified = if device.is_unified {
            ", shared with the machine"
        } else {
            ""
        };
        format!("{index}{name} ({}, {memory}{unified})", device.device)
    });
    let calls = survey.calls.iter().map(|call| {
        let micros = call.cost_ns.0 as f64 / 1e3;
        match &call.failure {
            None => format!("{} {micros:.0} µs", call.name),
            Some(failure) => format!("{}: {failure}", call.name),
        }
    });
    let devices: Vec<String> = devices.collect();
    let calls: Vec<String> = calls.collect();
    format!(
        "driver {driver}; {}; {}",
        devices.join(", "),
        calls.join(", ")
    )
}
