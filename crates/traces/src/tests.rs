//! Traces as torch wrote them, and as nobody should have.

use super::{Overview, TraceSummary, read};
use flate2::Compression;
use flate2::write::GzEncoder;
use memtrace_report::{FORMATS, Style};
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// Two ranks of torch 2.13 with gloo on CPUs, three steps of a small model, `profile_memory` and
/// `record_shapes` on. Only the names of the machine and of the file are others.
const RANKS: [(&str, &[u8]); 2] = [
    (
        "rank0.pt.trace.json.gz",
        include_bytes!("testdata/rank0.pt.trace.json.gz"),
    ),
    (
        "rank1.pt.trace.json.gz",
        include_bytes!("testdata/rank1.pt.trace.json.gz"),
    ),
];

fn summary(name: &str, bytes: &[u8]) -> TraceSummary {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let mut summary = read(&path, 5);
    summary.file = name.to_owned();
    summary
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn unpacked(bytes: &[u8]) -> String {
    std::io::read_to_string(flate2::read::GzDecoder::new(bytes)).unwrap()
}

fn reported(overview: &mut Overview, format: &str) -> String {
    let format = FORMATS.iter().find(|one| one.name == format).unwrap();
    let mut out = Vec::new();
    let style = Style::default();
    format.write(overview, &style, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// A trace with one operator.
fn small() -> String {
    r#"{"schemaVersion": 1, "baseTimeNanoseconds": 1763888000000000000, "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10.0, "dur": 5.5,
         "args": {"External id": 1, "Input Dims": [[2, 2], [2, 2]]}},
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 12.25,
         "s": "t", "args": {"Total Reserved": 2048, "Total Allocated": 1024, "Bytes": 1024,
         "Device Id": 0, "Device Type": 1}},
        {"ph": "M", "name": "process_name", "pid": 1, "ts": 0, "args": {"name": "python"}}
    ], "traceName": "x"}"#
        .to_owned()
}

#[test]
fn what_is_reported_of_real_ranks_stands_in_the_docs() {
    let traces = RANKS.map(|(name, bytes)| summary(name, bytes)).to_vec();
    let reported = reported(&mut Overview::of(traces, false), "text");
    let shown = reported.lines().map(|line| match line {
        "" => "\n".to_owned(),
        line => format!("    {line}\n"),
    });
    let shown: String = shown.collect();
    let page = include_str!("../../../docs/traces.md");
    assert!(page.contains(&shown), "not in docs/traces.md:\n{shown}");
}

/// A trace of a device with two streams, as Kineto writes one.
fn of_device() -> String {
    let mut events = vec![
        r#"{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "pid": 42, "tid": 42,
            "ts": 0, "dur": 1000}"#
            .to_owned(),
        r#"{"ph": "X", "cat": "cpu_op", "name": "aten::item", "pid": 42, "tid": 42, "ts": 330,
            "dur": 400}"#
            .to_owned(),
        r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "pid": 42, "tid": 42,
            "ts": 340, "dur": 350, "args": {"correlation": 9}}"#
            .to_owned(),
        r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 42, "tid": 42,
            "ts": 5, "dur": 3, "args": {"correlation": 8}}"#
            .to_owned(),
    ];
    for (category, name, stream, begin, took) in [
        ("kernel", "sm90_xmma_gemm_bf16", 7, 100, 100),
        (
            "kernel",
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
            20,
            150,
            100,
        ),
        ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 7, 250, 50),
        ("kernel", "flash_fwd_kernel", 7, 700, 100),
        ("kernel", "my_kernel", 7, 850, 50),
    ] {
        events.push(format!(
            r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 0, "tid": {stream},
                "ts": {begin}, "dur": {took}, "args": {{"device": 0, "stream": {stream},
                "correlation": {begin}}}}}"#
        ));
    }
    format!(
        r#"{{"schemaVersion": 1, "baseTimeNanoseconds": 1763888000000000000,
            "deviceProperties": [{{"id": 0, "name": "GPU", "totalGlobalMem": 85899345920}}],
            "distributedInfo": {{"backend": "nccl", "rank": 0, "world_size": 2}},
            "traceEvents": [{}]}}"#,
        events.join(", ")
    )
}

