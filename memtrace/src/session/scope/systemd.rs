//! A transient scope of systemd's, for the command of a session on cgroup v2: there a group that holds
//! processes hands no memory controller down, so that the command's group has to stand beside that of
//! the session. Only systemd may make one there, and it takes a process that already runs.
//!
//! It is asked through `busctl`, which is part of systemd: one call at the start does not pay for a
//! library of D-Bus. The scope stands in the slice of the session, whose limits hold on; a group that has
//! a limit of its own, or is a service's or a container's, is never left. systemd removes the scope when
//! nobody is in it any more.

use super::super::record::cgroup_of;
use super::ScopeError;
use memtrace_host::{CgroupVersion, MemoryHierarchy};
use memtrace_model::Tgid;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// It is there where systemd runs (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";
/// Looked up nowhere else: it runs as root.
const BUSCTL: [&str; 3] = [
    "/usr/bin/busctl",
    "/bin/busctl",
    "/run/current-system/sw/bin/busctl",
];
const TIMEOUT: Duration = Duration::from_secs(5);
const PACE: Duration = Duration::from_millis(2);

/// Has systemd make a scope of that name, and put the command in, which now is in `group`; `None` where it
/// can't or must not be asked.
pub(super) fn start(
    hierarchy: &MemoryHierarchy,
    group: &str,
    name: &str,
    command: Tgid,
) -> Option<Result<(), ScopeError>> {
    if hierarchy.version == CgroupVersion::V1 || !Path::new(BOOTED).is_dir() {
        return None;
    }
    let place = Place::of(group, rustix::process::geteuid().is_root())?;
    let unit = format!("{name}.scope");
    let is_free = place.is_free(hierarchy);
    is_free.then(|| place.start(hierarchy, &unit, command))
}

/// Where the scope of a command is to stand.
#[derive(Debug, PartialEq, Eq)]
struct Place<'a> {
    is_users: bool,
    /// The unit; that of the manager's choice where `None`.
    slice: Option<&'a str>,
    /// The groups that the command leaves, from its own one upwards.
    left: Vec<&'a str>,
}

impl<'a> Place<'a> {
    /// That for the command of a group, as /proc/PID/cgroup writes its path; `None` where the group is no
    /// session's.
    fn of(group: &'a str, is_root: bool) -> Option<Self> {
        const ENGINES: [&str; 6] = ["docker-", "libpod-", "crio-", "cri-", "containerd-", "lxc"];
        let parts: Vec<&str> = group.split('/').filter(|part| !part.is_empty()).collect();
        let is_engines = |part: &&str| ENGINES.iter().any(|engine| part.starts_with(engine));
        let is_session = parts.first() == Some(&"user.slice")
            && parts.last()?.ends_with(".scope")
            && !parts.iter().any(is_engines);
        if !is_session {
            return None;
        }
        let manager = parts
            .iter()
            .position(|part| part.starts_with("user@") && part.ends_with(".service"));
        // root asks the system's manager, which knows the slices above that of a user's.
        let (is_users, from, to) = match (is_root, manager) {
            (true, manager) => (false, 0, manager.unwrap_or(parts.len())),
            (false, Some(manager)) => (true, manager + 1, parts.len()),
            (false, None) => (true, parts.len(), parts.len()),
        };
        let slice = (from..to)
            .rev()
            .find(|&place| parts[place].ends_with(".slice"));
        let first_left = slice.map_or(from, |place| place + 1);
        let ends = parts[..].iter().scan(0, |end, part| {
            *end += 1 + part.len();
            Some(*end)
        });
        let left = ends.skip(first_left).map(|end| &group[..end]);
        let mut left: Vec<&str> = left.collect();
        left.reverse();
        Some(Self {
            is_users,
            slice: slice.map(|place| parts[place]),
            left,
        })
    }

    /// Whether nothing is limited that would not be in the scope.
    fn is_free(&self, hierarchy: &MemoryHierarchy) -> bool {
        // Not pids.max, which systemd sets of sessions by itself, to a part of the machine's.
        const LIMITS: [&str; 3] = ["memory.max", "memory.high", "memory.swap.max"];
        let mut groups = self.left.iter().map(|group| hierarchy.directory(group));
        groups.all(|dir| {
            let limit = |name: &str| fs::read_to_string(dir.as_ref()?.join(name)).ok();
            LIMITS
                .iter()
                .all(|name| limit(name).is_none_or(|limit| limit.trim() == "max"))
        })
    }

