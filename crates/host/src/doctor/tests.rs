//! The checks, one fact taken away at a time.

use super::{CHECKS, Finding, Verdict, diagnose};
use crate::{
    Capabilities, Capability, CgroupVersion, HidePid, HostFacts, Lockdown, MemoryHierarchy,
    NvmlSurvey, SudoUser,
};
use memtrace_model::Bytes;
use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

/// A host on which nothing is missing.
fn good_host() -> HostFacts {
    HostFacts {
        os: "linux".to_owned(),
        kernel: "6.12.0".to_owned(),
        btf_bytes: Some(Bytes(5 << 20)),
        euid: Some(0),
        capabilities: Some(Capabilities::from_bits(u64::MAX)),
        is_initial_pid_ns: Some(true),
        is_initial_user_ns: Some(true),
        is_bpf_stats_enabled: Some(false),
        lockdown: Some(Lockdown::None),
        has_fentry: Some(true),
        has_kprobes: Some(false),
        tracefs: Some(PathBuf::from("/sys/kernel/tracing")),
        is_kmsg_readable: Some(true),
        hidepid: Some(HidePid::Off),
        memory_hierarchy: Some(MemoryHierarchy {
            version: CgroupVersion::V2,
            mount_point: PathBuf::from("/sys/fs/cgroup"),
            root: "/".to_owned(),
        }),
        has_psi: Some(true),
        nofile_soft: Some(1024),
        nofile_hard: Some(1 << 20),
        nvml: Some(NvmlSurvey::absent("libnvidia-ml.so.1: not found")),
        has_nvidia_device: Some(false),
        ..HostFacts::unknown()
    }
}

fn finding(name: &str, facts: &HostFacts) -> Finding {
    let found = diagnose(facts);
    let diagnosis = found.into_iter().find(|diagnosis| diagnosis.check == name);
    diagnosis.unwrap().finding
}

#[test]
fn every_check_is_named_once_and_says_what_it_is_for() {
    let mut names = HashSet::new();
    for check in CHECKS {
        assert!(names.insert(check.name), "two checks named {}", check.name);
        assert!(!check.purpose.is_empty());
    }
}

#[test]
fn on_a_host_with_everything_all_pass() {
    for diagnosis in diagnose(&good_host()) {
        assert_eq!(diagnosis.finding.verdict, Verdict::Pass, "{diagnosis:?}");
        assert_eq!(diagnosis.finding.remedy, None, "{diagnosis:?}");
    }
}

#[test]
fn what_is_taken_away_is_what_warns_and_says_what_to_do() {
    type TakeAway = fn(&mut HostFacts);
    let cases: &[(&str, TakeAway)] = &[
        ("kernel types (BTF)", |facts| facts.btf_bytes = None),
        ("proc", |facts| {
            facts.hidepid = Some(HidePid::Invisible);
            facts.capabilities = Some(Capabilities::default());
        }),
        ("capabilities for BPF", |facts| {
            facts.capabilities = Some(Capabilities::default());
        }),
        ("capabilities to see", |facts| {
            facts.capabilities = Some(Capabilities::default());
        }),
        ("capabilities to last", |facts| {
            facts.capabilities = Some(Capabilities::default());
        }),
        ("user namespace", |facts| {
            facts.is_initial_user_ns = Some(false)
        }),
        ("pid namespace", |facts| {
            facts.is_initial_pid_ns = Some(false)
        }),
        ("lockdown", |facts| {
            facts.lockdown = Some(Lockdown::Confidentiality)
        }),
        ("mmap and brk", |facts| facts.has_fentry = Some(false)),
        ("memory cgroups", |facts| facts.memory_hierarchy = None),
        ("kernel log", |facts| facts.is_kmsg_readable = Some(false)),
        ("pressure (PSI)", |facts| facts.has_psi = Some(false)),
        ("BPF statistics", |facts| {
            facts.is_bpf_stats_enabled = Some(true)
        }),
        ("open files", |facts| facts.nofile_hard = Some(64)),
        ("NVIDIA library (NVML)", |facts| {
            facts.has_nvidia_device = Some(true)
        }),
    ];
    for (name, take_away) in cases {
        let mut facts = good_host();
        take_away(&mut facts);
        let found = finding(name, &facts);
        assert_eq!(found.verdict, Verdict::Warn, "{name}: {found:?}");
        assert!(found.remedy.is_some(), "{name}: {found:?}");
    }
}

#[test]
fn only_a_missing_proc_is_a_failure() {
    let mut facts = HostFacts::unknown();
    facts.os = "linux".to_owned();
    for diagnosis in diagnose(&facts) {
        let is_failure = diagnosis.finding.verdict == Verdict::Fail;
        assert_eq!(is_failure, diagnosis.check == "proc", "{diagnosis:?}");
    }
}

