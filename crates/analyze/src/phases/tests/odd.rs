//! Marks that no careful program makes: each is reported, and what is reported is true.

use super::{mib, phases};
use crate::golden::{Script, boot};
use crate::{Phase, PhaseEnd, PhaseLine, Phases};
use memtrace_model::tables::MarkKind::{Begin, End, Instant};
use memtrace_model::{BootNs, DurationNs, Record};

fn run() -> Script {
    let mut run = Script::command(&["a"], 20.0);
    run.process(1, None, 0.0, "a");
    run.process(2, Some(1), 0.0, "b");
    for second in 0..10_u32 {
        let at = f64::from(second);
        run.mem(1, at, [100.0 + at * 10.0, 0.0, 0.0]);
        run.mem(2, at, [50.0, 0.0, 0.0]);
    }
    run
}

fn all(phases: &Phases) -> Vec<&Phase> {
    let lines = phases.lines.iter().map(|line| match line {
        PhaseLine::One(phase) => phase.as_ref(),
        PhaseLine::Many(many) => panic!("{} is reported as one of many", many.name),
    });
    lines.collect()
}

fn gained(phase: &Phase) -> Option<f64> {
    mib(phase.own.and_then(|own| own.delta.rss()))
}

#[test]
fn an_end_without_a_begin_has_no_length_no_gain_and_the_memory_of_its_end() {
    let mut run = run();
    run.mark(Some(1), 3.5, End, "load");
    let phases = phases(run);
    let load = all(&phases)[0];
    assert_eq!(
        (
            load.begin.map(|begin| begin.boot_ns),
            load.duration_ns,
            gained(load)
        ),
        (None, None, None)
    );
    assert_eq!(mib(load.own.and_then(|own| own.end.rss())), Some(130.0));
}

#[test]
fn a_begin_without_an_end_lasts_as_long_as_its_process_or_the_recording() {
    let mut run = run();
    run.mark(None, 2.5, Begin, "test");
    run.mark(Some(1), 2.5, Begin, "serve");
    run.mark(Some(2), 2.5, Begin, "work");
    run.kill(2, 5.5, 9);
    let phases = phases(run);
    let text: Vec<_> = all(&phases)
        .iter()
        .map(|phase| (&*phase.name, phase.ended_by, phase.end.boot_ns))
        .collect();
    let expected = [
        ("test", PhaseEnd::Recording, boot(20.0)),
        ("serve", PhaseEnd::Recording, boot(20.0)),
        ("work", PhaseEnd::Process, BootNs(boot(5.5).0 - 1)),
    ];
    assert_eq!(text, expected);
    assert_eq!(gained(all(&phases)[1]), Some(70.0));
}

#[test]
fn a_phase_that_is_over_since_nobody_knows_when_is_open_and_has_nothing_that_came_after() {
    let mut run = run();
    run.spanned_mark(Some(1), 2.5, Begin, "load", -7, "{}");
    run.spanned_mark(
        Some(1),
        4.5,
        Instant,
        "load",
        -7,
        r#"{"end_is_unknown":true}"#,
    );
    run.mark(Some(1), 4.6, Instant, "ready");
    let phases = phases(run);
    let text = all(&phases);
    let [load, ready] = text.as_slice() else {
        panic!("the load, and that it is ready: {text:?}");
    };
    assert_eq!((&*load.name, load.ended_by), ("load", PhaseEnd::Recording));
    assert_eq!((load.duration_ns, gained(load)), (None, None));
    assert_eq!(load.held.delta_bytes, None);
    assert_eq!(load.own.and_then(|own| own.delta.rss()), None);
    assert_eq!(load.since_baseline_bytes, None);
    assert_eq!((&*ready.name, ready.depth), ("ready", 0), "no part of it");
}

#[test]
fn one_name_nested_and_in_two_processes_is_reported_of_each_by_itself() {
    let mut run = run();
    run.mark(Some(1), 1.5, Begin, "load");
    run.mark(Some(2), 2.5, Begin, "load");
    run.mark(Some(1), 3.5, Begin, "load");
    run.mark(Some(1), 4.5, End, "load");
    run.mark(Some(2), 5.5, End, "load");
    run.mark(Some(1), 6.5, End, "load");
    let phases = phases(run);
    let text: Vec<_> = all(&phases)
        .iter()
        .map(|phase| (phase.who.pid.map(|tgid| tgid.0), phase.depth, gained(phase)))
        .collect();
    let expected = [
        (Some(1), 0, Some(50.0)),
        (Some(2), 0, Some(0.0)),
        (Some(1), 1, Some(10.0)),
    ];
    assert_eq!(text, expected);
}

