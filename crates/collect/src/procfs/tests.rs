//! The backend on small trees, and on processes of its own making in the real /proc.

use super::fake::FakeProc;
use super::{ProcfsBackend, ProcfsOptions};
use crate::{Birth, Collector, Pass, ProcessTable, Targets, Tick};
use memtrace_model::{
    BootNs, Bytes, ClockOffset, ClockReading, DiagKind, DurationNs, FirstSeenBy, MemRow, MemSource,
    PeakSource, ProcessRow, Record, Tgid, TitleRow, WallNs,
};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

struct Recording {
    backend: ProcfsBackend,
    table: ProcessTable,
    rows: Vec<Record>,
}

impl Recording {
    fn of(root: &Path, targets: Targets, descriptor_limit: usize) -> Self {
        let options = ProcfsOptions {
            interval: DurationNs(100_000_000),
            command: None,
            descriptor_limit,
        };
        Self {
            backend: ProcfsBackend::new(root, targets, options),
            table: ProcessTable::default(),
            rows: Vec::new(),
        }
    }

    fn poll_at(&mut self, boot: i64, is_keyframe: bool) {
        let tick = Tick {
            boot: BootNs(boot),
            clock: ClockOffset::at(ClockReading {
                boot_ns: BootNs(0),
                monotonic_ns: 0,
                wall_ns: WallNs(0),
            }),
            is_keyframe,
        };
        self.rows.clear();
        self.backend
            .collect(&mut Pass::new(&tick, &mut self.table, &mut self.rows))
            .unwrap();
        self.table.write_changes(is_keyframe, &mut self.rows);
    }

    fn poll(&mut self) {
        self.poll_at(boot_now(), false);
    }

    fn mem(&self) -> Vec<MemRow> {
        let mem = |record: &Record| match record {
            Record::Mem(row) => Some(*row),
            _ => None,
        };
        self.rows.iter().filter_map(mem).collect()
    }

    fn processes(&self) -> Vec<ProcessRow> {
        let process = |record: &Record| match record {
            Record::Process(row) => Some(*row.clone()),
            _ => None,
        };
        self.rows.iter().filter_map(process).collect()
    }

    fn titles(&self) -> Vec<TitleRow> {
        let title = |record: &Record| match record {
            Record::Title(row) => Some(row.clone()),
            _ => None,
        };
        self.rows.iter().filter_map(title).collect()
    }
}

fn boot_now() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn root(tgid: u32) -> Targets {
    Targets::Roots(vec![Tgid(tgid)])
}

const SECOND: i64 = 1_000_000_000;

#[test]
fn an_idle_process_costs_rows_only_with_keyframes() {
    let proc = FakeProc::new();
    proc.process(42, "worker", 1);
    let mut recording = Recording::of(proc.root(), root(42), 10);
    recording.poll_at(SECOND, false);
    let [first] = recording.mem()[..] else {
        panic!("{:?}", recording.rows);
    };
    assert_eq!(first.source, Some(MemSource::First));
    assert_eq!(first.rss_bytes, Some(Bytes(1000 * 4096)));
    recording.poll_at(2 * SECOND, false);
    assert_eq!(recording.mem(), []);
    recording.poll_at(3 * SECOND, true);
    assert_eq!(recording.mem()[0].source, Some(MemSource::Keyframe));
    proc.set_rss(42, 1200);
    recording.poll_at(4 * SECOND, false);
    assert_eq!(recording.mem()[0].source, Some(MemSource::Procfs));
}

#[test]
fn the_end_closes_the_series_and_keeps_the_highest_mark() {
    let proc = FakeProc::new();
    proc.process(42, "worker", 1);
    let mut recording = Recording::of(proc.root(), root(42), 0);
    recording.poll_at(SECOND, false);
    proc.set_rss(42, 5000);
    recording.poll_at(2 * SECOND, false);
    proc.set_rss(42, 100);
    recording.poll_at(3 * SECOND, false);
    proc.end(42);
    recording.poll_at(4 * SECOND, false);
    assert_eq!(recording.mem()[0].source, Some(MemSource::Exit));
    let row = &recording.processes()[0];
    assert_eq!(row.exit_boot_ns, Some(BootNs(4 * SECOND)));
    assert_eq!(row.exit_code, None, "nobody saw how it ended");
    assert_eq!(row.peak_rss_bytes, Some(Bytes(5000 * 4096)));
    assert_eq!(row.peak_rss_source, Some(PeakSource::VmHwm));
    assert_eq!(row.peak_rss_boot_ns, Some(BootNs(2 * SECOND)));
}

