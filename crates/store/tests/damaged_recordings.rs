//! A recording can be damaged in any way and is still read: nothing panics out, nothing
//! allocates what a damaged length asks for, the damaged file is named, and all other
//! files are read in full. The files here have no checksums: those would keep damage from the
//! decoders, but not what somebody has made up.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use memtrace_model::tables::{MemRow, MemSource, NodeMemRow, ProcessRow};
use memtrace_model::{
    BootNs, Bytes, DurationNs, RunInfo, RunState, SCHEMA_VERSION, Target, Tgid, Upid, WallNs,
};
use memtrace_store::{Problem, ProblemKind, Recordings, Writer};
use proptest::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// More than any honest read of these small files takes, less than a damaged length asks
/// for. It is the largest page that the reader lets parquet unpack, with some room.
const ALLOCATION_LIMIT: usize = 80 << 20;

static LARGEST_ALLOCATION: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, noting the largest request.
struct Noting;

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST_ALLOCATION.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LARGEST_ALLOCATION.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST_ALLOCATION.fetch_max(size, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Noting = Noting;

/// From one damaged place to the next; trying all takes minutes and finds no more.
const STEP: usize = 23;

const MEM_SEGMENT: &str = "spool/mem-00001.arrows";
const MEM_PART: &str = "mem/part-00001.parquet";
const PROCESS_PART: &str = "process/part-00001.parquet";

/// A recording, and a file of it to be damaged.
struct Sample {
    parent: tempfile::TempDir,
    file: &'static str,
    whole: Vec<u8>,
}

impl Sample {
    fn new(is_closed: bool, file: &'static str) -> Self {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("run");
        let mut writer = Writer::create(&dir, &info()).unwrap();
        for i in 0..400 {
            writer.append(&mem(i).into()).unwrap();
            writer.append(&process(i % 40).into()).unwrap();
            if i % 100 == 99 {
                writer.append(&node_mem(i).into()).unwrap();
                writer.flush().unwrap();
            }
        }
        if is_closed {
            writer.finish(info()).unwrap();
        }
        let run_file = dir.join("run.json");
        let run = std::fs::read_to_string(&run_file).unwrap();
        let (run, _) = run.split_once(",\n  \"checksum\"").unwrap();
        // Nor has it an id, by which its files are known to be its own.
        let is_id = |line: &&str| line.trim_start().starts_with("\"id\"");
        let run: Vec<&str> = run.lines().filter(|line| !is_id(line)).collect();
        std::fs::write(&run_file, format!("{}}}", run.join("\n"))).unwrap();
        Self {
            whole: without_checksums(std::fs::read(dir.join(file)).unwrap()),
            parent,
            file,
        }
    }

    fn dir(&self) -> PathBuf {
        self.parent.path().join("run")
    }

    /// Reads the recording with other bytes in the file.
    fn read_with(&self, bytes: &[u8]) -> (Vec<MemRow>, Vec<ProcessRow>, Vec<Problem>) {
        std::fs::write(self.dir().join(self.file), bytes).unwrap();
        let recording = Recordings::default().open(&self.dir()).unwrap();
        let mems = recording.rows::<MemRow>().unwrap();
        let processes = recording.rows::<ProcessRow>().unwrap();
        let nodes = recording.rows::<NodeMemRow>().unwrap();
        assert_eq!(nodes.len(), 4, "a table without damage reads in full");
        let largest = LARGEST_ALLOCATION.load(Ordering::Relaxed);
        assert!(
            largest < ALLOCATION_LIMIT,
            "{largest} bytes allocated at once"
        );
        let mut problems = recording.problems();
        let unsealed = problems.remove(0);
        assert_eq!(unsealed.kind, ProblemKind::Unsealed);
        assert!(
            problems
                .iter()
                .all(|problem| problem.file == Path::new(self.file))
        );
        (mems, processes, problems)
    }

    /// Overwrites bytes at places given as fractions of the file.
    fn mutated(&self, changes: &[(f64, u8)]) -> Vec<u8> {
        let mut bytes = self.whole.clone();
        for &(place, value) in changes {
            let at = (place * bytes.len() as f64) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes
    }
}

/// Makes the marks and names of checksums something else, of which nobody knows.
fn without_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    for name in [&b"mtcrc32\n"[..], b"memtrace.footer_crc32"] {
        while let Some(at) = bytes.windows(name.len()).position(|place| place == name) {
            bytes[at] = b'x';
        }
    }
    bytes
}

fn changes() -> impl Strategy<Value = Vec<(f64, u8)>> {
    proptest::collection::vec((0.0..1.0, any::<u8>()), 1..8)
}

#[test]
fn arbitrary_bytes_as_a_segment_are_read_without_harm() {
    let sample = Sample::new(false, MEM_SEGMENT);
    proptest!(|(bytes in proptest::collection::vec(any::<u8>(), 1..2000))| {
        let (mems, processes, problems) = sample.read_with(&bytes);
        prop_assert!(mems.is_empty());
        prop_assert_eq!(processes.len(), 40);
        prop_assert!(!problems.is_empty());
    });
}

#[test]
fn a_segment_with_changed_bytes_is_read_without_harm() {
    let sample = Sample::new(false, MEM_SEGMENT);
    proptest!(|(changes in changes())| {
        let (mems, processes, _) = sample.read_with(&sample.mutated(&changes));
        prop_assert!(mems.len() <= 400);
        prop_assert_eq!(processes.len(), 40);
    });
}

#[test]
fn a_part_with_changed_bytes_is_read_without_harm() {
    let sample = Sample::new(true, MEM_PART);
    proptest!(|(changes in changes())| {
        let (_, processes, _) = sample.read_with(&sample.mutated(&changes));
        prop_assert_eq!(processes.len(), 40);
    });
}

#[test]
fn a_part_of_texts_with_changed_bytes_is_read_without_harm() {
    let sample = Sample::new(true, PROCESS_PART);
    proptest!(|(changes in changes())| {
        let (mems, _, _) = sample.read_with(&sample.mutated(&changes));
        prop_assert_eq!(mems.len(), 400);
    });
}

#[test]
fn a_part_with_one_byte_inverted_is_read_without_harm() {
    let sample = Sample::new(true, MEM_PART);
    for at in (0..sample.whole.len()).step_by(STEP) {
        let mut bytes = sample.whole.clone();
        bytes[at] ^= 0xFF;
        sample.read_with(&bytes);
    }
}

#[test]
fn a_part_cut_short_is_named_and_the_other_tables_are_read() {
    let sample = Sample::new(true, MEM_PART);
    for length in (0..sample.whole.len()).step_by(STEP) {
        let (mems, processes, problems) = sample.read_with(&sample.whole[..length]);
        assert_eq!((mems.len(), processes.len(), problems.len()), (0, 40, 1));
    }
}

#[test]
fn a_damaged_batch_is_left_out_and_the_batches_around_it_are_read() {
    let sample = Sample::new(false, MEM_SEGMENT);
    // The length of the first batch, inside its metadata, where its rows are counted.
    let places = sample.whole.windows(8).enumerate();
    let counts: Vec<usize> = places
        .filter(|(_, bytes)| *bytes == 100_i64.to_le_bytes())
        .map(|(at, _)| at)
        .collect();
    let mut bytes = sample.whole.clone();
    bytes[counts[0]] = 101;
    let (mems, _, problems) = sample.read_with(&bytes);
    assert_eq!(mems.len(), 300);
    assert!(matches!(
        problems[..],
        [Problem {
            kind: ProblemKind::DamagedBatch { index: 0, .. },
            ..
        }]
    ));
}

fn mem(i: i64) -> MemRow {
    MemRow {
        ts: WallNs(i),
        boot_ns: BootNs(i * 10_000_000),
        upid: Upid(i % 5),
        rss_bytes: Some(Bytes(i * i * 4096)),
        rss_anon_bytes: (i % 3 == 0).then_some(Bytes(i * 4096)),
        rss_file_bytes: Some(Bytes(i % 7)),
        vm_size_bytes: Some(Bytes(1 << 40)),
        source: Some(MemSource::Snapshot),
        ..MemRow::default()
    }
}

fn process(upid: i64) -> ProcessRow {
    ProcessRow {
        upid: Upid(upid),
        tgid: Tgid(7),
        comm: format!("comm-{upid}"),
        exe: Some("/usr/bin/python3".into()),
        cmdline: Some(format!("python3 -m worker --rank {upid}").into()),
        uid: Some(1000),
        start_boot_ns: BootNs(0),
        first_seen_boot_ns: BootNs(0),
        oom_killed: Some(false),
        ..ProcessRow::default()
    }
}

fn node_mem(i: i64) -> NodeMemRow {
    NodeMemRow {
        ts: WallNs(i),
        boot_ns: BootNs(i),
        psi_some_ns: Some(DurationNs(1)),
        ..NodeMemRow::default()
    }
}

fn info() -> RunInfo {
    RunInfo {
        schema_version: SCHEMA_VERSION,
        memtrace_version: String::new(),
        id: None,
        state: RunState::Recording,
        hostname: String::new(),
        kernel: String::new(),
        arch: String::new(),
        page_size_bytes: Bytes(4096),
        cpu_count: 1,
        mem_total_bytes: None,
        target: Target::All,
        root_tgid: None,
        backend: String::new(),
        backend_reason: String::new(),
        interval_ns: DurationNs(0),
        clocks: Vec::new(),
        command_exit_code: None,
        mark_socket: None,
        gpus: Vec::new(),
        gpu_note: None,
        downsampled: None,
        place: None,
        host: serde_json::Value::Null,
        plan: serde_json::Value::Null,
    }
}
