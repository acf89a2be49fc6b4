//! GPUs: what the collector costs, and that a short step is in the recording. The library is
//! a stand-in whose calls take as long as was measured on a GPU; it is part of the cost.

use crate::measured::Measured;
use crate::{Bench, Effort, stats};
use anyhow::{Context, Result, bail};
use memtrace_model::tables::{CudaMemoryRow, GpuDeviceRow, GpuProcessRow};
use memtrace_tests::cuda::FakeCuda;
use memtrace_tests::gpu::{Device, FakeGpus, GIB, MIB, Memory, Process, Script};
use memtrace_tests::recorder::{Recorded, Recorder};
use memtrace_tests::scenario::Score;
use memtrace_tests::workload::{self, Running, number};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "gpu-cost",
        run: cost,
    },
    Bench {
        name: "gpu-step",
        run: step,
    },
    Bench {
        name: "cuda-call",
        run: calls,
    },
];

/// On an RTX 4090 under load, in µs (flightlessmango/MangoHud#2104).
const MEMORY_CALL_US: u64 = 12;
const LIST_CALL_US: u64 = 4_491;

fn script(pids: &[u32], used: u64) -> Script {
    let memory = Memory::new(80 * GIB, 600 * MIB, used);
    let each = used / u64::try_from(pids.len().max(1)).unwrap_or(1);
    Script {
        devices: vec![Device {
            uuid: "GPU-bench".to_owned(),
            name: "bench".to_owned(),
            memory: Some(memory),
            utilization: Some(50),
            compute: pids.iter().map(|pid| Process::new(*pid, each)).collect(),
            ..Device::default()
        }],
        slow_us: [
            ("nvmlDeviceGetMemoryInfo_v2", MEMORY_CALL_US),
            ("nvmlDeviceGetComputeRunningProcesses_v3", LIST_CALL_US),
            ("nvmlDeviceGetGraphicsRunningProcesses_v3", LIST_CALL_US),
            ("nvmlDeviceGetMPSComputeRunningProcesses_v3", LIST_CALL_US),
        ]
        .map(|(name, micros)| (name.to_owned(), micros))
        .into(),
        ..Script::default()
    }
}

fn recorded(pid: u32, fake: &FakeGpus, course: impl FnOnce() -> Result<()>) -> Result<Recorded> {
    let pid = pid.to_string();
    let words = ["--quiet", "-p", &pid];
    let recorder = Recorder::start_with(&words, &fake.environment())?;
    course()?;
    recorder.stop()
}

/// CPU time of the recorder's thread that asks NVML, by the scheduler's accounts.
fn thread_ns(recorder: u32) -> Result<i64> {
    for task in std::fs::read_dir(format!("/proc/{recorder}/task"))? {
        let dir = task?.path();
        if std::fs::read_to_string(dir.join("comm"))?.trim_end() == "memtrace-nvml" {
            let times = std::fs::read_to_string(dir.join("schedstat"))?;
            let on_cpu = times.split(' ').next().context("an empty schedstat")?;
            return Ok(on_cpu.parse()?);
        }
    }
    bail!("the recorder has no thread that asks NVML")
}

/// CPU of that thread, and the share of time in calls.
fn cost(effort: Effort) -> Result<Vec<Measured>> {
    let mut idle = Running::start(&["idle", "--processes", "8"])?;
    let line = idle.line()?;
    let pids = line["pids"]
        .as_array()
        .context("the workload names no pids")?;
    let pids = pids
        .iter()
        .filter_map(|pid| u32::try_from(pid.as_u64()?).ok());
    let pids: Vec<u32> = pids.collect();
    let root = idle.pid().to_string();
    let (mut shares, mut lock) = (Vec::new(), Vec::new());
    for _ in 0..effort.pick(1, 5) {
        let fake = FakeGpus::new(&script(&pids, 40 * GIB))?;
        let words = ["--quiet", "-p", &root];
        let recorder = Recorder::start_with(&words, &fake.environment())?;
        let (begin, before) = (Instant::now(), thread_ns(recorder.pid())?);
        sleep(Duration::from_secs(effort.pick(10, 30)));
        let spent = thread_ns(recorder.pid())? - before;
        shares.push(spent as f64 / 1e7 / begin.elapsed().as_secs_f64());
        let rows: Vec<GpuDeviceRow> = recorder.stop()?.recording.rows()?;
        let (first, last) = rows
            .first()
            .zip(rows.last())
            .context("no device was recorded")?;
        let calls = last.call_total_ns.zip(first.call_total_ns);
        let (last_ns, first_ns) = calls.context("the calls have no time")?;
        let span = (last.boot_ns - first.boot_ns).0.max(1);
        lock.push((last_ns.0 - first_ns.0) as f64 * 100.0 / span as f64);
    }
    Ok(vec![
        Measured::estimate_at_most(
            "gpu-cost",
            "CPU for GPUs at the default interval, 1 device, 8 processes",
            "%",
            0.5,
            stats::estimate(&shares),
        ),
        Measured::reported(
            "gpu-lock",
            "share of time in calls of NVML, as slow as on a laptop's RTX 4090",
            "%",
            stats::estimate(&lock),
        ),
    ])
}