    /// Has systemd make it with the command in it.
    fn start(
        &self,
        hierarchy: &MemoryHierarchy,
        unit: &str,
        command: Tgid,
    ) -> Result<(), ScopeError> {
        let refused = |why: String| ScopeError::Systemd { why };
        let Some(busctl) = BUSCTL.iter().find(|path| Path::new(path).exists()) else {
            return Err(refused("busctl is not installed".to_owned()));
        };
        let output = Command::new(busctl)
            .args(self.words(unit, command))
            .output()
            .map_err(|error| refused(error.to_string()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said: String = said.trim().chars().take(500).collect();
            return Err(refused(said));
        }
        // It answers when the job is queued.
        let begin = Instant::now();
        loop {
            let group = cgroup_of(command).unwrap_or_default();
            if group.ends_with(&format!("/{unit}")) {
                let dir = hierarchy.directory(&group);
                return match dir.filter(|dir| dir.join("memory.stat").exists()) {
                    Some(_) => Ok(()),
                    None => Err(refused(format!("{unit} has no memory controller"))),
                };
            }
            if begin.elapsed() > TIMEOUT {
                let seconds = TIMEOUT.as_secs();
                return Err(refused(format!(
                    "the command was not in {unit} after {seconds} s"
                )));
            }
            std::thread::sleep(PACE);
        }
    }

    /// What busctl is called with: org.freedesktop.systemd1(5), StartTransientUnit.
    fn words(&self, unit: &str, command: Tgid) -> Vec<String> {
        let mut properties = vec![
            format!("Description s memtrace:{command}"),
            format!("PIDs au 1 {command}"),
            "MemoryAccounting b true".to_owned(),
            "CollectMode s inactive-or-failed".to_owned(),
        ];
        properties.extend(self.slice.map(|slice| format!("Slice s {slice}")));
        let manager = match self.is_users {
            true => "--user",
            false => "--system",
        };
        let call = format!(
            "{manager} --quiet --timeout={} call org.freedesktop.systemd1 /org/freedesktop/systemd1 \
             org.freedesktop.systemd1.Manager StartTransientUnit ssa(sv)a(sa(sv)) {unit} fail {} {} 0",
            TIMEOUT.as_secs(),
            properties.len(),
            properties.join(" ")
        );
        call.split_whitespace().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scope_stands_in_the_slice_of_the_session() {
        let session = "/user.slice/user-1000.slice/session-3.scope";
        let of_desktop =
            "/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope";
        let place = |is_users, slice, left: &[&'static str]| Place {
            is_users,
            slice,
            left: left.to_vec(),
        };
        for (group, is_root, expected) in [
            (
                session,
                true,
                place(false, Some("user-1000.slice"), &[session]),
            ),
            (session, false, place(true, None, &[])),
            (
                of_desktop,
                true,
                place(
                    false,
                    Some("user-1000.slice"),
                    &[
                        of_desktop,
                        "/user.slice/user-1000.slice/user@1000.service/app.slice",
                        "/user.slice/user-1000.slice/user@1000.service",
                    ],
                ),
            ),
            (
                of_desktop,
                false,
                place(true, Some("app.slice"), &[of_desktop]),
            ),
        ] {
            assert_eq!(Place::of(group, is_root), Some(expected), "{group}");
        }
    }

    #[test]
    fn what_is_no_session_is_never_left() {
        for group in [
            "/",
            "/system.slice/ssh.service",
            "/system.slice/docker-7.scope",
            "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0",
            "/kubepods.slice/kubepods-pod7.slice/cri-containerd-7.scope",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service",
            "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-7.scope",
        ] {
            assert_eq!(Place::of(group, true), None, "{group}");
            assert_eq!(Place::of(group, false), None, "{group}");
        }
    }

    #[test]
    fn a_group_with_a_limit_of_its_own_is_never_left() {
        let root = tempfile::tempdir().expect("a directory");
        let hierarchy = MemoryHierarchy {
            version: CgroupVersion::V2,
            mount_point: root.path().to_owned(),
            root: "/".to_owned(),
        };
        let group = "/user.slice/user-0.slice/session-1.scope";
        let dir = hierarchy.directory(group).expect("a directory");
        fs::create_dir_all(&dir).expect("a directory");
        let place = Place::of(group, true).expect("a session");
        assert!(place.is_free(&hierarchy));
        let above = dir.parent().expect("a slice").join("memory.max");
        fs::write(above, "1000\n").expect("a file");
        fs::write(dir.join("memory.max"), "max\n").expect("a file");
        assert!(place.is_free(&hierarchy), "the limit of the slice holds on");
        fs::write(dir.join("memory.high"), "1000\n").expect("a file");
        assert!(!place.is_free(&hierarchy));
    }

    #[test]
    fn systemd_is_asked_for_a_scope_with_the_process_in_it() {
        let place = Place::of("/user.slice/user-0.slice/session-1.scope", true);
        let words = place.expect("a session").words("memtrace-7.scope", Tgid(8));
        let call = words.join(" ");
        assert!(
            call.starts_with("--system --quiet --timeout=5 call "),
            "{call}"
        );
        assert!(
            call.ends_with(
                "memtrace-7.scope fail 5 Description s memtrace:8 PIDs au 1 8 MemoryAccounting b true \
                 CollectMode s inactive-or-failed Slice s user-0.slice 0"
            ),
            "{call}"
        );
    }
}
