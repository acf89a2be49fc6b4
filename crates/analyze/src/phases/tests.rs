//! Phases on hand-made runs.

mod odd;
mod parts;

use crate::golden::{Reported, Script};
use crate::{AnalyzeError, Options, PhaseEnd, PhaseLine, Phases, Stretch, analyze};
use memtrace_model::Bytes;
use memtrace_model::tables::MarkKind::{self, Begin, End, Instant, Peak};
use proptest::prelude::*;

fn phases(script: Script) -> Phases {
    script.analyzed(None).phases.expect("phases")
}

fn mib(bytes: Option<Bytes>) -> Option<f64> {
    bytes.map(|bytes| bytes.0 as f64 / f64::from(1 << 20))
}

fn peak_mib(stretch: &Stretch) -> Option<f64> {
    mib(stretch.peak.map(|(bytes, _)| bytes))
}

#[test]
fn a_phase_knows_what_the_tree_and_its_own_process_gained_and_their_peak() {
    let mut script = Script::command(&["a"], 20.0);
    script.process(1, None, 0.0, "a");
    script.process(2, Some(1), 0.0, "b");
    script.mem(1, 0.5, [100.0, 10.0, 0.0]);
    script.mem(2, 0.5, [50.0, 0.0, 4.0]);
    script.mark(Some(1), 1.0, Begin, "load");
    script.mem(1, 2.0, [700.0, 10.0, 0.0]);
    script.mem(1, 3.0, [300.0, 30.0, 0.0]);
    script.mem(2, 4.0, [50.0, 0.0, 68.0]);
    script.mark(Some(1), 5.0, End, "load");
    script.mem(1, 6.0, [900.0, 30.0, 0.0]);
    let phases = phases(script);
    let [PhaseLine::One(load)] = phases.lines.as_slice() else {
        panic!("one phase, not {phases:?}");
    };
    let own = load.own.expect("its own memory");
    assert_eq!(mib(own.delta.rss()), Some(220.0));
    assert_eq!(mib(own.delta.anon()), Some(200.0));
    assert_eq!(mib(own.delta.file()), Some(20.0));
    assert_eq!(peak_mib(&own), Some(710.0));
    assert_eq!(mib(load.tree.delta.rss()), Some(284.0));
    assert_eq!(mib(load.tree.delta.shmem()), Some(64.0));
    assert_eq!(peak_mib(&load.tree), Some(764.0));
    // Mapped files are not held.
    assert_eq!(mib(load.held.delta_bytes), Some(264.0));
    assert_eq!(mib(load.since_baseline_bytes), Some(264.0));
    assert_eq!(mib(phases.baseline.rss()), Some(164.0));
    assert_eq!(mib(phases.baseline_held_bytes), Some(154.0));
}

#[test]
fn what_came_so_far_is_counted_from_where_memory_is_known() {
    let mut script = Script::command(&["a"], 20.0);
    script.process(1, None, 0.0, "a");
    script.mark(Some(1), 0.2, Begin, "import");
    script.mem(1, 0.5, [100.0, 0.0, 0.0]);
    script.mark(Some(1), 1.0, Begin, "load");
    script.mem(1, 2.0, [700.0, 0.0, 0.0]);
    script.mark(Some(1), 3.0, End, "load");
    script.mark(Some(1), 4.0, End, "import");
    let phases = phases(script);
    assert_eq!(mib(phases.baseline.rss()), Some(100.0));
    for line in &phases.lines {
        let PhaseLine::One(phase) = line else {
            panic!("single phases, not {phases:?}");
        };
        assert_eq!(mib(phase.since_baseline_bytes), Some(600.0));
    }
}

