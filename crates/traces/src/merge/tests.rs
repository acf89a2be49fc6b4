//! Traces beside a recording of an hour after boot, of process 4711.

use super::*;
use crate::tests::of_any_times;
use memtrace_golden::{Decoded, DecodedEvent};
use memtrace_model::{Clock, ClockReading, Clocks};
use proptest::prelude::*;

const NOT_RECORDED: &str = "its process is not recorded";
const BASE: i64 = 1_763_888_000_000_000_000;
/// What the wall clock is ahead of the boot clock.
const OFFSET: i64 = BASE - 3_600_000_000_000;
/// Of the recording.
const SPAN: (BootNs, BootNs) = (BootNs(3_600_000_000_000), BootNs(3_700_000_000_000));

/// An operator that calls another, and one that overlaps it in part; a step around them; a kernel on
/// stream 7 of device 0; and what is no slice. µs after `from`.
fn trace(from: i64, pid: i64) -> String {
    let spans = [
        ("cpu_op", "aten::mm", pid, 12, 20, 30, "{}"),
        ("cpu_op", "aten::linear", pid, 12, 10, 50, "{}"),
        ("cpu_op", "aten::other", pid, 12, 40, 40, "{}"),
        ("user_annotation", "ProfilerStep#3", pid, 12, 0, 90, "{}"),
        (
            "kernel",
            "gemm",
            0,
            7,
            35,
            20,
            r#"{"device": 0, "stream": 7}"#,
        ),
        ("cuda_runtime", "cudaLaunchKernel", pid, 12, 30, 5, "{}"),
    ];
    let spans = spans.map(|(category, name, pid, tid, begin, took, args)| {
        let ts = from + begin;
        format!(
            r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},
                "ts": {ts}.5, "dur": {took}, "args": {args}}}"#
        )
    });
    let spans = spans.join(",\n");
    format!(r#"{{"baseTimeNanoseconds": {BASE}, "traceEvents": [{spans}]}}"#)
}

/// The clocks at so many seconds of the recording, the wall clock by so many ahead of where it was.
fn reading(seconds: i64, ahead: i64) -> ClockReading {
    let boot_ns = BootNs(SPAN.0.0 + seconds * 1_000_000_000);
    ClockReading {
        boot_ns,
        monotonic_ns: boot_ns.0,
        wall_ns: WallNs(boot_ns.0 + OFFSET + ahead * 1_000_000_000),
    }
}

/// What became of traces, and all that was written.
fn merged(traces: &[&str]) -> (Vec<Merged>, Decoded) {
    merged_by(&[reading(0, 0)], traces)
}

fn merged_by(readings: &[ClockReading], traces: &[&str]) -> (Vec<Merged>, Decoded) {
    let dir = tempfile::tempdir().unwrap();
    let mut out = Vec::new();
    let mut writer = Trace::new(&mut out);
    let track = writer.process(Tgid(4_711), "python3", None, SPAN.0);
    let clocks = Clocks::of(readings.to_vec());
    let find = |wall: WallNs| clocks.find(Clock::Wall, wall.0);
    let process = |pid: i64, _: BootNs| match pid {
        4_711 => Ok((Tgid(4_711), track)),
        _ => Err(NOT_RECORDED),
    };
    let mut merger = Merger::new(Place {
        span: SPAN,
        find: &find,
        process: &process,
    });
    let each = traces.iter().enumerate().map(|(number, trace)| {
        let path = dir.path().join(format!("rank{number}.json"));
        std::fs::write(&path, trace).unwrap();
        merger.merge(&mut writer, &path).unwrap()
    });
    let each = each.collect();
    writer.finish().unwrap();
    (each, Decoded::of(&out))
}

/// The slices of a track as name and µs: begin and end in the order of the file.
fn on(decoded: &Decoded, track: u64) -> Vec<(String, f64)> {
    let events = decoded.on(track).into_iter().map(|(at, what)| {
        let name = match what {
            DecodedEvent::Begin(name) => name.clone(),
            DecodedEvent::End => "end".to_owned(),
            other => panic!("{other:?}"),
        };
        (name, (at - SPAN.0.0) as f64 / 1e3)
    });
    events.collect()
}

fn expected(events: &[(&str, f64)]) -> Vec<(String, f64)> {
    let events = events.iter();
    events.map(|(name, at)| ((*name).to_owned(), *at)).collect()
}

