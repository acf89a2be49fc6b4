//! The backend on processes of its own making.

use super::backend::SysinfoBackend;
use super::member::START_TOLERANCE_NS;
use crate::{Collector, Pass, Process, ProcessTable, Targets, Tick};
use memtrace_host::clock;
use memtrace_model::{ClockOffset, DurationNs, ProcessRow, Record, Tgid};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A shell with a child, both ended with the test.
struct Tree(Child);

impl Tree {
    fn of(script: &str) -> Self {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        Self(command.process_group(0).spawn().unwrap())
    }

    fn end(&mut self) {
        // SAFETY: a signal to a process group of our own making.
        unsafe { libc::kill(-self.0.id().cast_signed(), libc::SIGKILL) };
        let _ = self.0.wait();
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.end();
    }
}

struct Recording {
    backend: SysinfoBackend,
    table: ProcessTable,
    rows: Vec<Record>,
}

impl Recording {
    fn of(targets: Targets) -> Self {
        Self {
            backend: SysinfoBackend::new(targets, DurationNs(100_000_000)).unwrap(),
            table: ProcessTable::default(),
            rows: Vec::new(),
        }
    }

    fn poll(&mut self) {
        let reading = clock::read();
        let tick = Tick {
            boot: reading.boot_ns,
            clock: ClockOffset::at(reading),
            is_keyframe: false,
        };
        self.backend
            .collect(&mut Pass::new(&tick, &mut self.table, &mut self.rows))
            .unwrap();
        self.table.write_changes(true, &mut self.rows);
    }

    fn poll_until(&mut self, is_done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            self.poll();
            if is_done(self) {
                return;
            }
            assert!(Instant::now() < deadline, "{:?}", self.table);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn rows_of(&self, tgid: Tgid) -> Vec<ProcessRow> {
        let row = |record: &Record| match record {
            Record::Process(row) if row.tgid == tgid => Some(*row.clone()),
            _ => None,
        };
        self.rows.iter().filter_map(row).collect()
    }
}

#[test]
fn a_tree_is_followed_with_its_memory_and_to_its_end() {
    let before = clock::read().boot_ns;
    // dd fills a buffer of 32 MiB and is stuck with it: nobody reads the pipe.
    let mut tree = Tree::of("dd if=/dev/zero bs=32M count=1 2>/dev/null | sleep 60; true");
    let root = Tgid(tree.0.id());
    let mut recording = Recording::of(Targets::Roots(vec![root]));
    recording.poll_until(|recording| {
        let holds = |process: &Process| {
            let row = process.row();
            row.comm == "dd" && row.peak_rss_bytes.is_some_and(|peak| peak.0 >= 32 << 20)
        };
        recording.table.len() == 3 && recording.table.processes().any(holds)
    });
    let first = &recording.rows_of(root)[0];
    assert!((first.start_boot_ns - before).0.abs() <= START_TOLERANCE_NS);
    assert_eq!(first.parent_upid, None);
    tree.end();
    recording.poll_until(|recording| recording.table.is_empty());
    let last = recording.rows_of(root).pop().unwrap();
    assert!(last.exit_boot_ns.is_some());
    assert_eq!(last.exit_code, None);
}

#[test]
fn a_process_is_found_by_its_command_line_and_the_recorder_is_not() {
    let _tree = Tree::of("sleep 60.0625");
    let mut recording = Recording::of(Targets::Match(regex::Regex::new("60[.]0625").unwrap()));
    recording.poll_until(|recording| !recording.table.is_empty());
    let own = Tgid(std::process::id());
    assert_eq!(recording.table.upid(own), None);
}
