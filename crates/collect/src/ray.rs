//! Drivers and client servers of Ray clusters: they are no descendants of a raylet that `ray start`
//! left behind, and nothing in their names tells which cluster they are of. Each keeps its log open
//! in the session's directory, whose place is in the raylet's arguments.

use super::smaps::processes;
use super::{CollectError, Collector, Pass, ProcessTable, RoleDeclaration};
use memtrace_host::clock;
use memtrace_model::{DurationNs, Role, Tgid, Upid};
use rustix::fs::{Mode, OFlags};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How often sessions are looked at. What costs is one stat(2) for each of them.
const PERIOD: DurationNs = DurationNs(1_000_000_000);
/// Timestamps of a directory are this coarse at worst.
const GRAIN: Duration = Duration::from_secs(2);
/// Who writes to a log that names no process is looked for so often: it comes after its log.
const LOOKS: u8 = 3;

/// Finds drivers and client servers, and has those of a recorded cluster recorded where that was
/// asked for.
#[derive(Debug)]
pub struct RayDrivers {
    root: PathBuf,
    has_to_invite: bool,
    /// The revision of the table in which sessions were last looked for.
    looked_at: Option<u64>,
    /// Those that are recorded, and the id of each whose log is still to be found: a raylet directs
    /// its output to its log only once it runs.
    raylets: HashMap<Upid, Option<Tgid>>,
    sessions: HashMap<PathBuf, Session>,
}

/// The directory of logs of one cluster.
#[derive(Debug, Default)]
struct Session {
    read_at: Option<SystemTime>,
    looked_at: HashSet<String>,
    /// Logs of client servers that are still to be found, and how many looks are left.
    unnamed: HashMap<String, u8>,
}

impl RayDrivers {
    /// `root` is where procfs is mounted. `has_to_invite`: the recording is about Ray, and
    /// drivers belong to it.
    pub fn new(root: &Path, has_to_invite: bool) -> Self {
        Self {
            root: root.to_owned(),
            has_to_invite,
            looked_at: None,
            raylets: HashMap::new(),
            sessions: HashMap::new(),
        }
    }

    /// The sessions of the raylets that are recorded.
    fn find_sessions(&mut self, table: &mut ProcessTable) {
        if self.looked_at.replace(table.revision()) == Some(table.revision()) {
            return;
        }
        for process in table.processes() {
            let row = process.row();
            if row.comm != "raylet" {
                continue;
            }
            if let Some(session) = row.cmdline.as_deref().and_then(session_of) {
                self.sessions.entry(session.join("logs")).or_default();
                self.raylets.entry(row.upid).or_insert(Some(row.tgid));
            }
        }
        self.raylets
            .retain(|upid, _| table.process(*upid).is_some());
    }

    /// Looks for the logs that are still to be found.
    fn find_logs(&mut self, table: &mut ProcessTable) {
        for (upid, sought) in &mut self.raylets {
            if let Some(log) = sought.and_then(|raylet| log_of(&self.root, raylet)) {
                *sought = None;
                table.news.note_log(*upid, log);
            }
        }
    }
}

impl Collector for RayDrivers {
    fn name(&self) -> &'static str {
        "ray"
    }

    fn period(&self) -> DurationNs {
        PERIOD
    }

    fn collect(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        self.find_sessions(pass.table);
        self.find_logs(pass.table);
        for (logs, session) in &mut self.sessions {
            let drivers = session.new_logs(logs);
            let mut found = session.writers(&self.root, logs);
            for (tgid, log) in drivers {
                if !has_open(&self.root, tgid, &logs.join(log)) {
                    continue;
                }
                let role = Role {
                    framework: Some("Ray".to_owned()),
                    role: "driver".to_owned(),
                    rank: None,
                };
                let at = clock::boot();
                pass.table
                    .news
                    .roles
                    .push(RoleDeclaration { tgid, at, role });
                found.push(tgid);
            }
            for tgid in found {
                if self.has_to_invite && pass.table.upid(tgid).is_none() {
                    pass.table.news.adoption_requests.push(tgid);
                }
            }
        }
        Ok(())
    }
}

