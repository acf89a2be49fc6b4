//! What only probes see.

use super::{Checkpoint, Run, run};
use crate::{Process, amount, device, script};
use anyhow::{Context, Result, ensure};
use memtrace_model::tables::{CudaKind, DiagKind, GpuProcessRow};
use memtrace_model::{BootNs, Bytes, DiagRow};
use memtrace_tests::cuda::{CONTEXT_BYTES, FakeCuda, uuid_text};
use memtrace_tests::gpu::{FakeGpus, GIB};
use memtrace_tests::need;
use memtrace_tests::recorder::Recorder;
use memtrace_tests::workload::{self, Running, number};
use std::collections::HashSet;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

const MIB: i64 = 1 << 20;

/// The tables say what the driver says, at every moment of a scenario.
fn is_exact(scenario: &str, words: &[&str]) -> Result<Run> {
    need::require("bpf");
    let run = run(scenario, words)?;
    run.check()?;
    Ok(run)
}

#[test]
fn torchs_caching_allocator_is_known_to_the_byte() -> Result<()> {
    let run = is_exact("torch", &[])?;
    let loaded = run.checkpoint("loaded")?;
    let calls = run.calls_of(loaded.pid)?;
    let weights: Vec<_> = calls
        .iter()
        .filter(|row| row.call == "cuMemAlloc" && row.size_bytes == Some(Bytes(512 * MIB)))
        .collect();
    assert_eq!(weights.len(), 8);
    for row in &weights {
        assert_eq!(row.kind, Some(CudaKind::Direct));
        assert_eq!((row.cuda_device, row.result), (Some(0), 0));
        assert!(row.duration_ns.0 > 0 && row.boot_ns < BootNs(loaded.boot_ns));
        // What is freed says how much it was.
        let freed = calls
            .iter()
            .find(|free| free.call == "cuMemFree" && free.address == row.address)
            .context("it was not freed")?;
        assert_eq!(freed.size_bytes, row.size_bytes);
    }
    for call in ["cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease"] {
        let count = calls.iter().filter(|row| row.call == call).count();
        assert_eq!(count, 1, "{call}");
    }
    Ok(())
}

#[test]
fn expandable_segments_are_known_to_the_byte() -> Result<()> {
    let run = is_exact("expandable", &[])?;
    let pid = run.checkpoint("grown")?.pid;
    let calls = run.calls_of(pid)?;
    let sum = |call: &str| -> i64 {
        let named = calls.iter().filter(|row| row.call == call);
        named
            .filter_map(|row| row.size_bytes)
            .map(|size| size.0)
            .sum()
    };
    assert_eq!(sum("cuMemCreate"), (7 * 2 + 110 * 20) * MIB);
    // Each handle is given back after its mapping, so that the memory goes with the handle.
    assert_eq!(sum("cuMemRelease"), sum("cuMemCreate"));
    Ok(())
}

#[test]
fn what_sleeps_gives_its_memory_back_and_keeps_its_addresses() -> Result<()> {
    let run = is_exact("sleep", &[])?;
    let awake = run.checkpoint("awake")?;
    let asleep = run.checkpoint("asleep")?;
    let upid = run.upid(awake.pid)?;
    let vmm = |at: i64| run.row(upid, Some(0), at).map(|row| row.vmm_bytes);
    assert_eq!(
        vmm(awake.boot_ns),
        Some(Bytes((16 * 512 + 8192 + 3 * 34) * MIB))
    );
    assert_eq!(vmm(asleep.boot_ns), Some(Bytes(0)));
    Ok(())
}

#[test]
fn nccls_buffers_are_known_also_when_their_handle_is_released_while_they_are_mapped() -> Result<()>
{
    is_exact("nccl", &[]).map(drop)
}

#[test]
fn pinned_and_registered_host_memory_is_counted_apart() -> Result<()> {
    is_exact("host", &[]).map(drop)
}

