//! Which part is the context, which device it is, and what readings and calls of other times do.

use super::{Cuda, CudaParts};
use crate::golden::{Reported, Script, boot, card, cuda_call, cuda_memory, gib, on_card};
use crate::{Analysis, Gpus};
use memtrace_model::tables::{
    CudaCallRow, CudaKind, CudaMemoryRow, GpuDeviceRow, GpuProcessRow, GpuSource,
};
use memtrace_model::{Bytes, DurationNs};
use proptest::prelude::*;

const MIB: i64 = 1 << 20;

fn mib(amount: i64) -> Bytes {
    Bytes(amount * MIB)
}

/// A process that makes a context at 10 s, which is read so much later, in ms.
fn with_context(late: f64) -> Script {
    let mut run = Script::command(&["a"], 60.0);
    run.process(1, None, 0.0, "a");
    run.mem(1, 1.0, [10.0, 1.0, 0.0]);
    run.put(cuda_memory(1, 10.0, 10.0));
    let at = 10.0 + late / 1e3;
    run.put(card(0, at, 0.7));
    run.put(on_card(0, 1, at, Some(mib(520))));
    run
}

/// Then it holds 1 GiB, beside 100 MiB that no call explains.
fn then_holds(run: &mut Script) {
    run.put(CudaMemoryRow {
        direct_bytes: gib(1.0),
        ..cuda_memory(1, 20.0, 10.0)
    });
    run.put(card(0, 20.1, 2.0));
    run.put(on_card(0, 1, 20.1, Some(mib(1024 + 620))));
}

fn gpus(analysis: &Analysis) -> &Gpus {
    analysis.gpus.as_ref().expect("GPUs")
}

fn cuda(analysis: &Analysis) -> &Cuda {
    gpus(analysis).cuda.as_ref().expect("calls")
}

/// What the process holds of the first device at an instant.
fn parts_at(run: Script, at: &str) -> Option<CudaParts> {
    let analysis = run.analyzed(Some(at));
    let at = analysis.at.as_ref().expect("an instant");
    at.gpus.first()?.lines.first()?.cuda
}

fn context_and_own(parts: Option<CudaParts>) -> (Option<i64>, Option<i64>, Option<i64>) {
    let parts = parts.expect("parts");
    let of = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0 / MIB);
    (
        of(parts.context_bytes),
        of(parts.driver_bytes),
        of(parts.remaining_bytes),
    )
}

#[test]
fn the_context_is_what_was_read_as_soon_as_it_was_made() {
    for (late, expected) in [
        (3.0, (Some(520), Some(100), Some(620))),
        (200.0, (Some(520), Some(100), Some(620))),
        (201.0, (None, None, Some(620))),
    ] {
        let mut run = with_context(late);
        then_holds(&mut run);
        let parts = parts_at(run, "+30s");
        assert_eq!(context_and_own(parts), expected, "{late} ms");
    }
}

#[test]
fn a_context_that_was_read_after_gpu_code_was_loaded_is_not_known_alone() {
    // Begun before the reading, and ended behind it.
    let mut run = with_context(50.0);
    run.put(CudaCallRow {
        kind: None,
        duration_ns: DurationNs(30_000_000),
        ..cuda_call(1, 10.07, "cuLibraryLoadData", CudaKind::Direct, mib(0), 0)
    });
    then_holds(&mut run);
    assert_eq!(
        context_and_own(parts_at(run, "+30s")),
        (None, None, Some(620))
    );
    // Of which only the sums know.
    let mut run = with_context(50.0);
    run.put(CudaMemoryRow {
        library_count: 2,
        ..cuda_memory(1, 10.03, 10.0)
    });
    then_holds(&mut run);
    assert_eq!(
        context_and_own(parts_at(run, "+30s")),
        (None, None, Some(620))
    );
    // A call after the reading, and one that was refused.
    let mut run = with_context(50.0);
    run.put(cuda_call(
        1,
        10.01,
        "cuMemAlloc",
        CudaKind::Direct,
        gib(90.0),
        2,
    ));
    run.put(cuda_call(
        1,
        10.06,
        "cuMemAlloc",
        CudaKind::Direct,
        mib(2),
        0,
    ));
    then_holds(&mut run);
    let parts = parts_at(run, "+30s");
    assert_eq!(context_and_own(parts), (Some(520), Some(100), Some(620)));
}

#[test]
fn of_a_process_with_a_second_context_none_is_known_alone() {
    let mut run = with_context(3.0);
    run.put(CudaMemoryRow {
        context_count: 2,
        ..cuda_memory(1, 15.0, 15.0)
    });
    run.put(on_card(0, 1, 15.01, Some(mib(1_040))));
    assert_eq!(
        context_and_own(parts_at(run, "+30s")),
        (None, None, Some(1_040))
    );
}