impl Session {
    /// Logs of drivers that came since the last call, with the process each one names.
    fn new_logs(&mut self, logs: &Path) -> Vec<(Tgid, String)> {
        let changed = logs.metadata().and_then(|metadata| metadata.modified());
        // A session that is gone has no new drivers.
        let Ok(changed) = changed else {
            return Vec::new();
        };
        if self.read_at.is_some_and(|read| changed + GRAIN < read) {
            return Vec::new();
        }
        self.read_at = Some(SystemTime::now());
        let entries = std::fs::read_dir(logs).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut drivers = Vec::new();
        for name in names {
            let driver = driver_of(&name);
            let is_of_server = is_of_client_server(&name);
            if (driver.is_none() && !is_of_server) || !self.looked_at.insert(name.clone()) {
                continue;
            }
            match driver {
                Some(driver) => drivers.push((driver, name)),
                None => {
                    self.unnamed.insert(name, LOOKS);
                }
            }
        }
        drivers
    }

    /// Processes whose output goes to the log of a client server that was not found yet.
    fn writers(&mut self, root: &Path, logs: &Path) -> Vec<Tgid> {
        if self.unnamed.is_empty() {
            return Vec::new();
        }
        let real = logs.canonicalize();
        let mut found = Vec::new();
        for tgid in processes(root) {
            // It names its log without waiting for a lock, as its command line would.
            let Ok(output) = std::fs::read_link(root.join(format!("{tgid}/fd/1"))) else {
                continue;
            };
            let name = output.file_name().and_then(|name| name.to_str());
            if let Some(name) = name
                && output.parent() == real.as_deref().ok()
                && let Some(looks) = self.unnamed.get_mut(name)
            {
                *looks = 1;
                found.push(tgid);
            }
        }
        self.unnamed.retain(|_, looks| {
            *looks -= 1;
            *looks > 0
        });
        found
    }
}

