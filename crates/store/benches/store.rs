//! What writing and reading a recording costs: `cargo bench -p memtrace --bench store`.
//!
//! The workload is that of a busy tree: 500 processes of which 20 change their anonymous
//! memory in every sample of 100 ms, and a keyframe of all of them every 10 s. With the
//! name of a new directory as argument (after `--`), it only writes an hour of that there,
//! for a look at it with other software.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its result, and may fail"
)]

use memtrace_model::tables::{MemRow, MemSource};
use memtrace_model::{
    BootNs, Bytes, DurationNs, Record, RunInfo, RunState, SCHEMA_VERSION, Target, Upid, WallNs,
};
use memtrace_store::{Recordings, Writer};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PROCESSES: i64 = 500;
const CHANGES_PER_SAMPLE: i64 = 20;
const SAMPLE_NS: i64 = 100_000_000;
const SAMPLES_PER_KEYFRAME: i64 = 100;
const SAMPLES_PER_HOUR: i64 = 36_000;
const PAGE: i64 = 4096;

fn main() {
    // cargo adds `--bench`.
    if let Some(dir) = std::env::args().skip(1).find(|word| !word.starts_with('-')) {
        write(Path::new(&dir), true, SAMPLES_PER_HOUR);
        return;
    }
    for (name, is_random) in [
        ("the same 20 processes change", false),
        ("any 20 processes change", true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let recording = dir.path().join("run");
        reset_peak();
        let rows = write(&recording, is_random, SAMPLES_PER_HOUR);
        print_peak("peak memory of writing an hour");
        let bytes = size_of_folder(&recording.join("mem"));
        let per_row = bytes as f64 / rows as f64;
        println!("an hour, {name}: {rows} rows, {bytes} bytes, {per_row:.2} bytes a row");
    }
    time_appends();
    time_scan();
}

fn time_appends() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&dir.path().join("run"), &info()).unwrap();
    let rows: Vec<Record> = Workload::new(true)
        .take(400_000)
        .map(Record::from)
        .collect();
    let start = Instant::now();
    for row in &rows {
        writer.append(row).unwrap();
    }
    print_time_per_row(
        "append, with its share of flushing",
        start.elapsed(),
        rows.len(),
    );
    let start = Instant::now();
    writer.finish(info()).unwrap();
    print_time_per_row("finish", start.elapsed(), rows.len());
}

fn time_scan() {
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("run");
    let rows = write(
        &recording,
        true,
        11 * SAMPLES_PER_HOUR + SAMPLES_PER_HOUR / 5,
    );
    reset_peak();
    let recording = Recordings::default().open(&recording).unwrap();
    let columns = [
        "rss_bytes",
        "rss_anon_bytes",
        "rss_file_bytes",
        "rss_shmem_bytes",
    ];
    let mut sum = 0;
    let mut count = 0;
    let (start, cpu_before) = (Instant::now(), cpu_time());
    recording
        .scan::<MemRow>(&columns, |row| {
            sum += row.rss_anon_bytes.map_or(0, |bytes| bytes.0) ^ row.upid.0 ^ row.boot_ns.0;
            count += 1;
        })
        .unwrap();
    let elapsed = start.elapsed();
    assert_eq!((count, recording.problems()), (rows, Vec::new()));
    let on_cpu = cpu_time() - cpu_before;
    println!(
        "scan of {rows} rows: {:.3} s, {:.3} s of it on a CPU (checksum {sum})",
        elapsed.as_secs_f64(),
        on_cpu.as_secs_f64()
    );
    print_peak("peak memory of the scan");
}

fn write(dir: &Path, is_random: bool, samples: i64) -> i64 {
    let mut writer = Writer::create(dir, &info()).unwrap();
    let mut workload = Workload::new(is_random);
    let mut rows = 0;
    let mut flushed_ns = 0;
    loop {
        let row = workload.next().unwrap();
        if row.boot_ns.0 >= samples * SAMPLE_NS {
            break;
        }
        if row.boot_ns.0 - flushed_ns >= 1_000_000_000 {
            writer.flush().unwrap();
            flushed_ns = row.boot_ns.0;
        }
        writer.append(&row.into()).unwrap();
        rows += 1;
    }
    writer.finish(info()).unwrap();
    rows
}

/// Rows of `mem` in order of time.
struct Workload {
    processes: Vec<MemRow>,
    is_random: bool,
    sample: i64,
    pending: Vec<MemRow>,
    random: Random,
}

