//! Runs with marks.

use super::devices::{card, on_card};
use super::script::{Script, gib};
use memtrace_model::Bytes;
use memtrace_model::tables::MarkKind::{Begin, End, Instant};
use memtrace_model::tables::NodeMemRow;

/// vLLM starts with two workers: phases inside phases, in three processes, one of which is
/// killed inside of a phase; a person names a moment.
pub fn vllm_start_up() -> Script {
    let mut run = Script::command(&["vllm", "serve", "Qwen/Qwen3-0.6B"], 75.0);
    run.info.command_exit_code = Some(0);
    run.process(
        400,
        None,
        0.0,
        "/opt/venv/bin/python3 /opt/venv/bin/vllm serve Qwen/Qwen3-0.6B",
    );
    run.process(410, Some(400), 6.0, "/opt/venv/bin/python3 -c spawn_main");
    run.title(410, 7.0, "VLLM::EngineCore");
    run.mem(400, 0.5, [180.0, 120.0, 0.0]);
    run.sized(1.5);
    run.mem(410, 6.5, [240.0, 180.0, 0.0]);
    run.mark(Some(400), 1.0, Begin, "api_server.start");
    run.mem(400, 4.0, [420.0, 160.0, 0.0]);
    run.sized(2.25);
    run.mark(Some(410), 8.0, Begin, "EngineCore.__init__");
    run.mark(Some(410), 8.2, Begin, "executor.init_workers");
    for rank in 0..2_u32 {
        let (worker, late) = (420 + rank, f64::from(rank) * 0.1);
        run.process(
            worker,
            Some(410),
            9.0 + late,
            "/opt/venv/bin/python3 -c spawn_main",
        );
        run.title(worker, 10.0 + late, &format!("VLLM::Worker_TP{rank}"));
        run.mem(worker, 9.5 + late, [260.0, 180.0, 0.0]);
        run.mark(Some(worker), 12.0 + late, Begin, "load_model");
        // The checkpoint stands in memory twice for a moment.
        run.mem(worker, 20.0 + late, [1_500.0, 1_400.0, 0.0]);
        run.mem(worker, 24.0 + late, [1_500.0, 220.0, 0.0]);
        run.mark(Some(worker), 25.0 + late, End, "load_model");
        run.mark(Some(worker), 26.0 + late, Begin, "allocate_kv_cache");
        run.mem(worker, 27.0 + late, [1_500.0, 220.0, 2_048.0]);
        run.mark(Some(worker), 28.0 + late, End, "allocate_kv_cache");
    }
    run.mark(Some(410), 29.0, End, "executor.init_workers");
    run.mark(Some(410), 29.5, Begin, "structured_output_manager");
    run.mem(410, 30.0, [310.0, 200.0, 0.0]);
    run.mark(Some(410), 31.0, End, "structured_output_manager");
    run.mark(Some(421), 32.0, Begin, "capture_graphs");
    run.mark(Some(410), 33.0, End, "EngineCore.__init__");
    run.mark(Some(400), 34.0, End, "api_server.start");
    run.mark(Some(400), 34.5, Instant, "server_ready");
    run.mark(Some(400), 35.0, End, "profile");
    run.mark(None, 40.0, Instant, "first request \u{1b}[31mby hand");
    run.mark(None, 41.0, Begin, "load test");
    run.mem(420, 50.0, [1_900.0, 220.0, 2_048.0]);
    run.kill_from(410, 421, 60.0, 9);
    run.kill_from(410, 420, 61.0, 9);
    run.kill_from(400, 410, 61.5, 9);
    run.exit(400, 74.0, 0);
    run
}

/// A program measures itself at its marks, and one of them says more than it can have held: what
/// the rows do not know.
pub fn measured_by_itself() -> Script {
    let mut run = Script::command(&["python3", "train.py"], 20.0);
    run.process(800, None, 0.0, "/usr/bin/python3 train.py");
    run.process(810, Some(800), 1.0, "/usr/bin/python3 worker.py");
    let said = |run: &mut Script, tgid, at, kind, [rss, anon]: [u64; 2]| {
        let (rss, anon) = (rss << 20, anon << 20);
        let said = format!("{{\"rss_bytes\":{rss},\"rss_anon_bytes\":{anon}}}");
        run.said_mark(Some(tgid), at, kind, "load", &said);
    };
    // Before its first row.
    said(&mut run, 810, 1.5, Instant, [900, 800]);
    run.mem(800, 0.5, [100.0, 10.0, 0.0]);
    run.mem(810, 2.0, [30.0, 5.0, 1.0]);
    said(&mut run, 800, 3.0, Begin, [110, 100]);
    run.mem(800, 4.0, [700.0, 10.0, 0.0]);
    said(&mut run, 800, 5.0, End, [250, 180]);
    said(&mut run, 810, 6.0, Instant, [60, 54]);
    said(&mut run, 810, 7.0, Instant, [9_000, 9_000]);
    run.mem(800, 9.0, [200.0, 20.0, 0.0]);
    run.edit(810, |process| {
        process.peak_rss_bytes = Some(Bytes(64 << 20))
    });
    run.exit(810, 15.0, 0);
    run.exit(800, 19.0, 0);
    run
}

