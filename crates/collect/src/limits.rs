//! Limits that no cgroup sets: RLIMIT_AS and RLIMIT_DATA of each process, and the size of each tmpfs
//! that one sees.

use super::{CollectError, Collector, Pass, ProcessTable};
use memtrace_host::tmpfs_mounts;
use memtrace_model::{BootNs, Bytes, DurationNs, Record, Tgid, TmpfsRow, Upid};
use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, fstatfs, major, minor, openat2};
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const PERIOD: DurationNs = DurationNs(1_000_000_000);
/// So many processes are asked in one turn, and of those that were asked before so many: 20 µs each.
const ASKED_MAX: usize = 512;
const ASKED_AGAIN_COUNT: usize = 16;
/// Who is to be asked is found out when somebody has come; else after this for so many processes, and
/// after no more than so many times as long.
const DUE_PERIOD: DurationNs = DurationNs(1_000_000_000);
const DUE_COUNT: usize = 500;
const DUE_TIMES_MAX: usize = 10;
/// So many mount namespaces are looked into, and so many tmpfs in each.
const NAMESPACES_MAX: usize = 64;
const MOUNTS_MAX: usize = 32;
/// What is mounted later is found after so long.
const MOUNTS_PERIOD: DurationNs = DurationNs(10_000_000_000);
/// Programs set limits when they start: a process is asked again after so long at first, and then after
/// twice as long each time, up to the other; later where many wait.
const ASKED_AGAIN: DurationNs = DurationNs(2_000_000_000);
const ASKED_AGAIN_MAX: DurationNs = DurationNs(128_000_000_000);
/// TMPFS_MAGIC of linux/magic.h.
const TMPFS: i64 = 0x0102_1994;

/// Reads the limits that no cgroup sets.
#[derive(Debug)]
pub struct LimitCollector {
    proc: PathBuf,
    /// Who has been asked.
    asked: HashMap<Upid, Asked>,
    /// Who is to be asked, those first who never were.
    due: VecDeque<Due>,
    next_due: BootNs,
    /// How many had come when that was found out.
    entered_count: i64,
    /// The mount namespaces of those that were asked, by inode.
    namespaces: BTreeMap<u64, Namespace>,
    /// When mounts are listed anew.
    next_mounts: BootNs,
    /// What was reported last, by device.
    reported: HashMap<String, (Bytes, Bytes)>,
}

/// A process that was asked.
#[derive(Debug)]
struct Asked {
    /// The program that it ran.
    image: u64,
    /// The inode of its mount namespace; `None` where it can't be read: it has ended, or is another
    /// user's.
    mount_namespace: Option<u64>,
    next: BootNs,
    wait: DurationNs,
}

/// A mount namespace that is looked into.
#[derive(Debug)]
struct Namespace {
    /// By whom: the first of those that are in it.
    seer: (Upid, Tgid),
    /// Each tmpfs of it, with its device; `None` where that is to be read.
    mounts: Option<Vec<(String, PathBuf)>>,
}

/// Who is to be asked, in the order in which they are.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    /// Since when; `None` of one that was never asked.
    since: Option<BootNs>,
    upid: Upid,
    tgid: Tgid,
    image: u64,
}

impl LimitCollector {
    /// A collector for processes whose ids are those of this procfs.
    pub fn new(proc: &Path) -> Self {
        Self {
            proc: proc.to_owned(),
            asked: HashMap::new(),
            due: VecDeque::new(),
            next_due: BootNs(0),
            entered_count: 0,
            namespaces: BTreeMap::new(),
            next_mounts: BootNs(0),
            reported: HashMap::new(),
        }
    }

    /// Asks those who are to be asked by now.
    fn ask(&mut self, now: BootNs, table: &mut ProcessTable) {
        let entered_count = std::mem::replace(&mut self.entered_count, table.entered_count());
        if entered_count != self.entered_count || now >= self.next_due {
            let times = (table.len() / DUE_COUNT).clamp(1, DUE_TIMES_MAX) as i64;
            self.next_due = now + DurationNs(DUE_PERIOD.0 * times);
            self.find_due(now, table);
        }
        let new = self.due.iter().take_while(|due| due.since.is_none());
        let count = new.take(ASKED_MAX).count() + ASKED_AGAIN_COUNT;
        let count = self.due.len().min(count);
        for due in self.due.drain(..count).collect::<Vec<_>>() {
            if table.process(due.upid).is_some() {
                self.ask_one(&due, now, table);
            }
        }
    }

