use super::super::layout::Counting;
use super::*;
use memtrace_abi::{EventHeader, TaskSeen};
use memtrace_model::{PageSize, TitleRow};
use zerocopy::FromZeros;

const PAGE: i64 = 4096;

/// An [`Apply`] with a process table, as the backend holds them.
struct Bench {
    apply: Apply,
    table: ProcessTable,
    out: Vec<Record>,
}

impl Bench {
    fn new() -> Self {
        let peaks = Peaks {
            page_size: PageSize(PAGE),
            noise: Bytes(10 * PAGE),
            counting: Counting::Exact,
        };
        Self {
            apply: Apply::new(peaks, None),
            table: ProcessTable::default(),
            out: Vec::new(),
        }
    }

    fn take(&mut self, event: Event<'_>) -> Option<OomRow> {
        let (tick, targets) = (tick(), Targets::All);
        let (table, out) = (&mut self.table, &mut self.out);
        self.apply
            .event(event, &targets, &mut Pass::new(&tick, table, out))
    }

    fn row(&self, tgid: u32) -> &ProcessRow {
        let upid = self.table.upid(Tgid(tgid)).unwrap();
        self.table.process(upid).unwrap().row()
    }

    /// The kernel finds it running.
    fn seen_again(&mut self, upid: Upid, task: &TaskSeen) {
        let (table, out) = (&mut self.table, &mut self.out);
        self.apply
            .seen_again(upid, task, &mut Pass::new(&tick(), table, out));
    }

    fn titles(&self) -> Vec<TitleRow> {
        let of_title = |record: &Record| match record {
            Record::Title(row) => Some(row.clone()),
            _ => None,
        };
        self.out.iter().filter_map(of_title).collect()
    }

    /// The rows of `mem` so far: where they come from, and RSS in pages.
    fn memory(&self) -> Vec<(MemSource, i64)> {
        let of_mem = |record: &Record| match record {
            Record::Mem(row) => Some((row.source.unwrap(), row.rss_bytes.unwrap().0 / PAGE)),
            _ => None,
        };
        self.out.iter().filter_map(of_mem).collect()
    }
}

fn tick() -> Tick {
    Tick::at(BootNs(1_000))
}

/// No process of this machine has such an id, so that /proc knows nothing of it.
const TGID: u32 = 5_000_000;

fn header(tgid: u32, start_boot_ns: u64, boot_ns: u64) -> EventHeader {
    EventHeader {
        tgid,
        start_boot_ns,
        boot_ns,
        ..EventHeader::new_zeroed()
    }
}

fn counts(anon_pages: i64) -> Counts {
    Counts {
        anon_pages,
        ..Counts::default()
    }
}

fn fork(tgid: u32, parent_tgid: u32, is_mm_shared: u32) -> Event<'static> {
    Event::Fork(Fork {
        header: header(tgid, 10, 11),
        parent_tgid,
        parent_start_boot_ns: 10,
        is_mm_shared,
        counts: counts(5),
        uid: 7,
        ..Fork::new_zeroed()
    })
}

fn sample(tgid: u32, start_boot_ns: u64, pages: i64) -> Event<'static> {
    Event::Sample(Sample {
        header: header(tgid, start_boot_ns, 20),
        counts: counts(pages),
        cause: SampleCause::Drift as u32,
        ..Sample::new_zeroed()
    })
}

fn exec(tgid: u32, execs: u32) -> Exec {
    Exec {
        header: header(tgid, 10, 25),
        is_member: 1,
        execs,
        ..Exec::new_zeroed()
    }
}

fn exit(tgid: u32, wait_status: i32) -> Exit {
    Exit {
        header: header(tgid, 10, 30),
        ended: Ended {
            boot_ns: 30,
            wait_status,
            has_own_mm: 1,
            rss_pages: 3,
            hiwater_pages: 9,
            ..Ended::new_zeroed()
        },
        counts: counts(3),
        rlimit_as_bytes: Exit::NO_LIMIT,
        rlimit_data_bytes: Exit::NO_LIMIT,
        ..Exit::new_zeroed()
    }
}