#[test]
fn every_kind_is_counted_as_its_own() -> Result<()> {
    let run = is_exact("kinds", &[])?;
    let managed = run.calls.iter().find(|row| row.call == "cuMemAllocManaged");
    let managed = managed.context("no call of cuMemAllocManaged")?;
    assert_eq!(managed.kind, Some(CudaKind::Managed));
    // A call for less than 1 MiB has no row of its own.
    let small = run.calls.iter().filter(|row| row.call == "cuMemAlloc");
    let small = small.filter(|row| row.size_bytes.is_some_and(|size| size.0 < MIB));
    assert_eq!(small.count(), 0);
    Ok(())
}

#[test]
fn pools_are_known_to_the_byte_whatever_the_stream_and_whoever_frees() -> Result<()> {
    is_exact("pools", &[]).map(drop)
}

#[test]
fn memory_is_of_the_device_whose_context_is_current_in_the_thread() -> Result<()> {
    let run = is_exact("devices", &["--devices", "2"])?;
    let pid = run.checkpoint("threads")?.pid;
    let upid = run.upid(pid)?;
    assert_eq!(run.devices(upid), [Some(0), Some(1)]);
    Ok(())
}

#[test]
fn a_context_takes_with_it_what_was_made_in_it() -> Result<()> {
    let run = is_exact("contexts", &[])?;
    let pid = run.checkpoint("two")?.pid;
    let calls = run.calls_of(pid)?;
    for (call, count) in [
        ("cuCtxCreate_v4", 1),
        ("cuCtxDestroy", 1),
        ("cuDevicePrimaryCtxRetain", 3),
        ("cuDevicePrimaryCtxRelease", 2),
        ("cuDevicePrimaryCtxReset", 1),
    ] {
        // The suffix of a version may stand in the name or not.
        let bare = call.trim_end_matches("_v4");
        let named = calls
            .iter()
            .filter(|row| row.call == call || row.call == bare);
        assert_eq!(named.count(), count, "{call}");
    }
    Ok(())
}

#[test]
fn calls_that_fail_have_rows_and_change_nothing() -> Result<()> {
    let run = is_exact("refused", &["--capacity", "4G"])?;
    let pid = run.checkpoint("freed")?.pid;
    let refused: Vec<_> = run
        .calls_of(pid)?
        .into_iter()
        .filter(|row| row.result != 0)
        .map(|row| {
            (
                row.call.as_str(),
                row.result,
                row.size_bytes.map(|size| size.0 / MIB),
            )
        })
        .collect();
    let of_size = |size| Some(size);
    assert_eq!(
        refused[..4],
        [
            ("cuMemAlloc", 2, of_size(2048)),
            ("cuMemCreate", 2, of_size(3072)),
            ("cuMemCreate", 1, of_size(1)),
            ("cuMemAllocAsync", 2, of_size(2560)),
        ]
    );
    let rest: Vec<_> = refused[4..]
        .iter()
        .map(|(call, code, _)| (*call, *code))
        .collect();
    assert_eq!(
        rest,
        [
            ("cuMemAlloc", 2),
            ("cuMemAlloc", 1),
            ("cuMemFree", 1),
            ("cuMemRelease", 400),
            ("cuMemFreeHost", 1),
            ("cuMemFree", 1),
        ]
    );
    for row in run.calls_of(pid)? {
        assert!(
            row.result == 0 || !row.call.contains("Alloc") || row.address.is_none(),
            "{row:?}"
        );
    }
    Ok(())
}

#[test]
fn an_imported_handle_counts_while_it_is_mapped() -> Result<()> {
    is_exact("share", &[]).map(drop)
}

#[test]
fn workers_of_a_fork_server_hold_their_own_and_exec_ends_that() -> Result<()> {
    is_exact("fork_server", &[]).map(drop)
}

#[test]
fn a_call_that_never_returns_is_nothing_held() -> Result<()> {
    let run = is_exact("hang", &[])?;
    let hanging = run
        .calls
        .iter()
        .filter(|row| row.size_bytes == Some(Bytes(48 * MIB)));
    assert_eq!(hanging.count(), 0);
    Ok(())
}

#[test]
fn what_is_never_given_back_ends_with_its_process() -> Result<()> {
    is_exact("killed", &[]).map(drop)
}

