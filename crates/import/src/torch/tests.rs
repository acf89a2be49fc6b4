//! The shape is that of torch 2.11: `THCPModule_memorySnapshot` of `torch/csrc/cuda/Module.cpp` makes
//! the dict, `py_symbolize` the frames, and `torch/cuda/memory.py` pickles it. samples/README.md says where
//! the dumps are from.

use super::*;
use crate::pickle::tests::{Plain, pickled};
use proptest::prelude::*;
use std::path::Path;

const MIB: i64 = 1 << 20;
const AT: (WallNs, BootNs) = (WallNs(1_000), BootNs(900));

fn text(text: &str) -> Plain {
    Plain::Text(text.to_owned())
}

fn dict(pairs: &[(&str, Plain)]) -> Plain {
    let pairs = pairs.iter().cloned();
    Plain::Dict(pairs.map(|(key, value)| (key.to_owned(), value)).collect())
}

fn frames(functions: &[&str]) -> Plain {
    let frame = |function: &&str| {
        dict(&[
            ("name", text(function)),
            ("filename", text("/w/train.py")),
            ("line", Plain::Int(7)),
        ])
    };
    Plain::List(functions.iter().map(frame).collect())
}

fn block(state: &str, mib: i64, requested: i64, functions: &[&str]) -> Plain {
    dict(&[
        ("address", Plain::Int(1 << 46)),
        ("size", Plain::Int(mib * MIB)),
        ("requested_size", Plain::Int(requested)),
        ("state", text(state)),
        ("frames", frames(functions)),
    ])
}

fn segment(address: i64, mib: i64, pool: i64, blocks: Vec<Plain>) -> Plain {
    dict(&[
        ("device", Plain::Int(1)),
        ("address", Plain::Int(address)),
        ("total_size", Plain::Int(mib * MIB)),
        ("allocated_size", Plain::Int(0)),
        ("active_size", Plain::Int(0)),
        ("requested_size", Plain::Int(0)),
        ("stream", Plain::Int(0)),
        ("segment_type", text("large")),
        (
            "segment_pool_id",
            Plain::List(vec![Plain::Int(0), Plain::Int(pool)]),
        ),
        ("is_expandable", Plain::Bool(pool > 0)),
        ("frames", Plain::List(Vec::new())),
        ("blocks", Plain::List(blocks)),
    ])
}

fn snapshot(segments: Vec<Plain>) -> Plain {
    dict(&[
        ("segments", Plain::List(segments)),
        ("device_traces", Plain::List(vec![Plain::List(Vec::new())])),
        (
            "allocator_settings",
            dict(&[("expandable_segments", Plain::Bool(false))]),
        ),
        ("external_annotations", Plain::List(Vec::new())),
    ])
}

fn read(snapshot: &Plain) -> Result<Snapshot, SnapshotError> {
    Snapshot::read(&pickled(snapshot, 4)[..])
}

fn two_segments() -> Snapshot {
    let first = vec![
        block("active_allocated", 30, 29 * MIB, &["load", "main"]),
        block("inactive", 4, 0, &[]),
        block("active_allocated", 20, 20 * MIB, &["load", "main"]),
        block("active_pending_free", 1, MIB, &["copy", "main"]),
        block("inactive", 9, 0, &["load", "main"]),
    ];
    let second = vec![block("active_allocated", 2, 5, &[])];
    let segments = vec![
        segment(1 << 40, 64, 0, first),
        segment(1 << 41, 2, 3, second),
    ];
    read(&snapshot(segments)).unwrap()
}