/// The end of a child that called exec, as it is kept where the ring is full.
fn kept(parent_tgid: u32, args: &[u8]) -> Ended {
    let mut ended = exit(0, 7 << 8).ended;
    ended.origin.parent_tgid = parent_tgid;
    ended.origin.parent_start_boot_ns = 10;
    ended.origin.was_fork_seen = 1;
    ended.origin.execs = 1;
    ended.origin.comm[..4].copy_from_slice(b"true");
    ended.origin.args_len = args.len() as u8;
    let len = args.len().min(ended.origin.args.len());
    ended.origin.args[..len].copy_from_slice(&args[..len]);
    ended
}

#[test]
fn an_end_alone_tells_all_of_a_process() {
    for (args, cmdline) in [
        (b"true\0-x".as_slice(), Some("true -x")),
        (&[b'x'; 65], None),
    ] {
        let mut bench = Bench::new();
        bench.take(fork(TGID, 0, 0));
        let parent = bench.row(TGID).upid;
        bench.take(Event::Exit(Exit {
            header: header(TGID + 1, 20, 30),
            ended: kept(TGID, args),
            ..Exit::new_zeroed()
        }));
        bench.out.clear();
        bench.table.write_changes(false, &mut bench.out);
        let Some(Record::Process(row)) = bench.out.first() else {
            panic!("{:?}", bench.out);
        };
        assert_eq!((row.tgid, row.parent_upid), (Tgid(TGID + 1), Some(parent)));
        assert_eq!(
            (row.comm.as_str(), row.cmdline.as_deref()),
            ("true", cmdline)
        );
        assert_eq!((row.start_boot_ns, row.exit_code), (BootNs(20), Some(7)));
        assert_eq!(row.exe, None, "which file it ran was not kept");
        assert_eq!(bench.apply.take_unnamed(), 1);
    }
}

#[test]
fn an_exec_that_was_lost_is_known_by_the_end_or_by_who_still_runs() {
    let mut bench = Bench::new();
    bench.take(fork(TGID, 0, 0));
    bench.take(fork(TGID + 1, TGID, 0));
    for tgid in [TGID, TGID + 1] {
        bench.take(Event::Exec(exec(tgid, 1), b"/bin/sh", b"sh\0-c\0true"));
    }
    let upid = bench.row(TGID).upid;
    let mut task = TaskSeen {
        tgid: TGID,
        start_boot_ns: 10,
        boot_ns: 40,
        exec_boot_ns: 25,
        counts: counts(2),
        execs: 1,
        ..TaskSeen::new_zeroed()
    };
    let titles = bench.titles().len();
    for _ in 0..2 {
        bench.seen_again(upid, &task);
    }
    assert_eq!(bench.titles().len(), titles, "nothing was lost");
    task.execs = 3;
    task.exec_boot_ns = 35;
    for _ in 0..2 {
        bench.seen_again(upid, &task);
    }
    let row = bench.row(TGID);
    assert_eq!(
        (&row.exe, &row.cmdline),
        (&None, &None),
        "until it is looked up"
    );
    assert_eq!(bench.memory().last(), Some(&(MemSource::Snapshot, 2)));
    assert_eq!(bench.apply.unnamed.len(), 1);

    let mut ended = exit(TGID + 1, 0);
    ended.ended.origin = kept(TGID, b"true\0-x").origin;
    ended.ended.origin.execs = 2;
    bench.take(Event::Exit(ended));
    let last = bench.titles().pop().unwrap();
    assert_eq!(last.source, Some(TitleSource::Exec));
    assert_eq!(
        (last.comm.as_str(), last.title.as_deref()),
        ("true", Some("true -x"))
    );
    assert_eq!(bench.apply.take_unnamed(), 1);
}

#[test]
fn an_exec_that_comes_behind_a_later_one_changes_nothing_also_where_the_count_begins_anew() {
    assert_eq!([later_execs(3, 3), later_execs(3, 1)], [0, 2]);
    assert_eq!([later_execs(1, 3), later_execs(65_535, 1)], [-2, -2]);
    let mut bench = Bench::new();
    bench.take(fork(TGID, 0, 0));
    bench.take(Event::Exec(exec(TGID, 2), b"/bin/sh", b"sh"));
    bench.take(Event::Exec(exec(TGID, 1), b"/bin/env", b"env\0sh"));
    assert_eq!(bench.row(TGID).cmdline.as_deref(), Some("sh"));
}