#[test]
fn slices_stand_on_the_clock_of_the_recording_under_the_process_that_wrote_them() {
    let (each, decoded) = merged(&[&trace(1_000_000, 4_711)]);
    let whole = Merged {
        slice_count: 5,
        ..Merged::default()
    };
    assert_eq!(each, [whole]);
    let [(thread, None), (beside, Some("python3"))] = decoded.named("thread 12")[..] else {
        panic!("{:?}", decoded.tracks);
    };
    let of_thread = [
        ("ProfilerStep#3", 1_000_000.5),
        ("aten::linear", 1_000_010.5),
        ("aten::mm", 1_000_020.5),
        ("end", 1_000_050.5),
        ("end", 1_000_060.5),
        ("end", 1_000_090.5),
    ];
    assert_eq!(on(&decoded, thread), expected(&of_thread));
    let overlapping = [("aten::other", 1_000_040.5), ("end", 1_000_080.5)];
    assert_eq!(on(&decoded, beside), expected(&overlapping));
    let [(stream, Some("python3"))] = decoded.named("device 0 stream 7")[..] else {
        panic!("{:?}", decoded.tracks);
    };
    let kernel = [("gemm", 1_000_035.5), ("end", 1_000_055.5)];
    assert_eq!(on(&decoded, stream), expected(&kernel));
}

#[test]
fn two_windows_of_one_thread_share_its_track() {
    let (each, decoded) = merged(&[&trace(1_000_000, 4_711), &trace(9_000_000, 4_711)]);
    assert!(each.iter().all(|merged| merged.slice_count == 5));
    let threads = decoded.named("thread 12").into_iter();
    let own: Vec<_> = threads.filter(|(_, parent)| parent.is_none()).collect();
    let [(thread, _)] = own[..] else {
        panic!("{own:?}");
    };
    assert_eq!(on(&decoded, thread).len(), 12);
}

#[test]
fn a_trace_of_another_process_has_tracks_of_its_own_and_one_of_another_time_none() {
    let hour = 3_600_000_000;
    let absolute = trace(1_000_000, 4_711).replace("baseTimeNanoseconds", "other");
    let traces = [
        &*trace(1_000_000, 9),
        &*trace(hour, 4_711),
        &*absolute,
        r#"{"traceEvents": []}"#,
        "{}",
    ];
    let (each, decoded) = merged(&traces);
    let apart = Some(NOT_RECORDED);
    assert_eq!((each[0].apart, each[0].slice_count), (apart, 5));
    let [(_, parent), _] = decoded.named("thread 12")[..] else {
        panic!("{:?}", decoded.tracks);
    };
    assert_eq!(parent, Some("rank0.json"));
    let refused: Vec<&str> = each[1..].iter().filter_map(|one| one.refused).collect();
    let words = [
        "it is from another time",
        "it does not say what its times count from",
        "it has no operator, range or kernel",
        "it is not a trace of a profiler",
    ];
    assert_eq!(refused, words);
    assert_eq!(decoded.events.len(), 10);
}

#[test]
fn of_a_trace_that_was_cut_off_what_was_read_is_there() {
    let whole = trace(1_000_000, 4_711);
    let (each, decoded) = merged(&[&whole[..whole.find("\"gemm\"").unwrap()]]);
    assert_eq!(each[0].slice_count, 4);
    assert_eq!(each[0].problem.as_deref(), Some("it is cut off"));
    assert_eq!(decoded.events.len(), 8);
}

#[test]
fn where_the_wall_clock_was_set_back_a_trace_is_certain_or_left_out() {
    // Back by 30 s, 50 s after the begin.
    let readings = [
        reading(0, 0),
        reading(49, 0),
        reading(50, -30),
        reading(100, -30),
    ];
    let second = 1_000_000;
    let before = trace(10 * second, 4_711);
    let twice = trace(30 * second, 4_711);
    let across = trace(20 * second, 4_711).replace("\"dur\": 90", "\"dur\": 45e6");
    let after = trace(60 * second, 4_711);
    assert_ne!(across, trace(20 * second, 4_711));
    let (each, decoded) = merged_by(&readings, &[&before, &twice, &across, &after]);
    let uncertain = Some("the wall clock was set, so that it is uncertain when that was");
    let refused: Vec<_> = each.iter().map(|one| one.refused).collect();
    assert_eq!(refused, [None, uncertain, uncertain, None]);
    let steps = decoded.events.iter().filter_map(|(_, at, what)| {
        let is_step = *what == DecodedEvent::Begin("ProfilerStep#3".to_owned());
        is_step.then_some((at - SPAN.0.0) / 1_000_000_000)
    });
    let steps: Vec<i64> = steps.collect();
    assert_eq!(steps, [10, 90]);
}

proptest! {
    #[test]
    fn times_of_any_size_take_nothing_down(text in of_any_times()) {
        merged_by(&[reading(0, 0), reading(50, -30)], &[&text]);
    }
}
