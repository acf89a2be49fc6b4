//! GPU memory by calls of the CUDA driver: two workers that are put to sleep and wake, a trainer that runs
//! out of memory, a notebook that was there before, and a process that the driver lists nowhere. The
//! context, the GPU code and the pool are as large as on an H200.

use super::devices::{card, on_card};
use super::script::{Script, boot, gib, mib, upid, wall};
use memtrace_model::tables::{CudaCallRow, CudaKind, CudaMemoryRow, MarkKind};
use memtrace_model::{Bytes, DurationNs, Target, Tgid};

/// A context, as NVML has it, in MiB.
const CONTEXT: f64 = 518.0;
/// The driver's own buffers on each device, in GiB.
const BUFFERS: f64 = 0.3;
const TRAINER: u32 = 930;
const NOTEBOOK: u32 = 940;
const UNLISTED: u32 = 950;

/// What a process holds by its calls; nothing, in a context that was made at so many seconds.
pub fn cuda_memory(tgid: u32, at: f64, context: f64) -> CudaMemoryRow {
    CudaMemoryRow {
        ts: wall(at),
        boot_ns: boot(at),
        upid: upid(Tgid(tgid)),
        cuda_device: Some(0),
        context_count: 1,
        context_boot_ns: Some(boot(context)),
        is_whole: true,
        ..CudaMemoryRow::default()
    }
}

/// A call about memory on the first device of a process.
pub fn cuda_call(
    tgid: u32,
    at: f64,
    call: &str,
    kind: CudaKind,
    size: Bytes,
    result: i32,
) -> CudaCallRow {
    CudaCallRow {
        ts: wall(at),
        boot_ns: boot(at),
        upid: upid(Tgid(tgid)),
        tid: tgid.cast_signed(),
        call: call.to_owned(),
        kind: Some(kind),
        cuda_device: Some(0),
        size_bytes: Some(size),
        address: (result == 0).then_some(0x7f20_0000_0000),
        result,
        duration_ns: DurationNs(310_000),
        ..CudaCallRow::default()
    }
}

/// What a worker holds while it is awake: weights and KV cache that are mapped by hand, activations, a
/// pool, and what NCCL has.
fn awake(tgid: u32, at: f64) -> CudaMemoryRow {
    CudaMemoryRow {
        device_uuid: Some(format!("GPU-{}a7b", tgid - 920)),
        vmm_bytes: gib(34.0) + mib(388.0),
        direct_bytes: mib(899.0),
        padding_bytes: mib(5.0),
        pool_bytes: mib(100.0),
        library_count: 33,
        graph_count: 51,
        call_count: 18_000,
        ..cuda_memory(tgid, at, 8.0)
    }
}

/// The same asleep: the second one keeps a part of its KV cache.
fn asleep(tgid: u32, at: f64) -> CudaMemoryRow {
    let kept = if tgid == 921 { gib(3.5) } else { Bytes(0) };
    CudaMemoryRow {
        vmm_bytes: kept + mib(388.0),
        pinned_bytes: gib(15.0),
        ..awake(tgid, at)
    }
}

/// What the driver has for itself of a worker: GPU code, graphs, and what its pool keeps.
const OWN: f64 = 98.0 + 204.0 + 28.0;

/// What NVML lists for a worker whose row it is.
fn listed(row: &CudaMemoryRow) -> Bytes {
    let calls = row.vmm_bytes + row.direct_bytes + row.padding_bytes + row.pool_bytes;
    calls + mib(CONTEXT + OWN)
}