#[test]
fn what_its_process_takes_down_with_it_is_measured_before_that() {
    let mut script = Script::command(&["a"], 20.0);
    script.process(1, None, 0.0, "a");
    script.process(2, Some(1), 0.0, "b");
    script.mem(2, 0.5, [50.0, 0.0, 0.0]);
    script.mark(Some(2), 1.0, Begin, "load");
    script.mem(2, 2.0, [80.0, 0.0, 0.0]);
    script.kill(2, 3.0, 9);
    script.mark(Some(2), 4.0, Instant, "late");
    let phases = phases(script);
    let [PhaseLine::One(load), PhaseLine::One(late)] = phases.lines.as_slice() else {
        panic!("two phases, not {phases:?}");
    };
    assert_eq!(load.ended_by, PhaseEnd::Process);
    assert_eq!(mib(load.own.and_then(|own| own.delta.rss())), Some(30.0));
    assert!(late.is_after_exit);
    assert_eq!(mib(late.own.and_then(|own| own.end.rss())), Some(0.0));
}

#[test]
fn what_a_person_marks_belongs_to_the_whole_recording() {
    let mut script = Script::command(&["a"], 20.0);
    script.process(1, None, 0.0, "a");
    script.mem(1, 0.5, [50.0, 0.0, 0.0]);
    script.mark(None, 1.0, Begin, "load test");
    script.mark(Some(1), 1.5, End, "load test");
    script.mem(1, 2.0, [80.0, 0.0, 0.0]);
    script.mark(None, 3.0, End, "load test");
    script.mark(Some(1), 4.0, Peak, "no phase");
    let phases = phases(script);
    assert_eq!((phases.count, phases.process_count), (2, 1));
    let PhaseLine::One(test) = &phases.lines[0] else {
        panic!("{phases:?}");
    };
    assert_eq!(test.own, None);
    assert_eq!(mib(test.tree.delta.rss()), Some(30.0));
}

#[test]
fn memory_before_the_first_row_of_a_process_is_unknown_and_not_zero() {
    let mut script = Script::command(&["a"], 20.0);
    script.process(1, None, 0.0, "a");
    script.mark(Some(1), 0.5, Begin, "load");
    script.mem(1, 1.0, [50.0, 0.0, 0.0]);
    script.mark(Some(1), 2.0, End, "load");
    let phases = phases(script);
    let PhaseLine::One(load) = &phases.lines[0] else {
        panic!("{phases:?}");
    };
    assert_eq!(load.tree.delta.rss(), None);
    assert_eq!(load.own.and_then(|own| own.begin.rss()), None);
    assert_eq!(mib(load.tree.end.rss()), Some(50.0));
}

#[test]
fn a_leak_per_step_is_a_figure_with_its_confidence() {
    let analysis = super::super::golden::RUNS
        .iter()
        .find(|(name, _, _)| *name == "steps_that_leak")
        .map(|(_, script, _)| script().analyzed(None))
        .expect("the run");
    let phases = analysis.phases.expect("phases");
    let stages: Vec<_> = phases
        .lines
        .iter()
        .filter_map(|line| match line {
            PhaseLine::Many(many) => Some(many),
            PhaseLine::One(_) => None,
        })
        .collect();
    let names: Vec<&str> = stages.iter().map(|stage| stage.name.as_ref()).collect();
    let expected = [
        "step_<N>_before_rollout",
        "rollout",
        "ray::Rollout.generate",
        "step_<N>_after_rollout",
    ];
    assert_eq!(names, expected);
    let after = stages[3].steps.as_ref().expect("steps");
    assert_eq!((after.first, after.last, after.count), (0, 39, 40));
    let slope = after.own.expect("a slope");
    let leak = 12.0 * f64::from(1 << 20);
    assert!(
        (slope.bytes_per_step - leak).abs() <= slope.margin_bytes(),
        "{slope:?}"
    );
    assert!(slope.margin_bytes() < leak / 100.0 * 2.0, "{slope:?}");
    assert!(slope.is_growing());
    let calls = stages[2];
    assert_eq!(calls.steps, None);
    assert_eq!((calls.count, calls.process_count), (40, 1));
    assert_eq!(
        mib(calls.own.and_then(|own| own.delta).map(|delta| delta.sum)),
        Some(0.0)
    );
    assert_eq!(
        mib(calls.own.and_then(|own| own.peak).map(|peak| peak.0)),
        Some(864.0)
    );
}