impl Workload {
    fn new(is_random: bool) -> Self {
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        let processes = (1..=PROCESSES)
            .map(|upid| first_row(upid, &mut random))
            .collect();
        Self {
            processes,
            is_random,
            sample: 0,
            pending: Vec::new(),
            random,
        }
    }

    fn fill(&mut self) {
        let boot_ns = 1_000_000_000_000 + self.sample * SAMPLE_NS + self.random.below(2_000_000);
        let is_keyframe = self.sample % SAMPLES_PER_KEYFRAME == 0;
        let mut changed: Vec<i64> = if self.is_random {
            let mut all: Vec<i64> = (0..PROCESSES).collect();
            for place in 0..CHANGES_PER_SAMPLE {
                let other = place + self.random.below(PROCESSES - place);
                all.swap(place as usize, other as usize);
            }
            all.truncate(CHANGES_PER_SAMPLE as usize);
            all
        } else {
            (0..CHANGES_PER_SAMPLE).map(|i| i * 23).collect()
        };
        for &index in &changed {
            let row = &mut self.processes[index as usize];
            let step = (self.random.below(257) - 128) * PAGE;
            let anon = row.rss_anon_bytes.map_or(0, |bytes| bytes.0);
            let step = if anon + step < 0 { -step } else { step };
            row.rss_anon_bytes = Some(Bytes(anon + step));
            row.rss_bytes = row.rss_bytes.map(|bytes| bytes + Bytes(step));
        }
        if is_keyframe {
            changed = (0..PROCESSES).collect();
        }
        changed.sort_unstable();
        let source = if is_keyframe {
            MemSource::Keyframe
        } else {
            MemSource::Snapshot
        };
        for index in changed.into_iter().rev() {
            self.pending.push(MemRow {
                ts: WallNs(1_700_000_000_000_000_000 + boot_ns),
                boot_ns: BootNs(boot_ns - 1_000_000_000_000),
                source: Some(source),
                ..self.processes[index as usize]
            });
        }
        self.sample += 1;
    }
}

impl Iterator for Workload {
    type Item = MemRow;

    fn next(&mut self) -> Option<MemRow> {
        while self.pending.is_empty() {
            self.fill();
        }
        self.pending.pop()
    }
}

fn first_row(upid: i64, random: &mut Random) -> MemRow {
    // Most processes are small, a few are large.
    let magnitude = random.below(13);
    let anon = PAGE * random.below(1 << (8 + magnitude));
    let magnitude = random.below(10);
    let file = PAGE * random.below(1 << (6 + magnitude));
    let shmem = PAGE
        * if random.below(4) == 0 {
            random.below(1 << 14)
        } else {
            0
        };
    MemRow {
        ts: WallNs(0),
        boot_ns: BootNs(0),
        upid: Upid(upid),
        rss_bytes: Some(Bytes(anon + file + shmem)),
        rss_anon_bytes: Some(Bytes(anon)),
        rss_file_bytes: Some(Bytes(file)),
        rss_shmem_bytes: Some(Bytes(shmem)),
        swap_bytes: Some(Bytes(0)),
        vm_size_bytes: Some(Bytes(PAGE * random.below(1 << 24))),
        heap_bytes: Some(Bytes(PAGE * random.below(1 << 14))),
        ..MemRow::default()
    }
}

/// Xorshift: the same workload in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % bound.unsigned_abs()).cast_signed()
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
        page_size_bytes: Bytes(PAGE),
        cpu_count: 1,
        mem_total_bytes: None,
        target: Target::All,
        root_tgid: None,
        backend: String::new(),
        backend_reason: String::new(),
        interval_ns: DurationNs(SAMPLE_NS),
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

fn size_of_folder(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir).unwrap();
    let sizes = files.map(|file| file.unwrap().metadata().unwrap().len());
    sizes.sum()
}

fn print_time_per_row(what: &str, elapsed: Duration, rows: usize) {
    let per_row = elapsed.as_nanos() as f64 / rows as f64;
    println!("{what}: {per_row:.0} ns of CPU a row");
}

fn print_peak(what: &str) {
    let Ok(status) = std::fs::read_to_string(PathBuf::from("/proc/self/status")) else {
        return;
    };
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    println!("{what}: {}", peak.unwrap_or("unknown").trim());
}

/// Time this thread has spent on a CPU; tells more than the clock on a busy machine.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = stat.split_whitespace().next();
    Duration::from_nanos(first.and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

/// Makes the kernel forget the highest RSS so far.
fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}