#[test]
fn what_a_device_did_is_held_against_time_and_its_gaps_against_the_cpu() {
    let trace = summary("rank0.json", of_device().as_bytes());
    let text = reported(&mut Overview::of(vec![trace.clone()], false), "text");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("1 launch of a CUDA graph"), "{text}");
    assert!(
        text.contains(
            "Device 0: of 800.0 µs busy 43.8 %, idle 56.2 % (450.0 µs); computed 31.2 %; \
             communicated 12.5 %, 50.0 % of that beside computing."
        ),
        "{text}"
    );
    let [device] = &trace.activity[..] else {
        panic!("{:?}", trace.activity);
    };
    let gaps = device.gaps.iter().map(|gap| {
        let cpu = gap.cpu_name.as_deref().unwrap_or_default();
        (gap.begins_after_ns.0, gap.duration_ns.0, cpu)
    });
    assert_eq!(
        gaps.collect::<Vec<_>>(),
        [
            (300_000, 400_000, "cudaStreamSynchronize"),
            (800_000, 50_000, "ProfilerStep#7"),
        ]
    );
    let hint = "Hint: Device 0 was idle 56.2 % of its time. In its longest gap (400.0 µs at +300.0 µs) \
                cudaStreamSynchronize took 350.0 µs on the CPU: the CPU waited for the device";
    assert!(text.contains(hint), "{text}");
    let kinds = trace.kernel_kinds.iter();
    let kinds: Vec<_> = kinds.map(|one| one.kind.in_words()).collect();
    assert_eq!(
        kinds,
        [
            "GEMM",
            "attention",
            "communication",
            "memcpy, memset",
            "other"
        ]
    );
}