#[test]
fn many_short_phases_of_one_name_are_one_line() {
    let mut script = Script::command(&["a"], 2_000.0);
    script.process(1, None, 0.0, "a");
    for call in 0..20_000_u32 {
        let at = f64::from(call) * 0.05;
        script.mark(Some(1), at, Begin, "call");
        script.mem(1, at + 0.01, [50.0 + f64::from(call) * 0.25, 0.0, 0.0]);
        script.mark(Some(1), at + 0.02, End, "call");
    }
    let phases = phases(script);
    let [PhaseLine::Many(calls)] = phases.lines.as_slice() else {
        panic!("one line, not {}", phases.lines.len());
    };
    assert_eq!(calls.count, 20_000);
    // The begin of the first lies before the first row.
    let delta = calls.own.and_then(|own| own.delta).expect("deltas");
    assert_eq!(delta.known_count, 19_999);
    assert_eq!(delta.p95, Bytes(1 << 18));
    assert_eq!(mib(Some(delta.sum)), Some(19_999.0 * 0.25));
}

#[test]
fn a_phase_that_is_not_there_is_an_error_that_names_those_that_are() {
    let mut script = Script::command(&["a"], 20.0);
    script.process(1, None, 0.0, "a");
    script.mark(Some(1), 1.0, Begin, "load");
    let (info, rows, _) = script.recorded();
    let options = Options {
        phase: Some("laod".to_owned()),
        ..Options::default()
    };
    let error = match analyze(&info, &rows, options) {
        Err(AnalyzeError::Phase(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        error,
        "the recording has no phase \"laod\"; it has \"load\": --phase NAME shows one"
    );
}

proptest! {
    #[test]
    fn arbitrary_marks_are_reported_without_a_panic(
        marks in prop::collection::vec(
            (prop::option::of(1_u32..4), -5.0..40.0_f64, 0_usize..4, 0_usize..5,
             prop::option::of(0_u32..6)),
            0..60,
        ),
        rows in prop::collection::vec((1_u32..4, 0.0..30.0_f64, 0.0..100.0_f64), 0..30),
        exits in prop::collection::vec(prop::option::of(0.0..30.0_f64), 2),
    ) {
        let kinds: [MarkKind; 4] = [Instant, Begin, End, Peak];
        let names = ["load", "step_1_x", "step_2_x", "step_3_x", "\u{1b}[2J"];
        let mut script = Script::command(&["a"], 30.0);
        // The third has no row of its own.
        for tgid in 1..=2_u32 {
            script.process(tgid, (tgid > 1).then_some(1), 0.0, "a");
            let exit = exits[tgid as usize - 1].map(crate::golden::boot);
            script.edit(tgid, |process| process.exit_boot_ns = exit);
        }
        for &(tgid, at, anon) in rows.iter().filter(|row| row.0 < 3) {
            script.mem(tgid, at, [anon, 0.0, 0.0]);
        }
        for &(tgid, at, kind, name, step) in &marks {
            script.numbered_mark(tgid, at, kinds[kind], names[name], step);
        }
        let analysis = script.analyzed(None);
        let text: usize = analysis.phases.iter().flat_map(|phases| &phases.lines).map(|line| match line {
            PhaseLine::One(_) => 1,
            PhaseLine::Many(many) => many.count,
        }).sum();
        let count = analysis.phases.as_ref().map_or(0, |phases| phases.count);
        prop_assert_eq!(text, count);
    }
}

#[test]
fn what_a_program_measured_of_itself_counts_where_the_rows_are_older() {
    let mut script = Script::command(&["a"], 20.0);
    script.process(1, None, 0.0, "a");
    script.mem(1, 0.5, [100.0, 10.0, 0.0]);
    script.said_mark(Some(1), 1.0, Begin, "free", r#"{"rss_bytes":115343360}"#);
    script.mem(1, 2.0, [500.0, 10.0, 0.0]);
    script.edit(1, |process| process.peak_rss_bytes = Some(Bytes(600 << 20)));
    let end = r#"{"rss_bytes":125829120,"peak_bytes":629145600,"peak_source":"vm_hwm"}"#;
    script.said_mark(Some(1), 3.0, End, "free", end);
    script.said_mark(
        Some(1),
        4.0,
        Instant,
        "memtrace.instrument.missing",
        r#"{"target":"a:b"}"#,
    );
    let phases = phases(script);
    let [PhaseLine::One(free)] = phases.lines.as_slice() else {
        panic!("one phase, not {phases:?}");
    };
    let own = free.own.expect("its own memory");
    assert_eq!(
        mib(own.delta.rss()),
        Some(10.0),
        "it gave 390 MiB back at its end"
    );
    assert_eq!(own.delta.anon(), None, "of which kinds is not known");
    assert_eq!(peak_mib(&own), Some(600.0));
    assert_eq!(mib(free.exact_peak_bytes), Some(600.0));
    assert_eq!(mib(free.tree.delta.rss()), Some(10.0));
    assert_eq!(mib(free.since_baseline_bytes), Some(10.0));
    assert_eq!(free.attributes["peak_source"], "vm_hwm");
    assert_eq!(phases.missing.as_slice(), [std::sync::Arc::from("a:b")]);
}

#[test]
fn what_a_program_measured_counts_by_role_and_by_process_and_in_the_peak_of_the_tree() {
    let mut script = Script::command(&["a"], 20.0);
    script.process(1, None, 0.0, "a");
    script.process(2, Some(1), 0.0, "b");
    script.mem(1, 0.5, [100.0, 10.0, 0.0]);
    // Without a row until long after the begin.
    script.mem(2, 2.5, [30.0, 0.0, 0.0]);
    let mib_text = |mib: i64| (mib << 20).to_string();
    let said = |rss: i64, anon: i64| {
        let (rss, anon) = (mib_text(rss), mib_text(anon));
        format!(
            r#"{{"rss_bytes":{rss},"rss_anon_bytes":{anon},"peak_bytes":800000000,"peak_source":"vm_hwm"}}"#
        )
    };
    script.said_mark(Some(1), 1.0, Begin, "load", &said(111, 101));
    script.mem(1, 2.0, [700.0, 10.0, 0.0]);
    script.edit(1, |process| {
        process.peak_rss_bytes = Some(Bytes(800_000_000))
    });
    script.said_mark(Some(1), 3.0, End, "load", &said(212, 202));
    script.mem(1, 3.1, [202.0, 10.0, 0.0]);
    let options = Options {
        phase: Some("load".to_owned()),
        ..Options::default()
    };
    let (info, rows, _) = script.recorded();
    let focus = analyze(&info, &rows, options)
        .expect("findings")
        .analysis
        .phase;
    let focus = focus.expect("the phase");
    let load = &focus.phases[0];
    assert_eq!(mib(load.own.and_then(|own| own.delta.rss())), Some(101.0));
    assert_eq!(mib(load.own.and_then(|own| own.delta.anon())), Some(101.0));
    assert_eq!(mib(load.own.and_then(|own| own.delta.file())), Some(0.0));
    assert_eq!(mib(load.tree.delta.rss()), Some(131.0));
    assert_eq!(
        load.tree.peak.map(|(bytes, _)| bytes),
        Some(Bytes(800_000_000))
    );
    let changes: Vec<_> = focus
        .holders
        .iter()
        .map(|holder| {
            (
                holder.who.pid.map(|tgid| tgid.0),
                mib(holder.begin.rss()),
                mib(holder.end.rss()),
            )
        })
        .collect();
    assert!(
        changes.contains(&(Some(1), Some(111.0), Some(212.0))),
        "{changes:?}"
    );
    assert!(
        changes.contains(&(Some(2), None, Some(30.0))),
        "{changes:?}"
    );
    let main = focus
        .roles
        .iter()
        .find(|role| mib(role.stretch.begin.rss()) == Some(111.0));
    let main = main.expect("the role of the process that marked it");
    assert_eq!(mib(main.stretch.delta.rss()), Some(101.0));
    assert_eq!(mib(main.stretch.delta.anon()), Some(101.0));
}

#[test]
fn what_a_process_never_held_by_the_kernels_mark_is_no_figure_of_it() {
    let mut script = Script::command(&["a"], 20.0);
    script.process(1, None, 0.0, "a");
    script.mem(1, 0.5, [100.0, 0.0, 0.0]);
    script.edit(1, |process| {
        process.peak_rss_bytes = Some(Bytes(150 << 20));
        process.peak_rss_source = Some(memtrace_model::tables::PeakSource::KernelHiwater);
    });
    script.said_mark(Some(1), 1.0, Begin, "load", r#"{"rss_bytes":900000000}"#);
    let end = r#"{"rss_bytes":125829120,"peak_bytes":4611686018427387904,"peak_source":"vm_hwm"}"#;
    script.said_mark(Some(1), 2.0, End, "load", end);
    let phases = phases(script);
    let PhaseLine::One(load) = &phases.lines[0] else {
        panic!("{phases:?}");
    };
    assert_eq!(mib(load.own.and_then(|own| own.begin.rss())), Some(100.0));
    assert_eq!(mib(load.own.and_then(|own| own.end.rss())), Some(120.0));
    assert_eq!(load.exact_peak_bytes, None);
    assert_eq!(peak_mib(&load.tree), Some(120.0));
}

#[test]
fn a_figure_that_the_next_row_contradicts_at_once_is_marked_as_uncertain() {
    let mut script = Script::command(&["a"], 20.0);
    script.process(1, None, 0.0, "a");
    script.mem(1, 0.5, [100.0, 0.0, 0.0]);
    script.mark(Some(1), 0.6, Begin, "load");
    script.mem(1, 2.0, [700.0, 0.0, 0.0]);
    script.mark(Some(1), 2.01, End, "load");
    // What is freed within a millisecond of a row shows at the next interval.
    script.mem(1, 2.06, [200.0, 0.0, 0.0]);
    script.mark(Some(1), 3.0, Begin, "reported");
    script.mem(1, 4.5, [700.0, 0.0, 0.0]);
    script.said_mark(Some(1), 4.51, End, "reported", r#"{"rss_bytes":209715200}"#);
    script.mem(1, 4.56, [200.0, 0.0, 0.0]);
    // Long before the next row, and by steps that are rows.
    script.mark(Some(1), 5.0, Begin, "slow");
    script.mem(1, 5.03, [203.0, 0.0, 0.0]);
    script.mem(1, 5.2, [260.0, 0.0, 0.0]);
    script.mark(Some(1), 5.5, End, "slow");
    // Of so small a change that can be half of it.
    script.mark(Some(1), 6.0, Begin, "small");
    script.mem(1, 6.03, [263.0, 0.0, 0.0]);
    script.mark(Some(1), 6.5, End, "small");
    script.mem(1, 9.0, [900.0, 0.0, 0.0]);
    let phases = phases(script);
    let text: Vec<_> = phases
        .lines
        .iter()
        .map(|line| match line {
            PhaseLine::One(phase) => {
                let own = phase.own_uncertain;
                assert_eq!(own, phase.tree_uncertain, "{}", phase.name);
                (&*phase.name, own.begin, own.end)
            }
            PhaseLine::Many(many) => panic!("{} is one of many", many.name),
        })
        .collect();
    let expected = [
        ("load", false, true),
        ("reported", false, false),
        ("slow", false, false),
        ("small", true, false),
    ];
    assert_eq!(text, expected);
}
