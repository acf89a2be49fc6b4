//! Reads the facts of a Linux host.
//!
//! Everything that is a file is read below a root directory, so that tests give small
//! fake trees; the few facts that come from system calls are filled in at the end.

use super::capability::Capabilities;
use super::cgroup::{CgroupVersion, MemoryHierarchy};
use super::facts::{HidePid, HostFacts, Lockdown, SudoUser};
use super::mounts::parse_mountinfo;
use super::namespace::Initial;
use memtrace_model::Bytes;
use procfs::process::MountInfo;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

impl HostFacts {
    /// Reads the facts of this machine.
    pub fn read() -> Self {
        let mut facts = facts_below(Path::new("/"), &|name| std::env::var(name).ok());
        let uname = rustix::system::uname();
        facts.hostname = uname.nodename().to_string_lossy().into_owned();
        facts.kernel = uname.release().to_string_lossy().into_owned();
        facts.arch = uname.machine().to_string_lossy().into_owned();
        if let Ok(bytes) = i64::try_from(rustix::param::page_size()) {
            facts.page_size_bytes = Bytes(bytes);
        }
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        facts.nofile_soft = Some(files.current.unwrap_or(u64::MAX));
        facts.nofile_hard = Some(files.maximum.unwrap_or(u64::MAX));
        facts
    }
}

/// What the files below `root` and the environment tell.
fn facts_below(root: &Path, env: &dyn Fn(&str) -> Option<String>) -> HostFacts {
    let tree = Tree(root);
    let mut facts = HostFacts::unknown();
    read_machine(&tree, &mut facts);
    read_identity(&tree, env, &mut facts);
    read_bpf(&tree, &mut facts);
    read_mounts(&tree, &mut facts);
    facts.is_kmsg_readable = Some(match tree.open("dev/kmsg") {
        Ok(_) => true,
        Err(error) => {
            facts.note_unread("is_kmsg_readable", error);
            false
        }
    });
    // PSI can be built in and switched off (psi=0); then the file is there and reading it
    // fails with EOPNOTSUPP.
    facts.has_psi = Some(match tree.text("proc/pressure/memory") {
        Ok(_) => true,
        Err(error) => {
            facts.note_unread("has_psi", error);
            false
        }
    });
    facts.container = container(&tree, env);
    facts.has_nvidia_device = Some(tree.exists("dev/nvidiactl"));
    facts
}

/// A directory that stands for "/".
struct Tree<'a>(&'a Path);

impl Tree<'_> {
    fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.0.join(below)
    }

    fn open(&self, below: impl AsRef<Path>) -> io::Result<File> {
        File::open(self.path(below))
    }

    fn exists(&self, below: &str) -> bool {
        self.path(below).exists()
    }

    fn bytes(&self, below: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        fs::read(self.path(below))
    }

    fn text(&self, below: impl AsRef<Path>) -> io::Result<String> {
        let bytes = self.bytes(below)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }

    fn number<N: std::str::FromStr>(&self, below: &str) -> Option<N> {
        self.text(below).ok()?.parse().ok()
    }
}

fn read_machine(tree: &Tree<'_>, facts: &mut HostFacts) {
    let cpus = |which: &str| {
        let list = tree.text(format!("sys/devices/system/cpu/{which}")).ok()?;
        count_cpus(&list)
    };
    facts.online_cpu_count = cpus("online");
    facts.possible_cpu_count = cpus("possible");
    facts.pid_max = tree.number("proc/sys/kernel/pid_max");
    facts.threads_max = tree.number("proc/sys/kernel/threads-max");
    facts.mem_total_bytes = tree.text("proc/meminfo").ok().and_then(|meminfo| {
        let kib: i64 = field(&meminfo, "MemTotal:")?.parse().ok()?;
        Some(Bytes(kib.checked_mul(1024)?))
    });
}

