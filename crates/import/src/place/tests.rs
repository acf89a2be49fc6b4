use super::*;
use memtrace_model::ClockReading;
use std::collections::BTreeSet;

const SECOND: i64 = 1_000_000_000;
const WALL: i64 = 1_772_366_504 * SECOND;

/// From 100 s to 160 s of a machine that has slept for 60.
fn clocks() -> Clocks {
    let reading = |boot: i64| ClockReading {
        boot_ns: BootNs(boot * SECOND),
        monotonic_ns: (boot - 60) * SECOND,
        wall_ns: WallNs(WALL + boot * SECOND),
    };
    Clocks::of(vec![reading(100), reading(160)])
}

const SPAN: [BootNs; 2] = [BootNs(100 * SECOND), BootNs(160 * SECOND)];

/// Two requests a run, from these seconds on.
fn file(clock: Clock, begins: &[i64]) -> LoadFile {
    let sent = |begin: i64| Sent {
        start_ns: begin * SECOND,
        first_token_ns: Some((begin + 1) * SECOND),
        end_ns: (begin + 3) * SECOND,
        prompt_tokens: Some(512),
        output_tokens: Some(64),
        ..Sent::default()
    };
    let runs = begins.iter().enumerate().map(|(place, &begin)| Run {
        asked: Asked {
            concurrency: Some(2 << place),
            ..Asked::default()
        },
        requests: vec![sent(begin), sent(begin + 1)],
    });
    LoadFile {
        clock,
        runs: runs.collect(),
        unknown_fields: BTreeSet::new(),
    }
}

fn placed(file: &LoadFile) -> Result<Placed, PlaceError> {
    place(
        ("tool", "a.json"),
        file.clone(),
        &clocks(),
        SPAN,
        &Known::default(),
    )
}

fn requests(placed: &Placed) -> Vec<RequestRow> {
    rows(std::slice::from_ref(placed), &clocks())
        .unwrap()
        .collect()
}

#[test]
fn requests_stand_on_the_clock_of_the_recording_and_conditions_around_them() {
    let placed = placed(&file(Clock::Monotonic, &[50, 60])).unwrap();
    let first = &requests(&placed)[0];
    assert_eq!(first.start_boot_ns, BootNs(110 * SECOND));
    assert_eq!(first.ts, WallNs(WALL + 113 * SECOND));
    assert_eq!(first.condition, "in512-out64-c2");
    let marks: Vec<_> = placed
        .marks
        .iter()
        .map(|mark| mark.boot_ns.0 / SECOND)
        .collect();
    assert_eq!(marks, [110, 114, 120, 124]);
    let text = LoadCondition::of(placed.marks[2].attributes.as_deref().unwrap()).unwrap();
    assert_eq!((text.condition, text.concurrency), (1, Some(4)));
    assert_eq!((text.input_tokens, text.prefix_reuse), (Some(512), None));
    assert_eq!((placed.outside_count, placed.condition_count()), (0, 2));
    assert!(first.time_error_ns.unwrap() < TIME_ERROR_MAX);
}

#[test]
fn what_was_sent_outside_is_left_out_and_a_file_of_it_alone_is_refused_with_both_spans() {
    let some = placed(&file(
        Clock::Wall,
        &[WALL / SECOND + 99, WALL / SECOND + 120],
    ))
    .unwrap();
    assert_eq!((some.outside_count, some.request_count()), (1, 3));
    let none = placed(&file(Clock::Wall, &[WALL / SECOND + 1_000])).unwrap_err();
    assert_eq!(
        none.to_string(),
        "place its requests: they were sent from 2026-03-01 12:18:24 UTC to 2026-03-01 \
         12:18:28 UTC of the wall clock, and the recording is from 2026-03-01 12:03:24 UTC to \
         2026-03-01 12:04:24 UTC; it is from another time, another boot or another machine"
    );
    let none = placed(&file(Clock::Monotonic, &[5_000]))
        .unwrap_err()
        .to_string();
    assert!(
        none.contains("from 5000.0 s to 5004.0 s of CLOCK_MONOTONIC"),
        "{none}"
    );
    assert!(none.contains("from 40.0 s to 100.0 s"), "{none}");
}

