//! Groups of both versions, on made-up hierarchies.

use super::*;
use crate::Birth;
use crate::cgroup::unread_keys;
use memtrace_host::CgroupVersion;
use memtrace_model::{Bytes, FirstSeenBy, Tgid, WallNs};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const V2_STAT: &str = "anon 1000\nfile 500\nkernel 70\nkernel_stack 20\npagetables 30\npercpu 5\nsock 6\nshmem 100\nfile_mapped 200\ninactive_file 150\nslab_reclaimable 8\nslab 10\n";
const V1_STAT: &str = "cache 1\nrss 2\nshmem 3\nmapped_file 4\nswap 5\ninactive_file 6\nhierarchical_memory_limit 9\ntotal_cache 500\ntotal_rss 1000\ntotal_shmem 100\ntotal_mapped_file 200\ntotal_swap 40\ntotal_inactive_file 150\n";

struct Fake {
    mount: TempDir,
    collector: CgroupCollector,
    table: ProcessTable,
}

impl Fake {
    fn new(version: CgroupVersion) -> Self {
        let mount = tempfile::tempdir().unwrap();
        let hierarchy = MemoryHierarchy {
            version,
            mount_point: mount.path().to_owned(),
            root: "/".to_owned(),
        };
        let mut collector = CgroupCollector::new(hierarchy, None);
        collector.now = |tick| Instant::at(tick.boot, tick);
        Self {
            collector,
            mount,
            table: ProcessTable::default(),
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
        let upid = self.table.enter(birth, BootNs(0));
        let process = self.table.process_mut(upid).unwrap();
        process.row_mut().cgroup = Some(cgroup.into());
    }

    fn collect(&mut self, seconds: i64, is_keyframe: bool) -> Vec<CgroupMemRow> {
        let tick = tick(seconds, is_keyframe);
        let mut out = Vec::new();
        self.collector
            .collect(&mut Pass::new(&tick, &mut self.table, &mut out))
            .unwrap();
        let row = |record| match record {
            Record::CgroupMem(row) => Some(*row),
            _ => None,
        };
        out.into_iter().filter_map(row).collect()
    }
}

fn tick(seconds: i64, is_keyframe: bool) -> Tick {
    Tick {
        is_keyframe,
        ..Tick::at(BootNs(seconds * 1_000_000_000))
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
    assert_eq!(fake.collect(4, false).len(), 0, "it has hardly moved");
    fake.group("/job", &[("memory.current", "2000000\n")]);
    assert_eq!(fake.collect(5, false).len(), 2, "with what it held before");
}

#[test]
fn what_a_group_held_until_it_changed_is_reported_with_its_time() {
    let mut fake = Fake::new(CgroupVersion::V2);
    fake.group("/job", &[("memory.current", "1\n")]);
    fake.process(1, "/job");
    let shown = |fake: &mut Fake, seconds, is_keyframe| {
        let rows = fake.collect(seconds, is_keyframe);
        let of = |row: &CgroupMemRow| (row.boot_ns.0 / 1_000_000_000, row.current_bytes);
        rows.iter().map(of).collect::<Vec<_>>()
    };
    let held = |seconds, bytes| (seconds, Some(Bytes(bytes)));
    assert_eq!(shown(&mut fake, 1, false), [held(1, 1)]);
    assert_eq!(shown(&mut fake, 2, false), []);
    assert_eq!(shown(&mut fake, 3, false), []);
    let (more, most) = (1_000_000, 2_000_000);
    fake.group("/job", &[("memory.current", &format!("{more}\n"))]);
    assert_eq!(shown(&mut fake, 4, false), [held(3, 1), held(4, more)]);
    // Every second it is another: nothing to add.
    fake.group("/job", &[("memory.current", &format!("{most}\n"))]);
    assert_eq!(shown(&mut fake, 5, false), [held(5, most)]);
    assert_eq!(shown(&mut fake, 6, false), []);
    assert_eq!(shown(&mut fake, 7, true), [held(7, most)]);
}

#[test]
fn a_group_is_read_on_for_a_while_after_its_last_process_went() {
    let mut fake = Fake::new(CgroupVersion::V2);
    fake.group("/job", &[("memory.events", "max 0\noom_kill 0\n")]);
    fake.process(1, "/job");
    fake.collect(1, false);
    fake.table = ProcessTable::default();
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
fn a_file_that_opens_and_cannot_be_read_leaves_its_columns_unknown() {
    let mut fake = Fake::new(CgroupVersion::V2);
    fake.group(
        "/job",
        &[("memory.current", "1\n"), ("memory.stat", V2_STAT)],
    );
    // With PSI switched off reading it fails with EOPNOTSUPP, as that of a directory with EISDIR.
    fake.group("/job/memory.pressure", &[]);
    fake.process(1, "/job");
    let rows = fake.collect(1, false);
    let row = &rows[0];
    assert_eq!((row.psi_some_ns, row.psi_full_ns), (None, None));
    assert_eq!(row.current_bytes, Some(Bytes(1)));
    assert_eq!(row.anon_bytes, Some(Bytes(1_000)));
}

#[test]
fn a_group_that_a_cgroup_namespace_hides_is_reported_once() {
    let mut fake = Fake::new(CgroupVersion::V2);
    // How the kernel writes the path of a group outside of the reader's namespace.
    fake.process(1, "/../sibling");
    let hidden = |fake: &mut Fake, seconds| {
        let mut out = Vec::new();
        let tick = tick(seconds, false);
        fake.collector
            .collect(&mut Pass::new(&tick, &mut fake.table, &mut out))
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
fn who_else_lives_in_a_group_is_counted_every_second_as_far_as_that_is_cheap() {
    let after = |are_few, took_ns| others_period(are_few, DurationNs(took_ns)).0;
    assert_eq!(after(true, 50_000), 900_000_000);
    assert_eq!(after(true, 1_000_000), 3_000_000_000);
    assert_eq!(after(true, 50_000_000), 10_000_000_000);
    assert_eq!(after(false, 10_000_000), 30_000_000_000);
    assert_eq!(after(false, 90_000_000), 60_000_000_000);
    assert_eq!(after(false, 50_000), 10_000_000_000);
}

#[test]
fn who_else_lives_in_a_group_is_counted_again_and_where_nobody_does_after_ten_seconds() {
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
    let nobody = Some((Some(0), Some(Bytes(0))));
    fake.group("/job", &[("cgroup.procs", "1\n")]);
    // However long the first count took.
    assert_eq!(others(&fake.collect(12, true)), nobody);
    fake.group("/job", &files);
    assert_eq!(others(&fake.collect(13, true)), nobody);
    assert_eq!(
        others(&fake.collect(22, false)),
        Some((Some(1), Some(Bytes(8192))))
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

#[test]
fn a_reading_has_the_time_at_which_it_was_made_and_not_that_of_its_tick() {
    let mut fake = Fake::new(CgroupVersion::V2);
    fake.collector.now = Instant::now;
    fake.group("/job", &[("memory.current", "1\n")]);
    fake.process(1, "/job");
    let before = clock::boot();
    let rows = fake.collect(1, false);
    let read = rows[0].boot_ns;
    assert!((before..=clock::boot()).contains(&read), "{read:?}");
    assert_eq!(rows[0].ts, WallNs(read.0));
}

/// Run where groups can be made: there the group of this process is shown too.
mod needs_memcg {
    use super::*;

    #[test]
    fn the_group_of_this_process_is_read() {
        let hierarchy = memtrace_host::HostFacts::read().memory_hierarchy.unwrap();
        let this = Tgid(std::process::id());
        let own = crate::procfs::identity(Path::new("/proc"), this).unwrap();
        let path = own.unwrap().cgroup.unwrap();
        let mut fake = Fake::new(hierarchy.version);
        fake.collector = CgroupCollector::new(hierarchy, None);
        fake.process(1, &path);
        let rows = fake.collect(1, false);
        let row = rows.iter().find(|row| row.cgroup == path).unwrap();
        assert!(row.anon_bytes.is_some(), "{row:?}");
    }

    /// A key that a new kernel brings is read, or is known to be no memory of its own.
    #[test]
    fn every_key_of_the_kernels_that_is_memory_is_read() {
        let facts = memtrace_host::HostFacts::read();
        let hierarchy = facts.memory_hierarchy.unwrap();
        let stat = fs::read_to_string(hierarchy.mount_point.join("memory.stat")).unwrap();
        assert_eq!(unread_keys(hierarchy.version, &stat), [""; 0]);
        let newer = "unevictable 1\npgfault 2\ninactive_anon 3\nballoon 4\n";
        assert_eq!(unread_keys(hierarchy.version, newer), ["balloon"]);
    }
}