#[test]
fn a_rank_whose_steps_take_longer_is_named_with_the_figures() {
    let late = of_device().replace(r#""dur": 1000}"#, r#""dur": 1500}"#);
    let late = late.replace(r#""rank": 0"#, r#""rank": 1"#);
    let traces = [("a.json", of_device()), ("b.json", late)];
    let traces = traces.map(|(name, text)| summary(name, text.as_bytes()));
    let text = reported(&mut Overview::of(traces.to_vec(), true), "text");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let hint = "Hint: Rank 1 took longest and ended last in 1 of 1 step, 500.0 µs longer in all; all steps took 1.00 ms";
    assert!(text.contains(hint), "{text}");
}

#[test]
fn every_key_of_the_json_stands_in_the_docs() {
    let mut traces = RANKS.map(|(name, bytes)| summary(name, bytes)).to_vec();
    traces.push(summary("rank2.json", of_device().as_bytes()));
    let late = of_device().replace(r#""dur": 1000}"#, r#""dur": 1500}"#);
    traces.push(summary(
        "late.json",
        late.replace(r#""rank": 0"#, r#""rank": 3"#).as_bytes(),
    ));
    let json = reported(&mut Overview::of(traces, false), "json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let page = include_str!("../../../docs/traces.md");
    let mut left = vec![&json];
    let mut count = 0;
    while let Some(value) = left.pop() {
        match value {
            serde_json::Value::Object(object) => {
                for (key, value) in object {
                    assert!(page.contains(&format!("`{key}`")), "{key}");
                    count += 1;
                    left.push(value);
                }
            }
            serde_json::Value::Array(list) => left.extend(list),
            _ => {}
        }
    }
    assert!(count > 40, "{count}");
}

#[test]
fn the_figures_of_a_real_trace_are_those_of_its_events() {
    let (name, bytes) = RANKS[0];
    let trace: serde_json::Value = serde_json::from_str(&unpacked(bytes)).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let summary = summary(name, bytes);
    assert_eq!((summary.rank, summary.world_size), (Some(0), Some(2)));
    let is = |event: &serde_json::Value, key: &str, word: &str| event[key] == word;
    let operators = events.iter().filter(|event| is(event, "cat", "cpu_op"));
    let listed = summary
        .operators
        .list
        .iter()
        .map(|one| one.count)
        .sum::<u64>();
    let count = operators.clone().count() as u64;
    assert_eq!(listed + summary.operators.other_count, count);
    for one in &summary.operators.list {
        let mine = operators
            .clone()
            .filter(|event| is(event, "name", &one.name));
        let us = mine.clone().map(|event| event["dur"].as_f64().unwrap());
        assert_eq!(mine.count() as u64, one.count, "{}", one.name);
        let ns: i64 = us.map(|us| (us * 1e3).round() as i64).sum();
        assert_eq!(one.total_ns.0, ns, "{}", one.name);
        let own = one.self_ns.expect("it is known").0;
        assert!((0..=ns).contains(&own), "{}: {own} of {ns}", one.name);
    }
    let memory = events.iter().filter(|event| is(event, "name", "[memory]"));
    let allocated = memory.map(|event| event["args"]["Total Allocated"].as_i64().unwrap());
    let [cpu] = &summary.memory[..] else {
        panic!("{:?}", summary.memory);
    };
    assert_eq!(cpu.device, "cpu");
    assert_eq!(
        cpu.peak_allocated_bytes.map(|bytes| bytes.0),
        allocated.max()
    );
    let steps = events.iter().filter(|event| {
        let name = event["name"].as_str().unwrap_or_default();
        is(event, "cat", "user_annotation") && name.starts_with("ProfilerStep#")
    });
    assert_eq!(summary.steps.len(), steps.count());
}

#[test]
fn memory_by_operator_is_what_torch_sums_up_itself() {
    // Three steps of torch 2.15 on a CPU, and `self_cpu_memory_usage` of its `key_averages()` then.
    let theirs = include_str!("testdata/memory.self_cpu_memory_usage.json");
    let theirs: BTreeMap<String, i64> = serde_json::from_str(theirs).unwrap();
    let trace = include_bytes!("testdata/memory.pt.trace.json.gz");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("memory.pt.trace.json.gz");
    std::fs::write(&path, trace).unwrap();
    let summary = read(&path, 1_000);
    let [cpu] = &summary.memory[..] else {
        panic!("{:?}", summary.memory);
    };
    let operators = cpu.operators.as_ref().expect("they are known");
    let kept = operators.list.iter().map(|one| {
        // torch makes a name of steps, in which no operator is.
        let name = one.name.clone().unwrap_or("ProfilerStep*".to_owned());
        (name, one.allocated_bytes.0 - one.freed_bytes.0)
    });
    let mut kept: BTreeMap<String, i64> = kept.collect();
    kept.retain(|_, bytes| *bytes != 0);
    assert_eq!(kept, theirs);
    let count = operators.list.iter().map(|one| one.count).sum::<u64>();
    assert_eq!(count, cpu.event_count);
    assert_eq!(cpu.peak_allocated_in.as_deref(), Some("aten::div"));

    let few = read(&path, 2).memory.remove(0).operators.expect("known");
    assert_eq!(few.list, operators.list[..2]);
    let rest = operators.list[2..].iter();
    let (allocated, freed) = rest.fold((0, 0), |(allocated, freed), one| {
        (allocated + one.allocated_bytes.0, freed + one.freed_bytes.0)
    });
    assert_eq!(
        (few.other_allocated_bytes.0, few.other_freed_bytes.0),
        (allocated, freed)
    );
    assert_eq!(few.other_name_count, operators.list.len() - 2);
}

#[test]
fn memory_is_of_the_operator_of_its_thread_and_of_its_device() {
    let memory = |device: u8, tid: u8, ts: u8, bytes: i64, total: i64| {
        format!(
            r#"{{"ph": "i", "name": "[memory]", "pid": 1, "tid": {tid}, "ts": {ts}, "args": {{
                "Device Type": 1, "Device Id": {device}, "Bytes": {bytes}, "Total Allocated": {total}}}}}"#
        )
    };
    let span = |category: &str, name: &str, tid: u8, ts: u8, dur: u8| {
        format!(
            r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 1, "tid": {tid}, "ts": {ts},
                "dur": {dur}}}"#
        )
    };
    let events = [
        memory(0, 1, 15, 1024, 1024),
        memory(1, 1, 16, 512, 512),
        memory(0, 2, 15, 64, 1088),
        memory(0, 1, 90, -1024, 64),
        span("cpu_op", "aten::linear", 1, 10, 50),
        span("cpu_op", "aten::mm", 1, 12, 10),
        span("cuda_runtime", "cudaMalloc", 1, 14, 3),
        span("user_annotation", "rollout", 2, 0, 50),
    ];
    let text = format!(r#"{{"traceEvents": [{}]}}"#, events.join(", "));
    let summary = summary("rank0.json", text.as_bytes());
    let of = |place: usize| {
        let operators = summary.memory[place].operators.as_ref().unwrap();
        let amounts = operators.list.iter().map(|one| {
            (
                one.name.as_deref(),
                one.allocated_bytes.0,
                one.freed_bytes.0,
            )
        });
        amounts.collect::<Vec<_>>()
    };
    let expected = [
        (None, 0, 1024),
        (Some("aten::mm"), 1024, 0),
        (Some("rollout"), 64, 0),
    ];
    assert_eq!(of(0), expected);
    assert_eq!(of(1), [(Some("aten::mm"), 512, 0)]);
    let text = reported(&mut Overview::of(vec![summary], false), "text");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for row in [
        "(outside of operators) cuda:0 1 0 B 1 KiB -1 KiB",
        "aten::mm cuda:1 1 512 B 0 B +512 B",
    ] {
        assert!(text.contains(row), "{row}: {text}");
    }
}

