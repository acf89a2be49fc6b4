//! A trainer that leaks by one line, keeps freed memory by another, and is killed at its limit.

use super::script::{Script, boot, gib, mib, upid, wall};
use memtrace_model::Tgid;
use memtrace_model::tables::{FrameKind, GrowthSiteRow, StackRow};

/// A frame: its function, its file, and of Python the line.
pub type Frame = (&'static str, &'static str, Option<i64>);

const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";
const PYTHON: &str = "/usr/lib/x86_64-linux-gnu/libpython3.12.so.1.0";

impl Script {
    /// The frames of a stack, innermost first.
    pub fn stack(&mut self, stack_id: i64, frames: &[Frame]) {
        for (depth, (function, file, line)) in frames.iter().enumerate() {
            let is_python = line.is_some();
            self.put(StackRow {
                ts: wall(5.0),
                boot_ns: boot(5.0),
                stack_id,
                depth: depth as i64,
                kind: Some(if is_python {
                    FrameKind::Python
                } else {
                    FrameKind::Native
                }),
                function: Some((*function).to_owned()),
                file: Some((*file).to_owned()),
                line: *line,
                build_id: (!is_python).then(|| "5d1c".to_owned()),
                address: (!is_python).then_some(0x4000 + depth as i64),
            });
        }
    }

    /// What a process touched at a stack so far, what of it is resident, and of that in use and kept,
    /// in MiB.
    fn grown(
        &mut self,
        tgid: u32,
        at: f64,
        stack_id: i64,
        [grown, resident, live, kept]: [f64; 4],
    ) {
        self.put(GrowthSiteRow {
            ts: wall(at),
            boot_ns: boot(at),
            upid: upid(Tgid(tgid)),
            stack_id,
            sample_count: (grown / 4.0) as i64,
            grown_bytes: mib(grown),
            grown_error_bytes: mib(grown / 10.0),
            resident_bytes: mib(resident),
            live_bytes: (live + kept > 0.0).then(|| mib(live)),
            kept_bytes: (live + kept > 0.0).then(|| mib(kept)),
            copied_bytes: Some(mib(0.0)),
            shared_bytes: Some(mib(0.0)),
            returned_bytes: mib((grown - resident) * 0.9),
        });
    }
}

/// The trainer is the victim, and grew by what one line holds.
pub(super) fn grown_by_lines() -> Script {
    let mut run = Script::command(&["python3", "train.py"], 64.0);
    run.info.command_exit_code = None;
    run.process(700, None, 0.0, "/usr/bin/python3 train.py");
    run.process(701, Some(700), 1.0, "/opt/bin/feeder --port 9000");
    let train = "/home/mia/job/train.py";
    run.stack(
        1,
        &[
            ("malloc", LIBC, None),
            ("list_append", PYTHON, None),
            ("Trainer.update", "/home/mia/job/buffer.py", Some(118)),
            ("main", train, Some(40)),
        ],
    );
    run.stack(
        2,
        &[
            ("malloc", LIBC, None),
            (
                "array_empty",
                "/opt/venv/lib/python3.12/site-packages/numpy/core/_multiarray_umath.so",
                None,
            ),
            (
                "ones",
                "/opt/venv/lib/python3.12/site-packages/numpy/core/numeric.py",
                Some(191),
            ),
            ("collate", train, Some(77)),
            ("main", train, Some(38)),
        ],
    );
    run.stack(
        3,
        &[
            ("grow(unsigned long)", "/opt/lib/libfeed.so", None),
            ("load(char const*)", "/opt/lib/libfeed.so", None),
            ("main", "/opt/bin/feeder", None),
            ("start", "/opt/bin/feeder", None),
        ],
    );
    let pod = "/job";
    for tgid in [700, 701] {
        run.edit(tgid, |process| process.cgroup = Some(pod.into()));
    }
    for (at, part) in [
        (10.0, 0.2),
        (20.0, 0.4),
        (30.0, 0.6),
        (40.0, 0.8),
        (59.0, 1.0),
    ] {
        run.mem(700, at, [200.0 + 1_700.0 * part, 60.0, 0.0]);
        run.mem(701, at, [120.0, 20.0, 0.0]);
        run.grown(
            700,
            at,
            1,
            [1_300.0 * part, 1_200.0 * part, 1_150.0 * part, 40.0 * part],
        );
        run.grown(700, at, 2, [900.0 * part, 400.0 * part, 0.0, 380.0 * part]);
        run.grown(700, at, 0, [40.0 * part, 30.0 * part, 0.0, 0.0]);
        run.grown(701, at, 3, [100.0, 90.0, 0.0, 0.0]);
        run.cgroup(
            at,
            pod,
            [0.5 + 1.65 * part, (320.0 + 1_700.0 * part) / 1_024.0, 0.0],
            Some(gib(2.0)),
        );
    }
    run.oom(700, 700, 60.0, pod, gib(2.0));
    run.exit(701, 63.0, 0);
    run.cost(60.0, 0.4, 0);
    run
}
