//! vLLM on two GPUs: a sleep that one rank does not obey, a waking, memory that nobody is reported
//! to hold, and a worker that outlives the server. What a driver answers is as the stand-in
//! library of the tests reported it to a recorder.

use super::devices::{card, on_card};
use super::script::{Script, gib};
use memtrace_model::tables::{Fate, MarkKind};

/// The driver's own buffers on each device, in GiB; another user's process on the second.
const BUFFERS: f64 = 0.3;
const GHOST: f64 = 3.0;
/// A worker's context and graphs, in GiB.
const CONTEXT: f64 = 1.25;

/// With so many GiB of weights and KV cache in each of four workers.
fn served(each: f64) -> Script {
    let mut run = Script::command(&["vllm", "serve", "Qwen/Qwen3-32B", "-tp", "4"], 120.0);
    let server = "/venv/bin/python3 /venv/bin/vllm serve Qwen/Qwen3-32B -tp 4";
    run.process(800, None, 0.0, server);
    run.is(800, "vLLM", "API server", None);
    run.mem(800, 1.0, [900.0, 160.0, 0.0]);
    run.process(810, Some(800), 3.0, "/venv/bin/python3 -c spawn_main");
    run.is(810, "vLLM", "engine core", None);
    run.title(810, 4.0, "VLLM::EngineCore");
    run.mem(810, 5.0, [700.0, 150.0, 0.0]);
    for rank in 0..4_u32 {
        let tgid = 820 + rank;
        run.process(tgid, Some(810), 6.0, "/venv/bin/python3 -c spawn_main");
        run.is(tgid, "vLLM", "worker", Some(&format!("TP{rank}")));
        run.title(tgid, 7.0, &format!("VLLM::Worker_TP{rank}"));
        run.mem(tgid, 8.0, [2_600.0, 420.0, 256.0]);
        // The last one is deaf to the sleep.
        if rank < 3 {
            run.mem(tgid, 61.2, [2_600.0, 420.0, 256.0 + 15.0 * 1024.0]);
            run.mem(tgid, 81.0, [2_600.0, 420.0, 256.0]);
        }
    }
    let asleep = |rank: u32| if rank < 3 { CONTEXT } else { each };
    let steps: [(f64, &dyn Fn(u32) -> f64); 6] = [
        (8.0, &|_| 0.5),
        (12.0, &|_| 15.0),
        (30.0, &|_| each),
        (61.7, &asleep),
        (80.6, &|_| each),
        (110.1, &|rank| if rank < 3 { 0.0 } else { each }),
    ];
    let ghost = |device: i32| BUFFERS + if device == 1 { GHOST } else { 0.0 };
    for device in [0, 1] {
        run.put(card(device, 0.4, ghost(device)));
    }
    for (at, held) in &steps {
        for (device, ranks) in [(0, [0, 1]), (1, [2, 3])] {
            let used: f64 = ranks.iter().map(|rank| held(*rank)).sum();
            run.put(card(device, *at, used + ghost(device)));
            for rank in ranks {
                run.put(on_card(device, 820 + rank, *at, Some(gib(held(rank)))));
            }
        }
    }
    run.mark(Some(810), 60.5, MarkKind::Begin, "vllm.sleep");
    run.mark(Some(810), 62.0, MarkKind::End, "vllm.sleep");
    run.mark(Some(810), 80.0, MarkKind::Begin, "vllm.wake_up");
    run.mark(Some(810), 81.0, MarkKind::End, "vllm.wake_up");
    for rank in 0..3 {
        run.kill_from(810, 820 + rank, 110.0, 9);
    }
    run.kill_from(800, 810, 110.0, 9);
    run.exit(800, 111.0, 0);
    run.survivor(823, 113.0, [2_600.0, 256.0], Fate::Left);
    run.survivor_on_gpus(823, gib(each));
    run.cost(119.5, 1.9, 0);
    run
}

/// The run of the reports.
pub fn vllm_on_gpus() -> Script {
    served(35.0)
}

/// The same with more KV cache, for comparison.
pub fn vllm_on_gpus_later() -> Script {
    served(38.5)
}