#[test]
fn the_operator_at_the_peak_is_the_one_that_raised_it() {
    let memory = |tid: u8, bytes: i64, total: i64| {
        format!(
            r#"{{"ph": "i", "name": "[memory]", "pid": 1, "tid": {tid}, "ts": 15, "args": {{
                "Device Type": 1, "Device Id": 0, "Bytes": {bytes}, "Total Allocated": {total}}}}}"#
        )
    };
    let span = |name: &str, tid: u8| {
        format!(
            r#"{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 1, "tid": {tid}, "ts": 10,
                "dur": 10}}"#
        )
    };
    // All at one time, on two threads.
    let events = [
        memory(1, 1024, 1024),
        memory(1, -512, 512),
        memory(2, 64, 576),
        span("aten::mm", 1),
        span("aten::fill_", 2),
    ];
    let text = format!(r#"{{"traceEvents": [{}]}}"#, events.join(", "));
    let summary = summary("rank0.json", text.as_bytes());
    let [gpu] = &summary.memory[..] else {
        panic!("{:?}", summary.memory);
    };
    assert_eq!(gpu.peak_allocated_bytes.map(|bytes| bytes.0), Some(1024));
    assert_eq!(gpu.peak_allocated_in.as_deref(), Some("aten::mm"));
}

#[test]
fn an_operator_whose_name_is_one_too_many_keeps_its_time_and_its_memory() {
    let span = |category: &str, name: &str, ts: u32, dur: u32| {
        format!(
            r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 1, "tid": 1, "ts": {ts},
                "dur": {dur}}}"#
        )
    };
    let ranges = (0..10_000).map(|number| span("user_annotation", &format!("r{number}"), 1, 1));
    let operators = (0..10_000).map(|number| span("cpu_op", &format!("op{number}"), 1, 1));
    let mut events: Vec<String> = ranges.chain(operators).collect();
    events.extend([
        span("cpu_op", "op0", 100, 100),
        span("cpu_op", "late", 110, 80),
        r#"{"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 150, "args": {
            "Device Type": 1, "Device Id": 0, "Bytes": 512, "Total Allocated": 512}}"#
            .to_owned(),
        // A call has a name although ranges have none any more.
        span("cuda_runtime", "cudaStreamSynchronize", 300, 100),
        span("kernel", "gemm", 290, 10),
        span("kernel", "gemm", 400, 10),
    ]);
    let text = format!(r#"{{"traceEvents": [{}]}}"#, events.join(", "));
    let summary = summary("rank0.json", text.as_bytes());
    let first = &summary.operators.list[0];
    assert_eq!((&*first.name, first.total_ns.0), ("op0", 101_000));
    // Its first span is filled by those that began and ended with it.
    assert_eq!(first.self_ns.map(|ns| ns.0), Some(20_000));
    let [gpu] = &summary.memory[..] else {
        panic!("{:?}", summary.memory);
    };
    let others = Some("(one of other names)");
    assert_eq!(gpu.peak_allocated_in.as_deref(), others);
    let owner = &gpu.operators.as_ref().expect("known").list[0];
    assert_eq!(owner.name.as_deref(), others);
    let gap = &summary.activity[0].gaps[0];
    assert_eq!(gap.cpu_name.as_deref(), Some("cudaStreamSynchronize"));
}