#[test]
fn what_is_held_for_a_moment_before_the_end_has_a_row() -> Result<()> {
    let run = is_exact("brief", &["--settle-ms", "0"])?;
    let pid = run.checkpoint("brief")?.pid;
    let last = run.row(run.upid(pid)?, Some(0), i64::MAX);
    // The counts go on; what is held is nothing.
    assert_eq!(last.map(|row| row.failed_count), Some(1));
    Ok(())
}

#[test]
fn devices_are_those_that_the_process_counts_with_the_ids_of_the_machine() -> Result<()> {
    need::require("bpf");
    let cuda = FakeCuda::new()?;
    let command = workload::command(&[
        "cuda",
        "--scenario",
        "devices",
        "--devices",
        "4",
        "--library",
        "libcuda.so.1",
    ])?;
    let mut environment = cuda.environment();
    environment.push(("CUDA_VISIBLE_DEVICES", "3,1".into()));
    let recorder =
        Recorder::of_command_with(&["--quiet", "--backend", "bpf"], &command, &environment)?;
    let run = Run::of(recorder.wait()?)?;
    run.check()?;
    for (device, physical) in [(0, 3), (1, 1)] {
        let row = run
            .memory
            .iter()
            .rfind(|row| row.cuda_device == Some(device));
        let uuid = row.and_then(|row| row.device_uuid.clone());
        assert_eq!(uuid, Some(uuid_text(physical)));
    }
    Ok(())
}

/// A driver is installed, but the workload has a library of its own, as a container can.
fn with_a_copy(words: &[&str]) -> Result<(FakeCuda, FakeCuda, Command)> {
    let (installed, copy) = (FakeCuda::new()?, FakeCuda::new()?);
    let mut command = workload::command(&[&["cuda"], words].concat())?;
    command.arg("--library").arg(copy.path());
    Ok((installed, copy, command))
}

#[test]
fn a_copy_of_the_library_is_found_when_it_is_mapped() -> Result<()> {
    need::require("bpf");
    let words = ["--scenario", "torch", "--pause-ms", "3000"];
    let (installed, _copy, command) = with_a_copy(&words)?;
    let words = ["--quiet", "--backend", "bpf", "--probes", "syscalls"];
    let recorder = Recorder::of_command_with(&words, &command, &installed.environment())?;
    Run::of(recorder.wait()?)?.check()
}