#[test]
fn a_reused_id_is_another_process() {
    let proc = FakeProc::new();
    proc.process(42, "worker", 1);
    let mut recording = Recording::of(proc.root(), Targets::All, 0);
    recording.poll_at(SECOND, false);
    let first = recording.table.upid(Tgid(42));
    proc.process_started_at(42, "another", 1, 5000);
    recording.poll_at(60 * SECOND, false);
    let second = recording.table.upid(Tgid(42));
    assert!(first.is_some() && second.is_some() && first != second);
}

#[test]
fn a_zombie_has_ended_and_tells_how() {
    let proc = FakeProc::new();
    proc.process(42, "worker", 1);
    let mut recording = Recording::of(proc.root(), root(42), 0);
    recording.poll_at(SECOND, false);
    proc.zombie(42, "worker", 1, 9);
    recording.poll_at(2 * SECOND, false);
    assert_eq!(recording.processes()[0].exit_signal, Some(9));
    recording.poll_at(3 * SECOND, false);
    assert!(recording.processes().is_empty(), "it is not found again");
}

#[test]
fn a_short_child_is_known_by_what_is_left_of_it() {
    let proc = FakeProc::new();
    proc.process(42, "shell", 1);
    let mut recording = Recording::of(proc.root(), root(42), 10);
    recording.poll_at(SECOND, false);
    proc.zombie(43, "short", 42, 0x300);
    recording.poll_at(20 * SECOND, false);
    let row = recording.processes().pop().unwrap();
    assert_eq!(row.comm, "short");
    assert_eq!(row.exit_code, Some(3));
    assert_eq!(row.parent_upid, recording.table.upid(Tgid(42)));
    assert_eq!(row.peak_rss_bytes, None);
}

#[test]
fn a_new_title_is_a_row_and_a_new_image_is_also_a_new_command_line() {
    let proc = FakeProc::new();
    proc.process(42, "python3", 1);
    proc.write(42, "comm", b"python3\n");
    let mut recording = Recording::of(proc.root(), root(42), 10);
    recording.poll_at(SECOND, false);
    assert_eq!(recording.titles().len(), 1);

    proc.write(42, "comm", b"VLLM::Worker_TP\n");
    proc.write(42, "cmdline", b"VLLM::Worker_TP1\0\0\0");
    recording.poll_at(3 * SECOND, false);
    assert_eq!(
        recording.titles()[0].title.as_deref(),
        Some("VLLM::Worker_TP1")
    );
    let row = &recording.processes()[0];
    assert_eq!(row.comm, "VLLM::Worker_TP");
    assert_eq!(
        row.cmdline.as_deref(),
        Some("python3"),
        "a title is not a command line"
    );

    let stat = std::fs::read_to_string(proc.root().join("42/stat")).unwrap();
    proc.write(
        42,
        "stat",
        stat.replace("140730000000100", "140750000000100")
            .as_bytes(),
    );
    proc.write(42, "cmdline", b"cc1plus\0-O2\0");
    recording.poll_at(5 * SECOND, false);
    assert_eq!(
        recording.processes()[0].cmdline.as_deref(),
        Some("cc1plus -O2")
    );
}

#[test]
fn a_child_in_its_parent_s_memory_has_none_of_its_own() {
    let proc = FakeProc::new();
    proc.process(42, "shell", 1);
    let mut recording = Recording::of(proc.root(), root(42), 10);
    recording.poll_at(SECOND, false);
    proc.process(43, "shell", 42);
    recording.poll_at(2 * SECOND, false);
    assert_eq!(recording.mem(), []);
    proc.set_rss(43, 250);
    recording.poll_at(3 * SECOND, false);
    assert_eq!(recording.mem()[0].source, Some(MemSource::First));
    assert_eq!(recording.mem()[0].rss_bytes, Some(Bytes(250 * 4096)));
}