#[test]
fn what_is_not_known_of_a_large_trace_is_said_to_be_unknown() {
    let mut trace = summary("rank0.json", of_device().as_bytes());
    trace.memory = summary("rank0.json", small().as_bytes()).memory;
    trace.memory[0].operators = None;
    let gaps = &mut trace.activity[0].gaps;
    (gaps[0].cpu_name, gaps[0].cpu_ns) = (None, None);
    let text = reported(&mut Overview::of(vec![trace], false), "text");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "Memory by operator is unknown: too many events.",
        "400.0 µs ? unknown",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn packed_or_not_and_as_a_list_alone_it_is_the_same() {
    let whole = summary("rank0.json", small().as_bytes());
    assert_eq!(whole.event_count, 2);
    assert_eq!(whole.memory[0].device, "cuda:0");
    assert_eq!(whole.operators.list[0].total_ns.0, 5_500);
    let begin = whole.begin_wall_ns.unwrap().0;
    assert_eq!(begin, 1_763_888_000_000_010_000);
    let same = summary("rank0.json", &packed(small().as_bytes()));
    assert_eq!(format!("{same:?}"), format!("{whole:?}"));
    let (_, list) = small()
        .split_once("\"traceEvents\": ")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    let list = list.replace(", \"traceName\": \"x\"}", "");
    let alone = summary("rank0.json", list.as_bytes());
    assert_eq!((alone.event_count, alone.begin_wall_ns), (2, None));
    assert_eq!(alone.problem, None);
}

#[test]
fn of_a_trace_that_was_cut_off_what_was_read_is_reported() {
    let text = small();
    let end = text.find("\"M\"").unwrap();
    let cut = summary("a.json", &text.as_bytes()[..end]);
    assert!(cut.is_trace);
    assert_eq!(cut.event_count, 2);
    assert_eq!(cut.problem.as_deref(), Some("it is cut off"));
    let (_, bytes) = RANKS[0];
    let cut = summary("a.json.gz", &bytes[..bytes.len() / 2]);
    assert!(cut.event_count > 100, "{}", cut.event_count);
    assert_eq!(cut.problem.as_deref(), Some("it is cut off"));
    let reported = reported(&mut Overview::of(vec![cut], false), "text");
    assert!(
        reported.contains("Not read to its end: it is cut off."),
        "{reported}"
    );
}

#[test]
fn what_is_no_trace_is_reported_and_takes_nothing_down() {
    for (bytes, words) in [
        (&b""[..], "cut off"),
        (b"{}", ""),
        (b"\x1f\x8bgarbage that is none", "gzip"),
        (b"\x00\x01\x02", "not JSON"),
        (b"[[[[", "cut off"),
        (br#"{"traceEvents": 7}"#, ""),
        (br#"{"other": [1, {"a": null}]}"#, ""),
    ] {
        let summary = summary("a.json", bytes);
        assert_eq!(summary.event_count, 0);
        let problem = summary.problem.clone().unwrap_or_default();
        assert!(problem.contains(words), "{problem}");
        reported(&mut Overview::of(vec![summary], false), "text");
    }
    let deep = "[".repeat(1_000_000);
    assert!(summary("a.json", deep.as_bytes()).problem.is_some());
    let wrong = br#"[7, "x", {"ph": 1, "ts": "soon", "cat": [], "args": [{}]}, {"ph": "X", "ts": 1e300, "dur": -5}]"#;
    let summary = summary("a.json", wrong);
    assert_eq!((summary.event_count, summary.problem), (1, None));
}

#[test]
fn a_memory_timeline_of_torch_is_no_trace() {
    // The form of hta_memory_timeline.raw.gz of HolisticTraceAnalysis, and of timeline.json.
    for timeline in [
        "[[-1, 1, 37888, 7], [-1, 1, 512, 7]]",
        "[[1, 2], [[0, 5], [0, 6]]]",
    ] {
        let timeline = summary("timeline.json", timeline.as_bytes());
        assert_eq!((timeline.is_trace, &timeline.problem), (false, &None));
        let text = reported(&mut Overview::of(vec![timeline], false), "text");
        assert!(text.contains("Memory timelines"), "{text}");
    }
}

#[test]
fn devices_are_those_that_something_ran_on_and_an_mtia_has_kernels() {
    let trace = |events: &str| {
        let gpus = (0..8).map(|id| format!(r#"{{"id": {id}, "name": "GPU"}}"#));
        let gpus: Vec<String> = gpus.collect();
        let text = format!(
            r#"{{"deviceProperties": [{}], "traceEvents": [{events}]}}"#,
            gpus.join(", ")
        );
        summary("rank0.json", text.as_bytes())
    };
    let idle = trace(r#"{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2}"#);
    let text = reported(&mut Overview::of(vec![idle], false), "text");
    assert!(text.contains("Nothing ran on device 0"), "{text}");
    let mtia = trace(
        r#"{"ph": "X", "cat": "mtia_ccp_events", "name": "gemm", "ts": 1, "dur": 2, "args": {"device": 3}}"#,
    );
    assert_eq!(mtia.kernels.list[0].name, "gemm");
    let text = reported(&mut Overview::of(vec![mtia], false), "text");
    assert!(text.contains("Ran on device 3: GPU."), "{text}");
}

#[test]
fn a_small_file_that_unpacks_to_a_large_one_takes_no_memory() {
    // 8 MiB of one event, and 8 MiB within one text.
    let event = r#"{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":1},"#;
    let many = format!("[{}", event.repeat((8 << 20) / event.len()));
    let many = packed(many.as_bytes());
    assert!(many.len() < 64 << 10, "{}", many.len());
    let many = summary("a.json.gz", &many);
    assert!(many.event_count > 100_000);
    let text = format!("[{{\"name\": \"{}", "a".repeat(8 << 20));
    let text = summary("a.json.gz", &packed(text.as_bytes()));
    let problem = text.problem.unwrap_or_default();
    assert!(problem.contains("longer than 1 MiB"), "{problem}");
}

#[test]
fn names_are_written_out_where_a_terminal_would_act_on_them() {
    let name = "\\u001b[2J\\nfake\\u202e";
    let text = small().replace("aten::mm", name);
    let mut overview = Overview::of(vec![summary("\u{1b}c.json", text.as_bytes())], false);
    for format in ["text", "md", "csv", "json"] {
        let reported = reported(&mut overview, format);
        assert!(
            !reported.contains(['\u{1b}', '\u{202e}']),
            "{format}: {reported}"
        );
        assert!(reported.contains("fake"), "{format}: {reported}");
    }
    assert!(reported(&mut overview, "text").contains("\\x1b[2J\\nfake\\u{202e}"));
}

/// A number as no profiler writes it.
fn number() -> impl Strategy<Value = String> {
    let far = ["1e300", "-1e300", "9.2e15", "-9.2e15", "-0.5", "0"];
    prop_oneof![
        prop::sample::select(far.to_vec()).prop_map(str::to_owned),
        any::<i64>().prop_map(|number| number.to_string()),
        prop::num::f64::NORMAL.prop_map(|number| format!("{number:e}")),
    ]
}

/// A trace whose events have any times.
pub(super) fn of_any_times() -> impl Strategy<Value = String> {
    let kinds = [
        r#""ph": "X", "cat": "cpu_op", "name": "aten::mm""#,
        r#""ph": "X", "cat": "kernel", "name": "gemm""#,
        r#""ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3""#,
        r#""ph": "i", "name": "[memory]""#,
    ];
    let event = (prop::sample::select(kinds.to_vec()), number(), number());
    let event = event.prop_map(|(kind, ts, number)| {
        format!(
            r#"{{{kind}, "pid": 4711, "tid": 1, "ts": {ts}, "dur": {number}, "args": {{
                "Device Type": 1, "Device Id": 0, "Bytes": {number}, "Total Allocated": {number}}}}}"#
        )
    });
    let events = prop::collection::vec(event, 0..8);
    (any::<i64>(), events).prop_map(|(base, events)| {
        let events = events.join(", ");
        format!(r#"{{"baseTimeNanoseconds": {base}, "traceEvents": [{events}]}}"#)
    })
}

#[test]
fn times_that_no_clock_shows_are_reported() {
    let text = r#"[
        {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": -1e300, "dur": 1e300},
        {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1e300},
        {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 2, "ts": 2, "dur": 1e300},
        {"ph": "i", "name": "[memory]", "ts": 1e300,
         "args": {"Device Type": 0, "Device Id": 0, "Total Allocated": 1}}]"#;
    let text = format!(r#"{{"baseTimeNanoseconds": 0, "traceEvents": {text}}}"#);
    let summary = summary("a.json", text.as_bytes());
    assert_eq!(summary.operators.list[0].total_ns.0, i64::MAX);
    reported(&mut Overview::of(vec![summary], false), "text");
}

proptest! {
    #[test]
    fn numbers_of_any_size_are_reported(text in of_any_times()) {
        let traces = ["a.json", "b.json"].map(|name| summary(name, text.as_bytes()));
        prop_assert_eq!(traces[0].problem.as_deref(), None);
        for format in ["text", "csv", "json"] {
            reported(&mut Overview::of(traces.to_vec(), false), format);
        }
    }

    #[test]
    fn arbitrary_bytes_are_reported_or_refused(bytes in any::<Vec<u8>>()) {
        summary("a.json", &bytes);
    }

    #[test]
    fn a_trace_with_a_wrong_byte_anywhere_is_reported(place in any::<Index>(), byte in any::<u8>()) {
        let mut bytes = small().into_bytes();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        let changed = summary("a.json", &bytes);
        prop_assert!(changed.event_count <= 2);
        reported(&mut Overview::of(vec![changed], false), "text");
        let mut packed = packed(small().as_bytes());
        let place = place % packed.len();
        packed[place] ^= byte;
        summary("a.json.gz", &packed);
    }
}

#[test]
fn a_file_that_can_not_be_opened_is_a_trace_with_a_problem() {
    let summary = read(Path::new("/nowhere/rank3.json"), 5);
    assert_eq!((summary.is_trace, summary.rank), (false, Some(3)));
    let reported = reported(&mut Overview::of(vec![summary], false), "text");
    assert!(
        reported.contains("No list of events was found"),
        "{reported}"
    );
    assert!(reported.contains("No such file or directory"), "{reported}");
}