#[test]
fn a_clock_that_was_moved_meanwhile_is_no_clock_to_go_by() {
    let mut readings = vec![(100, 40), (130, 70), (160, 99)];
    let clocks = Clocks::of(
        readings
            .drain(..)
            .map(|(boot, monotonic)| ClockReading {
                boot_ns: BootNs(boot * SECOND),
                monotonic_ns: monotonic * SECOND,
                wall_ns: WallNs(WALL + boot * SECOND),
            })
            .collect(),
    );
    let placed = |begin| {
        let file = file(Clock::Monotonic, &[begin]);
        place(("tool", "a"), file, &clocks, SPAN, &Known::default())
    };
    let text = placed(80).unwrap_err().to_string();
    assert!(
        text.contains("the machine slept")
            && text.contains("wrong by 1000 ms; at most 5 ms are accepted"),
        "{text}"
    );
    placed(50).unwrap();
}

/// What a file of that name brings to what is known.
fn brought(name: &str, file: &LoadFile, known: &mut Known) -> Result<Placed, PlaceError> {
    let placed = place(("tool", name), file.clone(), &clocks(), SPAN, known)?;
    placed.note(known);
    Ok(placed)
}

fn load_runs(placed: &Placed) -> Vec<&str> {
    let runs = placed.runs.iter().filter(|run| !run.requests.is_empty());
    runs.map(|run| run.load_run.as_str()).collect()
}

#[test]
fn what_is_there_is_not_new_and_a_run_that_came_to_its_file_is() {
    let mut known = Known::default();
    let first = brought("a.json", &file(Clock::Monotonic, &[50]), &mut known).unwrap();
    assert_eq!(load_runs(&first), ["tool/a"]);
    for name in ["a.json", "copy.json"] {
        let again = brought(name, &file(Clock::Monotonic, &[50]), &mut known).unwrap();
        assert_eq!((again.request_count(), again.marks.len()), (0, 0));
        assert_eq!(again.within_count, 2);
    }
    let grown = brought("a.json", &file(Clock::Monotonic, &[50, 60]), &mut known).unwrap();
    assert_eq!((grown.request_count(), grown.condition_count()), (2, 1));
    assert_eq!(load_runs(&grown), ["tool/a#2"]);
}

#[test]
fn every_run_of_every_file_has_a_name_of_its_own() {
    let mut known = Known::default();
    let mut all = Vec::new();
    for (name, begins) in [
        ("x/a.json", [50, 60]),
        ("y/a.json", [52, 62]),
        ("b.json", [54, 64]),
    ] {
        let placed = brought(name, &file(Clock::Monotonic, &begins), &mut known).unwrap();
        for mark in &placed.marks[..2] {
            let attributes: Value =
                serde_json::from_str(mark.attributes.as_deref().unwrap()).unwrap();
            assert_eq!(attributes["load_run"], placed.runs[0].load_run);
        }
        all.extend(load_runs(&placed).into_iter().map(str::to_owned));
    }
    let expected = ["a", "a#2", "a#3", "a#4", "b", "b#2"].map(|name| format!("tool/{name}"));
    assert_eq!(all, expected);
}

#[test]
fn a_run_that_has_grown_is_refused_also_where_its_condition_is_called_otherwise() {
    let mut known = Known::default();
    let mut grown = file(Clock::Monotonic, &[50]);
    brought("a.json", &grown, &mut known).unwrap();
    let mut late = grown.runs[0].requests[1].clone();
    late.start_ns += SECOND;
    late.end_ns += SECOND;
    late.prompt_tokens = Some(9_000);
    grown.runs[0].requests.splice(..0, [late.clone(), late]);
    let refused = brought("a.json", &grown, &mut known).unwrap_err();
    assert_eq!(
        refused,
        PlaceError::Changed(Changed {
            run: "tool/a".to_owned(),
            there: 2,
            here: 4
        })
    );
}

#[test]
fn an_import_that_was_interrupted_goes_on_where_it_was() {
    let whole = placed(&file(Clock::Monotonic, &[50])).unwrap();
    let mut known = Known::default();
    known.request(&requests(&whole)[0]);
    let rest = brought("a.json", &file(Clock::Monotonic, &[50]), &mut known).unwrap();
    assert_eq!(requests(&rest), requests(&whole)[1..]);
    assert_eq!(rest.marks, whole.marks);
}