/// Where a raylet says whom it kills as memory runs low: its standard output. By its descriptor, so
/// that neither a link nor another mount namespace leads elsewhere; with O_PATH, so that no file
/// system is asked yet, which might not answer.
fn log_of(root: &Path, raylet: Tgid) -> Option<OwnedFd> {
    let output = root.join(format!("{raylet}/fd/1"));
    let name = std::fs::read_link(&output).ok()?;
    if name.file_name()? != "raylet.out" {
        return None;
    }
    rustix::fs::open(output, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// `/tmp/ray/session_2026-…` out of the raylet's arguments.
fn session_of(cmdline: &str) -> Option<PathBuf> {
    let (_, rest) = cmdline.split_once("--raylet_socket_name=")?;
    let socket = rest.split(' ').next()?;
    socket.strip_suffix("/sockets/raylet").map(PathBuf::from)
}

/// The process in `python-core-driver-<worker>_<pid>.log`; drivers in other languages have
/// names of the same form.
fn driver_of(name: &str) -> Option<Tgid> {
    let stem = name.strip_suffix(".log")?;
    let (front, pid) = stem.rsplit_once('_')?;
    let is_driver = front.contains("-core-driver-");
    is_driver.then(|| pid.parse().ok().map(Tgid)).flatten()
}

/// `ray_client_server.out` of the one that clients meet, `ray_client_server_23000.out` of each that
/// it starts for one of them.
fn is_of_client_server(name: &str) -> bool {
    let suffix = name.strip_prefix("ray_client_server");
    suffix.is_some_and(|suffix| suffix.ends_with(".out"))
}

/// Whether a process holds a file open: the number in a name can be another's by now. Where
/// that may not be read, it can't be reported, and the process is left alone.
///
/// Descriptors have the real path, while Ray's arguments have the path as it was given.
fn has_open(root: &Path, tgid: Tgid, file: &Path) -> bool {
    let Ok(file) = file.canonicalize() else {
        return false;
    };
    let descriptors = root.join(tgid.to_string()).join("fd");
    let entries = std::fs::read_dir(descriptors).into_iter().flatten();
    entries
        .flatten()
        .any(|entry| std::fs::read_link(entry.path()).is_ok_and(|open| open == file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Birth, Tick};
    use memtrace_model::{BootNs, FirstSeenBy};

    #[test]
    fn the_session_is_in_the_raylets_arguments() {
        let cmdline = "/ray/raylet/raylet --raylet_socket_name=/tmp/ray/session_1/sockets/raylet \
                       --store_socket_name=/tmp/ray/session_1/sockets/plasma_store";
        assert_eq!(
            session_of(cmdline).as_deref(),
            Some(Path::new("/tmp/ray/session_1"))
        );
        assert_eq!(session_of("raylet --help"), None);
    }

    #[test]
    fn the_log_of_a_raylet_is_what_its_output_goes_to_in_time() {
        let (proc, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let directs_output = |tgid: u32, log: &str| {
            let log = logs.path().join(log);
            std::fs::write(&log, "").unwrap();
            let directory = proc.path().join(format!("{tgid}/fd"));
            std::fs::create_dir_all(&directory).unwrap();
            let output = directory.join("1");
            let _ = std::fs::remove_file(&output);
            std::os::unix::fs::symlink(log, output).unwrap();
        };
        directs_output(7, "raylet.out");
        directs_output(8, "other.out");
        let mut table = ProcessTable::default();
        let mut drivers = RayDrivers::new(proc.path(), false);
        let [seven, eight] = [7, 8].map(|tgid| {
            let birth = Birth {
                tgid: Tgid(tgid),
                start: BootNs(1),
                seen_by: FirstSeenBy::Exec,
                parent: None,
                comm: "raylet".to_owned(),
            };
            let upid = table.enter(birth, BootNs(1));
            let cmdline = "raylet --raylet_socket_name=/tmp/ray/session_1/sockets/raylet";
            table.process_mut(upid).unwrap().row_mut().cmdline = Some(cmdline.into());
            upid
        });
        let tick = Tick::at(BootNs(2));
        let mut found = || -> Vec<Upid> {
            let mut out = Vec::new();
            let mut pass = Pass::new(&tick, &mut table, &mut out);
            drivers.collect(&mut pass).unwrap();
            let logs = std::mem::take(&mut table.news.logs);
            logs.into_iter().map(|(upid, _)| upid).collect()
        };
        assert_eq!(found(), [seven]);
        // Nobody has come or gone since.
        directs_output(8, "raylet.out");
        assert_eq!(found(), [eight]);
        assert_eq!(found(), [], "each is found once");
    }

    #[test]
    fn a_drivers_log_names_its_process() {
        let cases = [
            (
                "python-core-driver-01000000ffff_20531.log",
                Some(Tgid(20531)),
            ),
            ("java-core-driver-02_7.log", Some(Tgid(7))),
            ("python-core-worker-0919_20860.log", None),
            ("python-core-driver-01_x.log", None),
            ("raylet.out", None),
        ];
        for (name, driver) in cases {
            assert_eq!(driver_of(name), driver, "{name}");
        }
    }

    #[test]
    fn a_client_server_is_who_writes_to_its_log() {
        let (proc, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let log = logs.path().join("ray_client_server.out");
        std::fs::write(&log, "").unwrap();
        std::fs::write(logs.path().join("ray_client_server.err"), "").unwrap();
        let output = |pid: u32, file: &Path| {
            let dir = proc.path().join(format!("{pid}/fd"));
            std::fs::create_dir_all(&dir).unwrap();
            std::os::unix::fs::symlink(file, dir.join("1")).unwrap();
        };
        output(7, &logs.path().join("raylet.out"));
        output(8, Path::new("/tmp/ray_client_server.out"));
        let mut session = Session::default();
        assert_eq!(session.new_logs(logs.path()), []);
        assert_eq!(session.writers(proc.path(), logs.path()), []);
        output(9, &log);
        assert_eq!(session.writers(proc.path(), logs.path()), [Tgid(9)]);
        assert_eq!(session.writers(proc.path(), logs.path()), [], "found once");
    }

    #[test]
    fn a_log_that_nobody_writes_to_is_given_up() {
        let (proc, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(logs.path().join("ray_client_server.out"), "").unwrap();
        let mut session = Session::default();
        session.new_logs(logs.path());
        for _ in 0..LOOKS {
            assert!(!session.unnamed.is_empty());
            session.writers(proc.path(), logs.path());
        }
        assert!(session.unnamed.is_empty());
    }

    #[test]
    fn a_log_counts_only_while_its_process_holds_it_open() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = Tgid(std::process::id());
        let path = dir.path().join(format!("python-core-driver-01_{own}.log"));
        let file = std::fs::File::create(&path).expect("a log");
        let mut session = Session::default();
        let found = session.new_logs(dir.path());
        assert_eq!(found.len(), 1);
        assert!(session.new_logs(dir.path()).is_empty(), "reported once");
        let proc = Path::new("/proc");
        assert!(has_open(proc, own, &path));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).expect("a link");
        let by_link = link.join(path.file_name().expect("a name"));
        assert!(has_open(proc, own, &by_link));
        drop(file);
        assert!(!has_open(proc, own, &path));
    }
}
