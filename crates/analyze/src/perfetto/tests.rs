//! What stands in a trace. Perfetto's own classes read the same recordings in `python/tests`.

use super::perfetto;
use crate::golden::{RUNS, Reported, Script, boot, card, gib, mem_row, on_card, upid};
use memtrace_golden::{Decoded, DecodedEvent};
use memtrace_model::tables::MarkKind::{Begin, End, Instant};
use memtrace_model::tables::{GpuProcessRow, RequestOutcome, RequestRow};
use memtrace_model::{Bytes, Kind, Label, Tgid};
use std::collections::BTreeMap;

fn traced(script: Script) -> Decoded {
    let (info, rows, _) = script.recorded();
    let mut trace = Vec::new();
    let written = perfetto(&info, &rows, None, &mut trace, |_, _| ()).unwrap();
    written.unwrap();
    Decoded::of(&trace)
}

/// A command of one process that lives for 100 s.
fn alone() -> Script {
    let mut run = Script::command(&["python3", "train.py"], 100.0);
    run.process(10, None, 0.0, "/usr/bin/python3 train.py --api-key hunter2");
    run.mem(10, 1.0, [100.0, 10.0, 0.0]);
    run.exit(10, 90.0, 0);
    run
}

/// The values of a counter as seconds and MiB.
fn values(decoded: &Decoded, track: u64) -> Vec<(f64, f64)> {
    let values = decoded.on(track).into_iter().map(|(at, what)| {
        let DecodedEvent::Value(bytes) = what else {
            panic!("{what:?}");
        };
        let seconds = (at - boot(0.0).0) as f64 / 1e9;
        (seconds, *bytes as f64 / (1 << 20) as f64)
    });
    values.collect()
}

#[test]
fn slices_of_every_run_nest_and_end_once() {
    for (name, script, _) in RUNS {
        let decoded = traced(script());
        assert!(decoded.clock_count >= 1, "{name}");
        let mut open: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
        for (track, at, what) in &decoded.events {
            let open = open.entry(*track).or_default();
            match what {
                DecodedEvent::Begin(_) => {
                    assert!(open.last().is_none_or(|begin| begin <= at), "{name}");
                    open.push(*at);
                }
                DecodedEvent::End => {
                    let begin = open.pop().expect("it was begun");
                    assert!(begin <= *at, "{name}");
                }
                DecodedEvent::Instant(_) | DecodedEvent::Value(_) => {}
            }
        }
    }
}

#[test]
fn the_highest_of_each_role_is_the_reports() {
    for (name, script, at) in RUNS {
        let report = script().analyzed(*at);
        let decoded = traced(script());
        let mut shown = 0;
        for role in &report.roles {
            for &kind in Kind::ALL {
                let counter = format!("sum of {}", kind.as_str());
                let tracks = decoded.named(&counter).into_iter();
                let mut own = tracks.filter(|(_, parent)| *parent == Some(&role.name));
                let highest = own.next().map(|(track, _)| {
                    let values = decoded.on(track).into_iter().map(|(_, what)| match what {
                        DecodedEvent::Value(bytes) => Bytes(*bytes),
                        other => panic!("{other:?}"),
                    });
                    values.max().expect("a value")
                });
                let peak = role.kinds[kind].peak.map(|(bytes, _)| bytes);
                let peak = peak.filter(|peak| *peak != Bytes(0));
                match kind == Kind::Rss && role.process_count == 1 {
                    // Of one process the report has the kernel's own figure.
                    true => assert!(highest <= peak, "{name}: {}", role.name),
                    false => assert_eq!(highest, peak, "{name}: {} {counter}", role.name),
                }
                shown += usize::from(highest.is_some());
            }
        }
        assert_eq!(shown > 0, report.peak.is_some(), "{name}");
    }
}

#[test]
fn what_is_unknown_has_no_value_and_what_ended_holds_nothing() {
    let mut run = alone();
    run.put(mem_row(upid(Tgid(10)).0, boot(50.0).0, None));
    run.mem(10, 60.0, [200.0, 10.0, 0.0]);
    let decoded = traced(run);
    let rss: Vec<u64> = decoded
        .named("rss")
        .into_iter()
        .map(|(uuid, _)| uuid)
        .collect();
    let [rss] = rss[..] else { panic!("{rss:?}") };
    assert_eq!(
        values(&decoded, rss),
        [(1.0, 110.0), (60.0, 210.0), (90.0, 0.0)]
    );
    assert_eq!(decoded.named("shmem"), [], "it was never more than nothing");
    assert_eq!(decoded.named("swap"), []);
}

