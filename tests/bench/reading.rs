//! What it takes to report on a large recording, and to export it.

use crate::measured::Measured;
use crate::stats::Estimate;
use crate::{Bench, Effort, stats};
use anyhow::{Context, Result, bail};
use memtrace_model::tables::{
    FirstSeenBy, MappingKind, MemRow, MemSource, PeakSource, ProcessRow, ShmObjectRow,
};
use memtrace_model::{
    BootNs, Bytes, ClockReading, DurationNs, RunInfo, RunState, SCHEMA_VERSION, Target, Tgid, Upid,
    WallNs,
};
use memtrace_store::Writer;
use memtrace_tests::scenario::{self, Excess, Hostile};
use memtrace_tests::{own_peak, program};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "report-10m",
        run: report,
    },
    Bench {
        name: "report-100m",
        run: report_of_ten_times_as_much,
    },
    Bench {
        name: "report-shared",
        run: report_where_shared_memory_moves,
    },
    Bench {
        name: "page-10m",
        run: page,
    },
    Bench {
        name: "export-10m",
        run: export,
    },
    Bench {
        name: "perfetto-10m",
        run: perfetto,
    },
    Bench {
        name: "hostile",
        run: hostile,
    },
];

const PROCESSES: i64 = 500;
pub(crate) const START_NS: i64 = 1_000_000_000_000;
pub(crate) const WALL_OFFSET_NS: i64 = 1_700_000_000_000_000_000;
const PERIOD_NS: i64 = 100_000_000;
pub(crate) const MIB: f64 = (1 << 20) as f64;

fn report(effort: Effort) -> Result<Vec<Measured>> {
    let (rows, [seconds, mebibytes]) = read(effort, as_json)?;
    let time = format!("report on {rows} rows of mem");
    let memory = format!("peak RSS of a report on {rows} rows");
    Ok(vec![
        Measured::estimate_at_most("report-10m", &time, "s", 3.0, seconds),
        Measured::estimate_at_most("report-10m", &memory, "MiB", 300.0, mebibytes),
    ])
}

fn as_json(_: &Path) -> Vec<OsString> {
    ["report", "--format", "json"].map(OsString::from).to_vec()
}

/// Whether time grows with the rows, and memory does not.
fn report_of_ten_times_as_much(effort: Effort) -> Result<Vec<Measured>> {
    let rows = rows(effort);
    let [less_seconds, less_mebibytes] = read_rows(rows, effort, as_json)?;
    let [more_seconds, more_mebibytes] = read_rows(rows * 10, effort, as_json)?;
    let name = "report-100m";
    let time = "report on ten times as many rows: time";
    let memory = "report on ten times as many rows: peak RSS";
    let times = more_seconds.median / less_seconds.median;
    let amount = more_mebibytes.median / less_mebibytes.median;
    Ok(vec![
        Measured::at_most(name, time, "times", 11.0, times).with_note(format!(
            "{:.2} s and {:.2} s",
            less_seconds.median, more_seconds.median
        )),
        Measured::at_most(name, memory, "times", 1.1, amount).with_note(format!(
            "{:.1} MiB and {:.1} MiB",
            less_mebibytes.median, more_mebibytes.median
        )),
    ])
}

/// What it costs more where the shared memory of every process moves with every row.
fn report_where_shared_memory_moves(effort: Effort) -> Result<Vec<Measured>> {
    let rows = rows(effort);
    let dir = tempfile::tempdir()?;
    let [stands, moves] = [Shared::Stands, Shared::Moves].map(|shared| {
        let recording = dir.path().join(format!("{shared:?}"));
        write(&recording, rows / PROCESSES, shared)
            .map(|()| recording)
            .context("failed to write a recording")
    });
    let (stands, moves) = (stands?, moves?);
    let words = as_json(dir.path());
    let (mut ratios, mut seconds) = (Vec::new(), Vec::new());
    // The program is in the page cache by then.
    run(&words, &stands)?;
    for _ in 0..effort.pick(1, 7) {
        let (less, _) = run(&words, &stands)?;
        let (more, _) = run(&words, &moves)?;
        ratios.push(more / less);
        seconds.push(more);
    }
    let what = format!("report on {rows} rows of mem whose shared memory moves: time");
    let ratio = stats::estimate(&ratios);
    let note = format!("median {:.2} s", stats::median(&seconds));
    let name = "report-shared";
    Ok(vec![
        Measured::estimate_at_most(name, &what, "times", 1.5, ratio).with_note(note),
    ])
}

