//! What marks that name a sleep did, and what they did not.

use super::*;

const GIB: i64 = 1 << 30;
const END: BootNs = BootNs(1_000 * SECOND);
const SECOND: i64 = 1_000_000_000;

fn at(seconds: f64) -> BootNs {
    BootNs((seconds * 1e9) as i64)
}

fn named(name: &str, begin: Option<f64>, end: f64) -> Named {
    Named {
        name: Arc::from(name),
        process: Some(0),
        begin: begin.map(at),
        end: at(end),
    }
}

/// Name, count, and GiB before and after of every audit of a device with these rows.
fn audits(named: &[Named], rows: &[(f64, Option<i64>)]) -> Vec<(String, usize, i64, i64)> {
    audits_beside(named, &Holders::default(), rows)
}

/// The same beside processes that end.
fn audits_beside(
    named: &[Named],
    holders: &Holders,
    rows: &[(f64, Option<i64>)],
) -> Vec<(String, usize, i64, i64)> {
    let mut sleeps = Sleeps::of(named, holders, END);
    for (seconds, used) in rows {
        sleeps.take(0, at(*seconds), used.map(|gib| Bytes(gib * GIB)));
    }
    let audits = sleeps.finish(END).into_iter();
    let text = audits.map(|audit| {
        let (before, after) = (audit.used_before_bytes, audit.used_after_bytes);
        (
            audit.name.to_string(),
            audit.count,
            before.0 / GIB,
            after.0 / GIB,
        )
    });
    text.collect()
}

fn reported(name: &str, count: usize, before: i64, after: i64) -> (String, usize, i64, i64) {
    (name.to_owned(), count, before, after)
}

const NIGHT: [(f64, Option<i64>); 4] = [
    (0.0, Some(2)),
    (10.0, Some(70)),
    (51.0, Some(5)),
    (80.5, Some(70)),
];

#[test]
fn a_phase_and_a_moment_before_or_after_it_tell_the_same_sleep() {
    for mark in [
        named("vllm.sleep", Some(50.0), 52.0),
        named("sleep", None, 50.0),
        named("sleep", None, 52.0),
        named("Release_Memory_Occupation", None, 50.9),
    ] {
        let expected = reported(&mark.name, 1, 70, 5);
        assert_eq!(audits(&[mark], &NIGHT), [expected]);
    }
}

#[test]
fn a_sleep_that_frees_nothing_is_reported_with_what_stayed() {
    let mark = [named("sleep", Some(20.0), 21.0)];
    assert_eq!(audits(&mark, &NIGHT), [reported("sleep", 1, 70, 70)]);
}

#[test]
fn waking_is_reported_the_other_way_round_and_ends_a_sleep() {
    let marks = [named("sleep", None, 50.0), named("wake_up", None, 58.0)];
    let rows = [
        (0.0, Some(70)),
        (51.0, Some(5)),
        (58.5, Some(70)),
        (59.0, Some(0)),
    ];
    let expected = [reported("sleep", 1, 70, 5), reported("wake_up", 1, 5, 70)];
    assert_eq!(audits(&marks, &rows), expected);
    // What it held before it slept is not what it woke from.
    let marks = [named("sleep", None, 9.0), named("wake_up", None, 10.5)];
    let rows = [
        (0.0, Some(1)),
        (8.8, Some(70)),
        (9.1, Some(5)),
        (10.7, Some(70)),
    ];
    let expected = [reported("sleep", 1, 70, 5), reported("wake_up", 1, 5, 70)];
    assert_eq!(audits(&marks, &rows), expected);
}

#[test]
fn what_grows_after_the_next_mark_did_not_come_back() {
    let marks = [
        named("sleep", None, 50.0),
        named("wake_up", None, 58.0),
        named("train_step", Some(60.0), 60.4),
    ];
    let rows = [
        (0.0, Some(70)),
        (51.0, Some(5)),
        (58.5, Some(70)),
        (61.0, Some(79)),
    ];
    let expected = [reported("sleep", 1, 70, 5), reported("wake_up", 1, 5, 70)];
    assert_eq!(audits(&marks, &rows), expected);
    // Marks of others who are on no GPU say nothing of it.
    let mut other = marks.clone();
    other[2].process = Some(7);
    let grown = [reported("sleep", 1, 70, 5), reported("wake_up", 1, 5, 79)];
    assert_eq!(audits(&other, &rows), grown);
    let holders = Holders(HashMap::from([(7, None)]));
    assert_eq!(audits_beside(&other, &holders, &rows), expected);
}

#[test]
fn what_grows_after_a_sleep_that_freed_nothing_did_not_come_back() {
    let marks = [named("sleep", None, 50.0), named("wake_up", None, 53.0)];
    let rows = [(0.0, Some(60)), (55.0, Some(79))];
    let expected = [reported("sleep", 1, 60, 60), reported("wake_up", 1, 60, 60)];
    assert_eq!(audits(&marks, &rows), expected);
}

#[test]
fn what_a_process_leaves_as_it_ends_was_not_freed_by_the_sleep_before() {
    let mark = [named("sleep", None, 50.0)];
    let rows = [(0.0, Some(60)), (54.1, Some(0))];
    assert_eq!(audits(&mark, &rows), [reported("sleep", 1, 60, 0)]);
    let holders = Holders(HashMap::from([(7, Some(at(54.0)))]));
    let expected = [reported("sleep", 1, 60, 60)];
    assert_eq!(audits_beside(&mark, &holders, &rows), expected);
}

#[test]
fn what_every_worker_marks_is_one_sleep_and_of_many_the_least_is_reported() {
    let ranks: Vec<Named> = (0..4)
        .map(|rank| named("sleep", Some(50.0 + f64::from(rank) * 0.01), 52.0))
        .collect();
    assert_eq!(audits(&ranks, &NIGHT), [reported("sleep", 1, 70, 5)]);
    let two = [
        named("sleep", Some(20.0), 21.0),
        named("sleep", Some(50.0), 52.0),
    ];
    assert_eq!(audits(&two, &NIGHT), [reported("sleep", 2, 70, 70)]);
}

#[test]
fn the_sleeps_of_numbered_steps_are_one_and_push_no_other_out() {
    let steps = (0..6).map(|step| named(&format!("step_{step}_sleep"), Some(50.0), 52.0));
    let mut marks: Vec<Named> = steps.collect();
    marks.push(named("engine.sleep", Some(20.0), 21.0));
    let expected = [
        reported("engine.sleep", 1, 70, 70),
        reported("step_0_sleep", 6, 70, 5),
    ];
    assert_eq!(audits(&marks, &NIGHT), expected);
}

#[test]
fn other_marks_unknown_memory_and_a_device_without_its_own_tell_nothing() {
    let others = [
        named("step 7", None, 50.0),
        named("vllm.sleep_freed", None, 52.0),
    ];
    assert_eq!(audits(&others, &NIGHT), []);
    let mark = [named("sleep", Some(50.0), 52.0)];
    let lost = [(10.0, Some(70)), (49.0, None), (80.0, Some(5))];
    assert_eq!(audits(&mark, &lost), []);
    assert_eq!(audits(&mark, &[(10.0, None)]), []);
    assert_eq!(audits(&mark, &[]), []);
}
