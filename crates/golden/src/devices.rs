//! Runs with GPUs: an engine that is put to sleep, and memory that nobody is reported to hold.

use super::script::{Script, boot, gib, mib, upid, wall};
use memtrace_model::tables::{GpuDeviceRow, GpuProcessRow, GpuSource, GpuUse, MarkKind};
use memtrace_model::{Bytes, DurationNs, Tgid};

const RESERVED: f64 = 0.625;
const TOTAL: f64 = 80.0;

/// A reading of a card that uses so many GiB.
pub fn card(index: i32, at: f64, used: f64) -> GpuDeviceRow {
    GpuDeviceRow {
        ts: wall(at),
        boot_ns: boot(at),
        device: format!("GPU-{index}a7b"),
        device_index: Some(index),
        name: Some("NVIDIA H100 80GB HBM3".to_owned()),
        source: Some(GpuSource::Nvml),
        total_bytes: Some(gib(TOTAL)),
        used_bytes: Some(gib(used + RESERVED)),
        reserved_bytes: Some(gib(RESERVED)),
        free_bytes: Some(gib(TOTAL - used - RESERVED)),
        is_unified: Some(false),
        utilization_percent: Some(90),
        memory_call_ns: Some(DurationNs(11_600)),
        process_call_ns: Some(DurationNs(4_491_000)),
        call_total_ns: Some(DurationNs((at * 4e6) as i64)),
        call_count: Some((at * 12.0) as i64),
        ..GpuDeviceRow::default()
    }
}

/// A reading of what a process holds on a card.
pub fn on_card(index: i32, tgid: u32, at: f64, used: Option<Bytes>) -> GpuProcessRow {
    GpuProcessRow {
        ts: wall(at),
        boot_ns: boot(at),
        device: format!("GPU-{index}a7b"),
        upid: Some(upid(Tgid(tgid))),
        tgid: Tgid(tgid),
        source: Some(GpuSource::Nvml),
        kind: Some(GpuUse::Compute),
        used_bytes: used,
        ..GpuProcessRow::default()
    }
}

/// Two workers give their weights to the host when the engine is put to sleep; one of them
/// outlives the command with its context.
pub fn put_to_sleep() -> Script {
    let mut run = Script::command(&["python3", "train.py"], 120.0);
    run.process(700, None, 0.0, "/usr/bin/python3 train.py");
    run.mem(700, 1.0, [900.0, 120.0, 0.0]);
    let workers = [(0, 710_u32), (1, 711)];
    for (index, tgid) in workers {
        run.put(card(index, 0.1, 0.375));
        run.process(tgid, Some(700), 5.0, "/usr/bin/python3 -m vllm.worker");
        run.title(tgid, 6.0, &format!("VLLM::Worker_TP{index}"));
        run.mem(tgid, 7.0, [2_000.0, 400.0, 128.0]);
        run.mem(tgid, 60.4, [2_010.0, 400.0, 128.0 + 30.0 * 1024.0]);
        run.mem(tgid, 90.2, [2_010.0, 400.0, 128.0]);
    }
    let steps = [
        (8.0, 0.5),
        (10.0, 30.5),
        (20.0, 70.5),
        (60.0, 1.25),
        (90.0, 70.5),
    ];
    for (at, used) in steps {
        for (index, tgid) in workers {
            run.put(card(index, at, used + 0.375));
            run.put(on_card(index, tgid, at, Some(gib(used))));
        }
    }
    run.mark(Some(700), 59.9, MarkKind::Instant, "sleep");
    let foreign = GpuProcessRow {
        upid: None,
        comm: Some("Xorg".to_owned()),
        kind: Some(GpuUse::Graphics),
        ..on_card(0, 42, 8.0, Some(mib(64.0)))
    };
    run.put(foreign);
    run.exit(710, 118.0, 0);
    let last = on_card(0, 710, 118.1, Some(Bytes(0)));
    run.put(last);
    run.put(card(0, 118.1, 0.375));
    run.exit(700, 119.0, 0);
    run.cost(119.5, 1.5, 0);
    run
}

/// Memory of a card that no process is reported to hold; another card has fallen off the bus, and
/// a third is the machine's own memory.
pub(super) fn ghost() -> Script {
    let mut run = Script::command(&["python3", "infer.py"], 30.0);
    run.process(800, None, 0.0, "/usr/bin/python3 infer.py");
    run.mem(800, 1.0, [500.0, 90.0, 0.0]);
    run.put(card(0, 0.2, 22.0));
    let holder = GpuProcessRow {
        upid: None,
        comm: Some("python3".to_owned()),
        source: Some(GpuSource::Descriptor),
        kind: None,
        ..on_card(0, 4_711, 3.0, None)
    };
    run.put(holder);
    run.put(card(1, 1.0, 10.0));
    run.put(on_card(1, 800, 1.0, None));
    run.put(GpuDeviceRow {
        used_bytes: None,
        free_bytes: None,
        reserved_bytes: None,
        total_bytes: None,
        error: Some("device fell off the bus or has otherwise become inacessible".to_owned()),
        ..card(1, 20.0, 0.0)
    });
    run.put(GpuDeviceRow {
        used_bytes: None,
        free_bytes: None,
        reserved_bytes: None,
        total_bytes: None,
        name: Some("NVIDIA GB10".to_owned()),
        is_unified: Some(true),
        ..card(2, 1.0, 0.0)
    });
    run.put(on_card(2, 800, 1.0, Some(gib(3.0))));
    run.exit(800, 29.0, 0);
    run.cost(29.5, 0.4, 0);
    run
}

/// A worker is killed, and a part of its memory stays on the device.
pub fn left_by_a_killed() -> Script {
    let mut run = Script::command(&["a"], 30.0);
    run.process(1, None, 0.0, "a");
    run.process(2, Some(1), 0.0, "b");
    for tgid in [1, 2] {
        run.mem(tgid, 1.0, [10.0, 1.0, 0.0]);
    }
    run.put(card(0, 2.0, 61.4));
    run.put(on_card(0, 2, 2.0, Some(gib(61.1))));
    run.exit(2, 10.0, 137);
    run.put(card(0, 10.1, 20.4));
    run.put(on_card(0, 2, 10.1, Some(Bytes(0))));
    run
}