/// The report as a page, with everything that it draws.
fn page(effort: Effort) -> Result<Vec<Measured>> {
    let dir = tempfile::tempdir()?;
    let page = dir.path().join("page.html");
    let (rows, [seconds, mebibytes]) = read(effort, |_| {
        let words = ["report", "--format", "html", "-o"].map(OsString::from);
        words.into_iter().chain([page.clone().into()]).collect()
    })?;
    let length = page.metadata()?.len() as f64 / MIB;
    let what = |what: &str| format!("{what} of {rows} rows of mem");
    let (time, memory, size) = (
        what("page"),
        what("peak RSS of a page"),
        what("size of a page"),
    );
    Ok(vec![
        Measured::estimate_at_most("page-10m", &time, "s", 2.0, seconds),
        Measured::estimate_at_most("page-10m", &memory, "MiB", 100.0, mebibytes),
        Measured::at_most("page-10m", &size, "MiB", 3.0, length),
    ])
}

/// All files of an export, a sample a second. What a report may take is more than enough.
fn export(effort: Effort) -> Result<Vec<Measured>> {
    let (rows, [seconds, mebibytes]) = read(effort, |dir| {
        let words = ["export", "--force", "-o"].map(OsString::from);
        words.into_iter().chain([dir.into()]).collect()
    })?;
    let time = format!("export of {rows} rows of mem");
    let memory = format!("peak RSS of an export of {rows} rows");
    Ok(vec![
        Measured::estimate_at_most("export-10m", &time, "s", 3.0, seconds),
        Measured::estimate_at_most("export-10m", &memory, "MiB", 300.0, mebibytes),
    ])
}

/// The recording as a trace with every change.
fn perfetto(effort: Effort) -> Result<Vec<Measured>> {
    let (rows, [seconds, mebibytes]) = read(effort, |dir| {
        let words = ["export", "--to", "perfetto", "--force", "-o"].map(OsString::from);
        words.into_iter().chain([dir.into()]).collect()
    })?;
    let time = format!("trace for Perfetto of {rows} rows of mem");
    let memory = format!("peak RSS of a trace for Perfetto of {rows} rows");
    Ok(vec![
        Measured::estimate_at_most("perfetto-10m", &time, "s", 10.0, seconds),
        Measured::estimate_at_most("perfetto-10m", &memory, "MiB", 300.0, mebibytes),
    ])
}

/// Every command on every kind of hostile recording.
fn hostile(effort: Effort) -> Result<Vec<Measured>> {
    let rows = effort.pick(150_000, 3_000_000);
    let mut most = Excess::default();
    let mut times = Vec::new();
    for kind in Hostile::ALL {
        let excess = scenario::hostile(kind, rows, 1).with_context(|| format!("{kind:?}"))?;
        let (seconds, slowest) = (excess.time.as_secs_f64(), excess.slowest);
        times.push(format!("{kind:?} {seconds:.1} s ({slowest})"));
        most = most.max(excess);
    }
    let what = |what: &str| format!("{what} of a hostile recording beyond a good one");
    let mebibytes = most.rss_bytes as f64 / MIB;
    let (time, memory) = (what("time"), what("peak RSS"));
    let seconds = most.time.as_secs_f64();
    Ok(vec![
        Measured::at_most("hostile", &time, "s", 2.0, seconds).with_note(times.join(", ")),
        Measured::at_most("hostile", &memory, "MiB", 200.0, mebibytes),
    ])
}