    /// Finds those who are to be asked, no fewer than are asked until they are found again.
    fn find_due(&mut self, now: BootNs, table: &ProcessTable) {
        let mut due = BinaryHeap::new();
        for process in table.processes() {
            let (upid, image) = (process.row().upid, process.image());
            let asked = self.asked.get(&upid).filter(|one| one.image == image);
            let since = asked.map(|one| one.next);
            if since.is_none_or(|since| since <= now) {
                due.push(Due {
                    since,
                    upid,
                    tgid: process.row().tgid,
                    image,
                });
            }
            if due.len() > DUE_TIMES_MAX * ASKED_MAX {
                due.pop();
            }
        }
        self.due = due.into_sorted_vec().into();
        if self.asked.len() > table.len() {
            self.asked.retain(|upid, _| table.process(*upid).is_some());
        }
    }

    fn ask_one(&mut self, due: &Due, now: BootNs, table: &mut ProcessTable) {
        let Due { upid, tgid, .. } = *due;
        let before = due.since.and(self.asked.get(&upid));
        let before = before.map(|one| one.wait.0 * 2);
        let wait = before.map_or(ASKED_AGAIN, |wait| DurationNs(wait.min(ASKED_AGAIN_MAX.0)));
        let namespace = fs::metadata(self.proc.join(format!("{tgid}/ns/mnt")));
        let mount_namespace = namespace.ok().map(|namespace| namespace.ino());
        if let Some(number) = mount_namespace {
            self.sees((upid, tgid), number);
        }
        let asked = Asked {
            image: due.image,
            mount_namespace,
            next: now + wait,
            wait,
        };
        self.asked.insert(upid, asked);
        let [Some(address_space), Some(data)] =
            [libc::RLIMIT_AS, libc::RLIMIT_DATA].map(|resource| limit(tgid, resource))
        else {
            return;
        };
        let known = table.process(upid).map(|process| {
            let row = process.row();
            (row.rlimit_as_bytes, row.rlimit_data_bytes)
        });
        if known.is_some_and(|known| known != (address_space, data))
            && let Some(process) = table.process_mut(upid)
        {
            let row = process.row_mut();
            (row.rlimit_as_bytes, row.rlimit_data_bytes) = (address_space, data);
        }
    }

    /// Notes who is in a mount namespace.
    fn sees(&mut self, process: (Upid, Tgid), number: u64) {
        let new = Namespace {
            seer: process,
            mounts: None,
        };
        let namespace = self.namespaces.entry(number).or_insert(new);
        namespace.seer = namespace.seer.min(process);
    }

    /// Leaves out namespaces whose seer has ended or is in another one, unless somebody else is in them.
    fn leave_unseen(&mut self, table: &ProcessTable) {
        let count = self.namespaces.len();
        self.namespaces.retain(|number, namespace| {
            let upid = namespace.seer.0;
            let asked = self
                .asked
                .get(&upid)
                .filter(|_| table.process(upid).is_some());
            asked.is_some_and(|asked| asked.mount_namespace == Some(*number))
        });
        if self.namespaces.len() == count {
            return;
        }
        let asked = self.asked.iter();
        let seen = asked.filter_map(|(upid, asked)| {
            let tgid = table.process(*upid)?.row().tgid;
            Some(((*upid, tgid), asked.mount_namespace?))
        });
        for (process, number) in seen.collect::<Vec<_>>() {
            self.sees(process, number);
        }
    }

    /// Writes how full a tmpfs was as the kernel reported it.
    fn report_full(&mut self, mut row: TmpfsRow, table: &ProcessTable, out: &mut Vec<Record>) {
        let now = (row.size_bytes, row.used_bytes);
        if self.reported.insert(row.device.clone(), now) == Some(now) {
            return;
        }
        let own = self.asked.get(&row.seen_by_upid);
        let own = own.and_then(|asked| self.namespaces.get(&asked.mount_namespace?));
        let known = own.into_iter().chain(self.namespaces.values());
        let known = known.filter_map(|one| one.mounts.as_ref());
        row.mount_point = find_mount(known.flatten(), &row.device)
            .or_else(|| self.mount_point(&row, table))
            .unwrap_or_else(|| format!("device {}", row.device));
        out.push(Record::Tmpfs(row));
    }

