//! GPU memory, from the C structs of the library that is loaded to the rows on disk. The
//! library is a stand-in whose answers each test writes; everything else is the real thing.

mod alone;
mod cuda;
mod engine;
mod library;
mod load;
mod namespaces;
mod needs_gpu;
mod start;
mod workload;

use anyhow::{Context, Result};
use memtrace_model::tables::{GpuDeviceRow, GpuProcessRow, GpuSource, GpuUse};
use memtrace_model::{Bytes, DiagRow, ProcessRow, RunInfo};
use memtrace_tests::gpu::{
    Accounted, Device, FakeGpus, GIB, GPU_IS_LOST, MIB, Memory, Process, Script, UNKNOWN,
};
use memtrace_tests::program;
use memtrace_tests::recorder::{Recorded, Recorder};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

const TOTAL: u64 = 80 * GIB;
const RESERVED: u64 = 600 * MIB;

/// A process that does nothing, for as long as the value lives.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Result<Self> {
        Self::of(Command::new("sleep").arg("300"))
    }

    fn of(command: &mut Command) -> Result<Self> {
        Ok(Self(command.spawn()?))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn device(place: u32, used: u64, processes: &[Process]) -> Device {
    Device {
        uuid: format!("GPU-{place}"),
        name: "NVIDIA Test 80GB".to_owned(),
        minor: place,
        memory: Some(Memory::new(TOTAL, RESERVED, used)),
        utilization: Some(40),
        compute: processes.to_vec(),
        ..Device::default()
    }
}

fn script(devices: &[Device]) -> Script {
    Script {
        devices: devices.to_vec(),
        ..Script::default()
    }
}

/// Records a process while `course` lets the GPUs change.
fn recorded(
    fake: &FakeGpus,
    pid: u32,
    words: &[&str],
    course: impl FnOnce() -> Result<()>,
) -> Result<Recorded> {
    let pid = pid.to_string();
    let all = ["--quiet", "--backend", "procfs", "-p", &pid];
    let words: Vec<&str> = all.iter().chain(words).copied().collect();
    let recorder = Recorder::start_with(&words, &fake.environment())?;
    course()?;
    recorder.stop()
}

fn a_moment() -> Result<()> {
    sleep(Duration::from_millis(400));
    Ok(())
}

fn devices(recorded: &Recorded) -> Result<Vec<GpuDeviceRow>> {
    Ok(recorded.recording.rows()?)
}

fn processes(recorded: &Recorded) -> Result<Vec<GpuProcessRow>> {
    Ok(recorded.recording.rows()?)
}

fn diagnoses(recorded: &Recorded) -> Result<Vec<DiagRow>> {
    Ok(recorded.recording.rows()?)
}

fn info(recorded: &Recorded) -> &RunInfo {
    recorded.recording.info()
}

/// What `memtrace report` says of it.
fn report(recorded: &Recorded, words: &[&str]) -> Result<String> {
    let output = Command::new(program::memtrace()?)
        .arg("report")
        .args(words)
        .arg(recorded.path())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{said}");
    Ok(String::from_utf8(output.stdout)?)
}

/// A text however it is wrapped.
fn words(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

fn amount(bytes: u64) -> Option<Bytes> {
    i64::try_from(bytes).ok().map(Bytes)
}

#[test]
fn devices_add_up_and_processes_are_known_by_who_they_are() -> Result<()> {
    let (ours, foreign) = (Sleeper::start()?, Sleeper::start()?);
    let mut inclusive = device(1, 2 * GIB, &[]);
    inclusive.memory = inclusive.memory.map(|memory| Memory {
        is_reserved_in_used: true,
        ..memory
    });
    let mut plain = device(2, 3 * GIB, &[]);
    plain.memory = plain.memory.map(|memory| Memory {
        has_v2: false,
        ..memory
    });
    let listed = [
        Process::new(ours.pid(), 4 * GIB),
        Process::new(foreign.pid(), GIB),
    ];
    let fake = FakeGpus::new(&script(&[device(0, 5 * GIB, &listed), inclusive, plain]))?;
    let recorded = recorded(&fake, ours.pid(), &[], a_moment)?;

    let rows = devices(&recorded)?;
    for (uuid, used, reserved) in [
        ("GPU-0", 5 * GIB + RESERVED, amount(RESERVED)),
        ("GPU-1", 2 * GIB + RESERVED, amount(RESERVED)),
        ("GPU-2", 3 * GIB + RESERVED, None),
    ] {
        let row = rows.iter().find(|row| row.device == uuid).context(uuid)?;
        assert_eq!(row.used_bytes, amount(used), "{uuid}");
        assert_eq!(row.reserved_bytes, reserved, "{uuid}");
        let sum = row
            .used_bytes
            .zip(row.free_bytes)
            .map(|(used, free)| used + free);
        assert_eq!(sum, row.total_bytes, "{uuid}");
        assert!(row.memory_call_ns.is_some_and(|took| took.0 > 0), "{uuid}");
        assert_eq!(row.is_unified, Some(false));
    }
    let known: Vec<ProcessRow> = recorded.recording.rows()?;
    let upid = known.iter().find(|row| row.tgid.0 == ours.pid());
    let upid = upid.context("the process is not recorded")?.upid;
    let rows = processes(&recorded)?;
    let of = |pid: u32| rows.iter().find(|row| row.tgid.0 == pid).context("no row");
    let (own, other) = (of(ours.pid())?, of(foreign.pid())?);
    assert_eq!((own.upid, own.used_bytes), (Some(upid), amount(4 * GIB)));
    assert_eq!(
        (own.kind, own.comm.as_deref()),
        (Some(GpuUse::Compute), None)
    );
    assert_eq!((other.upid, other.used_bytes), (None, amount(GIB)));
    assert_eq!(other.comm.as_deref(), Some("sleep"));
    assert_eq!(other.cmdline.as_deref(), Some("sleep 300"));
    assert_eq!(info(&recorded).gpus.len(), 3);
    Ok(())
}

#[test]
fn a_gibibyte_held_for_300_ms_is_in_the_recording_with_its_process() -> Result<()> {
    let ours = Sleeper::start()?;
    let state = |used: u64| script(&[device(0, used, &[Process::new(ours.pid(), used)])]);
    let fake = FakeGpus::new(&state(GIB))?;
    let recorded = recorded(&fake, ours.pid(), &[], || {
        a_moment()?;
        fake.set(&state(2 * GIB))?;
        sleep(Duration::from_millis(300));
        fake.set(&state(GIB))?;
        a_moment()
    })?;
    let rows = devices(&recorded)?;
    let high = rows
        .iter()
        .find(|row| row.used_bytes == amount(2 * GIB + RESERVED));
    let high = high.context("the device did not move")?;
    let rows = processes(&recorded)?;
    let process = rows.iter().find(|row| row.used_bytes == amount(2 * GIB));
    let process = process.context("the process did not move")?;
    // One reading tells of both.
    assert_eq!(process.boot_ns, high.boot_ns);
    let after = rows.iter().rfind(|row| row.boot_ns > high.boot_ns);
    assert_eq!(after.and_then(|row| row.used_bytes), amount(GIB));
    Ok(())
}

#[test]
fn a_process_that_leaves_ends_with_zero() -> Result<()> {
    let (ours, other) = (Sleeper::start()?, Sleeper::start()?);
    let both = [
        Process::new(ours.pid(), GIB),
        Process::new(other.pid(), GIB),
    ];
    let fake = FakeGpus::new(&script(&[device(0, 2 * GIB, &both)]))?;
    let recorded = recorded(&fake, ours.pid(), &[], || {
        a_moment()?;
        fake.set(&script(&[device(0, GIB, &both[..1])]))?;
        a_moment()
    })?;
    let rows = processes(&recorded)?;
    let last = |pid: u32| rows.iter().rfind(|row| row.tgid.0 == pid);
    let amounts = [other.pid(), ours.pid()].map(|pid| last(pid).and_then(|row| row.used_bytes));
    assert_eq!(amounts, [amount(0), amount(GIB)]);
    Ok(())
}

#[test]
fn not_available_is_null_and_not_zero() -> Result<()> {
    let ours = Sleeper::start()?;
    let listed = [Process {
        pid: ours.pid(),
        ..Process::default()
    }];
    let fake = FakeGpus::new(&script(&[device(0, GIB, &listed)]))?;
    let recorded = recorded(&fake, ours.pid(), &[], a_moment)?;
    let rows = processes(&recorded)?;
    assert!(!rows.is_empty());
    assert!(rows.iter().all(|row| row.used_bytes.is_none()), "{rows:?}");
    Ok(())
}

#[test]
fn a_list_that_grows_between_two_calls_or_has_long_entries_is_read_whole() -> Result<()> {
    let ours = Sleeper::start()?;
    // Ids that no process has, beside ours; more than the first buffer holds.
    let mut listed: Vec<Process> = (0..200).map(|n| Process::new(4_000_000 + n, MIB)).collect();
    listed.push(Process::new(ours.pid(), GIB));
    let mut gpu = device(0, GIB + 200 * MIB, &listed);
    gpu.sudden_processes = 70;
    let mut long = device(1, GIB, &listed);
    long.has_long_entries = true;
    let fake = FakeGpus::new(&script(&[gpu, long]))?;
    let recorded = recorded(&fake, ours.pid(), &[], a_moment)?;
    let rows = processes(&recorded)?;
    for uuid in ["GPU-0", "GPU-1"] {
        let mut ids: Vec<u32> = rows
            .iter()
            .filter(|row| row.device == uuid)
            .map(|row| row.tgid.0)
            .collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 201, "{uuid}");
    }
    let own: Vec<_> = rows.iter().filter(|row| row.tgid.0 == ours.pid()).collect();
    assert!(
        own.iter().all(|row| row.used_bytes == amount(GIB)),
        "{own:?}"
    );
    Ok(())
}

#[test]
fn an_error_that_comes_and_goes_leaves_a_gap_and_is_reported_once() -> Result<()> {
    let ours = Sleeper::start()?;
    let good = device(0, GIB, &[Process::new(ours.pid(), GIB)]);
    let mut bad = good.clone();
    bad.fail
        .insert("nvmlDeviceGetMemoryInfo_v2".to_owned(), UNKNOWN);
    let fake = FakeGpus::new(&script(std::slice::from_ref(&good)))?;
    let recorded = recorded(&fake, ours.pid(), &[], || {
        for state in [&good, &bad, &good, &bad, &good] {
            fake.set(&script(std::slice::from_ref(state)))?;
            a_moment()?;
        }
        Ok(())
    })?;
    let rows = devices(&recorded)?;
    let mut states: Vec<bool> = rows.iter().map(|row| row.used_bytes.is_some()).collect();
    states.dedup();
    assert_eq!(states, [true, false, true, false, true]);
    for row in rows {
        assert_eq!(row.error.is_some(), row.used_bytes.is_none(), "{row:?}");
    }
    let shown = diagnoses(&recorded)?;
    let shown = shown.iter().filter(|row| row.subject == "GPU-0").count();
    assert_eq!(shown, 1);
    let last = processes(&recorded)?.pop().context("no process")?;
    assert_eq!(last.used_bytes, amount(GIB));
    Ok(())
}

#[test]
fn a_device_that_falls_off_the_bus_is_unknown_from_then_on() -> Result<()> {
    let ours = Sleeper::start()?;
    let listed = [Process::new(ours.pid(), GIB)];
    let good = [device(0, GIB, &listed), device(1, GIB, &listed)];
    let mut lost = good.clone();
    for call in ["MemoryInfo_v2", "MemoryInfo", "ComputeRunningProcesses_v3"] {
        lost[0]
            .fail
            .insert(format!("nvmlDeviceGet{call}"), GPU_IS_LOST);
    }
    let fake = FakeGpus::new(&script(&good))?;
    let recorded = recorded(&fake, ours.pid(), &[], || {
        a_moment()?;
        fake.set(&script(&lost))?;
        a_moment()
    })?;
    let rows = devices(&recorded)?;
    let last = |uuid: &str| rows.iter().rfind(|row| row.device == uuid);
    assert_eq!(last("GPU-0").and_then(|row| row.used_bytes), None);
    assert_eq!(
        last("GPU-1").and_then(|row| row.used_bytes),
        amount(GIB + RESERVED)
    );
    let rows = processes(&recorded)?;
    let last = |uuid: &str| rows.iter().rfind(|row| row.device == uuid);
    assert_eq!(last("GPU-0").context("no row")?.used_bytes, None);
    assert_eq!(last("GPU-1").context("no row")?.used_bytes, amount(GIB));
    let said = diagnoses(&recorded)?;
    let lost = said
        .iter()
        .find(|row| row.subject == "GPU-0")
        .context("unreported")?;
    assert!(lost.detail.contains("fell off the bus"), "{}", lost.detail);
    Ok(())
}

#[test]
fn instances_have_the_processes_of_a_divided_device() -> Result<()> {
    let ours = Sleeper::start()?;
    let process = Process {
        instance: Some((7, 0)),
        ..Process::new(ours.pid(), GIB)
    };
    let instance = |place: u32, processes: &[Process]| Device {
        uuid: format!("MIG-{place}"),
        memory: Some(Memory::new(10 * GIB, 0, GIB)),
        utilization: None,
        ..device(0, 0, processes)
    };
    let mut whole = device(0, 2 * GIB, &[process]);
    whole.instances = vec![instance(0, &[process]), instance(1, &[])];
    let fake = FakeGpus::new(&script(&[whole]))?;
    let recorded = recorded(&fake, ours.pid(), &[], a_moment)?;
    let rows = devices(&recorded)?;
    let row = rows
        .iter()
        .find(|row| row.device == "MIG-1")
        .context("no instance")?;
    assert_eq!(row.parent_device.as_deref(), Some("GPU-0"));
    assert_eq!(row.used_bytes, amount(GIB));
    assert_eq!(row.utilization_percent, None);
    let rows = processes(&recorded)?;
    assert!(rows.iter().all(|row| row.device == "MIG-0"), "{rows:?}");
    assert_eq!(rows[0].gpu_instance_id, Some(7));
    assert_eq!(rows[0].compute_instance_id, Some(0));
    Ok(())
}

#[test]
fn lists_are_merged_and_an_mps_client_is_named_so() -> Result<()> {
    let (ours, other) = (Sleeper::start()?, Sleeper::start()?);
    let mut gpu = device(0, 3 * GIB, &[Process::new(ours.pid(), GIB)]);
    gpu.graphics = vec![Process::new(ours.pid(), GIB)];
    gpu.mps = vec![Process::new(other.pid(), 2 * GIB)];
    let fake = FakeGpus::new(&script(&[gpu]))?;
    let recorded = recorded(&fake, ours.pid(), &[], a_moment)?;
    let rows = processes(&recorded)?;
    for (pid, kind, used) in [
        (ours.pid(), GpuUse::ComputeGraphics, GIB),
        (other.pid(), GpuUse::Mps, 2 * GIB),
    ] {
        // Its first row, and the one of the last look where that comes later.
        let row = rows
            .iter()
            .find(|row| row.tgid.0 == pid)
            .context("no row")?;
        assert_eq!((row.kind, row.used_bytes), (Some(kind), amount(used)));
    }
    Ok(())
}

#[test]
fn a_device_without_memory_of_its_own_is_unified_and_its_processes_are_known() -> Result<()> {
    let ours = Sleeper::start()?;
    let listed = [Process::new(ours.pid(), GIB)];
    let mut shared = device(0, 0, &listed);
    shared.memory = None;
    let mut node = device(1, GIB, &listed);
    node.numa_node = Some(4);
    let fake = FakeGpus::new(&script(&[shared, node]))?;
    let recorded = recorded(&fake, ours.pid(), &[], a_moment)?;
    for row in devices(&recorded)? {
        assert_eq!(row.is_unified, Some(true));
        assert_eq!(row.error, None);
        match row.device.as_str() {
            "GPU-0" => assert_eq!((row.used_bytes, row.numa_node), (None, None)),
            _ => assert_eq!(row.numa_node, Some(4)),
        }
    }
    let rows = processes(&recorded)?;
    let amounts: Vec<_> = rows.iter().map(|row| row.used_bytes).collect();
    assert_eq!(amounts, [amount(GIB); 2]);
    Ok(())
}

#[test]
fn a_process_that_no_list_showed_is_known_from_accounting_mode() -> Result<()> {
    let ours = Sleeper::start()?;
    let mut brief = Command::new("true").spawn()?;
    let pid = brief.id();
    brief.wait()?;
    let mut gpu = device(0, 0, &[]);
    gpu.accounting = Some(Vec::new());
    let fake = FakeGpus::new(&script(std::slice::from_ref(&gpu)))?;
    let recorded = recorded(&fake, ours.pid(), &[], || {
        a_moment()?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let start_us = u64::try_from(now.as_micros())?;
        let ended = |pid, start_us, is_running| Accounted {
            pid,
            peak: 3 * GIB,
            start_us,
            is_running,
        };
        gpu.accounting = Some(vec![
            ended(pid, start_us, false),
            ended(1, 5, false),
            ended(ours.pid(), start_us, true),
        ]);
        fake.set(&script(&[gpu]))?;
        a_moment()
    })?;
    let rows = processes(&recorded)?;
    let [row] = &rows[..] else {
        anyhow::bail!("{rows:?}");
    };
    assert_eq!(row.source, Some(GpuSource::Accounting));
    assert_eq!((row.tgid.0, row.peak_bytes), (pid, amount(3 * GIB)));
    assert_eq!(row.used_bytes, amount(0));
    Ok(())
}

#[test]
fn memory_that_outlives_its_process_stays_with_it() -> Result<()> {
    let (ours, other) = (Sleeper::start()?, Sleeper::start()?);
    let listed = [
        Process::new(ours.pid(), GIB),
        Process::new(other.pid(), GIB),
    ];
    let fake = FakeGpus::new(&script(&[device(0, 2 * GIB, &listed)]))?;
    let pid = ours.pid().to_string();
    let other_pid = other.pid();
    let words = ["--quiet", "--backend", "procfs", "-p", &pid, "-p"];
    let other_word = other_pid.to_string();
    let words: Vec<&str> = words.into_iter().chain([other_word.as_str()]).collect();
    let recorder = Recorder::start_with(&words, &fake.environment())?;
    a_moment()?;
    // Its end, while the driver goes on to tell of it.
    drop(other);
    sleep(Duration::from_millis(1_500));
    let recorded = recorder.stop()?;
    let rows = processes(&recorded)?;
    let rows: Vec<_> = rows.iter().filter(|row| row.tgid.0 == other_pid).collect();
    assert!(rows.iter().all(|row| row.upid.is_some()), "{rows:?}");
    assert!(
        rows.iter().all(|row| row.used_bytes == amount(GIB)),
        "{rows:?}"
    );
    Ok(())
}
