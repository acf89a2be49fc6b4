//! Writes `cgroup_mem`: the groups of the recorded processes, and the groups above them
//! that have a limit.

use super::group::{Group, Reading};
use super::others::{self, Others};
use crate::collect::kept::TextBuffer;
use crate::collect::{CollectError, Collector, Tick, World};
use crate::host::MemoryHierarchy;
use crate::model::{BootNs, CgroupMemRow, DiagKind, DurationNs, Record, Severity, Tgid};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

const PERIOD: DurationNs = DurationNs(1_000_000_000);
/// How long a group is read after its last recorded process went: an OOM kill is counted
/// after its victim has gone.
const GRACE: DurationNs = DurationNs(10_000_000_000);

/// Processes that are not recorded are counted so often.
const OTHERS_PERIOD: DurationNs = DurationNs(10_000_000_000);

/// Observes memory cgroups.
#[derive(Debug)]
pub struct CgroupCollector {
    hierarchy: MemoryHierarchy,
    groups: BTreeMap<String, Watched>,
    buffer: TextBuffer,
    /// Where procfs is, if its process ids are those of the recording.
    proc: Option<PathBuf>,
    /// Whom the count of others leaves out, while one is due.
    recorded: HashSet<Tgid>,
}

#[derive(Debug)]
struct Watched {
    /// `None` for a group that the mounted hierarchy does not show.
    group: Option<Group>,
    /// When it last held a recorded process itself.
    held_at: Option<BootNs>,
    /// When it last was above a group that did.
    needed_at: BootNs,
    last: Option<(Reading, Option<Others>)>,
    others: Option<Others>,
    others_at: Option<BootNs>,
}

impl Watched {
    fn is_count_due(&self, now: BootNs) -> bool {
        let is_due = self.others_at.is_none_or(|at| now - at >= OTHERS_PERIOD);
        self.held_at == Some(now) && is_due
    }
}

impl CgroupCollector {
    /// A collector for the hierarchy that holds the memory controller. `proc` is where
    /// procfs is mounted, if the process ids in it are those of the recording.
    pub fn new(hierarchy: MemoryHierarchy, proc: Option<&Path>) -> Self {
        Self {
            hierarchy,
            groups: BTreeMap::new(),
            buffer: TextBuffer::default(),
            proc: proc.map(Path::to_owned),
            recorded: HashSet::new(),
        }
    }

    /// Counts those who live in the groups of the recording and are not of it.
    fn count_others(&mut self, now: BootNs, world: &World) {
        let Some(proc) = &self.proc else {
            return;
        };
        if !self
            .groups
            .values()
            .any(|watched| watched.is_count_due(now))
        {
            return;
        }
        self.recorded.clear();
        self.recorded.insert(Tgid(std::process::id()));
        let tgids = world.processes().map(|process| process.row().tgid);
        self.recorded.extend(tgids);
        for (path, watched) in &mut self.groups {
            let directory = self.hierarchy.directory(path);
            if let Some(directory) = directory.filter(|_| watched.is_count_due(now)) {
                watched.others_at = Some(now);
                watched.others = others::look(&directory, proc, &self.recorded, &mut self.buffer);
            }
        }
    }

    /// Marks the groups that are needed now and opens those that are new.
    fn find_groups(&mut self, tick: &Tick, world: &World, out: &mut Vec<Record>) {
        let now = tick.boot;
        let mut holders: Vec<&str> = Vec::new();
        for process in world.processes() {
            let Some(path) = process.row().cgroup.as_deref() else {
                continue;
            };
            // Most processes share a few groups: this spares most of them the look-up.
            if holders.last() == Some(&path) {
                continue;
            }
            match self.groups.get_mut(path) {
                Some(watched) if watched.held_at == Some(now) => continue,
                Some(watched) => watched.held_at = Some(now),
                None => self.watch(path, Some(now), tick, out),
            }
            holders.push(path);
        }
        for holder in holders {
            let mut path = holder;
            while let Some(above) = parent(path) {
                path = above;
                match self.groups.get_mut(path) {
                    Some(watched) => watched.needed_at = now,
                    None => self.watch(path, None, tick, out),
                }
            }
        }
        self.groups.retain(|_, watched| {
            let last_use = watched.needed_at.max(watched.held_at.unwrap_or_default());
            now - last_use <= GRACE
        });
    }

