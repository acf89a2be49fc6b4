//! By role, on GPUs, and in the page cache.

use super::mib;
use crate::golden::{RUNS, Reported, Script, boot, upid};
use crate::{
    Analysis, Moment, Options, Phase, PhaseEnd, PhaseFocus, PhaseLine, PhasePart, Phases, analyze,
};
use memtrace_model::tables::MarkKind::{Begin, End, Instant};
use memtrace_model::tables::{
    FirstSeenBy, GpuDeviceRow, GpuSource, GrowthSiteRow, TitleRow, TitleSource,
};
use memtrace_model::{BootNs, Bytes, Record, Tgid, WallNs};

fn golden(phase: Option<&str>) -> Analysis {
    let run = RUNS.iter().find(|(name, ..)| *name == "phases_on_gpus");
    run.expect("the run").1().analyzed_with(None, phase)
}

fn one<'a>(phases: &'a Phases, name: &str) -> &'a Phase {
    let phases = phases.lines.iter().filter_map(|line| match line {
        PhaseLine::One(phase) if &*phase.name == name => Some(phase),
        _ => None,
    });
    phases.into_iter().next().expect("a phase of that name")
}

/// Role, change of RSS and of anonymous memory, and the peak, in MiB.
type Chapter<'a> = (&'a str, Option<f64>, Option<f64>, Option<f64>);

fn roles(phase: &Phase) -> Vec<Chapter<'_>> {
    let roles = phase.roles.iter().map(|role| {
        let stretch = &role.stretch;
        let peak = stretch.peak.map(|(bytes, _)| bytes);
        let (rss, anon) = (stretch.delta.rss(), stretch.delta.anon());
        (&*role.name, mib(rss), mib(anon), mib(peak))
    });
    roles.collect()
}

/// A process of a role, by its own word for it.
fn is(run: &mut Script, tgid: u32, role: &str) {
    run.edit(tgid, |row| row.role = Some(role.to_owned()));
}

fn takes(run: &mut Script, tgid: u32, at: f64, role: &str) {
    is(run, tgid, role);
    run.title(tgid, at, role);
}

#[test]
fn a_phase_is_reported_by_role_with_the_peak_of_each() {
    let analysis = golden(None);
    let phases = analysis.phases.expect("phases");
    let load = one(&phases, "load_model");
    let expected: [Chapter; 3] = [
        ("vLLM worker", Some(880.0), Some(800.0), Some(14_200.0)),
        ("vLLM engine core", Some(300.0), Some(300.0), Some(880.0)),
        ("python3 rl.py", Some(0.0), Some(0.0), Some(1_020.0)),
    ];
    assert_eq!(roles(load), expected);
    let sum: Option<Bytes> = load.roles.iter().map(|role| role.stretch.delta.rss()).sum();
    assert_eq!(sum, load.tree.delta.rss(), "the roles add up to the tree");
}

#[test]
fn who_takes_another_role_within_is_a_loss_of_the_one_and_a_gain_of_the_other() {
    let analysis = golden(None);
    let phases = analysis.phases.expect("phases");
    let by_hand = one(&phases, "by hand");
    let changed = roles(by_hand);
    let changed: Vec<(&str, Option<f64>)> = changed
        .iter()
        .filter(|role| role.1 != Some(0.0))
        .map(|role| (role.0, role.1))
        .collect();
    assert_eq!(
        changed,
        [("scorer", Some(552.0)), ("data loader", Some(-552.0))]
    );
    assert_eq!(by_hand.tree.delta.rss(), Some(Bytes(0)));
}

#[test]
fn a_role_that_is_not_yet_there_held_nothing_and_one_without_rows_is_unknown() {
    let mut run = Script::command(&["a"], 20.0);
    run.process(1, None, 0.0, "a");
    is(&mut run, 1, "engine");
    run.process(2, Some(1), 0.0, "b");
    is(&mut run, 2, "silent");
    run.mem(1, 0.5, [100.0, 0.0, 0.0]);
    run.mark(Some(1), 1.0, Begin, "start");
    run.process(3, Some(1), 2.0, "c");
    is(&mut run, 3, "worker");
    run.mem(3, 2.5, [50.0, 0.0, 0.0]);
    run.mem(2, 3.0, [7.0, 0.0, 0.0]);
    run.mark(Some(1), 4.0, End, "start");
    let analysis = run.analyzed(None);
    let phases = analysis.phases.expect("phases");
    let start = one(&phases, "start");
    let held = |name: &str| {
        let role = start.roles.iter().find(|role| &*role.name == name);
        let stretch = role.expect("the role").stretch;
        (mib(stretch.begin.rss()), mib(stretch.end.rss()))
    };
    assert_eq!(held("worker"), (Some(0.0), Some(50.0)));
    assert_eq!(held("silent"), (None, Some(7.0)));
}