#[test]
fn a_phase_of_no_length_gained_nothing_and_has_the_memory_of_its_instant() {
    let mut run = run();
    run.mark(Some(1), 3.0, Begin, "noop");
    run.mark(Some(1), 3.0, End, "noop");
    let phases = phases(run);
    let noop = all(&phases)[0];
    assert_eq!(noop.duration_ns, Some(DurationNs(0)));
    assert_eq!(gained(noop), Some(0.0));
    let own = noop.own.expect("its own memory");
    let peak = own.peak.map(|(bytes, _)| bytes);
    assert_eq!(
        (mib(own.begin.rss()), mib(peak)),
        (Some(130.0), Some(130.0))
    );
    assert!(
        noop.roles
            .iter()
            .all(|role| mib(role.stretch.delta.rss()) == Some(0.0))
    );
}

#[test]
fn marks_that_arrive_out_of_order_are_reported_in_the_order_of_their_times() {
    let mut run = run();
    run.mark(Some(1), 6.5, End, "second");
    run.mark(Some(1), 4.5, Begin, "second");
    run.mark(Some(1), 3.5, End, "first");
    run.mark(Some(1), 1.5, Begin, "first");
    let phases = phases(run);
    let text: Vec<_> = all(&phases)
        .iter()
        .map(|phase| (&*phase.name, gained(phase), phase.ended_by))
        .collect();
    let expected = [
        ("first", Some(20.0), PhaseEnd::Marked),
        ("second", Some(20.0), PhaseEnd::Marked),
    ];
    assert_eq!(text, expected);
}

#[test]
fn what_began_before_the_recording_has_its_time_and_no_memory_of_then() {
    let mut run = run();
    run.mark(Some(1), -30.0, Begin, "up");
    run.mark(Some(1), 2.5, End, "up");
    let phases = phases(run);
    let up = all(&phases)[0];
    assert_eq!(up.duration_ns, Some(DurationNs(32_500_000_000)));
    assert_eq!((up.tree.delta.rss(), gained(up)), (None, None));
    assert_eq!(mib(up.own.and_then(|own| own.end.rss())), Some(120.0));
    assert_eq!(phases.baseline_at.boot_ns, boot(2.5));
}

#[test]
fn times_that_no_clock_has_shown_break_nothing() {
    let mut run = run();
    run.mark(Some(1), 1.0, Begin, "sane");
    run.mark(Some(1), 2.0, End, "sane");
    for at in [i64::MIN, -1, 0, i64::MAX - 1, i64::MAX] {
        for (process, kind) in [(Some(1), Begin), (Some(2), End), (None, Instant)] {
            run.mark(process, 1.0, kind, "forged");
            if let Some(Record::Mark(mark)) = run.rows.0.last_mut() {
                mark.boot_ns = BootNs(at);
            }
        }
    }
    let phases = phases(run);
    assert_eq!(phases.count, 16);
    let sane = phases.lines.iter().find_map(|line| match line {
        PhaseLine::One(phase) if &*phase.name == "sane" => Some(phase.as_ref()),
        _ => None,
    });
    assert_eq!(sane.and_then(gained), Some(10.0));
}

#[test]
fn of_thousands_of_names_each_is_reported_and_those_that_changed_most_by_role() {
    const COUNT: u32 = 3_000;
    let mut run = Script::command(&["a"], 4_000.0);
    run.process(1, None, 0.0, "a");
    run.mem(1, 0.0, [100.0, 0.0, 0.0]);
    let word = |place: u32| -> String {
        let digits = place.to_string().into_bytes().into_iter();
        digits
            .map(|digit| char::from(digit + b'a' - b'0'))
            .collect()
    };
    for place in 0..COUNT {
        let at = 1.0 + f64::from(place);
        run.mark(Some(1), at, Begin, &word(place));
        let grown = if place == 2_777 { 64.0 } else { 0.0 };
        run.mem(
            1,
            at + 0.5,
            [100.0 + f64::from(place) / 64.0 + grown, 0.0, 0.0],
        );
        run.mark(Some(1), at + 0.75, End, &word(place));
    }
    let phases = phases(run);
    assert_eq!((phases.count, phases.lines.len()), (3_000, 3_000));
    let text = all(&phases);
    assert_eq!(
        text.iter().filter(|phase| !phase.roles.is_empty()).count(),
        1_000
    );
    let heaviest = text.iter().find(|phase| *phase.name == *word(2_777));
    assert_eq!(heaviest.map(|phase| phase.roles.len()), Some(1));
}