#[test]
fn a_copy_of_the_library_is_found_when_the_driver_lists_its_process() -> Result<()> {
    need::require("bpf");
    let (installed, _copy, command) = with_a_copy(&["--scenario", "late"])?;
    let gpus = |processes: &[Process]| script(&[device(0, GIB, processes)]);
    let fake = FakeGpus::new(&gpus(&[]))?;
    let environment = [fake.environment(), installed.environment()].concat();
    // The recorder follows a shell, which starts the program later.
    let mut shell = Command::new("sh");
    shell.args(["-c", "sleep 1.5; exec \"$@\"", "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    let mut running = Running::spawn(&mut shell)?;
    let pid = running.pid();
    let words = ["--quiet", "--backend", "bpf", "-p", &pid.to_string()];
    let recorder = Recorder::start_with(&words, &environment)?;
    let _before = running.line()?;
    fake.set(&gpus(&[Process::new(pid, GIB)]))?;
    sleep(Duration::from_secs(2));
    running.go()?;
    let after: Checkpoint = serde_json::from_value(running.line()?)?;
    sleep(Duration::from_millis(500));
    let run = Run::with(recorder.stop()?, vec![after])?;
    drop(running);
    let after = run.checkpoint("after")?;
    assert_eq!(run.sum(after)?, (256 * MIB, 0, 32 * MIB));
    assert!(run.memory.iter().all(|row| !row.is_whole));
    Ok(())
}

#[test]
fn of_a_process_that_was_there_before_what_is_known_is_what_came_since() -> Result<()> {
    need::require("bpf");
    let (installed, _copy, mut command) = with_a_copy(&["--scenario", "late"])?;
    let mut running = Running::spawn(&mut command)?;
    running.line()?;
    let words = [
        "--quiet",
        "--backend",
        "bpf",
        "-p",
        &running.pid().to_string(),
    ];
    let recorder = Recorder::start_with(&words, &installed.environment())?;
    sleep(Duration::from_secs(1));
    running.go()?;
    let mut checkpoints = Vec::new();
    for _ in 0..3 {
        checkpoints.push(serde_json::from_value::<Checkpoint>(running.line()?)?);
    }
    sleep(Duration::from_millis(500));
    let run = Run::with(recorder.stop()?, checkpoints)?;
    running.finish()?;
    assert!(
        run.memory.iter().all(|row| !row.is_whole),
        "{:?}",
        run.memory
    );
    let after = run.checkpoint("after")?;
    assert_eq!(run.sum(after)?, (256 * MIB, 0, 32 * MIB));
    // What was not seen to come is not missing when it goes.
    let freed = run.checkpoint("unknown_is_freed")?;
    assert_eq!(run.sum(freed)?, (256 * MIB, 0, 32 * MIB));
    assert_eq!(freed.held.devices[0].direct_bytes, 256 * MIB);
    assert_eq!(run.sum(run.checkpoint("freed")?)?, (0, 0, 0));
    Ok(())
}

#[test]
fn a_hundred_thousand_calls_are_counted_or_the_loss_is_reported() -> Result<()> {
    need::require("bpf");
    let run = run("storm", &["--count", "50000"])?;
    let lines = workload::parse(&run.recorded.output)?;
    let measured = lines.iter().find(|line| line["took_ns"].is_i64());
    let took_ns = number(measured.context("no measurement")?, "took_ns")?;
    let (before, after) = (run.checkpoint("before")?, run.checkpoint("after")?);
    // Seen with `--no-capture`.
    eprintln!("{} ns a call", took_ns / 100_000);
    let upid = run.upid(after.pid)?;
    let between: Vec<_> = run
        .memory
        .iter()
        .filter(|row| row.upid == upid)
        .filter(|row| (BootNs(before.boot_ns)..BootNs(after.boot_ns)).contains(&row.boot_ns))
        .collect();
    // Rows are bounded whatever the rate: some for each tick, of 100 ms.
    let ticks = (after.boot_ns - before.boot_ns) / 100_000_000 + 2;
    assert!(
        (between.len() as i64) <= 2 * ticks,
        "{} rows in {ticks} ticks",
        between.len()
    );
    assert_eq!(
        run.calls
            .iter()
            .filter(|row| row.size_bytes == Some(Bytes(4096)))
            .count(),
        0
    );
    let row = run.row(upid, Some(0), after.boot_ns).context("no row")?;
    if row.is_whole {
        let count = |checkpoint: &Checkpoint| {
            run.row(upid, Some(0), checkpoint.boot_ns)
                .map_or(0, |row| row.call_count)
        };
        assert_eq!(count(after) - count(before), 100_000);
        return run.check();
    }
    let said: Vec<DiagRow> = run.recorded.recording.rows()?;
    ensure!(
        said.iter()
            .any(|row| row.kind == Some(DiagKind::LostEvents)),
        "calls are missing and no loss is reported"
    );
    Ok(())
}

mod needs_mount {
    use super::*;

    #[test]
    fn a_copy_that_only_its_process_sees_is_found() -> Result<()> {
        need::require("bpf");
        need::require("mount");
        let (installed, copy, command) =
            with_a_copy(&["--scenario", "torch", "--pause-ms", "3000"])?;
        // As in a container: what the process loads is at no path of the recorder's.
        let hidden = tempfile::tempdir()?;
        let script = "mount -t tmpfs none $HIDDEN && cp $COPY $HIDDEN/libcuda.so.1 && exec \"$@\"";
        let mut inner = Command::new("unshare");
        inner.args(["--mount", "sh", "-c", script, "sh"]);
        let words: Vec<_> = command.get_args().collect();
        let (library, words) = words.split_last().context("no library")?;
        assert_eq!(*library, copy.path());
        inner.arg(command.get_program()).args(words);
        inner.arg(hidden.path().join("libcuda.so.1"));
        let mut environment = installed.environment();
        environment.push(("HIDDEN", hidden.path().into()));
        environment.push(("COPY", copy.path().into()));
        let words = ["--quiet", "--backend", "bpf", "--probes", "syscalls"];
        let recorder = Recorder::of_command_with(&words, &inner, &environment)?;
        let recorded = recorder.wait()?;
        ensure!(!hidden.path().join("libcuda.so.1").exists());
        Run::of(recorded)?.check()
    }
}

#[test]
fn an_address_that_is_used_again_before_its_free_returns_is_not_freed_twice() -> Result<()> {
    is_exact("reuse", &[]).map(drop)
}

#[test]
fn memory_that_is_opened_by_ipc_is_imported_until_it_is_closed_or_its_process_dies() -> Result<()> {
    is_exact("ipc", &[]).map(drop)
}

#[test]
fn a_library_that_is_replaced_is_found_again() -> Result<()> {
    need::require("bpf");
    let (old, new) = (FakeCuda::new()?, FakeCuda::new()?);
    let words = [
        "cuda",
        "--scenario",
        "torch",
        "--pause-ms",
        "3000",
        "--library",
    ];
    let one = workload::command(&words)?;
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$@\" && mv $NEW $OLD && \"$@\"", "sh"]);
    shell
        .arg(one.get_program())
        .args(one.get_args())
        .arg("libcuda.so.1");
    let mut environment = old.environment();
    environment.push(("OLD", old.file().into()));
    environment.push(("NEW", new.file().into()));
    let words = ["--quiet", "--backend", "bpf", "--probes", "syscalls"];
    let recorder = Recorder::of_command_with(&words, &shell, &environment)?;
    let run = Run::of(recorder.wait()?)?;
    let pids: Vec<u32> = run.checkpoints.iter().map(|one| one.pid).collect();
    assert_ne!(pids.first(), pids.last());
    run.check()
}