/// A trainer that keeps 12 MiB of each step, and an actor that is called often.
pub fn steps_that_leak() -> Script {
    let mut run = Script::command(&["python3", "grpo.py"], 450.0);
    run.process(700, None, 0.0, "/usr/bin/python3 grpo.py");
    run.process(710, Some(700), 2.0, "/usr/bin/python3 default_worker.py");
    run.title(710, 3.0, "ray::IDLE");
    run.mem(700, 1.0, [900.0, 200.0, 0.0]);
    run.mem(710, 3.0, [300.0, 100.0, 64.0]);
    run.mark(Some(700), 2.0, Begin, "setup");
    run.mem(700, 12.0, [2_000.0, 200.0, 0.0]);
    run.mark(Some(700), 14.0, End, "setup");
    for step in 0..40_u32 {
        let at = 20.0 + f64::from(step) * 10.0;
        let kept = 2_000.0 + f64::from(step) * 12.0;
        let noise = f64::from(step * 7 % 5);
        run.mark(
            Some(700),
            at,
            Instant,
            &format!("step_{step}_before_rollout"),
        );
        run.numbered_mark(Some(700), at + 0.5, Begin, "rollout", Some(step));
        run.mem(700, at + 1.0, [kept + 512.0, 200.0, 0.0]);
        run.title(710, at + 1.0, "ray::Rollout.generate");
        run.mem(710, at + 2.0, [700.0, 100.0, 64.0]);
        run.mem(710, at + 3.0, [300.0, 100.0, 64.0]);
        run.title(710, at + 4.0, "ray::IDLE");
        run.mem(700, at + 5.0, [kept + 12.0 + noise, 200.0, 0.0]);
        run.numbered_mark(Some(700), at + 6.0, End, "rollout", Some(step));
        run.mark(
            Some(700),
            at + 7.0,
            Instant,
            &format!("step_{step}_after_rollout"),
        );
    }
    run.exit(710, 440.0, 0);
    run.exit(700, 445.0, 0);
    run
}

/// A trainer and an engine with two workers on two GPUs: loading goes through the page cache, a
/// worker takes its role only within, and every step leaves something on the host of one worker
/// and on the GPU of the other. One more process holds memory of a GPU.
pub fn load_and_steps_on_gpus() -> Script {
    let mut run = Script::command(&["python3", "rl.py"], 160.0);
    let node = |run: &mut Script, at: f64, cached: f64| {
        let row = NodeMemRow {
            buffers_bytes: Some(gib(0.25)),
            cached_bytes: Some(gib(cached)),
            shmem_bytes: Some(gib(0.5)),
            ..run.node_row(at, gib(300.0))
        };
        run.put(row);
    };
    run.process(700, None, 0.0, "/usr/bin/python3 rl.py");
    run.mem(700, 0.5, [900.0, 120.0, 0.0]);
    run.process(710, Some(700), 2.0, "/usr/bin/python3 -c spawn_main");
    run.is(710, "vLLM", "engine core", None);
    run.mem(710, 2.5, [400.0, 180.0, 0.0]);
    for (index, worker) in [(0, 720_u32), (1, 721)] {
        run.process(worker, Some(710), 4.0, "/usr/bin/python3 -c spawn_main");
        run.is(worker, "vLLM", "worker", Some(&format!("TP{index}")));
        run.mem(worker, 4.5, [300.0, 180.0, 0.0]);
        run.put(card(index, 5.0, 0.5));
        run.put(on_card(index, worker, 5.0, Some(gib(0.5))));
    }
    node(&mut run, 1.0, 20.0);
    for (index, worker) in [(0, 720_u32), (1, 721)] {
        run.mark(Some(worker), 10.0, Begin, "load_model");
        run.mem(worker, 14.0, [300.0, 6_800.0, 0.0]);
        run.put(card(index, 15.0, 7.5));
        run.put(on_card(index, worker, 15.0, Some(gib(7.5))));
        run.mem(worker, 18.0, [700.0, 220.0, 0.0]);
        run.mark(Some(worker), 20.0, End, "load_model");
    }
    run.mem(710, 19.0, [700.0, 180.0, 0.0]);
    node(&mut run, 11.0, 26.0);
    node(&mut run, 19.5, 33.0);
    // A data loader that becomes a scorer.
    run.process(730, Some(700), 25.0, "/usr/bin/python3 rl.py");
    run.is(730, "", "data loader", None);
    run.title(730, 25.1, "loader");
    run.mem(730, 26.0, [512.0, 40.0, 0.0]);
    run.mark(None, 28.0, Begin, "by hand");
    run.is(730, "", "scorer", None);
    run.title(730, 29.0, "scorer");
    run.mark(None, 30.0, End, "by hand");
    for step in 0..12_u32 {
        let at = 40.0 + f64::from(step) * 10.0;
        let kept = f64::from(step);
        run.numbered_mark(Some(700), at, Begin, "rollout", Some(step));
        run.mem(700, at + 1.0, [1_400.0, 120.0, 0.0]);
        run.mem(720, at + 2.0, [700.0 + kept * 24.0, 220.0, 0.0]);
        run.put(card(1, at + 3.0, 7.5 + kept * 0.125));
        run.put(on_card(1, 721, at + 3.0, Some(gib(7.5 + kept * 0.125))));
        run.mem(700, at + 4.0, [910.0, 120.0, 0.0]);
        run.numbered_mark(Some(700), at + 5.0, End, "rollout", Some(step));
    }
    run.exit(700, 159.0, 0);
    run
}