#[test]
fn where_a_process_comes_from_is_made_up_for_at_its_end() {
    let mut bench = Bench::new();
    bench.take(fork(TGID, 0, 0));
    let parent = bench.row(TGID).upid;
    // Its fork was lost.
    bench.take(sample(TGID + 1, 10, 50));
    bench.take(fork(TGID + 2, TGID + 1, 0));
    assert_eq!(bench.row(TGID + 1).parent_upid, None);
    bench.take(Event::Exit(Exit {
        header: header(TGID + 1, 10, 30),
        ended: kept(TGID, b"true"),
        ..Exit::new_zeroed()
    }));
    assert_eq!(bench.row(TGID + 2).root_upid, Some(parent));
    bench.out.clear();
    bench.table.write_changes(false, &mut bench.out);
    let Some(Record::Process(row)) = bench.out.first() else {
        panic!("{:?}", bench.out);
    };
    assert_eq!(
        (row.parent_upid, row.root_upid),
        (Some(parent), Some(parent))
    );
}

#[test]
fn a_child_is_entered_with_its_parent_and_its_memory() {
    let mut bench = Bench::new();
    bench.take(fork(TGID, 0, 0));
    bench.take(fork(TGID + 1, TGID, 0));
    let parent = bench.row(TGID).upid;
    let child = bench.row(TGID + 1);
    assert_eq!(child.parent_upid, Some(parent));
    assert_eq!(child.root_upid, Some(parent));
    assert_eq!((child.uid, child.ns_tgid), (Some(7), None));
    assert_eq!(bench.memory(), [(MemSource::First, 5); 2]);
}

#[test]
fn a_vforked_child_is_charged_nothing() {
    let mut bench = Bench::new();
    bench.take(fork(TGID, 0, 1));
    assert_eq!(bench.memory(), []);
    assert_eq!(bench.row(TGID).peak_rss_bytes, None);
}

#[test]
fn a_fork_that_is_reported_after_the_snapshot_found_the_child_changes_nothing() {
    let mut bench = Bench::new();
    bench.take(fork(TGID, 0, 0));
    let upid = bench.row(TGID).upid;
    bench.take(fork(TGID, 0, 0));
    assert_eq!(bench.row(TGID).upid, upid);
    assert_eq!(bench.table.entered_count(), 1);
}

#[test]
fn a_sample_that_comes_after_the_end_brings_nobody_back() {
    let mut bench = Bench::new();
    bench.take(fork(TGID, 0, 0));
    bench.take(Event::Exit(exit(TGID, 0)));
    bench.take(sample(TGID, 10, 50));
    assert_eq!(bench.table.upid(Tgid(TGID)), None);
    assert_eq!(bench.table.entered_count(), 1);
    let sources: Vec<MemSource> = bench.memory().iter().map(|row| row.0).collect();
    assert_eq!(sources, [MemSource::First, MemSource::Exit]);
}

#[test]
fn a_full_tmpfs_is_noted_also_where_the_end_is_handled_first() {
    let mut bench = Bench::new();
    bench.take(fork(TGID, TGID + 1, 0));
    let upid = bench.table.upid(Tgid(TGID));
    bench.take(Event::Exit(exit(TGID, 7)));
    bench.take(Event::FullTmpfs(FullTmpfs {
        header: header(TGID, 10, 29),
        size_pages: 8,
        used_pages: 8,
        ..FullTmpfs::default()
    }));
    let noted = bench.table.news.full_tmpfs.iter();
    let noted: Vec<_> = noted
        .map(|row| (Some(row.seen_by_upid), row.used_bytes.0))
        .collect();
    assert_eq!(noted, [(upid, 8 * PAGE)]);
}