#[test]
fn of_many_large_calls_some_have_rows_and_all_are_counted() -> Result<()> {
    // The packing of what was freed in between is the driver's affair.
    need::require("bpf");
    let run = run("many", &["--count", "1000"])?;
    let (threads, freed) = (run.checkpoint("threads")?, run.checkpoint("freed")?);
    for checkpoint in [threads, freed] {
        let held = &checkpoint.held.devices[0];
        assert_eq!(
            run.sum(checkpoint)?,
            (held.direct_bytes, 0, 0),
            "{}",
            checkpoint.at
        );
    }
    let upid = run.upid(threads.pid)?;
    let row = run.row(upid, Some(0), freed.boot_ns).context("no row")?;
    let of_calls = |name: &str| freed.held.calls[name].cast_signed();
    // Beside those: cuInit, a device's UUID, the context, and current contexts of four threads.
    let counted = row.call_count - of_calls("cuMemAlloc_v2") - of_calls("cuMemFree_v2");
    assert!((0..=8).contains(&counted), "{counted}");
    let calls = run.calls_of(threads.pid)?;
    let first = calls.first().context("no call")?.boot_ns;
    let last = calls.last().context("no call")?.boot_ns;
    // What gives back memory that has a row has one in any case, and says which.
    let taken: HashSet<BootNs> = calls.iter().map(|call| call.boot_ns).collect();
    let before = calls.iter().filter_map(|call| call.taken_boot_ns);
    let given_back = before.filter(|at| taken.contains(at)).count();
    let others = calls.len() - given_back;
    let most = 2_000 + (last - first).0 / 5_000_000 + 1;
    assert!(others as i64 <= most, "{others} of {most}");
    assert!(calls.len() >= 2_000, "{}", calls.len());
    assert!(given_back > 500, "{given_back}");
    Ok(())
}

