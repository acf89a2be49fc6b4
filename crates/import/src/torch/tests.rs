//! The shape is that of torch 2.11: `THCPModule_memorySnapshot` of `torch/csrc/cuda/Module.cpp` makes
//! the dict, `py_symbolize` the frames, and `torch/cuda/memory.py` pickles it.

use super::*;
use crate::pickle::tests::{Plain, pickled};
use proptest::prelude::*;

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