/// Runs memtrace with words, to which the recording is added, on a large recording. Gives its
/// rows, and of the runs the wall time in seconds and the peak RSS in MiB. `words` is reported a
/// directory to write to.
fn read(effort: Effort, words: impl Fn(&Path) -> Vec<OsString>) -> Result<(i64, [Estimate; 2])> {
    let rows = rows(effort);
    Ok((rows, read_rows(rows, effort, words)?))
}

/// Rows of a large recording.
fn rows(effort: Effort) -> i64 {
    effort.pick(1_000_000, 10_000_000)
}

fn read_rows(
    rows: i64,
    effort: Effort,
    words: impl Fn(&Path) -> Vec<OsString>,
) -> Result<[Estimate; 2]> {
    let dir = tempfile::tempdir()?;
    let recording = dir.path().join("recording");
    write(&recording, rows / PROCESSES, Shared::Stands).context("failed to write the recording")?;
    let words = words(dir.path());
    let (mut seconds, mut mebibytes) = (Vec::new(), Vec::new());
    for _ in 0..effort.pick(1, 5) {
        let (time, maxrss) = run(&words, &recording)?;
        seconds.push(time);
        mebibytes.push(maxrss);
    }
    Ok([stats::estimate(&seconds), stats::estimate(&mebibytes)])
}

/// Wall time in seconds and peak RSS in MiB of one run.
pub(crate) fn run(words: &[OsString], recording: &Path) -> Result<(f64, f64)> {
    own_peak::forget();
    let start = Instant::now();
    let child = Command::new(program::memtrace()?)
        .args(words)
        .arg(recording)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let pid = i32::try_from(child.id())?;
    let mut status = 0;
    // SAFETY: all zeroes is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live, writable values; the child is waited for here only.
    if unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } != pid || status != 0 {
        bail!("memtrace ended with wait status {status:#x}");
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok((seconds, usage.ru_maxrss as f64 / 1024.0))
}

/// How much of an object of shared memory processes have in their RSS.
#[derive(Clone, Copy, Debug)]
enum Shared {
    /// All of it, always.
    Stands,
    /// A part that differs from row to row.
    Moves,
}

/// A recording of processes whose memory walks at random, a row each every 100 ms. Ten a second come to
/// map one object of shared memory.
fn write(dir: &Path, steps: i64, shared: Shared) -> Result<()> {
    let end_ns = START_NS + steps * PERIOD_NS;
    let mut info = info();
    let mut writer = Writer::create(dir, &info)?;
    for index in 0..PROCESSES {
        writer.append(&process(index, end_ns).into())?;
    }
    for mapper_count in (10..=PROCESSES).step_by(10) {
        let at = START_NS + mapper_count * PERIOD_NS;
        writer.append(&shared_object(mapper_count, at).into())?;
    }
    let mut walk = Walk::default();
    let mut pages = vec![10_000_i64; usize::try_from(PROCESSES)?];
    for step in 0..steps {
        for (index, pages) in (0..PROCESSES).zip(&mut pages) {
            walk.step(pages);
            // Not all at the same instant, as with real ones.
            let boot_ns = START_NS + step * PERIOD_NS + index * 1_000;
            let row = sharing(mem(index, boot_ns, *pages * 4096), shared);
            writer.append(&row.into())?;
        }
        if step % 10 == 0 {
            writer.flush()?;
        }
    }
    info.clocks.push(clocks(end_ns));
    writer.finish(info)?;
    Ok(())
}

/// Memory that walks at random, the same in every run.
pub(crate) struct Walk(u64);

impl Default for Walk {
    fn default() -> Self {
        Self(1)
    }
}

impl Walk {
    /// The next number at random; none is below 0.
    pub(crate) fn next(&mut self) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 1).cast_signed()
    }

    /// What is held next.
    pub(crate) fn step(&mut self, pages: &mut i64) {
        *pages = (*pages + self.next() % 2_001 - 1_000).max(1_000);
    }
}

/// What that object takes.
const SHARED: Bytes = Bytes(1 << 30);

/// The same with the shared object beside.
fn sharing(row: MemRow, shared: Shared) -> MemRow {
    let own = row.rss_bytes.unwrap_or_default();
    let shared = match shared {
        Shared::Stands => SHARED,
        Shared::Moves => SHARED - Bytes(own.0 / 4),
    };
    MemRow {
        rss_bytes: Some(own + shared),
        rss_shmem_bytes: Some(shared),
        ..row
    }
}