/// The length of a CPU list like `0-3,8,10-11`.
fn count_cpus(list: &str) -> Option<u32> {
    list.split(',').try_fold(0_u32, |count, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first: u32 = first.parse().ok()?;
        let last: u32 = last.parse().ok()?;
        count.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// The first word after `key` in a text of `key value` lines.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.split_whitespace().next())
}

fn read_identity(tree: &Tree<'_>, env: &dyn Fn(&str) -> Option<String>, facts: &mut HostFacts) {
    match tree.text("proc/self/status") {
        Ok(status) => {
            let bits = field(&status, "CapEff:").and_then(|hex| u64::from_str_radix(hex, 16).ok());
            facts.capabilities = bits.map(Capabilities::from_bits);
            // `Uid: real effective saved filesystem`
            let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
            let effective = uids.and_then(|uids| uids.split_whitespace().nth(1));
            facts.euid = effective.and_then(|uid| uid.parse().ok());
        }
        Err(error) => facts.note_unread("capabilities", error),
    }
    let program = fs::read_link(tree.path("proc/self/exe"));
    facts.program = program
        .ok()
        .and_then(|path| path.to_str().map(str::to_owned));
    facts.sudo = sudo_user(env);
    facts.is_initial_pid_ns = Initial::Pid.is_own(tree.0);
    facts.is_initial_user_ns = Initial::User.is_own(tree.0);
}

fn sudo_user(env: &dyn Fn(&str) -> Option<String>) -> Option<SudoUser> {
    Some(SudoUser {
        uid: env("SUDO_UID")?.parse().ok()?,
        gid: env("SUDO_GID")?.parse().ok()?,
        name: env("SUDO_USER"),
    })
}

fn read_bpf(tree: &Tree<'_>, facts: &mut HostFacts) {
    match fs::metadata(tree.path("sys/kernel/btf/vmlinux")) {
        Ok(file) => facts.btf_bytes = i64::try_from(file.len()).ok().map(Bytes),
        Err(error) => facts.note_unread("btf_bytes", error),
    }
    facts.unprivileged_bpf_disabled = tree.number("proc/sys/kernel/unprivileged_bpf_disabled");
    facts.is_bpf_stats_enabled = tree
        .number("proc/sys/kernel/bpf_stats_enabled")
        .map(|value: i32| value != 0);
    facts.perf_event_paranoid = tree.number("proc/sys/kernel/perf_event_paranoid");
    // The kind of perf event by which kprobes are attached (CONFIG_KPROBE_EVENTS, 4.17).
    facts.has_kprobes = Some(tree.exists("sys/bus/event_source/devices/kprobe/type"));
    match tree.text("sys/kernel/security/lockdown") {
        Ok(modes) => facts.lockdown = lockdown(&modes),
        Err(error) => facts.note_unread("lockdown", error),
    }
    match is_kallsyms_readable(tree) {
        Ok(is_readable) => facts.is_kallsyms_readable = is_readable,
        Err(error) => facts.note_unread("is_kallsyms_readable", error),
    }
}

/// The mode in brackets: `none [integrity] confidentiality`.
fn lockdown(modes: &str) -> Option<Lockdown> {
    match modes.split_once('[')?.1.split_once(']')?.0 {
        "none" => Some(Lockdown::None),
        "integrity" => Some(Lockdown::Integrity),
        "confidentiality" => Some(Lockdown::Confidentiality),
        _ => None,
    }
}

/// kallsyms is there for everyone, but its addresses read as zero without the right
/// (kallsyms_show_value()). The first few are enough: the whole file is megabytes.
/// The very first symbols of x86 are per-CPU offsets near zero, so one non-zero address
/// among them decides.
fn is_kallsyms_readable(tree: &Tree<'_>) -> io::Result<Option<bool>> {
    let mut head = Vec::new();
    tree.open("proc/kallsyms")?
        .take(4096)
        .read_to_end(&mut head)?;
    let head = String::from_utf8_lossy(&head);
    let mut addresses = head.lines().filter_map(|line| line.split(' ').next());
    if head.is_empty() {
        return Ok(None);
    }
    Ok(Some(addresses.any(|address| {
        u64::from_str_radix(address, 16).is_ok_and(|address| address != 0)
    })))
}

fn read_mounts(tree: &Tree<'_>, facts: &mut HostFacts) {
    let mounts = match tree.bytes("proc/self/mountinfo") {
        Ok(table) => parse_mountinfo(&table),
        Err(error) => {
            for fact in ["hidepid", "memory_hierarchy", "tracefs"] {
                facts.note_unread(fact, format!("/proc/self/mountinfo: {error}"));
            }
            return;
        }
    };
    // A later mount on the same place hides an earlier one.
    facts.hidepid = mounts
        .iter()
        .rfind(|mount| mount.fs_type == "proc" && mount.mount_point == Path::new("/proc"))
        .map(|proc| hidepid(proc.super_options.get("hidepid").and_then(Option::as_deref)));
    match tracefs(tree, &mounts) {
        Ok(directory) => facts.tracefs = Some(directory),
        Err(reason) => facts.note_unread("tracefs", reason),
    }
    facts.memory_hierarchy = memory_hierarchy(tree, &mounts);
    if facts.memory_hierarchy.is_none() {
        facts.note_unread(
            "memory_hierarchy",
            "no mounted hierarchy has the controller",
        );
    }
}

/// Written as a number before 5.8 and as a word since (proc_show_options()).
fn hidepid(option: Option<&str>) -> HidePid {
    match option {
        Some("1" | "noaccess") => HidePid::NoAccess,
        Some("2" | "invisible") => HidePid::Invisible,
        Some("4" | "ptraceable") => HidePid::Ptraceable,
        _ => HidePid::Off,
    }
}

/// The first tracefs that can be read; else why none can.
fn tracefs(tree: &Tree<'_>, mounts: &[MountInfo]) -> Result<PathBuf, String> {
    let mut reason = "not mounted".to_owned();
    for mount in mounts.iter().filter(|mount| mount.fs_type == "tracefs") {
        let below = mount
            .mount_point
            .strip_prefix("/")
            .unwrap_or(&mount.mount_point);
        match fs::read_dir(tree.path(below.join("events"))) {
            Ok(_) => return Ok(mount.mount_point.clone()),
            Err(error) => reason = format!("{}: {error}", mount.mount_point.display()),
        }
    }
    Err(reason)
}

/// The controller can be on one hierarchy only. A v1 mount that names it decides; else
/// the v2 hierarchy, if it lists it.
fn memory_hierarchy(tree: &Tree<'_>, mounts: &[MountInfo]) -> Option<MemoryHierarchy> {
    let found = |mount: &MountInfo, version| MemoryHierarchy {
        version,
        mount_point: mount.mount_point.clone(),
        root: mount.root.clone(),
    };
    let is_v1 = |mount: &&MountInfo| {
        mount.fs_type == "cgroup" && mount.super_options.contains_key("memory")
    };
    if let Some(mount) = mounts.iter().find(is_v1) {
        return Some(found(mount, CgroupVersion::V1));
    }
    let is_v2 = |mount: &&MountInfo| {
        let below = mount
            .mount_point
            .strip_prefix("/")
            .unwrap_or(&mount.mount_point);
        mount.fs_type == "cgroup2"
            && tree
                .text(below.join("cgroup.controllers"))
                .is_ok_and(|list| list.split(' ').any(|name| name == "memory"))
    };
    let mount = mounts.iter().find(is_v2)?;
    Some(found(mount, CgroupVersion::V2))
}

/// What container engines leave inside a container for programs to find.
fn container(tree: &Tree<'_>, env: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    if env("KUBERNETES_SERVICE_HOST").is_some() {
        return Some("kubernetes".to_owned());
    }
    if tree.exists(".dockerenv") {
        return Some("docker".to_owned());
    }
    if tree.exists("run/.containerenv") {
        return Some("podman".to_owned());
    }
    // systemd's container interface: nspawn, lxc.
    tree.text("run/systemd/container")
        .ok()
        .or_else(|| env("container"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Capability;
    use tempfile::TempDir;

    fn tree(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn facts(root: &TempDir) -> HostFacts {
        facts_below(root.path(), &|_| None)
    }

    #[test]
    fn an_empty_tree_gives_facts_that_are_unknown_and_say_why() {
        let facts = facts(&tree(&[]));
        assert_eq!(facts.capabilities, None);
        assert_eq!(facts.hidepid, None);
        assert_eq!(facts.is_initial_pid_ns, None);
        assert_eq!(facts.is_kmsg_readable, Some(false));
        for fact in ["capabilities", "hidepid", "btf_bytes", "lockdown"] {
            assert!(facts.unread.contains_key(fact), "{fact}");
        }
    }

    #[test]
    fn the_effective_ids_are_read_and_not_the_real_ones() {
        let status =
            "Name:\tmemtrace\nUid:\t1000\t0\t0\t0\nCapPrm:\t0\nCapEff:\t000000c000000000\n";
        let facts = facts(&tree(&[("proc/self/status", status)]));
        assert_eq!(facts.euid, Some(0));
        let capabilities = facts.capabilities.unwrap();
        assert!(capabilities.has(Capability::BPF) && capabilities.has(Capability::PERFMON));
        assert!(!capabilities.has(Capability::SYS_ADMIN));
    }

    #[test]
    fn a_v1_mount_of_the_memory_controller_wins_over_the_unified_hierarchy_beside_it() {
        let mountinfo = "\
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
        let facts = facts(&tree(&[
            ("proc/self/mountinfo", mountinfo),
            ("sys/fs/cgroup/unified/cgroup.controllers", "\n"),
        ]));
        let hierarchy = facts.memory_hierarchy.unwrap();
        assert_eq!(hierarchy.version, CgroupVersion::V1);
        assert_eq!(hierarchy.mount_point, Path::new("/sys/fs/cgroup/memory"));
    }

    #[test]
    fn the_unified_hierarchy_counts_only_where_it_has_the_memory_controller() {
        let mountinfo = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let hierarchy = |controllers| {
            facts(&tree(&[
                ("proc/self/mountinfo", mountinfo),
                ("sys/fs/cgroup/cgroup.controllers", controllers),
            ]))
            .memory_hierarchy
        };
        assert_eq!(
            hierarchy("cpuset cpu io memory pids\n").map(|found| found.version),
            Some(CgroupVersion::V2)
        );
        assert_eq!(hierarchy("cpuset cpu io pids\n"), None);
    }

    #[test]
    fn hidepid_is_understood_as_number_and_as_word() {
        let hidden = |option: &str| {
            let line = format!("22 27 0:21 / /proc rw - proc proc rw,{option}\n");
            facts(&tree(&[("proc/self/mountinfo", &line)])).hidepid
        };
        assert_eq!(hidden("hidepid=2"), Some(HidePid::Invisible));
        assert_eq!(hidden("hidepid=noaccess"), Some(HidePid::NoAccess));
        assert_eq!(hidden("gid=4"), Some(HidePid::Off));
    }

    #[test]
    fn tracefs_that_is_mounted_but_closed_is_not_usable() {
        let mountinfo = "50 23 0:12 / /sys/kernel/tracing rw - tracefs tracefs rw\n";
        let closed = facts(&tree(&[("proc/self/mountinfo", mountinfo)]));
        assert_eq!(closed.tracefs, None);
        assert!(closed.unread["tracefs"].starts_with("/sys/kernel/tracing"));
        let open = facts(&tree(&[
            ("proc/self/mountinfo", mountinfo),
            ("sys/kernel/tracing/events/enable", "0"),
        ]));
        assert_eq!(
            open.tracefs.as_deref(),
            Some(Path::new("/sys/kernel/tracing"))
        );
    }

    #[test]
    fn kallsyms_with_all_addresses_zero_is_not_readable() {
        let readable = |text| facts(&tree(&[("proc/kallsyms", text)])).is_kallsyms_readable;
        assert_eq!(
            readable("0000000000000000 A a\n0000000000000000 T b\n"),
            Some(false)
        );
        assert_eq!(
            readable("0000000000000000 A a\nffffffff81000000 T b\n"),
            Some(true)
        );
        assert_eq!(readable(""), None);
    }

    #[test]
    fn cpu_lists_are_counted() {
        assert_eq!(count_cpus("0"), Some(1));
        assert_eq!(count_cpus("0-3,8,10-11"), Some(7));
        assert_eq!(count_cpus("3-0"), None);
        assert_eq!(count_cpus(""), None);
    }

    #[test]
    fn sudo_is_known_by_uid_and_gid() {
        let env = |name: &str| match name {
            "SUDO_UID" | "SUDO_GID" => Some("1000".to_owned()),
            "SUDO_USER" => Some("ada".to_owned()),
            _ => None,
        };
        let sudo = facts_below(tree(&[]).path(), &env).sudo.unwrap();
        assert_eq!((sudo.uid, sudo.name.as_deref()), (1000, Some("ada")));
    }

    #[test]
    fn this_machine_has_a_kernel_and_memory() {
        let facts = HostFacts::read();
        assert!(!facts.kernel.is_empty());
        assert!(facts.page_size_bytes.0 >= 4096);
        assert!(facts.mem_total_bytes.is_some_and(|total| total.0 > 0));
        assert!(
            serde_json::to_string(&facts)
                .unwrap()
                .contains("page_size_bytes")
        );
    }
}
