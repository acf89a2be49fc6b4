//! The runs on which every report format is snapshotted.

use super::calls::gpu_by_calls;
use super::script::{Script, gib, upid};
use super::sharing::shared;
use super::slept::vllm_on_gpus;
use super::team::ray_with_vllm;
use super::{devices, inside, left, limited, lines, loaded, marked, torch};
use memtrace_model::tables::{DiagKind, DiagRow, PeakSource, Severity, VmOp};
use memtrace_model::{Bytes, RunState, Target, Tgid};

/// A run's name, how it is made, and the instant to look at.
type Run = (&'static str, fn() -> Script, Option<&'static str>);

/// Every run there is.
pub const RUNS: &[Run] = &[
    ("trainer_with_vllm", trainer_with_vllm, None),
    ("trainer_with_vllm_at", trainer_with_vllm, Some("+45s")),
    ("oom_kill", oom_kill, None),
    ("left_behind", left::left_behind, None),
    ("node_out_of_memory", left::node_out_of_memory, None),
    ("near_miss", limited::near_miss, None),
    ("losses", losses, None),
    ("cut_off", cut_off, None),
    ("nothing", nothing, None),
    ("polled", polled, None),
    ("hostile_names", hostile_names, None),
    ("many_children", many_children, None),
    ("whole_machine", whole_machine, None),
    ("address_space", address_space, None),
    ("shared", shared, Some("+12s")),
    ("inside", inside::inside, None),
    ("grown_by_lines", lines::grown_by_lines, None),
    ("ray_with_vllm", ray_with_vllm, None),
    ("gpus", devices::put_to_sleep, None),
    ("gpus_at", devices::put_to_sleep, Some("+70s")),
    ("gpu_ghost", devices::ghost, None),
    ("torch_snapshots", torch::torch_snapshots, None),
    ("vllm_on_gpus", vllm_on_gpus, None),
    ("gpu_by_calls", gpu_by_calls, None),
    ("gpu_by_calls_at", gpu_by_calls, Some("+61.5s")),
    ("vllm_start_up", marked::vllm_start_up, None),
    ("steps_that_leak", marked::steps_that_leak, None),
    ("phases_on_gpus", marked::load_and_steps_on_gpus, None),
    ("loaded", loaded::server_under_load, None),
];

/// A trainer that starts vLLM: the workers hold most, and one of them leaks.
pub fn trainer_with_vllm() -> Script {
    let spawn = "/opt/venv/bin/python3 -B -c from multiprocessing.spawn import spawn_main; \
                 spawn_main(tracker_fd=41, pipe_handle=53) --multiprocessing-fork";
    let mut run = Script::command(
        &["python3", "train_grpo.py", "--config", "qwen.yaml"],
        863.0,
    );
    run.process(
        22837,
        None,
        0.0,
        "/opt/venv/bin/python3 train_grpo.py --config qwen.yaml",
    );
    run.process(
        22845,
        Some(22837),
        20.0,
        "/opt/venv/bin/python3 /opt/venv/bin/vllm serve Qwen/Qwen3-0.6B --tensor-parallel-size 2",
    );
    let tracker = "/opt/venv/bin/python3 -B -c from multiprocessing.resource_tracker import \
                   main;main(32)";
    run.process(22877, Some(22845), 31.0, tracker);
    run.process(22878, Some(22845), 32.0, spawn);
    run.process(22924, Some(22878), 40.0, spawn);
    run.process(22925, Some(22878), 40.1, spawn);
    run.title(22878, 36.0, "VLLM::EngineCore");
    run.title(22924, 95.0, "VLLM::Worker_TP0\0\0\0");
    run.title(22925, 95.2, "VLLM::Worker_TP1\0\0\0");
    for compiler in 0..12_u32 {
        let (tgid, at) = (23_000 + compiler, 100.0 + f64::from(compiler));
        let source = format!("/usr/lib/gcc/cc1plus -quiet /tmp/tmp{compiler}.cpp");
        run.process(tgid, Some(22924), at, &source);
        run.mem(tgid, at + 0.2, [120.0 + f64::from(compiler), 24.0, 0.0]);
        run.exit(tgid, at + 0.9, 0);
    }
    run.mem(22837, 0.5, [220.0, 90.0, 0.0]);
    run.mem(22837, 12.0, [1_840.0, 310.0, 0.0]);
    run.mem(22845, 21.0, [410.0, 160.0, 0.0]);
    run.mem(22877, 31.2, [9.0, 6.0, 0.0]);
    run.mem(22878, 33.0, [620.0, 240.0, 128.0]);
    for (worker, early) in [(22924_u32, 0.0), (22925, 0.2)] {
        run.mem(worker, 41.0 + early, [300.0, 180.0, 0.0]);
        run.mem(worker, 60.0 + early, [2_600.0, 420.0, 256.0]);
        run.mem(worker, 83.2 + early, [4_700.0, 420.0, 256.0]);
        run.mem(worker, 84.4 + early, [3_100.0, 420.0, 256.0]);
    }
    for step in 0..76 {
        let at = 90.0 + f64::from(step) * 10.0;
        run.mem(22924, at, [3_100.0 + f64::from(step) * 4.0, 420.0, 256.0]);
        run.mem(
            22925,
            at,
            [3_100.0 + f64::from(step % 3) * 9.0, 420.0, 256.0],
        );
        let collected = if step % 2 == 0 { 0.0 } else { 260.0 };
        run.mem(22837, at + 3.0, [1_500.0 + collected, 310.0, 0.0]);
        run.cost(at, 1.2 + f64::from(step) * 0.06, 0);
    }
    let job = "/slurm/job_4711";
    for tgid in [22837, 22845, 22877, 22878, 22924, 22925] {
        run.edit(tgid, |process| {
            process.cgroup = Some(format!("{job}/step_0").into())
        });
    }
    run.cgroup(83.4, "/slurm/job_4711/step_0", [13.2, 12.2, 0.375], None);
    run.cgroup(83.4, job, [14.1, 12.4, 0.375], Some(gib(64.0)));
    run.node(83.4, gib(402.0));
    run.exit(22845, 858.0, 0);
    run.kill_from(22837, 22878, 858.6, 9);
    run.kill_from(22878, 22924, 858.7, 9);
    run.kill_from(22878, 22925, 858.7, 9);
    run.exit(22877, 859.0, 0);
    run.exit(22837, 862.5, 0);
    run
}

