//! Processes of which it is known what memory is inside of them, each with another cause.

use super::script::{Script, boot, mib, upid, wall};
use memtrace_model::tables::{LayoutPart, LayoutRow, MappingKind, MappingRow};
use memtrace_model::{Bytes, DurationNs, Tgid};

/// One part of a reading, in MiB; of heaps also what was searched and what of it is free.
struct Part {
    part: LayoutPart,
    rss: f64,
    items: i64,
    searched: Option<[f64; 3]>,
    unit: Option<f64>,
    zero: Option<f64>,
    huge: Option<f64>,
    name: Option<&'static str>,
}

fn part(part: LayoutPart, rss: f64, items: i64) -> Part {
    Part {
        part,
        rss,
        items,
        searched: None,
        unit: None,
        zero: None,
        huge: None,
        name: None,
    }
}

/// A heap that was searched: how much, and of it what is free, and in whole pages.
fn heap(of: LayoutPart, rss: f64, items: i64, searched: [f64; 3]) -> Part {
    Part {
        searched: Some(searched),
        ..part(of, rss, items)
    }
}

impl Script {
    /// Reads who laid out the memory of a process.
    fn layout(&mut self, tgid: u32, at: f64, parts: impl IntoIterator<Item = Part>) {
        for one in parts {
            let searched = |place: usize| one.searched.map(|amounts| mib(amounts[place]));
            self.put(LayoutRow {
                ts: wall(at),
                boot_ns: boot(at),
                upid: upid(Tgid(tgid)),
                part: Some(one.part),
                name: one.name.map(str::to_owned),
                item_count: one.items,
                unit_bytes: one.unit.map(mib),
                size_bytes: mib(one.rss * 1.25),
                rss_bytes: mib(one.rss),
                private_bytes: mib(one.rss),
                searched_bytes: searched(0),
                searched_age_ns: one.searched.map(|_| DurationNs(1_000_000)),
                free_bytes: searched(1),
                free_page_bytes: searched(2),
                zero_bytes: one.zero.map(mib),
                huge_bytes: one.huge.map(mib),
                lazy_free_bytes: None,
                sample_count: 256,
                span_ns: DurationNs(12_000_000),
            });
        }
    }

    fn mapping(&mut self, tgid: u32, at: f64, kind: MappingKind, path: Option<&str>, rss: f64) {
        let is_shared = kind == MappingKind::Tmpfs;
        self.put(MappingRow {
            ts: wall(at),
            boot_ns: boot(at),
            upid: upid(Tgid(tgid)),
            kind: Some(kind),
            path: path.map(str::to_owned),
            device: is_shared.then(|| "0:25".to_owned()),
            inode: is_shared.then_some(77),
            mapping_count: 3,
            size_bytes: mib(rss * 2.0),
            rss_bytes: Some(mib(rss)),
            pss_bytes: Some(mib(rss / 2.0)),
            private_bytes: Some(Bytes(0)),
            anon_bytes: Some(Bytes(0)),
            swap_bytes: Some(Bytes(0)),
            ..MappingRow::default()
        });
    }
}

/// A trainer that leaks, an engine whose allocator keeps what was freed, and two that hold memory
/// for reasons of their own.
pub(super) fn inside() -> Script {
    use LayoutPart::{
        BrkHeap, FileCopies, GlibcArenas, MappedFiles, Named, Other, Pinned, PythonPools, Stacks,
    };
    let mut run = Script::command(&["python3", "loop.py"], 1_200.0);
    run.process(700, None, 0.0, "/usr/bin/python3 loop.py");
    run.process(710, Some(700), 2.0, "/opt/engine --port 8000");
    run.process(730, Some(700), 3.0, "/opt/loader /models/qwen.safetensors");
    run.process(740, Some(700), 4.0, "/opt/offload");
    run.inherits(710, 12.0);
    for step in 0..120 {
        let (at, step) = (f64::from(step) * 10.0 + 5.0, f64::from(step));
        run.mem(700, at, [600.0 + step * 20.0, 80.0, 0.0]);
        run.mem(710, at + 1.0, [2_000.0, 90.0, 64.0]);
        run.mem(730, at + 2.0, [1_500.0, 40.0, 0.0]);
        run.mem(740, at + 3.0, [60.0, 20.0, 2_048.0]);
        run.cost(at, 1.0, 0);
    }
    for step in 0..24 {
        let at = f64::from(step) * 50.0 + 8.0;
        let grown = f64::from(step) * 100.0;
        let brk = 300.0 + grown * 0.8;
        run.layout(
            700,
            at,
            [
                heap(BrkHeap, brk, 1, [brk, brk * 0.03, 1.0]),
                heap(PythonPools, 280.0 + grown * 0.2, 3, [64.0, 4.0, 0.5]),
                part(Stacks, 4.0, 9),
                part(Other, 16.0, 12),
                Part {
                    name: Some("/usr/lib/libtorch_cpu.so"),
                    ..part(MappedFiles, 80.0, 140)
                },
            ],
        );
    }
    run.layout(
        710,
        300.0,
        [heap(GlibcArenas, 1_900.0, 28, [256.0, 20.0, 4.0])],
    );
    run.layout(
        710,
        900.0,
        [
            heap(GlibcArenas, 1_900.0, 28, [512.0, 364.0, 348.0]),
            Part {
                name: Some("\u{202e}</script> cache"),
                ..part(Named, 100.0, 2)
            },
        ],
    );
    let copies = Part {
        name: Some("/models/qwen.safetensors"),
        ..part(FileCopies, 1_500.0, 4)
    };
    run.layout(730, 900.0, [copies]);
    let buffers = Part {
        unit: Some(256.0),
        zero: Some(896.0),
        ..part(Pinned, 2_048.0, 8)
    };
    run.layout(740, 900.0, [buffers, part(Other, 60.0, 8)]);
    run.mapping(710, 890.0, MappingKind::Anonymous, None, 1_990.0);
    run.mapping(710, 890.0, MappingKind::Tmpfs, Some("/dev/shm/kv"), 64.0);
    run.mapping(740, 890.0, MappingKind::Tmpfs, Some("/dev/shm/kv"), 64.0);
    run.node(600.0, super::script::gib(400.0));
    for tgid in [740, 730, 710, 700] {
        run.exit(tgid, 1_199.0 + f64::from(740 - tgid) / 1_000.0, 0);
    }
    run
}
