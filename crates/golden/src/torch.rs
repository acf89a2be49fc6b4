//! A trainer that wrote two snapshots of what torch held: before and after its cache grew.

use super::devices::{card, on_card};
use super::script::{Script, boot, gib, mib, upid, wall};
use memtrace_model::Tgid;
use memtrace_model::tables::{FrameKind, StackRow, TorchBlockState, TorchMemoryRow};

const TRAINER: u32 = 700;
const LOAD: i64 = 1;
const CACHE: i64 = 2;

/// Blocks of one segment, state and stack: their state, stack, count, MiB and the largest of them.
type Blocks = (TorchBlockState, i64, i64, f64, f64);

impl Script {
    /// A segment of so many MiB.
    fn segment(&mut self, at: f64, address: i64, size: f64, blocks: &[Blocks]) {
        for &(state, stack_id, block_count, held, largest) in blocks {
            let is_free = state == TorchBlockState::Inactive;
            self.put(TorchMemoryRow {
                ts: wall(at),
                boot_ns: boot(at),
                upid: Some(upid(Tgid(TRAINER))),
                snapshot: format!("torch-snapshot-{at}.pickle"),
                segment_address: address,
                segment_bytes: mib(size),
                pool: (address == 4).then(|| "0.1".to_owned()),
                state: Some(state),
                stack_id,
                block_count,
                size_bytes: mib(held),
                requested_bytes: mib(if is_free { 0.0 } else { held - 0.5 }),
                largest_block_bytes: mib(largest),
                ..TorchMemoryRow::default()
            });
        }
    }

    fn python_stack(&mut self, stack_id: i64, frames: &[(&str, &str, i64)]) {
        for (depth, (function, file, line)) in frames.iter().enumerate() {
            self.put(StackRow {
                ts: wall(20.0),
                boot_ns: boot(20.0),
                stack_id,
                depth: depth as i64,
                kind: Some(FrameKind::Python),
                function: Some((*function).to_owned()),
                file: Some((*file).to_owned()),
                line: Some(*line),
                ..StackRow::default()
            });
        }
    }
}

/// At first the cache fits into what torch reserved; then much lies free in pieces.
pub(super) fn torch_snapshots() -> Script {
    let mut run = Script::command(&["python3", "train.py"], 60.0);
    run.process(TRAINER, None, 0.0, "/usr/bin/python3 train.py");
    run.mem(TRAINER, 1.0, [900.0, 120.0, 0.0]);
    for (at, used) in [(0.1, 0.5), (10.0, 6.5), (40.0, 9.0)] {
        run.put(card(0, at, used));
        run.put(on_card(0, TRAINER, at, Some(gib(used))));
    }
    let torch = "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py";
    let train = "/home/mia/job/train.py";
    run.python_stack(
        LOAD,
        &[
            ("_apply", torch, 927),
            ("load_weights", "/home/mia/job/model.py", 31),
            ("main", train, 12),
        ],
    );
    run.python_stack(CACHE, &[("allocate_cache", train, 77), ("main", train, 14)]);
    let weights = [
        (TorchBlockState::Allocated, LOAD, 120, 4_000.0, 512.0),
        (TorchBlockState::Inactive, 0, 2, 96.0, 64.0),
    ];
    for at in [20.0, 45.0] {
        run.segment(at, 1, 4_096.0, &weights);
    }
    let small = [(TorchBlockState::Allocated, CACHE, 8, 1_024.0, 128.0)];
    run.segment(20.0, 2, 1_024.0, &small);
    let torn = [
        (TorchBlockState::Allocated, CACHE, 5, 640.0, 128.0),
        (TorchBlockState::AwaitingFree, CACHE, 1, 128.0, 128.0),
        (TorchBlockState::Inactive, 0, 2, 256.0, 128.0),
    ];
    run.segment(45.0, 2, 1_024.0, &torn);
    run.segment(
        45.0,
        3,
        2_048.0,
        &[(TorchBlockState::Inactive, 0, 1, 2_048.0, 2_048.0)],
    );
    run.segment(
        45.0,
        4,
        256.0,
        &[(TorchBlockState::Allocated, 0, 3, 256.0, 250.0)],
    );
    run.exit(TRAINER, 59.0, 0);
    run
}
