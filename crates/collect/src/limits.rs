//! Limits that no cgroup sets: RLIMIT_AS and RLIMIT_DATA of each process, and the size of each tmpfs
//! that one sees.

use super::{CollectError, Collector, ProcessTable, Tick};
use memtrace_host::tmpfs_mounts;
use memtrace_model::{BootNs, Bytes, DurationNs, Record, Tgid, TmpfsRow, Upid};
use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, fstatfs, major, minor, openat2};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

const PERIOD: DurationNs = DurationNs(1_000_000_000);
/// So many processes are asked in one turn.
const ASKED_MAX: usize = 512;
/// So many mount namespaces are looked into, and so many tmpfs in each.
const NAMESPACES_MAX: usize = 64;
const MOUNTS_MAX: usize = 32;
/// What is mounted later, and who has moved, is found after so long.
const MOUNTS_PERIOD: DurationNs = DurationNs(10_000_000_000);
/// TMPFS_MAGIC of linux/magic.h.
const TMPFS: i64 = 0x0102_1994;

/// Reads the limits that no cgroup sets.
#[derive(Debug)]
pub struct LimitCollector {
    proc: PathBuf,
    /// The last process that was asked.
    asked: Upid,
    /// The mount namespaces that processes are in.
    namespaces: HashMap<PathBuf, Namespace>,
    /// Who is in one that is known.
    members: HashMap<Upid, PathBuf>,
    /// When their mounts are read again.
    next_mounts: BootNs,
    /// What was reported last, by device.
    reported: HashMap<String, (Bytes, Bytes)>,
}

/// A mount namespace.
#[derive(Debug)]
struct Namespace {
    /// Each tmpfs, by its device.
    mounts: Vec<(String, PathBuf)>,
}

impl LimitCollector {
    /// A collector for processes whose ids are those of this procfs.
    pub fn new(proc: &Path) -> Self {
        Self {
            proc: proc.to_owned(),
            asked: Upid(i64::MIN),
            namespaces: HashMap::new(),
            members: HashMap::new(),
            next_mounts: BootNs(0),
            reported: HashMap::new(),
        }
    }

    /// Asks the next processes for their limits.
    fn ask(&mut self, processes: &[(Upid, Tgid)], table: &mut ProcessTable) {
        let after = processes.partition_point(|(upid, _)| *upid <= self.asked);
        let (before, next) = processes.split_at(after);
        for (upid, tgid) in next.iter().chain(before).take(ASKED_MAX) {
            self.asked = *upid;
            let [Some(address_space), Some(data)] =
                [libc::RLIMIT_AS, libc::RLIMIT_DATA].map(|resource| limit(*tgid, resource))
            else {
                continue;
            };
            let known = table.process(*upid).map(|process| {
                let row = process.row();
                (row.rlimit_as_bytes, row.rlimit_data_bytes)
            });
            if known.is_some_and(|known| known != (address_space, data))
                && let Some(process) = table.process_mut(*upid)
            {
                let row = process.row_mut();
                (row.rlimit_as_bytes, row.rlimit_data_bytes) = (address_space, data);
            }
        }
    }

    /// Looks how full each tmpfs is.
    fn look(&mut self, processes: &[(Upid, Tgid)], tick: &Tick, out: &mut Vec<Record>) {
        if tick.boot >= self.next_mounts {
            self.next_mounts = tick.boot + MOUNTS_PERIOD;
            self.namespaces.clear();
            self.members.clear();
        }
        let is_there = |upid: &Upid| {
            processes
                .binary_search_by_key(upid, |(upid, _)| *upid)
                .is_ok()
        };
        self.members.retain(|upid, _| is_there(upid));
        let mut seen_by: HashMap<&Path, (Upid, Tgid)> = HashMap::new();
        for (upid, tgid) in processes {
            if !self.members.contains_key(upid) {
                let link = self.proc.join(format!("{tgid}/ns/mnt"));
                let Ok(namespace) = fs::read_link(link) else {
                    continue;
                };
                self.members.insert(*upid, namespace);
            }
        }
        for (upid, tgid) in processes {
            if let Some(namespace) = self.members.get(upid) {
                seen_by.entry(namespace).or_insert((*upid, *tgid));
            }
        }
        self.namespaces
            .retain(|namespace, _| seen_by.contains_key(namespace.as_path()));
        let mut found: HashMap<String, TmpfsRow> = HashMap::new();
        for (namespace, (upid, tgid)) in seen_by {
            let process = self.proc.join(tgid.to_string());
            if !self.namespaces.contains_key(namespace) {
                let text = fs::read(process.join("mountinfo"));
                if self.namespaces.len() >= NAMESPACES_MAX || text.is_err() {
                    continue;
                }
                let mut mounts = tmpfs_mounts(&text.unwrap_or_default());
                mounts.truncate(MOUNTS_MAX);
                self.namespaces
                    .insert(namespace.to_owned(), Namespace { mounts });
            }
            let mounts = self.namespaces.get(namespace).map(|known| &known.mounts);
            for (device, path) in mounts.into_iter().flatten() {
                let Some((size_bytes, used_bytes)) = usage(&process.join("root"), (path, device))
                else {
                    continue;
                };
                found.entry(device.clone()).or_insert_with(|| TmpfsRow {
                    ts: tick.wall(),
                    boot_ns: tick.boot,
                    device: device.clone(),
                    mount_point: path.to_string_lossy().into_owned(),
                    seen_by_upid: upid,
                    size_bytes,
                    used_bytes,
                });
            }
        }
        for row in found.into_values() {
            let now = (row.size_bytes, row.used_bytes);
            if self.reported.get(&row.device) != Some(&now) {
                self.reported.insert(row.device.clone(), now);
                out.push(Record::Tmpfs(row));
            }
        }
    }
}