/// The run of the reports.
pub fn gpu_by_calls() -> Script {
    let mut run = Script::command(&[], 120.0);
    run.info.target = Target::All;
    run.info.command_exit_code = None;
    run.process(
        900,
        None,
        0.0,
        "/venv/bin/python3 /venv/bin/vllm serve m -tp 2",
    );
    run.is(900, "vLLM", "API server", None);
    run.mem(900, 1.0, [900.0, 160.0, 0.0]);
    run.process(NOTEBOOK, None, -600.0, "/usr/bin/python3 -m ipykernel");
    run.process(TRAINER, None, 35.0, "/usr/bin/python3 train.py");
    run.process(UNLISTED, None, 35.0, "/usr/bin/python3 probe.py");
    for (tgid, anon) in [(NOTEBOOK, 1_300.0), (TRAINER, 1_200.0), (UNLISTED, 1_100.0)] {
        run.edit(tgid, |process| process.root_upid = None);
        run.mem(tgid, 36.0, [anon, 300.0, 0.0]);
    }
    let devices = [0, 1];
    let trainer = gib(36.0) + mib(CONTEXT + 92.0);
    let notebook = gib(5.0);
    for device in devices {
        run.put(card(device, 0.4, BUFFERS));
    }
    run.put(on_card(0, NOTEBOOK, 0.4, Some(notebook)));
    run.put(CudaMemoryRow {
        direct_bytes: gib(1.0),
        context_count: 0,
        context_boot_ns: None,
        is_whole: false,
        ..cuda_memory(NOTEBOOK, 20.0, 0.0)
    });
    let used = |device: i32, worker: Bytes, trainer: Bytes| {
        let others = if device == 0 { notebook } else { trainer };
        BUFFERS + (worker + others).0 as f64 / gib(1.0).0 as f64
    };
    for device in devices {
        let tgid = 920 + device.cast_unsigned();
        run.process(tgid, Some(900), 6.0, "/venv/bin/python3 -c spawn_main");
        run.is(tgid, "vLLM", "worker", Some(&format!("TP{device}")));
        run.mem(tgid, 7.0, [2_600.0, 420.0, 256.0]);
        run.mem(tgid, 61.0, [2_600.0, 420.0, 256.0 + 15.0 * 1024.0]);
        run.mem(tgid, 80.6, [2_600.0, 420.0, 256.0]);
        // The context is read at once when it is made.
        run.put(cuda_memory(tgid, 8.0, 8.0));
        run.put(card(device, 8.003, used(device, mib(CONTEXT), Bytes(0))));
        run.put(on_card(device, tgid, 8.003, Some(mib(CONTEXT))));
        let weights = gib(15.0);
        run.put(cuda_call(
            tgid,
            12.0,
            "cuMemCreate",
            CudaKind::Vmm,
            weights,
            0,
        ));
        let rows = [awake(tgid, 30.0), asleep(tgid, 60.7), awake(tgid, 80.5)];
        for (row, at) in rows.into_iter().zip([30.05, 60.75, 80.55]) {
            let held = listed(&row);
            let beside = if at > 40.0 && at < 70.0 {
                trainer
            } else {
                Bytes(0)
            };
            run.put(row);
            run.put(card(device, at, used(device, held, beside)));
            run.put(on_card(device, tgid, at, Some(held)));
        }
    }
    // On the device of the second worker.
    run.put(cuda_memory(TRAINER, 38.0, 38.0));
    run.put(on_card(1, TRAINER, 38.004, Some(mib(CONTEXT))));
    run.put(CudaMemoryRow {
        direct_bytes: gib(36.0),
        library_count: 12,
        ..cuda_memory(TRAINER, 41.0, 38.0)
    });
    run.put(on_card(1, TRAINER, 41.06, Some(trainer)));
    run.put(card(1, 41.06, used(1, listed(&awake(921, 30.0)), trainer)));
    // While the worker sleeps.
    run.put(card(1, 76.9, used(1, listed(&asleep(921, 60.7)), trainer)));
    for at in [77.0, 77.2] {
        run.put(cuda_call(
            TRAINER,
            at,
            "cuMemAlloc",
            CudaKind::Direct,
            gib(40.0),
            2,
        ));
    }
    run.exit(TRAINER, 78.0, 1);
    run.put(CudaMemoryRow {
        context_count: 0,
        ..cuda_memory(TRAINER, 78.0, 38.0)
    });
    run.put(on_card(1, TRAINER, 78.1, Some(Bytes(0))));
    run.put(card(1, 78.1, used(1, listed(&asleep(921, 60.7)), Bytes(0))));
    run.put(CudaMemoryRow {
        vmm_bytes: gib(2.0),
        imported_bytes: gib(1.0),
        ..cuda_memory(UNLISTED, 50.0, 49.0)
    });
    for (name, from, to) in [("vllm.sleep", 60.5, 62.0), ("vllm.wake_up", 80.2, 81.0)] {
        run.mark(Some(900), from, MarkKind::Begin, name);
        run.mark(Some(900), to, MarkKind::End, name);
    }
    run.cost(119.5, 1.9, 0);
    run
}