    fn watch(&mut self, path: &str, held_at: Option<BootNs>, tick: &Tick, out: &mut Vec<Record>) {
        let directory = self.hierarchy.directory(path);
        if directory.is_none() && held_at.is_some() {
            let detail = format!(
                "the group lies outside of what is mounted at {}; its memory is unknown",
                self.hierarchy.mount_point.display()
            );
            let subject = format!("cgroup {path}");
            out.push(tick.diag(
                Severity::Degraded,
                DiagKind::Unavailable,
                &subject,
                None,
                detail,
            ));
        }
        let version = self.hierarchy.version;
        let watched = Watched {
            group: directory.map(|directory| Group::new(directory, version)),
            held_at,
            needed_at: tick.boot,
            last: None,
            others: None,
            others_at: None,
        };
        self.groups.insert(path.to_owned(), watched);
    }
}

/// The group above, down from which a limit works too.
fn parent(path: &str) -> Option<&str> {
    match path.rsplit_once('/')? {
        ("", "") => None,
        ("", _) => Some("/"),
        (above, _) => Some(above),
    }
}

impl Collector for CgroupCollector {
    fn name(&self) -> &'static str {
        "cgroup"
    }

    fn period(&self) -> DurationNs {
        PERIOD
    }

    fn collect(
        &mut self,
        tick: &Tick,
        world: &mut World,
        out: &mut Vec<Record>,
    ) -> Result<(), CollectError> {
        self.find_groups(tick, world, out);
        self.count_others(tick.boot, world);
        let version = self.hierarchy.version.number();
        let buffer = &mut self.buffer;
        self.groups.retain(|path, watched| {
            let Some(group) = &mut watched.group else {
                return true;
            };
            match group.read(watched.held_at.is_some(), buffer) {
                Ok(Some(reading)) => {
                    let state = (reading, watched.others);
                    if tick.is_keyframe || watched.last.as_ref() != Some(&state) {
                        out.push(Record::CgroupMem(row(path, version, &state, tick)));
                        watched.last = Some(state);
                    }
                    true
                }
                Ok(None) => true,
                // If a process is found in it again, it is another group of that name.
                Err(super::group::Removed) => false,
            }
        });
        Ok(())
    }
}