impl Collector for LimitCollector {
    fn name(&self) -> &'static str {
        "limits"
    }

    fn period(&self) -> DurationNs {
        PERIOD
    }

    fn collect(
        &mut self,
        tick: &Tick,
        table: &mut ProcessTable,
        out: &mut Vec<Record>,
    ) -> Result<(), CollectError> {
        let processes = table.processes().map(|process| process.row());
        let mut processes: Vec<(Upid, Tgid)> = processes.map(|row| (row.upid, row.tgid)).collect();
        processes.sort_unstable();
        self.ask(&processes, table);
        self.look(&processes, tick, out);
        Ok(())
    }
}

/// A soft limit of a process: `None` where it can't be asked, and inside of that where there is none.
fn limit(tgid: Tgid, resource: libc::__rlimit_resource_t) -> Option<Option<Bytes>> {
    let mut limit = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let pid = libc::pid_t::try_from(tgid.0).ok()?;
    // SAFETY: a null new limit changes nothing, and the old one is written to a valid rlimit64.
    let answer = unsafe { libc::prlimit64(pid, resource, std::ptr::null(), &raw mut limit) };
    let bytes = i64::try_from(limit.rlim_cur).ok().map(Bytes);
    (answer == 0).then_some(bytes)
}

/// The size of a tmpfs and what it holds, by a path below a root. Nobody's links are followed, and what
/// is no tmpfs, has no size, or lies below another mount is none.
fn usage(root: &Path, (path, device): (&Path, &str)) -> Option<(Bytes, Bytes)> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let root = rustix::fs::open(root, flags, Mode::empty()).ok()?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let directory = openat2(root, path, flags, Mode::empty(), resolve).ok()?;
    let on = fstat(&directory).ok()?.st_dev;
    if format!("{}:{}", major(on), minor(on)) != device {
        return None;
    }
    let reported = fstatfs(directory).ok()?;
    let bytes = |blocks: u64| {
        Some(Bytes(
            i64::try_from(blocks).ok()?.checked_mul(reported.f_bsize)?,
        ))
    };
    let used = reported.f_blocks.checked_sub(reported.f_bfree)?;
    let is_limited = reported.f_type == TMPFS && reported.f_blocks > 0;
    is_limited.then_some((bytes(reported.f_blocks)?, bytes(used)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Birth;
    use memtrace_model::FirstSeenBy;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    fn tick() -> Tick {
        Tick::at(BootNs(7))
    }

    #[test]
    fn a_process_is_asked_for_its_limits_and_each_tmpfs_that_it_sees_is_reported_once() {
        let mut command = Command::new("sleep");
        command.arg("60").stdin(Stdio::null());
        let limit = libc::rlimit {
            rlim_cur: 1 << 30,
            rlim_max: 1 << 30,
        };
        // SAFETY: setrlimit may be called between fork and exec, with a valid rlimit.
        unsafe {
            command.pre_exec(move || {
                libc::setrlimit(libc::RLIMIT_AS, &raw const limit);
                Ok(())
            });
        }
        let mut child = command.spawn().unwrap();
        let mut table = ProcessTable::default();
        let birth = |tgid: u32| Birth {
            tgid: Tgid(tgid),
            start: BootNs(1),
            seen_by: FirstSeenBy::Snapshot,
            parent: None,
            comm: "sleep".to_owned(),
        };
        let limited = table.enter(birth(child.id()), BootNs(1));
        let own = table.enter(birth(std::process::id()), BootNs(1));
        let mut collector = LimitCollector::new(Path::new("/proc"));
        let mut out = Vec::new();
        collector.collect(&tick(), &mut table, &mut out).unwrap();
        let limits = |upid| {
            let row = table.process(upid).map(|process| process.row()).unwrap();
            (row.rlimit_as_bytes, row.rlimit_data_bytes)
        };
        assert_eq!(limits(limited), (Some(Bytes(1 << 30)), None));
        assert_eq!(limits(own).0, None);
        let rows = out.iter().filter_map(|record| match record {
            Record::Tmpfs(row) => Some(row),
            _ => None,
        });
        let mut devices: Vec<&str> = rows.clone().map(|row| row.device.as_str()).collect();
        assert!(
            rows.clone().all(|row| row.used_bytes <= row.size_bytes),
            "{out:?}"
        );
        devices.sort_unstable();
        let count = devices.len();
        devices.dedup();
        assert_eq!(devices.len(), count);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