#[test]
fn a_command_that_the_session_entered_keeps_its_identity() {
    let proc = FakeProc::new();
    proc.process(42, "worker", 1);
    let mut recording = Recording::of(proc.root(), root(42), 10);
    let birth = Birth {
        tgid: Tgid(42),
        start: BootNs(10 * SECOND + 3_000_000),
        seen_by: FirstSeenBy::Command,
        parent: None,
        comm: "worker".to_owned(),
    };
    let upid = recording.table.enter(birth, BootNs(10 * SECOND));
    recording.poll_at(11 * SECOND, false);
    assert_eq!(recording.mem()[0].upid, upid);
    let row = &recording.processes()[0];
    assert_eq!(row.first_seen_by, Some(FirstSeenBy::Command));
}

#[test]
fn what_polling_cannot_see_is_said_and_so_is_a_root_that_is_not_there() {
    let proc = FakeProc::new();
    let mut recording = Recording::of(proc.root(), root(42), 10);
    recording.poll_at(SECOND, false);
    let kinds: Vec<_> = recording
        .rows
        .iter()
        .filter_map(|record| match record {
            Record::Diag(row) => row.kind,
            _ => None,
        })
        .collect();
    assert_eq!(kinds, [DiagKind::PollingLimit, DiagKind::Unavailable]);
    recording.poll_at(2 * SECOND, false);
    assert!(recording.rows.is_empty());
}

/// A child with all that it started, ended with the test.
struct Tree(Child);

impl Tree {
    fn of(script: &str) -> Self {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        Self(command.process_group(0).spawn().unwrap())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.0.id().cast_signed()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// Polls until `is_done`, or fails after ten seconds.
fn poll_until(recording: &mut Recording, is_done: impl Fn(&Recording) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        recording.poll();
        if is_done(recording) {
            return;
        }
        assert!(Instant::now() < deadline, "{:?}", recording.table);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_living_tree_is_followed_with_its_memory_and_to_its_end() {
    for limit in [0, 100] {
        let before = boot_now();
        // dd fills a buffer of 32 MiB and is stuck with it: nobody reads the pipe.
        let mut tree = Tree::of("dd if=/dev/zero bs=32M count=1 2>/dev/null | sleep 60; true");
        let mut recording = Recording::of(Path::new("/proc"), root(tree.0.id()), limit);
        let holds = |process: &ProcessRow| {
            process.comm == "dd"
                && process
                    .peak_rss_bytes
                    .is_some_and(|peak| peak.0 >= 32 << 20)
        };
        poll_until(&mut recording, |recording| {
            recording.table.len() == 3
                && recording
                    .mem()
                    .iter()
                    .any(|row| row.rss_anon_bytes.is_some_and(|anon| anon.0 >= 32 << 20))
        });
        recording.poll_at(boot_now(), true);
        let found: Vec<ProcessRow> = recording
            .table
            .processes()
            .map(|process| process.row().clone())
            .collect();
        assert!(found.iter().any(holds), "{found:?}");
        for row in &found {
            assert_eq!(row.root_upid, recording.table.upid(Tgid(tree.0.id())));
            assert!(row.start_boot_ns.0 >= before - 10_000_000, "{row:?}");
            assert!(row.start_boot_ns.0 <= boot_now());
        }
        let id = tree.0.id();
        drop(tree.0.kill());
        let _ = tree.0.wait();
        poll_until(&mut recording, |recording| {
            recording.table.upid(Tgid(id)).is_none()
        });
        assert_eq!(
            recording.table.len(),
            2,
            "its children go on and still belong"
        );
    }
}

#[test]
fn an_exit_code_is_known_when_the_zombie_is_found() {
    let tree = Tree::of("exit 7");
    let id = tree.0.id();
    std::thread::sleep(Duration::from_millis(100));
    let mut recording = Recording::of(Path::new("/proc"), root(std::process::id()), 100);
    recording.poll();
    // It ended before the first poll, which leaves such processes out.
    assert_eq!(recording.table.upid(Tgid(id)), None);
    let late = Tree::of("exit 7");
    std::thread::sleep(Duration::from_millis(100));
    recording.poll();
    let row = recording
        .processes()
        .into_iter()
        .find(|row| row.tgid == Tgid(late.0.id()));
    assert_eq!(row.unwrap().exit_code, Some(7));
}