#[test]
fn without_a_context_nothing_is_one_and_of_unseen_calls_nobody_knows() {
    for (is_whole, expected) in [(true, Some(0)), (false, None)] {
        let mut run = with_context(3.0);
        run.put(CudaMemoryRow {
            context_count: 0,
            direct_bytes: mib(2),
            is_whole,
            ..cuda_memory(1, 15.0, 10.0)
        });
        run.put(on_card(0, 1, 15.1, Some(mib(4))));
        let parts = parts_at(run, "+30s").expect("parts");
        assert_eq!(parts.context_bytes.map(|bytes| bytes.0), expected);
        assert_eq!(parts.remaining_bytes, Some(mib(2)));
    }
}

#[test]
fn calls_after_the_last_reading_do_not_count_to_it() {
    let mut run = with_context(3.0);
    then_holds(&mut run);
    run.put(CudaMemoryRow {
        direct_bytes: gib(3.0),
        ..cuda_memory(1, 20.15, 10.0)
    });
    run.put(card(0, 20.2, 4.0));
    run.put(on_card(0, 1, 20.2, Some(mib(3 * 1024 + 620))));
    let direct = |at| parts_at(run.clone(), at).expect("parts").direct_bytes;
    assert_eq!(direct("+20.17s"), gib(1.0));
    assert_eq!(direct("+20.3s"), gib(3.0));
    // The device was read again, and its memory had not moved.
    run.put(CudaMemoryRow {
        vmm_bytes: gib(3.0),
        ..cuda_memory(1, 25.0, 10.0)
    });
    run.put(card(0, 26.0, 4.0));
    let vmm = |at| parts_at(run.clone(), at).expect("parts").vmm_bytes;
    assert_eq!(vmm("+25.5s"), Bytes(0));
    assert_eq!(vmm("+26.5s"), gib(3.0));
}

#[test]
fn calls_that_add_up_to_more_than_the_driver_reports_leave_less_than_nothing() {
    let mut run = with_context(3.0);
    run.put(CudaMemoryRow {
        direct_bytes: gib(1.0),
        ..cuda_memory(1, 20.0, 10.0)
    });
    run.put(card(0, 20.1, 1.2));
    run.put(on_card(0, 1, 20.1, Some(mib(1_000))));
    let parts = parts_at(run, "+30s");
    assert_eq!(context_and_own(parts), (None, None, Some(-24)));
}

#[test]
fn a_device_is_the_one_the_program_asked_for_or_the_only_one() {
    // It counts GPU 1 as its first.
    let named = |uuid: Option<&str>, numbers: &[i32], on: &[i32]| {
        let mut run = Script::command(&["a"], 60.0);
        run.process(1, None, 0.0, "a");
        run.mem(1, 1.0, [10.0, 1.0, 0.0]);
        for index in on {
            run.put(card(*index, 20.0, 2.0));
            run.put(on_card(*index, 1, 20.0, Some(gib(2.0))));
        }
        for number in numbers {
            run.put(CudaMemoryRow {
                cuda_device: Some(*number),
                device_uuid: uuid.filter(|_| *number == 0).map(str::to_owned),
                direct_bytes: gib(1.0),
                ..cuda_memory(1, 19.0, 10.0)
            });
        }
        let analysis = run.analyzed(Some("+30s"));
        let at = analysis.at.as_ref().expect("an instant");
        let lines = at.gpus.iter().flat_map(|ledger| &ledger.lines);
        let known = lines.map(|line| line.cuda.is_some());
        (known.collect::<Vec<_>>(), cuda(&analysis).unplaced.len())
    };
    assert_eq!(
        named(Some("GPU-1a7b"), &[0], &[0, 1]),
        (vec![false, true], 0)
    );
    assert_eq!(named(None, &[0], &[1]), (vec![true], 0));
    assert_eq!(named(None, &[0], &[0, 1]), (vec![false, false], 1));
    assert_eq!(named(None, &[0, 1], &[1]), (vec![false], 2));
    assert_eq!(named(Some("GPU-7a7b"), &[0], &[1]), (vec![false], 1));
    assert_eq!(named(None, &[0], &[]), (vec![], 1));
}

