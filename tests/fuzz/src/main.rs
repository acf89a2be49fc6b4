//! What reads bytes that others chose, each with arbitrary ones: nothing may panic, hang, or take
//! memory without bound. `MEMTRACE_FUZZ` names which of it is tried; without it the names are printed.

#![no_main]

mod recording;

use libfuzzer_sys::{Corpus, fuzz_target};
use memtrace_collect::bpf;
use memtrace_host::btf::Btf;
use memtrace_import::Beside;
use memtrace_import::torch::Snapshot;
use memtrace_model::{BootNs, Bytes, Message, Rules, WallNs};
use std::io::{Cursor, Write};
use std::sync::OnceLock;

type Target = (&'static str, fn(&[u8]));

const TARGETS: &[Target] = &[
    ("segment", |bytes| {
        recording::read_with("spool/mem-00001.arrows", bytes)
    }),
    ("part", |bytes| {
        recording::read_with("mem/part-00001.parquet", bytes)
    }),
    ("run_json", |bytes| recording::read_with("run.json", bytes)),
    ("manifest", |bytes| {
        recording::read_with("manifest.jsonl", bytes)
    }),
    ("event", |bytes| drop(bpf::decode(bytes))),
    ("mark", |bytes| drop(Message::parse(bytes))),
    ("rules", rules),
    ("trace", trace),
    ("load_file", load_file),
    ("torch_snapshot", torch_snapshot),
    ("btf", btf),
];

static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| -> Corpus {
    TARGET.get_or_init(chosen)(bytes);
    Corpus::Keep
});

fn chosen() -> fn(&[u8]) {
    let name = std::env::var("MEMTRACE_FUZZ").unwrap_or_default();
    if let Some((_, target)) = TARGETS.iter().find(|(known, _)| *known == name) {
        return *target;
    }
    for (name, _) in TARGETS {
        println!("{name}");
    }
    // SAFETY: ends the process. libFuzzer takes any other end for a failure.
    unsafe { libc::_exit(0) }
}

/// Rules for log lines that are marks, and for roles.
fn rules(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    drop(memtrace_model::mark_rules("rules", text));
    drop(Rules::with(text));
}

/// A trace of torch.profiler, packed or not.
fn trace(bytes: &[u8]) {
    for suffix in [".json", ".json.gz"] {
        let file = tempfile::Builder::new()
            .suffix(suffix)
            .tempfile_in(recording::memory());
        let mut file = file.expect("a temporary file");
        file.write_all(bytes).expect("room for it");
        drop(memtrace_traces::read(file.path(), 10));
    }
}

/// What a load generator wrote.
fn load_file(bytes: &[u8]) {
    let beside: Beside<'_> = &|_| None;
    drop(memtrace_import::read(
        &mut Cursor::new(bytes),
        beside,
        memtrace_import::REQUESTS_MAX,
    ));
}

/// A snapshot of torch's allocator.
fn torch_snapshot(bytes: &[u8]) {
    let Ok(snapshot) = Snapshot::read(Cursor::new(bytes)) else {
        return;
    };
    let moment = (WallNs(0), BootNs(0));
    let rows = snapshot.rows("a", moment, None, 1);
    let sum: Bytes = rows.map(|row| row.size_bytes).sum();
    assert_eq!(sum, snapshot.reserved());
    snapshot.stack_rows(moment, 1).for_each(drop);
}

/// The kernel's own types, which a container can put another file in the place of.
fn btf(bytes: &[u8]) {
    let wanted = ["task_struct", "mm_struct", "page_counter"];
    let Ok(btf) = Btf::parse(bytes, &wanted) else {
        return;
    };
    let _ = btf.field("task_struct", "mm");
    let _ = btf.struct_size("mm_struct");
    drop(btf.tracepoint_arguments("btf_trace_sched_process_exit"));
    drop(btf.with_ids_only(&wanted));
    drop(btf.reduced());
}