#[test]
fn calls_that_the_recorder_could_not_take_are_reported_and_nothing_is_called_whole() -> Result<()> {
    need::require("bpf");
    let cuda = FakeCuda::new()?;
    let command = workload::command(&[
        "cuda",
        "--scenario",
        "storm",
        "--count",
        "60000",
        "--library",
        "libcuda.so.1",
    ])?;
    let words = ["--quiet", "--backend", "bpf"];
    let mut recorder = Recorder::of_command_with(&words, &command, &cuda.environment())?;
    let before: Checkpoint = serde_json::from_str(&recorder.line()?)?;
    sleep(Duration::from_millis(300));
    recorder.signal(libc::SIGSTOP)?;
    let measured = recorder.line()?;
    recorder.signal(libc::SIGCONT)?;
    ensure!(measured.contains("took_ns"), "{measured}");
    let run = Run::with(recorder.wait()?, vec![before.clone()])?;
    let upid = run.upid(before.pid)?;
    let known = run.row(upid, Some(0), before.boot_ns).context("no row")?;
    assert!(known.is_whole);
    let last = run.memory.iter().rfind(|row| row.upid == upid);
    assert!(last.is_some_and(|row| !row.is_whole), "{last:?}");
    let said: Vec<DiagRow> = run.recorded.recording.rows()?;
    let lost = said
        .iter()
        .find(|row| row.kind == Some(DiagKind::LostEvents));
    let lost = lost.context("no loss is reported")?;
    assert!(lost.count.is_some_and(|count| count > 0), "{lost:?}");
    let left = run.left_at_the_end()?;
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

#[test]
fn the_drivers_figure_of_a_process_is_its_calls_its_context_and_the_drivers_own() -> Result<()> {
    need::require("bpf");
    let cuda = FakeCuda::new()?;
    let gpu = |processes: &[Process]| {
        let used = processes.iter().filter_map(|process| process.used).sum();
        let mut gpu = device(0, used, processes);
        gpu.uuid = uuid_text(0);
        script(&[gpu])
    };
    let fake = FakeGpus::new(&gpu(&[]))?;
    let environment = [fake.environment(), cuda.environment()].concat();
    let words = ["cuda", "--scenario", "sleep", "--library", "libcuda.so.1"];
    let command = workload::command(&words)?;
    let words = ["--quiet", "--backend", "bpf"];
    let mut recorder = Recorder::of_command_with(&words, &command, &environment)?;
    let mut checkpoints = Vec::new();
    for _ in 0..4 {
        let line: Checkpoint = serde_json::from_str(&recorder.line()?)?;
        let used = line.held.devices[0].charged_bytes.cast_unsigned();
        fake.set(&gpu(&[Process::new(line.pid, used)]))?;
        checkpoints.push(line);
    }
    let run = Run::with(recorder.wait()?, checkpoints)?;
    let rows: Vec<GpuProcessRow> = run.recorded.recording.rows()?;
    for checkpoint in &run.checkpoints {
        let upid = run.upid(checkpoint.pid)?;
        let memory = run
            .row(upid, Some(0), checkpoint.boot_ns)
            .context("no row")?;
        assert_eq!(memory.device_uuid.as_deref(), Some(uuid_text(0).as_str()));
        // The next checkpoint is 600 ms later.
        let until = BootNs(checkpoint.boot_ns + 590_000_000);
        let mut of_process = rows.iter().filter(|row| row.upid == Some(upid));
        let seen = of_process.rfind(|row| row.boot_ns <= until);
        let seen = seen.with_context(|| format!("no row of NVML at {}", checkpoint.at))?;
        let held = &checkpoint.held.devices[0];
        assert_eq!(seen.used_bytes, amount(held.charged_bytes.cast_unsigned()));
        let sum = memory.direct_bytes + memory.padding_bytes + memory.vmm_bytes + memory.pool_bytes;
        let contexts = memory.context_count * CONTEXT_BYTES.cast_signed();
        // What is left is the driver's own: here 2 MiB for each graph.
        let own = held.charged_bytes - sum.0 - contexts;
        assert_eq!(own, memory.graph_count * 2 * MIB, "{}", checkpoint.at);
    }
    Ok(())
}