fn shared_object(mapper_count: i64, boot_ns: i64) -> ShmObjectRow {
    let mappers = (1..=mapper_count).map(|upid| Upid(upid).to_string());
    ShmObjectRow {
        ts: WallNs(boot_ns + WALL_OFFSET_NS),
        boot_ns: BootNs(boot_ns),
        device: "0:25".to_owned(),
        inode: 1,
        kind: Some(MappingKind::Tmpfs),
        name: Some("/dev/shm/shared".to_owned()),
        size_bytes: Some(SHARED),
        allocated_bytes: Some(SHARED),
        mapper_count,
        mappers: mappers.collect::<Vec<_>>().join(" "),
        first_mapper_upid: Some(Upid(1)),
        ..ShmObjectRow::default()
    }
}

pub(crate) fn clocks(boot_ns: i64) -> ClockReading {
    ClockReading {
        boot_ns: BootNs(boot_ns),
        monotonic_ns: boot_ns,
        wall_ns: WallNs(boot_ns + WALL_OFFSET_NS),
    }
}

pub(crate) fn info() -> RunInfo {
    RunInfo {
        schema_version: SCHEMA_VERSION,
        memtrace_version: env!("CARGO_PKG_VERSION").to_owned(),
        id: None,
        state: RunState::Recording,
        hostname: "bench".to_owned(),
        kernel: "0".to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        page_size_bytes: Bytes(4096),
        cpu_count: 2,
        mem_total_bytes: Some(Bytes(64 << 30)),
        target: Target::All,
        root_tgid: None,
        backend: "bpf".to_owned(),
        backend_reason: "written by the benchmark".to_owned(),
        interval_ns: DurationNs(PERIOD_NS),
        clocks: vec![clocks(START_NS)],
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

pub(crate) fn process(index: i64, end_ns: i64) -> ProcessRow {
    ProcessRow {
        upid: Upid(index + 1),
        tgid: Tgid(u32::try_from(index).unwrap_or(0) + 1_000),
        parent_upid: (index > 0).then_some(Upid(1)),
        root_upid: Some(Upid(1)),
        comm: format!("worker-{}", index % 20),
        exe: Some("/usr/bin/worker".into()),
        cmdline: Some(format!("worker --rank {index}").into()),
        uid: Some(0),
        cgroup: Some("/bench".into()),
        start_boot_ns: BootNs(START_NS),
        first_seen_boot_ns: BootNs(START_NS),
        first_seen_by: Some(FirstSeenBy::Snapshot),
        exit_boot_ns: Some(BootNs(end_ns)),
        exit_code: Some(0),
        oom_killed: Some(false),
        peak_rss_bytes: Some(Bytes(1 << 30)),
        peak_rss_source: Some(PeakSource::KernelHiwater),
        peak_error_bytes: Some(Bytes(0)),
        kernel_maxrss_bytes: Some(Bytes(1 << 30)),
        ..ProcessRow::default()
    }
}

/// Of files that are mapped.
pub(crate) const FILE_BYTES: i64 = 8 << 20;

pub(crate) fn mem(index: i64, boot_ns: i64, anon_bytes: i64) -> MemRow {
    MemRow {
        ts: WallNs(boot_ns + WALL_OFFSET_NS),
        boot_ns: BootNs(boot_ns),
        upid: Upid(index + 1),
        rss_bytes: Some(Bytes(anon_bytes + FILE_BYTES)),
        rss_anon_bytes: Some(Bytes(anon_bytes)),
        rss_file_bytes: Some(Bytes(FILE_BYTES)),
        rss_shmem_bytes: Some(Bytes(0)),
        swap_bytes: Some(Bytes(0)),
        vm_size_bytes: Some(Bytes(8 << 30)),
        heap_bytes: Some(Bytes(1 << 20)),
        footprint_bytes: None,
        source: Some(MemSource::RssStat),
    }
}