#[test]
fn elsewhere_than_on_linux_nothing_fails() {
    let mut facts = HostFacts::unknown();
    facts.os = "macos".to_owned();
    facts.euid = Some(501);
    for diagnosis in diagnose(&facts) {
        let expected = if diagnosis.check == "kernel" {
            Verdict::Warn
        } else {
            Verdict::Pass
        };
        assert_eq!(diagnosis.finding.verdict, expected, "{diagnosis:?}");
    }
}

#[test]
fn the_remedy_for_capabilities_is_a_line_that_works() {
    let mut facts = good_host();
    let held = Capabilities::from_bits(u64::MAX).without(Capability::SYS_ADMIN);
    facts.euid = Some(1000);
    facts.capabilities = Some(held.without(Capability::PERFMON));
    let found = finding("capabilities for BPF", &facts);
    assert_eq!(found.reason, "missing CAP_PERFMON");
    // The page on privileges shows the same line.
    let page = include_str!("../../../../docs/privileges.md");
    let line = page
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("sudo setcap"))
        .unwrap();
    let program = r#""$(command -v memtrace)""#;
    let sudo = format!("sudo {program} record …");
    assert_eq!(found.remedy.unwrap(), format!("{line}, or {sudo}"));

    facts.program = Some("/home/ada/my venv/bin/memtrace".to_owned());
    let remedy = finding("capabilities for BPF", &facts).remedy.unwrap();
    let path = "'/home/ada/my venv/bin/memtrace'";
    let known = line.replace(program, path);
    assert_eq!(remedy, format!("{known}, or sudo {path} record …"));
}

#[test]
fn what_root_may_see_is_offered_by_the_command_that_runs_as_root() {
    let facts = HostFacts {
        euid: Some(1000),
        program: Some("/venv/bin/memtrace".to_owned()),
        capabilities: Some(Capabilities::default()),
        hidepid: Some(HidePid::Invisible),
        is_kmsg_readable: Some(false),
        ..good_host()
    };
    for (check, capability) in [("proc", "cap_sys_ptrace"), ("kernel log", "cap_syslog")] {
        let remedy = finding(check, &facts).remedy.unwrap();
        let expected = format!("run `sudo /venv/bin/memtrace record …`, or give it {capability}");
        assert!(remedy.starts_with(&expected), "{remedy}");
    }
}

#[test]
fn what_starts_memtrace_for_you_gives_it_the_capabilities_of_the_page() {
    let words = |text: &str, prefix: &str| -> BTreeSet<String> {
        let is_name = |letter: char| letter.is_ascii_uppercase() || letter == '_';
        let rests = text.split(prefix).skip(1);
        rests
            .map(|rest| rest.split(|letter| !is_name(letter)).next().unwrap())
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let page = include_str!("../../../../docs/privileges.md");
    let table: String = page.lines().filter(|line| line.starts_with('|')).collect();
    let on_page = words(&table, "CAP_");
    assert_eq!(on_page.len(), 9, "{on_page:?}");

    let unit = include_str!("../../../../xtask/dist/deb/memtrace.service");
    assert_eq!(words(unit, "CAP_"), on_page);
    let docker = include_str!("../../../../docs/recipes.md");
    let docker = docker.replace("--cap-drop=ALL", "");
    assert_eq!(words(&docker, "--cap-add="), on_page);
    // Of its two containers only the recorder's adds any.
    let pod = include_str!("../../../../docs/kubernetes/daemonset.yaml");
    let (_, added) = pod.split_once("              add:\n").unwrap();
    let entry = "                - ";
    let added: String = added
        .lines()
        .take_while(|line| line.starts_with(entry))
        .collect();
    assert_eq!(words(&added, entry), on_page);
    assert_eq!(pod.matches("add:").count(), 1);
    assert_eq!(pod.matches("drop: [ALL]").count(), 2);
    assert!(!pod.contains("privileged: true"));

    // Everybody may run a file that has them: it gets none that allows more than observing.
    let mut for_files = on_page;
    assert!(for_files.remove("SYS_ADMIN"));
    let line = page.lines().find(|line| line.contains("sudo setcap"));
    let postinst = include_str!("../../../../xtask/dist/deb/postinst");
    for text in [line.unwrap(), postinst] {
        assert_eq!(words(&text.to_uppercase(), "CAP_"), for_files, "{text}");
    }
}

#[test]
fn memory_that_cannot_be_locked_is_a_warning() {
    let mut facts = good_host();
    let held = Capabilities::from_bits(u64::MAX);
    facts.capabilities = Some(held.without(Capability::IPC_LOCK));
    let found = finding("capabilities to last", &facts);
    assert_eq!(found.verdict, Verdict::Warn);
    assert_eq!(found.reason, "missing CAP_IPC_LOCK");
}

#[test]
fn sudo_is_reported_with_the_one_who_called_it() {
    let mut facts = good_host();
    facts.sudo = Some(SudoUser {
        uid: 1000,
        gid: 1000,
        name: Some("ada".to_owned()),
    });
    assert_eq!(
        finding("user", &facts).reason,
        "root for ada, who called sudo"
    );
}