#[test]
fn no_secret_of_a_command_line_is_in_it() {
    let mut run = alone();
    let cmdline = "/usr/bin/python3 worker.py --hf-token hunter2";
    run.process(11, Some(10), 2.0, cmdline);
    run.mem(11, 3.0, [100.0, 10.0, 0.0]);
    run.put(card(0, 3.0, 8.0));
    run.put(on_card(0, 11, 4.0, Some(gib(2.0))));
    run.oom(11, 10, 50.0, "/job", gib(4.0));
    let (info, rows, _) = run.recorded();
    let mut trace = Vec::new();
    perfetto(&info, &rows, None, &mut trace, |_, _| ())
        .unwrap()
        .unwrap();
    let text = String::from_utf8_lossy(&trace);
    let holder = "worker.py --hf-token *** (11)";
    let victim = "OOM kill of python3 worker.py --hf-token ***";
    for part in ["--api-key ***", holder, victim] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn phases_that_overlap_in_part_have_tracks_of_their_own() {
    let mut run = alone();
    run.mark(Some(10), 10.0, Begin, "outer");
    run.mark(Some(10), 11.0, Begin, "inner");
    run.mark(Some(10), 12.0, End, "inner");
    run.mark(Some(10), 15.0, Begin, "across");
    run.mark(Some(10), 20.0, End, "outer");
    run.mark(Some(10), 25.0, End, "across");
    run.mark(Some(10), 25.0, Begin, "after");
    run.mark(Some(10), 26.0, Instant, "moment");
    run.mark(Some(10), 30.0, End, "after");
    let decoded = traced(run);
    let begun = |track: u64| {
        let begun = decoded.on(track).into_iter();
        let begun = begun.filter_map(|(_, what)| match what {
            DecodedEvent::Begin(name) => Some(name.clone()),
            _ => None,
        });
        begun.collect::<Vec<String>>()
    };
    let tracks = decoded.named("phases");
    let names: Vec<Vec<String>> = tracks.iter().map(|(uuid, _)| begun(*uuid)).collect();
    let names: Vec<Vec<&str>> = names
        .iter()
        .map(|names| names.iter().map(String::as_str).collect())
        .collect();
    assert_eq!(names, [vec!["outer", "inner", "after"], vec!["across"]]);
    let [(marks, _)] = decoded.named("marks")[..] else {
        panic!("one track");
    };
    assert_eq!(decoded.on(marks).len(), 1);
}

#[test]
fn a_phase_that_nobody_ended_is_ended_by_its_process_or_by_nothing() {
    let mut run = alone();
    run.mark(Some(10), 10.0, Begin, "until the exit");
    run.mark(None, 10.0, Begin, "until the recording ends");
    let decoded = traced(run);
    let ends: Vec<usize> = decoded
        .named("phases")
        .into_iter()
        .map(|(uuid, _)| decoded.on(uuid).len())
        .collect();
    assert_eq!(ends.iter().sum::<usize>(), 3, "two begins and one end");
}

#[test]
fn as_many_requests_as_are_under_way_at_once_have_tracks() {
    let mut run = alone();
    let spans = [
        (1.0, 2.0),
        (1.5, 3.0),
        (2.5, 4.0),
        (3.0, 5.0),
        (0.5, 6.0),
        (6.0, 7.0),
    ];
    for (number, (begin, end)) in spans.into_iter().enumerate() {
        run.put(RequestRow {
            boot_ns: boot(end),
            start_boot_ns: boot(begin),
            first_token_boot_ns: Some(boot(begin + 0.25)),
            condition: "c3".to_owned(),
            request: number as i64,
            outcome: Some(RequestOutcome::Ok),
            ..RequestRow::default()
        });
    }
    let decoded = traced(run);
    let tracks = decoded.named("under way");
    assert_eq!(tracks.len(), 3, "{tracks:?}");
    assert!(tracks.iter().all(|(_, parent)| *parent == Some("requests")));
    let count: usize = tracks.iter().map(|(uuid, _)| decoded.on(*uuid).len()).sum();
    assert_eq!(
        count,
        spans.len() * 4,
        "each and its first token, begin and end"
    );
}

#[test]
fn memory_of_gpus_is_that_of_devices_and_of_who_is_on_them() {
    let (_, script, _) = RUNS
        .iter()
        .find(|(name, ..)| *name == "gpus")
        .expect("a run");
    let report = script().analyzed(None);
    let decoded = traced(script());
    let gpus = report.gpus.as_ref().expect("GPUs");
    for device in &gpus.devices {
        let label = format!("GPU {}", device.index.expect("a number"));
        let tracks = decoded.named("in use").into_iter();
        let mut own =
            tracks.filter(|(_, parent)| parent.is_some_and(|name| name.starts_with(&label)));
        let (track, _) = own.next().expect("a track");
        let highest = values(&decoded, track).into_iter().map(|(_, mib)| mib);
        let peak = device.peak.as_ref().and_then(|peak| peak.used_bytes);
        assert_eq!(
            highest.fold(0.0, f64::max),
            peak.expect("a peak").0 as f64 / (1 << 20) as f64
        );
    }
}

#[test]
fn calls_of_the_cuda_driver_stand_under_their_process() {
    let (_, script, _) = RUNS
        .iter()
        .find(|(name, ..)| *name == "gpu_by_calls")
        .expect("a run");
    let decoded = traced(script());
    let vmm = decoded.named("CUDA 0 vmm").into_iter();
    let mut of_worker = vmm.filter(|(_, parent)| *parent == Some("vLLM worker TP1"));
    let (track, _) = of_worker.next().expect("a track");
    let (awake, asleep) = (34.0 * 1_024.0 + 388.0, 3.5 * 1_024.0 + 388.0);
    let expected = [(30.0, awake), (60.7, asleep), (80.5, awake)];
    assert_eq!(values(&decoded, track), expected);
    let [(refused, parent)] = decoded.named("CUDA out of memory")[..] else {
        panic!("one track");
    };
    assert_eq!(parent, Some("python3 train.py"));
    assert_eq!(decoded.on(refused).len(), 2);
}

#[test]
fn a_client_that_processes_share_counts_once_and_goes_on_to_the_next() {
    let mut run = alone();
    run.process(11, Some(10), 2.0, "/usr/bin/python3 worker.py");
    run.put(card(0, 3.0, 8.0));
    let held = |tgid: u32, at: f64, gibs: f64| GpuProcessRow {
        client_id: Some(5),
        ..on_card(0, tgid, at, Some(gib(gibs)))
    };
    for row in [held(11, 4.0, 2.0), held(10, 5.0, 2.0), held(10, 6.0, 0.0)] {
        run.put(row);
    }
    let decoded = traced(run);
    let of = |tgid: u32| {
        let tracks = decoded.tracks.iter();
        let mut own = tracks.filter(|(_, track)| track.name.ends_with(&format!("({tgid})")));
        values(&decoded, *own.next().expect("a track").0)
    };
    assert_eq!(of(10), [(5.0, 2_048.0), (6.0, 0.0)]);
    assert_eq!(of(11), [(4.0, 2_048.0), (5.0, 0.0), (6.0, 2_048.0)]);
}

#[test]
fn a_process_id_on_the_machine_and_in_a_container_at_once_is_nobodys() {
    let mut run = alone();
    run.process(4_711, Some(10), 20.0, "/usr/bin/python3 inside.py");
    run.edit(4_711, |process| process.ns_tgid = Some(Tgid(10)));
    let (info, rows, _) = run.recorded();
    let mut answers = Vec::new();
    let written = perfetto(&info, &rows, None, &mut Vec::new(), |_, recorded| {
        let asked = [
            (10, 10.0),
            (10, 30.0),
            (4_711, 30.0),
            (10, 95.0),
            (99, 30.0),
        ];
        answers = asked
            .map(|(pid, at)| recorded.process(pid, boot(at)).map(|(tgid, _)| tgid.0))
            .to_vec();
    });
    written.unwrap().unwrap();
    let several = Err("several processes had its process id, in containers or outside");
    let unknown = Err("its process is not recorded");
    assert_eq!(answers, [Ok(10), several, Ok(4_711), Ok(4_711), unknown]);
}