#[test]
fn beyond_the_largest_roles_the_rest_is_reported_together_and_the_sum_stays() {
    let mut run = Script::command(&["a"], 20.0);
    run.process(1, None, 0.0, "a");
    run.mem(1, 0.5, [100.0, 0.0, 0.0]);
    for tgid in 2..42 {
        run.process(tgid, Some(1), 0.1, "b");
        is(
            &mut run,
            tgid,
            &format!("role {}", char::from(b'A' + tgid as u8)),
        );
        run.mem(tgid, 0.6, [f64::from(tgid), 0.0, 0.0]);
    }
    run.mark(Some(1), 1.0, Begin, "grow");
    for tgid in 2..42 {
        run.mem(tgid, 2.0, [f64::from(tgid) * 2.0, 0.0, 0.0]);
    }
    run.mark(Some(1), 3.0, End, "grow");
    let analysis = run.analyzed(None);
    let phases = analysis.phases.expect("phases");
    let grow = one(&phases, "grow");
    assert_eq!(grow.roles.len(), 17);
    let others = grow.roles.iter().find(|role| &*role.name == "others");
    // 2 to 26: the fifteen largest of forty and `a` stand for themselves.
    let expected = f64::from((2..27).sum::<u32>());
    assert_eq!(
        mib(others.and_then(|role| role.stretch.delta.rss())),
        Some(expected)
    );
    let sum: Option<Bytes> = grow.roles.iter().map(|role| role.stretch.delta.rss()).sum();
    assert_eq!(sum, grow.tree.delta.rss());
}