/// A cgroup limit is hit: the victim is the worker, most is held by the data loaders.
fn oom_kill() -> Script {
    let mut run = Script::command(&["torchrun", "train.py"], 96.0);
    run.info.command_exit_code = Some(1);
    run.process(
        500,
        None,
        0.0,
        "/usr/bin/python3 /usr/bin/torchrun train.py",
    );
    run.process(510, Some(500), 2.0, "/usr/bin/python3 -u train.py");
    run.mem(500, 1.0, [180.0, 60.0, 0.0]);
    run.mem(510, 3.0, [2_000.0, 300.0, 1_024.0]);
    for loader in 0..16_u32 {
        let (tgid, at) = (600 + loader, 10.0 + f64::from(loader) * 0.1);
        run.process(tgid, Some(510), at, "/usr/bin/python3 -u train.py");
        run.title(tgid, at + 0.5, "pt_data_worker");
        run.edit(tgid, |process| process.comm = "pt_data_worker".to_owned());
        for step in 0..8 {
            let at = at + 1.0 + f64::from(step) * 10.0;
            run.mem(tgid, at, [900.0 + f64::from(step) * 260.0, 40.0, 1_024.0]);
        }
    }
    run.mem(510, 70.0, [9_318.0, 110.0, 1_024.0]);
    let pod = "/kubepods/burstable/pod7f3a2c1e-0d1e-4f6a-9b7c-2d3e4f5a6b7c/trainer";
    for tgid in (600..616).chain([510]) {
        run.edit(tgid, |process| {
            process.cgroup = Some(pod.into());
            process.pod = Some("ml/trainer-0".into());
            process.container = Some("main".into());
        });
    }
    for (at, current) in [(22.0, 31.0), (32.0, 35.0), (82.0, 60.0), (92.0, 64.0)] {
        run.cgroup(at, pod, [current, current - 2.5, 1.0], Some(gib(64.0)));
    }
    run.oom(510, 607, 92.5, pod, gib(64.0));
    for loader in 0..16_u32 {
        run.kill(600 + loader, 93.0, 15);
    }
    run.exit(500, 95.5, 1);
    run.cost(1.0, 0.3, 0);
    run.cost(95.0, 0.9, 0);
    run
}

/// The ring buffer overflowed and some things could not be seen.
fn losses() -> Script {
    let mut run = Script::command(&["make", "-j64"], 30.0);
    let lost = (Severity::Loss, DiagKind::LostEvents);
    run.process(10, None, 0.0, "make -j64");
    run.mem(10, 1.0, [12.0, 3.0, 0.0]);
    run.exit(10, 29.5, 2);
    run.diag(8.0, lost, "fork", Some(1_200), "the ring buffer was full");
    run.diag(9.0, lost, "fork", Some(4), "the ring buffer was full");
    run.diag(
        9.5,
        lost,
        "rss_stat",
        Some(88_000),
        "the ring buffer was full",
    );
    let refused = (Severity::Degraded, DiagKind::Permission);
    let detail = "/dev/kmsg can't be read, so OOM kills carry no limit; needs CAP_SYSLOG";
    run.diag(0.0, refused, "/dev/kmsg", None, detail);
    let backend = (Severity::Info, DiagKind::Backend);
    run.diag(0.0, backend, "bpf", None, "all programs attached");
    let unseen = (Severity::Info, DiagKind::Unavailable);
    let detail = "mmap, munmap, mremap, brk and madvise are not seen";
    run.diag(0.0, unseen, DiagRow::PROBES, None, detail);
    run.cost(1.0, 0.2, 0);
    run.cost(29.0, 4.4, 89_304);
    run.info.command_exit_code = Some(2);
    run
}