#[test]
fn on_a_divided_device_it_is_the_instance_that_lists_the_process() {
    let mut run = Script::command(&["a"], 60.0);
    run.process(1, None, 0.0, "a");
    run.mem(1, 1.0, [10.0, 1.0, 0.0]);
    run.put(card(0, 10.0, 2.0));
    run.put(GpuDeviceRow {
        parent_device: Some("GPU-0a7b".to_owned()),
        ..card(1, 10.0, 2.0)
    });
    run.put(on_card(1, 1, 10.0, Some(gib(2.0))));
    run.put(CudaMemoryRow {
        device_uuid: Some("GPU-0a7b".to_owned()),
        direct_bytes: gib(1.0),
        ..cuda_memory(1, 9.0, 8.0)
    });
    // Nothing, on no device that is known.
    run.put(CudaMemoryRow {
        cuda_device: None,
        device_uuid: Some("GPU-7a7b".to_owned()),
        ..cuda_memory(1, 9.0, 8.0)
    });
    let analysis = run.analyzed(Some("+30s"));
    let at = analysis.at.as_ref().expect("an instant");
    let known = at.gpus.iter().map(|ledger| {
        let parts = ledger.lines.first().and_then(|line| line.cuda);
        (&*ledger.device, parts.map(|parts| parts.direct_bytes))
    });
    let expected = [("GPU-0a7b", None), ("GPU-1a7b", Some(gib(1.0)))];
    assert_eq!(known.collect::<Vec<_>>(), expected);
    assert!(cuda(&analysis).unplaced.is_empty());
}

#[test]
fn a_process_that_only_has_a_device_open_is_not_on_it() {
    let mut run = with_context(3.0);
    run.put(GpuProcessRow {
        source: Some(GpuSource::Descriptor),
        ..on_card(1, 1, 12.0, None)
    });
    assert!(parts_at(run, "+30s").is_some());
}

#[test]
fn of_refused_calls_the_last_of_each_function_is_reported_with_what_was_free() {
    let mut run = with_context(3.0);
    run.put(card(0, 30.0, 70.0));
    let refused = |run: &mut Script, at, name: &str, size| {
        run.put(cuda_call(1, at, name, CudaKind::Direct, gib(size), 2));
    };
    refused(&mut run, 30.5, "cuMemAlloc", 20.0);
    refused(&mut run, 31.0, "cuMemAlloc", 12.0);
    refused(&mut run, 30.7, "cuMemCreate", 13.0);
    // Of another reason.
    run.put(cuda_call(
        1,
        40.0,
        "cuMemAlloc",
        CudaKind::Direct,
        gib(1.0),
        1,
    ));
    let analysis = run.analyzed(None);
    let reported = cuda(&analysis).refusals.iter().map(|refusal| {
        let free = refusal.free_bytes.map(|bytes| bytes.0 / MIB);
        (
            refusal.call.as_str(),
            refusal.at.boot_ns,
            refusal.size_bytes,
            free,
            refusal.refused_count,
        )
    });
    // 80 GiB, less 70 in use and 640 MiB that are reserved.
    let free = Some(10 * 1024 - 640);
    assert_eq!(
        reported.collect::<Vec<_>>(),
        [
            ("cuMemCreate", boot(30.7), Some(gib(13.0)), free, 1),
            ("cuMemAlloc", boot(31.0), Some(gib(12.0)), free, 2),
        ]
    );
}

proptest! {
    #[test]
    fn parts_add_up_to_what_the_driver_reports_whatever_calls_say(
        rows in proptest::collection::vec((0..30_u8, [0..40_i32, 0..40, 0..40, 0..3]), 1..30),
        readings in proptest::collection::vec((0..30_u8, 0..160_i32), 1..30),
        at in 1..30_u8,
    ) {
        let mut run = Script::command(&["a"], 60.0);
        run.process(1, None, 0.0, "a");
        run.mem(1, 0.0, [10.0, 1.0, 0.0]);
        for (second, [direct, vmm, pool, contexts]) in &rows {
            let second = f64::from(*second);
            run.put(CudaMemoryRow {
                direct_bytes: gib((*direct).into()),
                vmm_bytes: gib((*vmm).into()),
                pool_bytes: gib((*pool).into()),
                context_count: i64::from(*contexts),
                ..cuda_memory(1, second, second)
            });
        }
        for (second, used) in &readings {
            let second = f64::from(*second);
            run.put(card(0, second, f64::from(*used)));
            run.put(on_card(0, 1, second, Some(gib((*used).into()))));
        }
        let analysis = run.analyzed(Some(&format!("+{at}s")));
        let state = analysis.at.as_ref().expect("an instant");
        for ledger in &state.gpus {
            let mut own = Bytes(0);
            for line in &ledger.lines {
                let Some(parts) = &line.cuda else {
                    own = own + line.bytes.unwrap_or_default();
                    continue;
                };
                let remaining = parts.remaining_bytes.expect("an amount");
                prop_assert_eq!(line.bytes, Some(parts.by_calls() + remaining));
                if let Some((context, driver)) = parts.context_bytes.zip(parts.driver_bytes) {
                    prop_assert_eq!(context + driver, remaining);
                }
                own = own + parts.unexplained().expect("an amount");
            }
            if ledger.lines.iter().any(|line| line.cuda.is_some())
                && let Some((rest, all)) = ledger.unattributed_bytes.zip(ledger.unexplained_bytes) {
                prop_assert_eq!(rest + own, all);
            }
        }
    }
}