fn row(
    path: &str,
    version: i32,
    (reading, others): &(Reading, Option<Others>),
    tick: &Tick,
) -> CgroupMemRow {
    CgroupMemRow {
        ts: tick.wall(),
        boot_ns: tick.boot,
        cgroup: path.to_owned(),
        version,
        current_bytes: reading.current,
        peak_bytes: reading.peak,
        limit_bytes: reading.limit,
        anon_bytes: reading.anon,
        file_bytes: reading.file,
        shmem_bytes: reading.shmem,
        file_mapped_bytes: reading.file_mapped,
        inactive_file_bytes: reading.inactive_file,
        kernel_bytes: reading.kernel,
        slab_bytes: reading.slab,
        slab_reclaimable_bytes: reading.slab_reclaimable,
        pagetables_bytes: reading.pagetables,
        kernel_stack_bytes: reading.kernel_stack,
        percpu_bytes: reading.percpu,
        sock_bytes: reading.sock,
        swap_bytes: reading.swap,
        max_event_count: reading.max_event_count,
        oom_kill_count: reading.oom_kill_count,
        other_process_count: others.map(|others| others.count),
        other_anon_bytes: others.and_then(|others| others.anon),
        psi_some_ns: reading.psi_some,
        psi_full_ns: reading.psi_full,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::Birth;
    use crate::host::CgroupVersion;
    use crate::model::{Bytes, ClockOffset, ClockReading, FirstSeenBy, Tgid, WallNs};
    use std::fs;
    use std::path::Path;
    use tempfile::TempDir;

    const V2_STAT: &str = "anon 1000\nfile 500\nkernel 70\nkernel_stack 20\npagetables 30\npercpu 5\nsock 6\nshmem 100\nfile_mapped 200\ninactive_file 150\nslab_reclaimable 8\nslab 10\n";
    const V1_STAT: &str = "cache 1\nrss 2\nshmem 3\nmapped_file 4\nswap 5\ninactive_file 6\nhierarchical_memory_limit 9\ntotal_cache 500\ntotal_rss 1000\ntotal_shmem 100\ntotal_mapped_file 200\ntotal_swap 40\ntotal_inactive_file 150\n";

    struct Fake {
        mount: TempDir,
        collector: CgroupCollector,
        world: World,
    }

    impl Fake {
        fn new(version: CgroupVersion) -> Self {
            let mount = tempfile::tempdir().unwrap();
            let hierarchy = MemoryHierarchy {
                version,
                mount_point: mount.path().to_owned(),
                root: "/".to_owned(),
            };
            Self {
                collector: CgroupCollector::new(hierarchy, None),
                mount,
                world: World::default(),
            }
        }

        fn group(&self, path: &str, files: &[(&str, &str)]) {
            let directory = self.mount.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(&directory).unwrap();
            for (name, text) in files {
                fs::write(directory.join(name), text).unwrap();
            }
        }

        fn process(&mut self, tgid: u32, cgroup: &str) {
            let birth = Birth {
                tgid: Tgid(tgid),
                start: BootNs(0),
                seen_by: FirstSeenBy::Poll,
                parent: None,
                comm: String::new(),
            };
            let upid = self.world.enter(birth, BootNs(0));
            let process = self.world.process_mut(upid).unwrap();
            process.row_mut().cgroup = Some(cgroup.to_owned());
        }

        fn collect(&mut self, seconds: i64, is_keyframe: bool) -> Vec<CgroupMemRow> {
            let tick = tick(seconds, is_keyframe);
            let mut out = Vec::new();
            self.collector
                .collect(&tick, &mut self.world, &mut out)
                .unwrap();
            let row = |record| match record {
                Record::CgroupMem(row) => Some(row),
                _ => None,
            };
            out.into_iter().filter_map(row).collect()
        }
    }

    fn tick(seconds: i64, is_keyframe: bool) -> Tick {
        Tick {
            boot: BootNs(seconds * 1_000_000_000),
            clock: ClockOffset::at(ClockReading {
                boot_ns: BootNs(0),
                monotonic_ns: 0,
                wall_ns: WallNs(0),
            }),
            is_keyframe,
        }
    }

    fn names(rows: &[CgroupMemRow]) -> Vec<&str> {
        rows.iter().map(|row| row.cgroup.as_str()).collect()
    }

    #[test]
    fn a_v2_group_is_read_from_all_its_files() {
        let mut fake = Fake::new(CgroupVersion::V2);
        fake.group("/job", &[
            ("memory.max", "max\n"),
            ("memory.current", "1570\n"),
            ("memory.peak", "2000\n"),
            ("memory.stat", V2_STAT),
            ("memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n"),
            ("memory.swap.current", "40\n"),
            ("memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n"),
        ]);
        fake.process(1, "/job");
        let rows = fake.collect(1, false);
        let [row] = rows.as_slice() else {
            panic!("{rows:?}");
        };
        assert_eq!(row.version, 2);
        assert_eq!(row.current_bytes, Some(Bytes(1570)));
        assert_eq!(row.peak_bytes, Some(Bytes(2000)));
        assert_eq!(row.limit_bytes, None);
        assert_eq!(row.kernel_bytes, Some(Bytes(70)));
        assert_eq!(row.slab_bytes, Some(Bytes(10)));
        assert_eq!(row.swap_bytes, Some(Bytes(40)));
        assert_eq!(
            (row.max_event_count, row.oom_kill_count),
            (Some(3), Some(2))
        );
        assert_eq!(row.psi_full_ns, Some(DurationNs(4000)));
    }

    #[test]
    fn a_v1_group_counts_the_groups_below_and_an_absurd_limit_is_none() {
        let mut fake = Fake::new(CgroupVersion::V1);
        fake.group(
            "/job",
            &[
                ("memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory.usage_in_bytes", "1570\n"),
                ("memory.max_usage_in_bytes", "2000\n"),
                ("memory.stat", V1_STAT),
                ("memory.failcnt", "3\n"),
                (
                    "memory.oom_control",
                    "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
                ),
                ("memory.kmem.usage_in_bytes", "70\n"),
            ],
        );
        fake.process(1, "/job");
        let rows = fake.collect(1, false);
        let row = &rows[0];
        assert_eq!(row.version, 1);
        assert_eq!(row.limit_bytes, None);
        assert_eq!(row.anon_bytes, Some(Bytes(1000)));
        assert_eq!(row.file_bytes, Some(Bytes(500)));
        assert_eq!(row.swap_bytes, Some(Bytes(40)));
        assert_eq!(row.kernel_bytes, Some(Bytes(70)));
        assert_eq!(row.slab_bytes, None);
        assert_eq!(
            (row.max_event_count, row.oom_kill_count),
            (Some(3), Some(2))
        );
    }

    #[test]
    fn a_group_above_is_recorded_only_while_it_has_a_limit() {
        let mut fake = Fake::new(CgroupVersion::V2);
        fake.group("/", &[("memory.stat", V2_STAT)]);
        fake.group(
            "/pod",
            &[("memory.max", "4096\n"), ("memory.current", "1\n")],
        );
        fake.group(
            "/pod/free",
            &[("memory.max", "max\n"), ("memory.current", "1\n")],
        );
        fake.group(
            "/pod/free/box",
            &[("memory.max", "max\n"), ("memory.current", "1\n")],
        );
        fake.process(1, "/pod/free/box");
        assert_eq!(names(&fake.collect(1, false)), ["/pod", "/pod/free/box"]);
        fake.group("/pod", &[("memory.max", "max\n")]);
        assert_eq!(names(&fake.collect(2, true)), ["/pod/free/box"]);
    }

    #[test]
    fn an_unchanged_group_is_written_only_with_keyframes() {
        let mut fake = Fake::new(CgroupVersion::V2);
        fake.group("/job", &[("memory.current", "1\n")]);
        fake.process(1, "/job");
        assert_eq!(fake.collect(1, false).len(), 1);
        assert_eq!(fake.collect(2, false).len(), 0);
        assert_eq!(fake.collect(3, true).len(), 1);
        fake.group("/job", &[("memory.current", "2\n")]);
        assert_eq!(fake.collect(4, false).len(), 1);
    }

    #[test]
    fn a_group_is_read_on_for_a_while_after_its_last_process_went() {
        let mut fake = Fake::new(CgroupVersion::V2);
        fake.group("/job", &[("memory.events", "max 0\noom_kill 0\n")]);
        fake.process(1, "/job");
        fake.collect(1, false);
        fake.world = World::default();
        fake.group("/job", &[("memory.events", "max 4\noom_kill 1\n")]);
        assert_eq!(fake.collect(2, false)[0].oom_kill_count, Some(1));
        assert_eq!(fake.collect(60, true).len(), 0);
    }

    #[test]
    fn without_psi_and_without_the_swap_controller_those_are_unknown_and_not_zero() {
        let mut fake = Fake::new(CgroupVersion::V2);
        fake.group(
            "/job",
            &[
                ("memory.current", "1\n"),
                ("memory.max", "max\n"),
                ("memory.stat", V2_STAT),
            ],
        );
        fake.process(1, "/job");
        let rows = fake.collect(1, false);
        let row = &rows[0];
        assert_eq!((row.psi_some_ns, row.psi_full_ns), (None, None));
        assert_eq!((row.swap_bytes, row.limit_bytes), (None, None));
        assert_eq!(row.current_bytes, Some(Bytes(1)));
    }

    #[test]
    fn a_group_that_a_cgroup_namespace_hides_is_told_once() {
        let mut fake = Fake::new(CgroupVersion::V2);
        // How the kernel writes the path of a group outside of the reader's namespace.
        fake.process(1, "/../sibling");
        let hidden = |fake: &mut Fake, seconds| {
            let mut out = Vec::new();
            let tick = tick(seconds, false);
            fake.collector
                .collect(&tick, &mut fake.world, &mut out)
                .unwrap();
            let diags = out
                .iter()
                .filter(|record| matches!(record, Record::Diag(_)));
            (diags.count(), out.len())
        };
        assert_eq!(hidden(&mut fake, 1), (1, 1));
        assert_eq!(hidden(&mut fake, 2), (0, 0));
    }

    #[test]
    fn who_else_lives_in_a_group_is_counted_every_ten_seconds() {
        let mut fake = Fake::new(CgroupVersion::V2);
        let proc = tempfile::tempdir().unwrap();
        fake.collector.proc = Some(proc.path().to_owned());
        let files = [("memory.current", "9\n"), ("cgroup.procs", "1\n7\n")];
        fake.group("/job", &files);
        fs::create_dir(proc.path().join("7")).unwrap();
        fs::write(
            proc.path().join("7/status"),
            "PPid:\t1000\nRssAnon:\t8 kB\n",
        )
        .unwrap();
        fake.process(1, "/job");
        let others = |rows: &[CgroupMemRow]| {
            rows.first()
                .map(|row| (row.other_process_count, row.other_anon_bytes))
        };
        assert_eq!(
            others(&fake.collect(1, false)),
            Some((Some(1), Some(Bytes(8192))))
        );
        fake.group("/job", &[("cgroup.procs", "1\n")]);
        assert_eq!(
            others(&fake.collect(2, true)),
            Some((Some(1), Some(Bytes(8192))))
        );
        assert_eq!(
            others(&fake.collect(11, false)),
            Some((Some(0), Some(Bytes(0))))
        );
    }

    #[test]
    fn a_group_that_does_not_exist_is_no_error() {
        let mut fake = Fake::new(CgroupVersion::V2);
        fake.process(1, "/gone/for/good");
        assert_eq!(fake.collect(1, true), []);
    }

    #[test]
    fn the_groups_above_go_up_to_the_root() {
        assert_eq!(parent("/a/b"), Some("/a"));
        assert_eq!(parent("/a"), Some("/"));
        assert_eq!(parent("/"), None);
        assert_eq!(parent(""), None);
    }

    /// Run where groups can be made: there the group of this process is shown too.
    mod needs_memcg {
        use super::*;

        #[test]
        fn the_group_of_this_process_is_read() {
            let hierarchy = crate::host::HostFacts::read().memory_hierarchy.unwrap();
            let this = Tgid(std::process::id());
            let own = crate::collect::procfs::identity(Path::new("/proc"), this).unwrap();
            let path = own.unwrap().cgroup.unwrap();
            let mut fake = Fake::new(hierarchy.version);
            fake.collector = CgroupCollector::new(hierarchy, None);
            fake.process(1, &path);
            let rows = fake.collect(1, false);
            let row = rows.iter().find(|row| row.cgroup == path).unwrap();
            assert!(row.anon_bytes.is_some(), "{row:?}");
        }
    }
}