/// The recorder was killed: no stop, a process without its row, one without its end.
fn cut_off() -> Script {
    let mut run = Script::command(&["./serve"], 0.0);
    run.info.state = RunState::Recording;
    run.info.command_exit_code = None;
    run.info.clocks.truncate(1);
    run.problems
        .push("the last segment of mem ends in the middle of a batch".to_owned());
    run.process(77, None, 0.0, "./serve");
    run.mem(77, 0.5, [512.0, 64.0, 0.0]);
    run.rows
        .0
        .push(super::mem_row(upid(Tgid(78)).0, super::script::boot(4.0).0, Some(9 << 20)).into());
    run.mem(77, 41.0, [700.0, 64.0, 0.0]);
    run
}

/// Nothing was seen.
fn nothing() -> Script {
    Script::command(&["true"], 0.012)
}

/// Polling of /proc: lower bounds, kinds unknown for a process of another user.
fn polled() -> Script {
    let mut run = Script::command(&["ray", "start", "--head"], 120.0);
    run.info.backend = "procfs".to_owned();
    run.info.backend_reason =
        "no CAP_BPF: run as root, or `setcap cap_bpf,cap_perfmon+ep`".to_owned();
    run.info.target = Target::Pids {
        tgids: vec![Tgid(3001), Tgid(3002)],
    };
    run.info.root_tgid = None;
    run.info.command_exit_code = None;
    run.process(
        3001,
        None,
        -600.0,
        "/usr/bin/raylet --node-ip-address 10.0.0.1",
    );
    run.info.root_tgid = Some(Tgid(3002));
    run.process(3002, None, -500.0, "/usr/bin/gcs_server --port 6379");
    run.info.root_tgid = Some(Tgid(3001));
    run.process(3050, Some(3001), 5.0, "/usr/bin/python3 default_worker.py");
    run.info.root_tgid = None;
    run.title(3050, 9.0, "ray::IDLE");
    run.title(3050, 20.0, "ray::Trainer.update");
    run.title(3050, 40.0, "ray::IDLE");
    run.process(3051, Some(3001), 30.0, "/usr/bin/sudo helper");
    run.edit(3051, |process| process.root_upid = Some(upid(Tgid(3001))));
    for tgid in [3001, 3002, 3050, 3051] {
        run.edit(tgid, |process| {
            process.peak_rss_source = Some(PeakSource::Poll);
            process.peak_error_bytes = None;
            process.oom_killed = None;
        });
    }
    run.mem(3001, 0.0, [30.0, 20.0, 2.0]);
    run.mem(3002, 0.0, [60.0, 22.0, 0.0]);
    run.below_zero();
    run.mem(3050, 6.0, [120.0, 40.0, 256.0]);
    run.mem(3050, 25.0, [2_048.0, 40.0, 256.0]);
    run.mem(3050, 60.0, [800.0, 40.0, 256.0]);
    run.rows
        .0
        .push(super::mem_row(upid(Tgid(3051)).0, super::script::boot(31.0).0, None).into());
    run.kill(3050, 100.0, 9);
    run.edit(3051, |process| {
        process.exit_boot_ns = Some(super::script::boot(90.0))
    });
    run
}

/// Names that would move the cursor, change colours, reverse text, or break a table.
fn hostile_names() -> Script {
    let names = [
        "evil\x1b[2J\x1b[31mred",
        "two\nlines\tand a tab",
        "pipes | and `ticks` <b>html</b> [link](x) *star* \\",
        "right\u{202e}to left\u{2066}",
        "c1\u{9b}31m and \u{85} bell\x07",
        "=cmd|'/C calc'!A0, \"quoted\"",
        "训练进程 with wide characters 训练进程训练进程训练进程训练进程训练进程训练进程训练进程训练进程",
        "invalid \u{fffd} utf-8, zero\u{200b}width\u{feff}",
    ];
    let mut run = Script::command(&["sh", "-c", "evil\x1b]0;title\x07\n# heading"], 10.0);
    run.info.hostname = "host\x1b[0m".to_owned();
    run.process(1, None, 0.0, "sh -c evil");
    run.mem(1, 0.1, [1.0, 1.0, 0.0]);
    for (place, name) in names.iter().enumerate() {
        let tgid = 100 + place as u32;
        run.process(tgid, Some(1), 1.0, name);
        run.mem(tgid, 2.0, [10.0 + place as f64, 0.0, 0.0]);
        run.exit(tgid, 9.0, 3);
    }
    run.diag(
        1.0,
        (Severity::Loss, DiagKind::Storage),
        "a|b\n",
        None,
        "disk\x1b[1m full",
    );
    run
}

