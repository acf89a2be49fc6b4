//! A serving engine under load: four conditions, two of them with a longer prompt, and requests that
//! fail.

use super::devices::{card, on_card};
use super::script::{Script, boot, gib, wall};
use memtrace_model::tables::MarkKind::{Begin, End};
use memtrace_model::tables::{RequestOutcome, RequestRow};

/// The run of the plan.
const RUN: &str = "load-20260301T120144Z";

/// What is planned of a condition, and what it takes.
struct Planned {
    begin: f64,
    input: i64,
    concurrency: i64,
    /// MiB of anonymous memory of the worker.
    anon: f64,
    /// GiB on its GPU.
    gpu: f64,
}

/// vLLM with one worker: memory on the host rises with the concurrency, that of the GPU with the
/// length of the prompts. Under the last condition the server refuses one request and loses another;
/// a request of another sender has no condition.
pub fn server_under_load() -> Script {
    let mut run = Script::command(&["vllm", "serve", "Qwen/Qwen3-0.6B"], 120.0);
    run.process(
        400,
        None,
        0.0,
        "/opt/venv/bin/python3 /opt/venv/bin/vllm serve",
    );
    run.is(400, "vLLM", "API server", None);
    run.mem(400, 0.5, [420.0, 160.0, 0.0]);
    run.process(410, Some(400), 4.0, "/opt/venv/bin/python3 -c spawn_main");
    run.is(410, "vLLM", "worker", Some("TP0"));
    run.mem(410, 5.0, [1_000.0, 220.0, 256.0]);
    run.put(card(0, 5.0, 20.0));
    run.put(on_card(0, 410, 5.0, Some(gib(20.0))));
    let conditions = [
        (20.0, 8_192, 2, 1_200.0, 24.0),
        (40.0, 8_192, 4, 1_600.0, 26.0),
        (60.0, 16_384, 2, 1_250.0, 32.0),
        (80.0, 16_384, 4, 2_100.0, 36.0),
    ];
    for (number, (begin, input, concurrency, anon, gpu)) in conditions.into_iter().enumerate() {
        let planned = Planned {
            begin,
            input,
            concurrency,
            anon,
            gpu,
        };
        put_condition(&mut run, number, &planned);
    }
    let stray = RequestRow {
        condition: "of nobody".to_owned(),
        ..request(100.0, 101.0, 8, 0)
    };
    run.put(stray);
    run.exit(410, 118.0, 0);
    run.exit(400, 119.0, 0);
    run
}

fn put_condition(run: &mut Script, number: usize, planned: &Planned) {
    let &Planned {
        begin,
        input,
        concurrency,
        ..
    } = planned;
    let name = format!("in{input}-out64-prefix0-c{concurrency}");
    let attributes = format!(
        "{{\"load_run\":\"{RUN}\",\"condition\":{number},\"input_tokens\":{input},\
         \"output_tokens\":64,\"concurrency\":{concurrency},\"prefix_reuse\":0.0}}"
    );
    run.said_mark(None, begin, Begin, &name, &attributes);
    run.mem(410, begin + 2.0, [planned.anon, 220.0, 256.0]);
    run.mem(400, begin + 3.0, [440.0, 160.0, 0.0]);
    run.put(card(0, begin + 4.0, planned.gpu));
    run.put(on_card(0, 410, begin + 4.0, Some(gib(planned.gpu))));
    run.mem(410, begin + 9.0, [1_050.0, 220.0, 256.0]);
    run.put(card(0, begin + 9.5, 22.0));
    run.put(on_card(0, 410, begin + 9.5, Some(gib(22.0))));
    for place in 0..concurrency {
        let end = begin + 7.0 + place as f64 * 0.25;
        let mut row = RequestRow {
            condition: name.clone(),
            request: place,
            ..request(begin + 0.1, end, input, 64)
        };
        if number == 3 && place == 1 {
            row.outcome = Some(RequestOutcome::Refused);
            row.http_status = Some(503);
            row.error = Some("status 503: the queue is full".to_owned());
            row.first_token_boot_ns = None;
            row.output_tokens = None;
            row.boot_ns = boot(begin + 2.5);
        }
        if number == 3 && place == 2 {
            row.outcome = Some(RequestOutcome::Broken);
            row.error = Some("the connection broke in the midst of the answer".to_owned());
            row.output_tokens = Some(20);
            row.boot_ns = boot(begin + 5.0);
        }
        row.ts = wall((row.boot_ns - boot(0.0)).as_secs_f64());
        run.put(row);
    }
    run.mark(None, begin + 10.0, End, &name);
}

/// One that is answered, the first token after a second.
fn request(start: f64, end: f64, prompt_tokens: i64, output_tokens: i64) -> RequestRow {
    RequestRow {
        ts: wall(end),
        boot_ns: boot(end),
        load_run: RUN.to_owned(),
        start_boot_ns: boot(start),
        first_token_boot_ns: Some(boot(start + 1.0)),
        planned_prompt_tokens: Some(prompt_tokens),
        prompt_tokens: Some(prompt_tokens),
        planned_output_tokens: Some(output_tokens),
        output_tokens: Some(output_tokens),
        http_status: Some(200),
        outcome: Some(RequestOutcome::Ok),
        ..RequestRow::default()
    }
}