#[test]
fn an_id_that_is_used_again_is_another_process() {
    let mut bench = Bench::new();
    bench.take(fork(TGID, 0, 0));
    let first = bench.row(TGID).upid;
    // Its end was lost; the next of its id started later.
    bench.take(sample(TGID, 15, 50));
    let second = bench.row(TGID);
    assert_ne!(second.upid, first);
    assert_eq!(second.start_boot_ns, BootNs(15));
    assert!(bench.table.process(first).is_none(), "the first has ended");
    // What is reported late of the first is not the second's.
    let second = second.upid;
    let count = bench.memory().len();
    bench.take(sample(TGID, 10, 99));
    assert_eq!(bench.row(TGID).upid, second);
    assert_eq!(bench.memory().len(), count);
}

#[test]
fn an_end_says_how_and_settles_the_peak() {
    let mut bench = Bench::new();
    bench.take(fork(TGID, 0, 0));
    let ended = exit(TGID, libc::SIGSEGV | 0x80);
    bench.take(Event::Exit(Exit {
        pending_peak: [8, 0, 0],
        pending_peak_boot_ns: 25,
        rlimit_as_bytes: 1 << 30,
        ..ended
    }));
    let expected = [
        (MemSource::First, 5),
        (MemSource::Peak, 8),
        (MemSource::Exit, 0),
    ];
    assert_eq!(bench.memory(), expected);
    bench.out.clear();
    bench.table.write_changes(false, &mut bench.out);
    let [Record::Process(row)] = bench.out.as_slice() else {
        panic!("{:?}", bench.out);
    };
    let limits = (row.rlimit_as_bytes, row.rlimit_data_bytes);
    assert_eq!(limits, (Some(Bytes(1 << 30)), None));
    assert_eq!(
        (row.exit_code, row.exit_signal),
        (None, Some(libc::SIGSEGV))
    );
    assert_eq!(row.exit_boot_ns, Some(BootNs(30)));
    assert_eq!(row.peak_rss_bytes, Some(Bytes(9 * PAGE)));
    assert_eq!(row.kernel_maxrss_bytes, None, "zero is not set yet");
}

#[test]
fn a_name_is_text_up_to_its_end_whatever_it_holds() {
    assert_eq!(comm_text(b"worker\0rest"), "worker");
    assert_eq!(comm_text(b"a\xff\n\x1b[2J"), "a\u{fffd}\n\u{1b}[2J");
    assert_eq!(comm_text(b""), "");
}

#[test]
fn a_kill_of_another_process_of_the_same_id_marks_nobody() {
    let mut bench = Bench::new();
    bench.table.observe_oom_kills();
    bench.take(fork(TGID, 0, 0));
    let kill = |start_boot_ns| Oom {
        header: header(TGID, start_boot_ns, 20),
        has_victim: 1,
        counts: counts(6),
        ..Oom::new_zeroed()
    };
    let row = bench.take(Event::Oom(kill(99))).unwrap();
    assert_eq!(row.victim_upid, None);
    assert_eq!(bench.row(TGID).oom_killed, Some(false));
    let row = bench.take(Event::Oom(kill(10))).unwrap();
    assert_eq!(row.victim_upid, Some(bench.row(TGID).upid));
    assert_eq!(row.victim_rss_anon_bytes, Some(Bytes(6 * PAGE)));
    assert_eq!(bench.row(TGID).oom_killed, Some(true));
}

#[test]
fn of_a_copy_that_exec_replaces_only_what_it_grew_by_counts() {
    let mut bench = Bench::new();
    bench.take(fork(TGID, 0, 0));
    assert_eq!(bench.row(TGID).inherited_rss_bytes, Some(Bytes(5 * PAGE)));
    bench.take(sample(TGID, 10, 7));
    assert_eq!(bench.row(TGID).peak_rss_bytes, Some(Bytes(7 * PAGE)));
    bench.take(Event::Exec(exec(TGID, 1), b"/bin/true", b""));
    assert_eq!(bench.row(TGID).inherited_rss_bytes, Some(Bytes(0)));
    assert_eq!(bench.row(TGID).peak_rss_bytes, Some(Bytes(2 * PAGE)));
    bench.take(sample(TGID, 10, 1));
    bench.take(Event::Exec(exec(TGID, 2), b"/bin/false", b""));
    let peak = bench.row(TGID).peak_rss_bytes;
    assert_eq!(peak, Some(Bytes(2 * PAGE)), "the program's own peak stays");
}