/// What a call of the CUDA driver costs more while it is recorded: pairs of runs that make calls as
/// fast as they can, on a stand-in whose calls take next to no time.
fn calls(effort: Effort) -> Result<Vec<Measured>> {
    let cuda = FakeCuda::new()?;
    let library = cuda.path();
    let library = library.to_str().context("a path that is no text")?;
    let count = effort.pick("5000", "50000");
    let words = [
        "cuda",
        "--scenario",
        "storm",
        "--count",
        count,
        "--library",
        library,
    ];
    let took = |lines: &[serde_json::Value]| -> Result<f64> {
        let line = lines.iter().find(|line| line["took_ns"].is_i64());
        let line = line.context("the workload says no time")?;
        Ok(number(line, "took_ns")? as f64 / number(line, "calls")? as f64 / 1e3)
    };
    let (mut more, mut lost) = (Vec::new(), 0);
    for _ in 0..effort.pick(1, 5) {
        let untraced = took(&workload::run(&words)?)?;
        let command = workload::command(&words)?;
        let recorder = ["--quiet", "--backend", "bpf"];
        let recorder = Recorder::of_command_with(&recorder, &command, &cuda.environment())?;
        let recorded = recorder.wait()?;
        more.push(took(&workload::parse(&recorded.output)?)? - untraced);
        let rows: Vec<CudaMemoryRow> = recorded.recording.rows()?;
        lost += usize::from(rows.iter().any(|row| !row.is_whole));
    }
    let runs = more.len();
    Ok(vec![
        Measured::reported(
            "cuda-call",
            "a call of the CUDA driver while recorded, above one that is not; stand-in library",
            "µs",
            stats::estimate(&more),
        ),
        Measured::reported(
            "cuda-call-lost",
            "of those recordings, calls were lost in",
            "%",
            stats::estimate(&[lost as f64 * 100.0 / runs as f64]),
        ),
    ])
}

/// A step of 1 GiB held for 300 ms, at any phase.
fn step(effort: Effort) -> Result<Vec<Measured>> {
    let mut idle = Running::start(&["idle", "--processes", "1"])?;
    idle.line()?;
    let pids = [idle.pid()];
    let fake = FakeGpus::new(&script(&pids, 40 * GIB))?;
    let count = effort.pick(5, 30);
    let height = |step: u64| 41 * GIB + step * MIB;
    let recorded = recorded(idle.pid(), &fake, || {
        for step in 0..count {
            // Not a multiple of the interval, so that each comes at another phase.
            sleep(Duration::from_millis(737));
            fake.set(&script(&pids, height(step)))?;
            sleep(Duration::from_millis(300));
            fake.set(&script(&pids, 40 * GIB))?;
        }
        Ok(())
    })?;
    let devices: Vec<GpuDeviceRow> = recorded.recording.rows()?;
    let processes: Vec<GpuProcessRow> = recorded.recording.rows()?;
    let mut device = Score::new("a GPU step of 1 GiB held for 300 ms is in gpu_device");
    let mut with_process = 0;
    for step in 0..count {
        let bytes = |amount: u64| i64::try_from(amount).ok();
        let (whole, own) = (bytes(height(step) + 600 * MIB), bytes(height(step)));
        let is_seen = devices
            .iter()
            .any(|row| row.used_bytes.map(|b| b.0) == whole);
        device.case(is_seen, || format!("step {step} is not there"));
        let is_seen = processes
            .iter()
            .any(|row| row.used_bytes.map(|b| b.0) == own);
        with_process += usize::from(is_seen);
    }
    let share = with_process as f64 * 100.0 / count as f64;
    Ok(vec![
        Measured::score("gpu-step", device),
        Measured::reported(
            "gpu-step-process",
            "of those steps, in gpu_process too; lists as slow as on that laptop",
            "%",
            stats::estimate(&[share]),
        ),
    ])
}