    /// Where a tmpfs that no look has found is mounted, as whoever sees it has it, its parent or
    /// memtrace.
    fn mount_point(&self, row: &TmpfsRow, table: &ProcessTable) -> Option<String> {
        let process = table.row(row.seen_by_upid);
        let parent = process.and_then(|process| table.row(process.parent_upid?));
        let seers = [process, parent].into_iter().flatten();
        let mut seers = seers
            .map(|process| process.tgid.to_string())
            .chain(["self".to_owned()]);
        seers.find_map(|seer| {
            let text = fs::read(self.proc.join(seer).join("mountinfo")).ok()?;
            find_mount(&tmpfs_mounts(&text), &row.device)
        })
    }

    /// Looks how full each tmpfs is, by one process of each mount namespace.
    fn look(&mut self, pass: &mut Pass<'_>) {
        self.leave_unseen(pass.table);
        let mut found: BTreeMap<String, TmpfsRow> = BTreeMap::new();
        let mut count = 0;
        for namespace in self.namespaces.values_mut() {
            if count == NAMESPACES_MAX {
                break;
            }
            let (upid, tgid) = namespace.seer;
            let process = self.proc.join(tgid.to_string());
            if namespace.mounts.is_none() {
                let text = fs::read(process.join("mountinfo")).ok();
                namespace.mounts = text.map(|text| {
                    let mut mounts = tmpfs_mounts(&text);
                    mounts.truncate(MOUNTS_MAX);
                    mounts
                });
            }
            count += usize::from(namespace.mounts.is_some());
            for (device, path) in namespace.mounts.iter().flatten() {
                let Some((size_bytes, used_bytes)) = usage(&process.join("root"), (path, device))
                else {
                    continue;
                };
                found.entry(device.clone()).or_insert_with(|| TmpfsRow {
                    ts: pass.tick.wall(),
                    boot_ns: pass.tick.boot,
                    device: device.clone(),
                    mount_point: path.to_string_lossy().into_owned(),
                    seen_by_upid: upid,
                    size_bytes,
                    used_bytes,
                });
            }
        }
        self.reported.retain(|device, _| found.contains_key(device));
        for row in found.into_values() {
            let now = (row.size_bytes, row.used_bytes);
            if self.reported.get(&row.device) != Some(&now) {
                self.reported.insert(row.device.clone(), now);
                pass.write(row);
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

    /// Writes what the kernel reported where a page found no room (SIGBUS), and looks at once where a
    /// process ended by it: the file can soon be gone.
    fn drain(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        for row in std::mem::take(&mut pass.table.news.full_tmpfs) {
            self.report_full(row, pass.table, pass.out);
        }
        if pass.table.has_just_ended_by(libc::SIGBUS) {
            self.look(pass);
        }
        Ok(())
    }

    fn collect(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        if pass.tick.boot >= self.next_mounts {
            self.next_mounts = pass.tick.boot + MOUNTS_PERIOD;
            for namespace in self.namespaces.values_mut() {
                namespace.mounts = None;
            }
        }
        self.ask(pass.tick.boot, pass.table);
        self.look(pass);
        Ok(())
    }
}

/// Where a device is mounted.
fn find_mount<'a>(
    mounts: impl IntoIterator<Item = &'a (String, PathBuf)>,
    device: &str,
) -> Option<String> {
    let mut mounts = mounts.into_iter();
    let (_, path) = mounts.find(|(mounted, _)| mounted == device)?;
    Some(path.to_string_lossy().into_owned())
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
    use crate::{Birth, Tick};
    use memtrace_model::FirstSeenBy;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    fn tick() -> Tick {
        Tick::at(BootNs(7))
    }

    fn birth(tgid: u32) -> Birth {
        Birth {
            tgid: Tgid(tgid),
            start: BootNs(1),
            seen_by: FirstSeenBy::Snapshot,
            parent: None,
            comm: "sleep".to_owned(),
        }
    }

    #[test]
    fn a_process_is_asked_for_its_limits() {
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
        let limited = table.enter(birth(child.id()), BootNs(1));
        let own = table.enter(birth(std::process::id()), BootNs(1));
        let mut collector = LimitCollector::new(Path::new("/proc"));
        let mut out = Vec::new();
        collector
            .collect(&mut Pass::new(&tick(), &mut table, &mut out))
            .unwrap();
        let limits = |upid| {
            let row = table.process(upid).map(|process| process.row()).unwrap();
            (row.rlimit_as_bytes, row.rlimit_data_bytes)
        };
        assert_eq!(limits(limited), (Some(Bytes(1 << 30)), None));
        assert_eq!(limits(own).0, None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn all_are_asked_however_many_there_are_and_again_more_and_more_rarely() {
        let proc = tempfile::tempdir().unwrap();
        let mut table = ProcessTable::default();
        let count = 3 * ASKED_MAX;
        for tgid in 0..count as u32 {
            // Above what the kernel gives out: nobody has them.
            table.enter(birth((1 << 22) + 1 + tgid), BootNs(1));
        }
        let mut collector = LimitCollector::new(proc.path());
        let second = 1_000_000_000;
        let turns = 1_000;
        for turn in 1..=turns {
            let tick = Tick::at(BootNs(turn * second));
            collector
                .collect(&mut Pass::new(&tick, &mut table, &mut Vec::new()))
                .unwrap();
            if turn == 3 {
                assert_eq!(collector.asked.len(), count);
            }
        }
        let waits = collector.asked.values().map(|one| (one.next, one.wait));
        let overdue = waits.clone().map(|(next, _)| turns * second - next.0).max();
        let round = (count / ASKED_AGAIN_COUNT) as i64 * second;
        assert!(overdue <= Some(round), "{overdue:?}");
        assert!({ waits }.all(|(_, wait)| wait == ASKED_AGAIN_MAX));
    }

    #[test]
    fn another_process_of_a_mount_namespace_is_asked_once_the_first_has_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let mut table = ProcessTable::default();
        let first = table.enter(birth(std::process::id()), BootNs(1));
        let other = table.enter(birth(child.id()), BootNs(1));
        let mut collector = LimitCollector::new(Path::new("/proc"));
        let mut seers = |table: &mut ProcessTable| {
            collector
                .collect(&mut Pass::new(&tick(), table, &mut Vec::new()))
                .unwrap();
            let namespaces = collector.namespaces.values();
            namespaces.map(|one| one.seer.0).collect::<Vec<_>>()
        };
        assert_eq!(seers(&mut table), [first]);
        table.end(first, BootNs(2), Some(0));
        assert_eq!(seers(&mut table), [other]);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    mod needs_mount {
        use super::*;

        #[test]
        fn a_tmpfs_that_a_process_sees_is_reported_when_it_changes() {
            let dir = tempfile::tempdir().unwrap();
            let mount = r#"mount -t tmpfs -o size=4m none "$1" && head -c 1048576 /dev/zero > "$1/a" \
                && touch "$1/ready" && exec sleep 60"#;
            let mut child = Command::new("unshare")
                .args(["--mount", "sh", "-c", mount, "sh"])
                .arg(dir.path())
                .spawn()
                .unwrap();
            let inside = format!("/proc/{}/root{}", child.id(), dir.path().display());
            while !Path::new(&inside).join("ready").exists() {
                assert!(child.try_wait().unwrap().is_none(), "it can mount");
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            let mut table = ProcessTable::default();
            let seer = table.enter(birth(child.id()), BootNs(1));
            let mut collector = LimitCollector::new(Path::new("/proc"));
            let mut own = || {
                let mut out = Vec::new();
                collector
                    .collect(&mut Pass::new(&tick(), &mut table, &mut out))
                    .unwrap();
                let rows = out.into_iter().filter_map(|record| match record {
                    Record::Tmpfs(row) => Some(row),
                    _ => None,
                });
                let is_own = |row: &TmpfsRow| Path::new(&row.mount_point) == dir.path();
                rows.filter(is_own).collect::<Vec<_>>()
            };
            let [first] = &own()[..] else {
                panic!("one row of it");
            };
            assert_eq!(first.seen_by_upid, seer);
            assert_eq!(
                (first.size_bytes, first.used_bytes),
                (Bytes(4 << 20), Bytes(1 << 20))
            );
            assert!(own().is_empty(), "it has not changed");
            fs::write(Path::new(&inside).join("b"), [1; 4096]).unwrap();
            assert_eq!(own()[0].used_bytes, Bytes((1 << 20) + 4096));
            // Between two turns it is looked at where a page found no room.
            fs::write(Path::new(&inside).join("c"), [1; 4096]).unwrap();
            let victim = table.enter(birth(1), BootNs(1));
            let mut out = Vec::new();
            collector
                .drain(&mut Pass::new(&tick(), &mut table, &mut out))
                .unwrap();
            assert!(out.is_empty(), "{out:?}");
            table.end(victim, BootNs(2), Some(libc::SIGBUS));
            collector
                .drain(&mut Pass::new(&tick(), &mut table, &mut out))
                .unwrap();
            let used = out.iter().filter_map(|record| match record {
                Record::Tmpfs(row) => Some(row.used_bytes),
                _ => None,
            });
            assert_eq!(used.collect::<Vec<_>>(), [Bytes((1 << 20) + 2 * 4096)]);
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