/// 2,000 children that live for 2 ms beside one that matters.
fn many_children() -> Script {
    let mut run = Script::command(&["./forkstorm", "2000"], 8.0);
    run.process(900, None, 0.0, "./forkstorm 2000");
    run.mem(900, 0.001, [2.0, 1.0, 0.0]);
    run.process(901, Some(900), 0.01, "./keeper --hold 64");
    run.mem(901, 0.02, [64.0, 1.0, 0.0]);
    for child in 0..2_000_u32 {
        let (tgid, at) = (1_000 + child, 1.0 + f64::from(child) * 0.003);
        run.process(tgid, Some(900), at, "./forkstorm 2000");
        run.mem(
            tgid,
            at + 0.001,
            [8.0 + f64::from(child % 7) * 0.01, 0.5, 0.0],
        );
        run.exit(tgid, at + 0.002, if child % 500 == 499 { 1 } else { 0 });
    }
    run.exit(901, 7.5, 0);
    run.exit(900, 7.9, 0);
    run
}

/// Everything on the machine: no main process.
fn whole_machine() -> Script {
    let mut run = Script::command(&[], 60.0);
    run.info.target = Target::All;
    run.info.command_exit_code = None;
    run.process(1, None, -3_600.0, "/sbin/init");
    run.process(2, None, -3_600.0, "");
    run.process(800, Some(1), -3_000.0, "/usr/sbin/sshd -D");
    run.process(
        4_000,
        Some(1),
        -900.0,
        "/usr/bin/postgres -D /var/lib/postgres",
    );
    run.info.root_tgid = None;
    for tgid in [1, 2, 800, 4_000] {
        run.edit(tgid, |process| {
            process.root_upid = None;
            process.peak_error_bytes = Some(Bytes(68 << 10));
        });
    }
    run.edit(2, |process| {
        process.cmdline = None;
        process.exe = None;
        process.comm = "kthreadd".to_owned();
    });
    run.mem(1, 0.0, [8.0, 6.0, 0.0]);
    run.mem(2, 0.0, [0.0, 0.0, 0.0]);
    run.mem(800, 0.0, [2.0, 5.0, 0.0]);
    run.mem(4_000, 0.0, [300.0, 80.0, 4_096.0]);
    run.node(0.0, gib(490.0));
    run
}

/// A worker that reserves 300 GiB for its GPU and touches 3, beside one that maps a
/// checkpoint and whose allocator churns.
fn address_space() -> Script {
    let mut run = Script::command(&["python3", "serve.py"], 60.0);
    run.process(4000, None, 0.0, "python3 serve.py");
    run.process(4001, Some(4000), 2.0, "python3 worker.py --gpu 0");
    run.mem(4000, 0.5, [180.0, 60.0, 0.0]);
    run.reserves(4000, 0.5, 1.2);
    run.mem(4001, 3.0, [900.0, 200.0, 0.0]);
    run.mmap(4001, 4.0, 0, 300.0 * 1024.0, None);
    run.reserves(4001, 4.1, 312.0);
    run.mem(4001, 30.0, [2_900.0, 260.0, 0.0]);
    let shard = |index| format!("model-{index:05}-of-00002.safetensors");
    run.mmap(4000, 10.0, 1, 4_710.0, Some(&shard(1)));
    run.mmap(4000, 11.5, 1, 4_702.0, Some(&shard(2)));
    run.reserves(4000, 12.0, 10.6);
    run.mmap(4000, 13.0, 3, 64.0, None);
    for second in 0..40 {
        let at = 15.0 + f64::from(second);
        run.vm_sums(4000, at, VmOp::Mmap, [9_000.0, 512.0, 0.0]);
        run.vm_sums(4000, at, VmOp::Munmap, [9_000.0, 0.0, 512.0]);
        run.vm_sums(4000, at, VmOp::Madvise, [40.0, 0.0, 24.0]);
    }
    run.vm_sums(4000, 20.0, VmOp::Brk, [300.0, 96.0, 16.0]);
    run.mem(4000, 40.0, [410.0, 2_300.0, 0.0]);
    run.exit(4001, 58.0, 0);
    run.exit(4000, 59.0, 0);
    run
}