#[test]
fn what_a_program_measured_of_itself_is_its_roles_too() {
    let mut run = Script::command(&["a"], 20.0);
    run.process(1, None, 0.0, "a");
    run.process(2, Some(1), 0.0, "b");
    run.mem(1, 0.5, [100.0, 0.0, 0.0]);
    run.mem(2, 0.5, [10.0, 0.0, 0.0]);
    run.said_mark(Some(1), 1.0, Begin, "free", r#"{"rss_bytes":104857600}"#);
    run.mem(1, 2.0, [500.0, 0.0, 0.0]);
    run.said_mark(Some(1), 3.0, End, "free", r#"{"rss_bytes":125829120}"#);
    let analysis = run.analyzed(None);
    let phases = analysis.phases.expect("phases");
    let free = one(&phases, "free");
    assert_eq!(mib(free.roles[0].stretch.delta.rss()), Some(20.0));
    assert_eq!(free.tree.delta.rss(), free.roles[0].stretch.delta.rss());
}

#[test]
fn a_phase_knows_what_came_into_use_on_each_gpu_and_in_the_page_cache() {
    let analysis = golden(None);
    let phases = analysis.phases.expect("phases");
    let load = one(&phases, "load_model");
    let gib = |bytes: Option<Bytes>| mib(bytes).map(|mib| mib / 1024.0);
    let gpu = load.gpu.expect("GPUs");
    assert_eq!(gib(gpu.delta_bytes), Some(14.0));
    assert_eq!(gib(gpu.peak.map(|(bytes, _)| bytes)), Some(16.25));
    let each: Vec<_> = load
        .devices
        .iter()
        .map(|device| gib(device.level.delta_bytes))
        .collect();
    assert_eq!(each, [Some(7.0), Some(7.0)]);
    let cache = load.page_cache.expect("the page cache");
    assert_eq!(
        (gib(cache.begin_bytes), gib(cache.end_bytes)),
        (Some(19.75), Some(32.75))
    );
}

#[test]
fn steps_tell_which_role_and_which_gpu_keep_something() {
    let analysis = golden(None);
    let phases = analysis.phases.expect("phases");
    let mut stages = phases.lines.iter().filter_map(|line| match line {
        PhaseLine::Many(many) => Some(many),
        PhaseLine::One(_) => None,
    });
    let rollout = stages.next().expect("the stage");
    let per_step = |parts: &[PhasePart]| {
        let parts = parts.iter().map(|part| {
            let slope = part.slope.expect("a slope");
            (slope.bytes_per_step / f64::from(1 << 20)).round() as i64
        });
        parts.collect::<Vec<_>>()
    };
    assert_eq!(&*rollout.roles[0].name, "vLLM worker");
    assert_eq!(per_step(&rollout.roles), [24, 0, 0, 0]);
    assert_eq!(per_step(&rollout.devices), [0, 128]);
    let gpu = rollout
        .steps
        .as_ref()
        .and_then(|steps| steps.gpu)
        .expect("a slope");
    assert!(gpu.is_growing());
}

#[test]
fn who_is_asked_about_is_reported_by_role_on_the_host_and_on_gpus() {
    let focus = golden(Some("load_model")).phase.expect("the phase");
    let gib = |bytes: i64| Some(Bytes(bytes << 30));
    let worker = &focus.roles[0];
    assert_eq!(&*worker.name, "vLLM worker");
    assert_eq!(worker.gpu, Some([gib(1), gib(15)]));
    let nothing = Some([Some(Bytes(0)); 2]);
    assert!(focus.roles[1..].iter().all(|role| role.gpu == nothing));
    assert_eq!(
        focus.holders[0].gpu,
        Some([Some(Bytes(1 << 29)), Some(Bytes(15 << 29))])
    );
    assert_eq!(focus.gpu.and_then(|gpu| gpu.delta_bytes), gib(14));
    assert_eq!(mib(focus.tree.delta.rss()), Some(1_180.0));
}

#[test]
fn a_window_is_reported_as_a_phase_that_lies_there() {
    let whole = golden(None).phases.expect("phases");
    let phase = golden(Some("load_model")).phase.expect("the phase");
    let run = RUNS.iter().find(|(name, ..)| *name == "phases_on_gpus");
    let (info, rows, _) = run.expect("the run").1().recorded();
    let options = Options {
        from: Some(Moment::Offset(phase.begin.offset_ns)),
        to: Some(Moment::Offset(phase.end.offset_ns)),
        ..Options::default()
    };
    let analysis = analyze(&info, &rows, options).expect("findings").analysis;
    let window = analysis.phase.expect("the window");
    assert!(window.is_window && !phase.is_window);
    assert_eq!(window.tree, phase.tree);
    assert_eq!(window.roles, phase.roles);
    assert_eq!(window.holders, phase.holders);
    let around = |focus: &PhaseFocus| {
        let around = (focus.gpu, &focus.devices, focus.page_cache);
        format!("{around:?}")
    };
    assert_eq!(around(&window), around(&phase));
    let phases = analysis.phases.expect("phases");
    assert_eq!(
        (phases.count, phases.lines.len()),
        (whole.count, whole.lines.len())
    );
}

#[test]
fn a_window_to_the_end_has_what_is_held_then() {
    let mut run = Script::command(&["a"], 20.0);
    run.process(1, None, 0.0, "a");
    for (at, mib) in [(0.5, 100.0), (5.0, 130.0), (10.0, 190.0)] {
        run.mem(1, at, [mib, 0.0, 0.0]);
    }
    let held = |end: Option<f64>| {
        let mut run = run.clone();
        if let Some(end) = end {
            run.exit(1, end, 0);
        }
        let (info, rows, _) = run.recorded();
        let options = Options {
            from: Some("+2s".parse().expect("a moment")),
            ..Options::default()
        };
        let analysis = analyze(&info, &rows, options).expect("findings").analysis;
        let held = analysis.phase.expect("the window").held;
        [held.begin_bytes, held.end_bytes, held.delta_bytes].map(mib)
    };
    assert_eq!(held(None), [100.0, 190.0, 90.0].map(Some));
    assert_eq!(held(Some(15.0)), [100.0, 0.0, -100.0].map(Some));
}

#[test]
fn the_last_part_of_a_command_ends_where_it_had_most_in_its_last_second() {
    let mut run = Script::command(&["a"], 30.0);
    run.process(1, None, 0.0, "a");
    run.process(2, Some(1), 0.0, "b");
    run.mem(2, 0.5, [50.0, 0.0, 0.0]);
    for (at, mib) in [(0.5, 100.0), (15.0, 130.0), (19.2, 190.0), (19.6, 20.0)] {
        run.mem(1, at, [mib, 0.0, 0.0]);
    }
    let held = |end: f64, last: &str| {
        let mut run = run.clone();
        run.exit(1, end, 0);
        run.exit(2, end - 0.1, 0);
        let (info, rows, _) = run.recorded();
        let options = Options {
            from: Some(Moment::of_last(last).expect("a length")),
            ..Options::default()
        };
        let analysis = analyze(&info, &rows, options).expect("findings").analysis;
        let window = analysis.phase.expect("the window");
        let held = [window.held.begin_bytes, window.held.end_bytes].map(mib);
        (window.end.boot_ns, held)
    };
    assert_eq!(held(20.0, "8s"), (boot(19.2), [150.0, 240.0].map(Some)));
    assert_eq!(held(20.0, "1m"), (boot(19.2), [150.0, 240.0].map(Some)));
    let before = (boot(19.4), [150.0, 240.0].map(Some));
    assert_eq!(held(20.4, "8s"), before, "it let go within its last second");
    let nothing_moved = (boot(24.0), [240.0, 70.0].map(Some));
    assert_eq!(held(25.0, "4.7s"), nothing_moved);
    // The window is shorter than it could have been without the end.
    assert_eq!(held(20.0, "19.5s").1, [150.0, 240.0].map(Some));
    // What it left ran on for longer: that is no end.
    assert_eq!(held(19.9, "5s"), (boot(30.0), [0.0, 0.0].map(Some)));
}

#[test]
fn a_phase_that_nobody_ended_ends_before_the_command_gives_everything_back() {
    let mut run = Script::command(&["a"], 30.0);
    run.process(1, None, 0.0, "a");
    run.process(2, Some(1), 0.0, "b");
    run.mem(1, 0.5, [10.0, 0.0, 0.0]);
    for (at, mib) in [(0.5, 100.0), (15.0, 130.0), (19.5, 137.0), (19.8, 5.0)] {
        run.mem(2, at, [mib, 0.0, 0.0]);
    }
    for (at, name) in [(10.0, "early"), (19.85, "late"), (20.1, "after")] {
        run.mark(None, at, Begin, name);
    }
    let open = |mut run: Script, end: f64| {
        run.exit(2, end - 0.1, 0);
        run.exit(1, end, 0);
        let phases = run.analyzed(None).phases.expect("phases");
        ["early", "late", "after"].map(|name| {
            let phase = one(&phases, name);
            assert_eq!(phase.ended_by, PhaseEnd::Recording);
            let delta = mib(phase.held.delta_bytes);
            (phase.end.boot_ns, delta, phase.tree_uncertain.end)
        })
    };
    let before = |at: f64| BootNs(boot(at).0 - 1);
    let expected = [
        (before(19.8), Some(37.0), false),
        (before(19.9), Some(0.0), false),
        (boot(30.0), Some(0.0), false),
    ];
    assert_eq!(open(run.clone(), 20.0), expected, "what ran on is no end");
    // What it left ran on for longer: that is no end.
    let [early, ..] = open(run, 19.95);
    assert_eq!(early.1, Some(-110.0));
}

/// A command whose two workers end 8 s and 4 s before it, or earlier, after all of them grew.
fn workers_that_end_early(end: f64) -> Script {
    let mut run = Script::command(&["a"], end + 2.0);
    run.process(1, None, 0.0, "a");
    run.mem(1, 0.5, [10.0, 0.0, 0.0]);
    for tgid in [2, 3] {
        run.process(tgid, Some(1), 1.0, "b");
        run.mem(tgid, 1.5, [100.0, 0.0, 0.0]);
        run.mem(tgid, 8.0, [150.0, 0.0, 0.0]);
    }
    run.exit(2, 10.0, 0);
    run.exit(3, 14.0, 0);
    run.exit(1, end, 0);
    run
}

#[test]
fn what_ends_long_before_its_command_is_no_part_of_an_open_phase() {
    let mut run = workers_that_end_early(18.0);
    for (process, name) in [(None, "all"), (Some(1), "main"), (Some(3), "work")] {
        run.mark(process, 5.0, Begin, name);
    }
    run.mark(Some(1), 6.0, Begin, "closed");
    run.mark(Some(1), 12.0, End, "closed");
    run.mark(Some(2), 7.0, Begin, "until the first end");
    let phases = run.analyzed(None).phases.expect("phases");
    let outcome = |name| {
        let phase = one(&phases, name);
        let delta = mib(phase.held.delta_bytes);
        (phase.end.boot_ns, phase.ended_by, delta)
    };
    let before = BootNs(boot(10.0).0 - 1);
    for name in ["all", "main", "work"] {
        let open = (before, PhaseEnd::Recording, Some(100.0));
        assert_eq!(outcome(name), open, "{name}");
    }
    let closed = (boot(12.0), PhaseEnd::Marked, Some(-50.0));
    assert_eq!(outcome("closed"), closed);
    let of_first = (before, PhaseEnd::Process, Some(100.0));
    assert_eq!(outcome("until the first end"), of_first);
    assert_eq!(
        mib(one(&phases, "main").own.and_then(|own| own.delta.rss())),
        Some(0.0)
    );
}

#[test]
fn what_ends_while_its_command_works_is_part_of_an_open_phase() {
    let delta_by = |end, work: &dyn Fn(&mut Script)| {
        let mut run = workers_that_end_early(end);
        run.mark(None, 5.0, Begin, "all");
        work(&mut run);
        let phases = run.analyzed(None).phases.expect("phases");
        mib(one(&phases, "all").held.delta_bytes)
    };
    let delta = |work: &dyn Fn(&mut Script)| delta_by(18.0, work);
    assert_eq!(delta(&|_| ()), Some(100.0));
    // Nobody knows whether the command worked on for so long.
    assert_eq!(delta_by(20.5, &|_| ()), Some(-50.0));
    assert_eq!(
        delta(&|run| run.mem(1, 11.0, [13.0, 0.0, 0.0])),
        Some(100.0)
    );
    let before_the_second = Some(-50.0);
    assert_eq!(
        delta(&|run| run.process(4, Some(1), 11.0, "c")),
        before_the_second
    );
    assert_eq!(
        delta(&|run| run.mark(Some(1), 11.0, Begin, "b")),
        before_the_second
    );
    assert_eq!(
        delta(&|run| run.mark(Some(1), 11.0, Instant, "step")),
        before_the_second
    );
    let grown = |run: &mut Script| run.mem(1, 11.0, [30.0, 0.0, 0.0]);
    assert_eq!(delta(&grown), Some(-30.0));
}

#[test]
fn a_window_without_a_begin_begins_where_memory_is_first_known() {
    let mut run = Script::command(&["a"], 20.0);
    run.process(1, None, 0.0, "a");
    run.mem(1, 0.5, [100.0, 0.0, 0.0]);
    run.mem(1, 1.5, [130.0, 0.0, 0.0]);
    let (info, rows, _) = run.recorded();
    let options = Options {
        to: Some("+2s".parse().expect("a moment")),
        ..Options::default()
    };
    let analysis = analyze(&info, &rows, options).expect("findings").analysis;
    let window = analysis.phase.expect("the window");
    assert_eq!(window.begin.boot_ns, boot(0.5));
    assert_eq!(mib(window.tree.delta.rss()), Some(30.0));
    assert_eq!(mib(window.holders[0].rss_delta_bytes), Some(30.0));
}

#[test]
fn a_window_without_a_begin_begins_when_all_who_were_there_are_known() {
    let mut run = Script::command(&["a"], 20.0);
    for (tgid, at) in [(1, 0.5), (2, 0.51), (3, 8.0)] {
        run.process(tgid, None, -9.0, &format!("a{tgid}"));
        run.edit(tgid, |row| row.first_seen_by = Some(FirstSeenBy::Snapshot));
        run.mem(tgid, at, [100.0, 0.0, 0.0]);
    }
    run.mem(2, 5.0, [120.0, 0.0, 0.0]);
    let (info, rows, _) = run.clone().recorded();
    let options = Options {
        to: Some("+6s".parse().expect("a moment")),
        ..Options::default()
    };
    let analysis = analyze(&info, &rows, options).expect("findings").analysis;
    let window = analysis.phase.expect("the window");
    assert_eq!(window.begin.boot_ns, boot(0.51));
    assert_eq!(mib(window.held.delta_bytes), Some(20.0));
    let first = run.analyzed(Some("+0s")).at.expect("a state");
    assert_eq!((first.at.boot_ns, first.holder_count), (boot(0.51), 2));
}

fn device(name: &str, at: f64, used: Option<i64>) -> Record {
    GpuDeviceRow {
        ts: WallNs(0),
        boot_ns: boot(at),
        device: name.to_owned(),
        parent_device: name.strip_suffix("/1").map(str::to_owned),
        source: Some(GpuSource::Nvml),
        used_bytes: used.map(Bytes),
        is_unified: Some(name == "unified"),
        ..GpuDeviceRow::default()
    }
    .into()
}

#[test]
fn gpus_are_summed_where_each_is_known_and_none_is_counted_twice() {
    let mut run = Script::command(&["a"], 20.0);
    run.process(1, None, 0.0, "a");
    run.mem(1, 0.5, [100.0, 0.0, 0.0]);
    let rows = [
        ("a", 1.0, Some(10)),
        ("a/1", 1.0, Some(7)),
        ("unified", 1.0, Some(1_000)),
        ("never", 1.0, None),
        ("b", 3.0, Some(5)),
        ("a", 5.0, Some(11)),
        ("b", 9.0, None),
    ];
    for (name, at, used) in rows {
        run.rows.0.push(device(name, at, used));
    }
    for (name, from, to) in [
        ("early", 2.0, 4.0),
        ("known", 4.0, 6.0),
        ("late", 6.0, 10.0),
    ] {
        run.mark(Some(1), from, Begin, name);
        run.mark(Some(1), to, End, name);
    }
    let analysis = run.analyzed(None);
    let phases = analysis.phases.expect("phases");
    let gpu = |name: &str| {
        let level = one(&phases, name).gpu.expect("GPUs");
        [level.begin_bytes, level.end_bytes].map(|bytes| bytes.map(|bytes| bytes.0))
    };
    // The second device can have been in use before it was first read.
    assert_eq!(gpu("early"), [None, Some(15)]);
    assert_eq!(gpu("known"), [Some(15), Some(16)]);
    assert_eq!(gpu("late"), [Some(16), None]);
    let devices: Vec<&str> = one(&phases, "late")
        .devices
        .iter()
        .map(|d| &*d.device)
        .collect();
    assert_eq!(devices, ["a", "a/1", "unified", "never", "b"]);
}

#[test]
fn without_gpus_there_is_no_word_of_them() {
    let mut run = Script::command(&["a"], 20.0);
    run.process(1, None, 0.0, "a");
    run.mem(1, 0.5, [100.0, 0.0, 0.0]);
    run.mark(Some(1), 1.0, Begin, "load");
    run.mark(Some(1), 2.0, End, "load");
    let (info, rows, _) = run.recorded();
    let options = Options {
        phase: Some("load".to_owned()),
        ..Options::default()
    };
    let analysis = analyze(&info, &rows, options).expect("findings").analysis;
    let focus = analysis.phase.expect("the phase");
    assert_eq!(
        (focus.gpu, focus.devices.len(), focus.page_cache),
        (None, 0, None)
    );
    assert!(focus.roles.iter().all(|role| role.gpu.is_none()));
    assert!(!analysis.phases.expect("phases").has_gpu());
}

#[test]
fn a_title_of_a_role_moves_what_is_held_at_its_very_instant() {
    let mut run = Script::command(&["a"], 20.0);
    run.process(1, None, 0.0, "a");
    run.mem(1, 0.5, [100.0, 0.0, 0.0]);
    takes(&mut run, 1, 1.0, "idle");
    takes(&mut run, 1, 5.0, "busy");
    run.mark(Some(1), 5.0, Begin, "work");
    run.mark(Some(1), 6.0, End, "work");
    let exec = TitleRow {
        ts: WallNs(0),
        boot_ns: boot(7.0),
        upid: crate::golden::upid(Tgid(1)),
        comm: "a".to_owned(),
        title: Some("a".into()),
        role: None,
        source: Some(TitleSource::Exec),
    };
    run.rows.0.push(exec.into());
    let analysis = run.analyzed(None);
    let phases = analysis.phases.expect("phases");
    let names: Vec<&str> = one(&phases, "work")
        .roles
        .iter()
        .map(|role| &*role.name)
        .collect();
    assert_eq!(names, ["busy"]);
}

#[test]
fn of_too_many_phases_those_that_are_asked_for_are_reported_by_role() {
    let mut run = Script::command(&["a"], 30_000.0);
    run.process(1, None, 0.0, "a");
    is(&mut run, 1, "trainer");
    run.mem(1, 0.5, [100.0, 0.0, 0.0]);
    for step in 0..11_000_u32 {
        let at = 1.0 + f64::from(step);
        run.mark(Some(1), at, Begin, "call");
        run.mark(Some(1), at + 0.5, End, "call");
    }
    run.mark(Some(1), 20_000.0, Begin, "load");
    run.mem(1, 20_001.0, [300.0, 0.0, 0.0]);
    run.mark(Some(1), 20_002.0, End, "load");
    let (info, rows, _) = run.recorded();
    let text = |phase: Option<&str>| {
        let options = Options {
            phase: phase.map(str::to_owned),
            ..Options::default()
        };
        analyze(&info, &rows, options).expect("findings").analysis
    };
    let all = text(None).phases.expect("phases");
    assert!(!all.has_too_many_for_roles, "one role takes little room");
    assert_eq!(one(&all, "load").roles.len(), 1);
    let asked = text(Some("load"));
    let focus = asked.phase.expect("the phase");
    let role = &focus.roles[0];
    assert_eq!(
        (&*role.name, mib(role.stretch.delta.rss())),
        ("trainer", Some(200.0))
    );
    assert_eq!(focus.phases[0].roles.len(), 1);
    let rest = asked.phases.expect("phases");
    assert!(rest.has_too_many_for_roles);
    assert!(one(&rest, "load").roles.is_empty());
}

#[test]
fn what_overlapping_phases_of_one_line_gained_counts_once() {
    let mut script = Script::command(&["a"], 60.0);
    script.process(1, None, 0.0, "a");
    script.mem(1, 0.5, [100.0, 0.0, 0.0]);
    for rank in 2..=4_u32 {
        script.process(rank, Some(1), 0.0, "rank");
        script.mem(rank, 0.5, [10.0, 0.0, 0.0]);
    }
    for step in 0..10_u32 {
        let at = 1.0 + f64::from(step) * 5.0;
        for rank in 2..=4_u32 {
            script.numbered_mark(
                Some(rank),
                at + f64::from(rank) / 10.0,
                Begin,
                "rollout",
                Some(step),
            );
        }
        // One of them keeps more than the others.
        script.mem(3, at + 2.0, [10.0 + f64::from(step + 1) * 20.0, 0.0, 0.0]);
        for rank in 2..=4_u32 {
            script.numbered_mark(Some(rank), at + 3.0, End, "rollout", Some(step));
        }
        // What the main process gains between them is no gain of theirs.
        script.mem(1, at + 4.0, [100.0 + f64::from(step) * 50.0, 0.0, 0.0]);
    }
    let phases = super::phases(script);
    let [PhaseLine::Many(rollout)] = phases.lines.as_slice() else {
        panic!("one line, not {phases:?}");
    };
    assert_eq!((rollout.count, rollout.process_count), (30, 3));
    assert_eq!(mib(rollout.tree_delta_bytes), Some(200.0));
    let steps = rollout.steps.as_ref().expect("steps");
    let grower = steps.grower.as_ref().expect("a grower");
    assert_eq!(grower.who.pid, Some(memtrace_model::Tgid(3)));
    assert_eq!(
        mib(Some(Bytes(grower.slope.bytes_per_step.round() as i64))),
        Some(20.0)
    );
}

#[test]
fn a_window_names_the_lines_that_gained_in_it() {
    let gained = |from: &str, to: &str, end: Option<f64>| {
        let run = RUNS.iter().find(|(name, ..)| *name == "grown_by_lines");
        let mut run = run.expect("the run").1();
        if let Some(end) = end {
            run.edit(700, |process| process.exit_boot_ns = Some(boot(end)));
            run.put(GrowthSiteRow {
                boot_ns: boot(end),
                upid: upid(Tgid(700)),
                stack_id: 1,
                ..GrowthSiteRow::default()
            });
        }
        let (info, rows, _) = run.recorded();
        let options = Options {
            from: Some(from.parse().expect("a moment")),
            to: Some(to.parse().expect("a moment")),
            ..Options::default()
        };
        let analysis = analyze(&info, &rows, options).expect("findings").analysis;
        let gained = analysis.phase.expect("the window").allocated.into_iter();
        let named = gained.map(|gain| (gain.line.place(), mib(Some(gain.gained_bytes))));
        named.collect::<Vec<_>>()
    };
    let named = gained("+20s", "+40s", None);
    assert_eq!(
        gained("+61s", "+62s", Some(60.0)),
        [],
        "it had freed all as it ended"
    );
    let all = [
        ("buffer.py:118 Trainer.update".to_owned(), Some(480.0)),
        ("train.py:77 collate".to_owned(), Some(160.0)),
        ("an unknown place".to_owned(), Some(12.0)),
    ];
    assert_eq!(named, all);
}