/// What a dump of torch has: its file, segments, what is reserved, allocated, waits, and is free, and
/// what is in private pools.
type Dump = (&'static str, usize, [i64; 5]);

const DUMPS: [Dump; 5] = [
    (
        "plain",
        28,
        [1_862_270_976, 1_388_318_208, 67_108_864, 406_843_904, 0],
    ),
    (
        "expandable",
        1,
        [1_866_465_280, 1_388_318_208, 67_108_864, 411_038_208, 0],
    ),
    (
        "bare",
        28,
        [1_862_270_976, 1_388_318_208, 67_108_864, 406_843_904, 0],
    ),
    ("native", 4, [427_819_008, 419_432_448, 0, 8_386_560, 0]),
    (
        "graph",
        26,
        [1_793_064_960, 1_455_428_608, 0, 337_636_352, 337_641_472],
    ),
];

fn dump(name: &str) -> Snapshot {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/samples/torch-2.11.0");
    let bytes = std::fs::read(dir.join(format!("{name}.pickle"))).unwrap();
    Snapshot::read(&bytes[..]).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn dumps_of_torch_have_the_sums_that_torch_has() {
    for (name, segments, expected) in DUMPS {
        let snapshot = dump(name);
        assert_eq!(snapshot.segments.len(), segments, "{name}");
        let rows: Vec<_> = snapshot.rows(name, AT, None, 1).collect();
        let sum = |is_of: &dyn Fn(&TorchMemoryRow) -> bool| {
            let rows = rows.iter().filter(|row| is_of(row));
            rows.map(|row| row.size_bytes).sum::<Bytes>().0
        };
        let of = |state| sum(&|row| row.state == Some(state));
        let sums = [
            snapshot.reserved().0,
            of(TorchBlockState::Allocated),
            of(TorchBlockState::AwaitingFree),
            of(TorchBlockState::Inactive),
            sum(&|row| row.pool.is_some()),
        ];
        assert_eq!(sums, expected, "{name}");
        let is_expandable = name == "expandable";
        assert!(rows.iter().all(|row| row.is_expandable == is_expandable));
        assert_eq!(snapshot.boot_ns, None);
    }
}

#[test]
fn dumps_of_torch_name_who_allocated_where_history_was_recorded() {
    let bytes = |snapshot: &Snapshot, function: &str| {
        let rows = snapshot.rows("a", AT, None, 1).filter(|row| {
            let stack = usize::try_from(row.stack_id - 1).ok();
            let frames = stack.and_then(|stack| snapshot.stacks.get(stack));
            let frames = frames.map_or(&[][..], Vec::as_slice);
            let mut python = frames.iter().filter(|one| one.kind() == FrameKind::Python);
            row.state == Some(TorchBlockState::Allocated)
                && python.next().and_then(|one| one.function.as_deref()) == Some(function)
        });
        rows.map(|row| row.size_bytes).sum::<Bytes>().0
    };
    for (name, stacks, weights, cache) in [
        ("plain", 3, 654_311_424, 734_006_784),
        ("expandable", 3, 654_311_424, 734_006_784),
        ("bare", 0, 0, 0),
        ("native", 1, 0, 419_432_448),
        ("graph", 6, 654_311_424, 734_006_784),
    ] {
        let snapshot = dump(name);
        assert_eq!(snapshot.stacks.len(), stacks, "{name}");
        assert_eq!(bytes(&snapshot, "load_weights"), weights, "{name}");
        assert_eq!(bytes(&snapshot, "allocate_kv_cache"), cache, "{name}");
    }
    let native = dump("native");
    let frame = &native.stacks[0][0];
    assert_eq!(frame.function.as_deref(), Some("torch::unwind::unwind()"));
    assert_eq!((frame.file.as_deref(), frame.line), (None, None));
    assert_eq!(frame.kind(), FrameKind::Native);
}

#[test]
fn blocks_of_one_state_and_stack_are_one_row_and_all_rows_are_what_is_reserved() {
    let snapshot = two_segments();
    assert_eq!(snapshot.reserved(), Bytes(66 * MIB));
    let rows: Vec<_> = snapshot.rows("a.pickle", AT, Some(Upid(5)), 10).collect();
    let seen = rows.iter().map(|row| {
        let mib = |bytes: Bytes| bytes.0 / MIB;
        (
            row.state.unwrap(),
            (mib(row.size_bytes), row.block_count, row.stack_id),
            (mib(row.requested_bytes), mib(row.largest_block_bytes)),
        )
    });
    assert_eq!(
        seen.collect::<Vec<_>>(),
        [
            (TorchBlockState::Allocated, (50, 2, 10), (49, 30)),
            (TorchBlockState::AwaitingFree, (1, 1, 11), (1, 1)),
            (TorchBlockState::Inactive, (13, 2, 0), (0, 9)),
            (TorchBlockState::Allocated, (2, 1, 0), (0, 2)),
        ]
    );
    let last = &rows[3];
    assert_eq!((last.cuda_device, last.pool.as_deref()), (1, Some("0.3")));
    assert_eq!(last.segment_address, 1 << 41);
    assert!(last.is_expandable && !rows[0].is_expandable);
    assert_eq!(rows[0].pool, None);
    assert_eq!(
        (rows[0].upid, rows[0].boot_ns),
        (Some(Upid(5)), BootNs(900))
    );
}

#[test]
fn each_stack_is_there_once_innermost_frame_first() {
    let stacks: Vec<_> = two_segments().stack_rows(AT, 10).collect();
    let seen = stacks.iter().map(|row| {
        let function = row.function.as_deref().unwrap();
        (row.stack_id, row.depth, function)
    });
    let expected = [
        (10, 0, "load"),
        (10, 1, "main"),
        (11, 0, "copy"),
        (11, 1, "main"),
    ];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    assert_eq!(stacks[0].kind, Some(FrameKind::Python));
    assert_eq!(
        (stacks[0].file.as_deref(), stacks[0].line),
        (Some("/w/train.py"), Some(7))
    );
}

#[test]
fn what_can_not_be_true_is_refused() {
    let one = |blocks| snapshot(vec![segment(1, 2, 0, blocks)]);
    let said = |snapshot: &Plain| read(snapshot).unwrap_err().to_string();
    let uneven = one(vec![block("inactive", 1, 0, &[])]);
    assert!(said(&uneven).contains("don't add up"), "{}", said(&uneven));
    let unknown = one(vec![block("gone", 2, 0, &[])]);
    assert!(said(&unknown).contains("state of a block of segment 0"));
    let negative = one(vec![block("inactive", -2, 0, &[])]);
    assert!(said(&negative).contains("size of segment 0"));
    let no_blocks = snapshot(vec![dict(&[("device", Plain::Int(0))])]);
    assert!(said(&no_blocks).contains("address of segment 0"));
    for other in [Plain::None, dict(&[("state_dict", Plain::None)])] {
        assert!(matches!(read(&other), Err(SnapshotError::NotSnapshot)));
    }
}

#[test]
fn more_blocks_than_any_process_has_are_refused() {
    // One list of blocks, which each of many segments names.
    let mut bytes = b"\x80\x02}(X\x08\x00\x00\x00segments](".to_vec();
    let one = segment(1, 2_000, 0, vec![block("inactive", 1, 0, &[]); 2_000]);
    let body = &pickled(&one, 2)[2..];
    bytes.extend(&body[..body.len() - 1]);
    bytes.extend(b"q\x00");
    bytes.extend(b"h\x00".repeat(600));
    bytes.extend(b"eu.");
    assert!(matches!(
        Snapshot::read(&bytes[..]),
        Err(SnapshotError::TooMany)
    ));
}

proptest! {
    #[test]
    fn a_damaged_snapshot_never_panics(place in 0..2_000_usize, byte in any::<u8>()) {
        let blocks = vec![block("active_allocated", 1, 1, &["f"]), block("inactive", 1, 0, &[])];
        let mut bytes = pickled(&snapshot(vec![segment(1, 2, 0, blocks)]), 4);
        let place = place % bytes.len();
        bytes[place] = byte;
        if let Ok(snapshot) = Snapshot::read(&bytes[..]) {
            let rows: Bytes = snapshot.rows("a", AT, None, 1).map(|row| row.size_bytes).sum();
            prop_assert_eq!(rows, snapshot.reserved());
        }
    }
}

fn call(upid: i64, name: &str, address: i64, mib: i64) -> CudaCallRow {
    CudaCallRow {
        upid: Upid(upid),
        call: name.to_owned(),
        address: Some(address),
        size_bytes: Some(Bytes(mib * MIB)),
        boot_ns: BootNs(100),
        ..CudaCallRow::default()
    }
}

fn owner(calls: &[CudaCallRow]) -> Option<Upid> {
    let mut owners = Owners::of(&two_segments(), AT.1);
    calls.iter().for_each(|row| owners.call(row));
    owners.owner()
}

#[test]
fn the_process_whose_calls_made_most_of_the_segments_owns_them() {
    let [first, second] = [1_i64 << 40, 1 << 41];
    let whole = call(5, "cuMemAlloc", first, 64);
    assert_eq!(
        owner(&[whole.clone(), call(6, "cuMemAlloc", second, 2)]),
        Some(Upid(5))
    );
    // Mapped by pieces, and the same piece again.
    let piece = |place: i64| call(7, "cuMemMap", first + place * 20 * MIB, 20);
    assert_eq!(owner(&[piece(0), piece(1)]), Some(Upid(7)));
    assert_eq!(owner(&[piece(0), piece(0)]), None);
    // Two with the same addresses, as ranks of one program can have.
    assert_eq!(
        owner(&[whole.clone(), call(6, "cuMemAlloc", first, 64)]),
        None
    );
    let later = CudaCallRow {
        boot_ns: BootNs(901),
        ..whole.clone()
    };
    let failed = CudaCallRow {
        result: 2,
        ..whole.clone()
    };
    let freed = call(5, "cuMemFree", first, 64);
    for other in [later, failed, freed, call(5, "cuMemAlloc", first - MIB, 64)] {
        assert_eq!(owner(&[other]), None);
    }
    assert_eq!(owner(&[]), None);
}
