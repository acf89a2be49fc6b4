//! Recordings against each other.

use super::*;
use crate::golden::{
    RUNS, Reported, Script, boot, gib, ray_with_vllm, ray_with_vllm_later, upid, vllm_on_gpus,
    vllm_on_gpus_later,
};
use crate::{DiffReport, Report};
use memtrace_model::tables::GrowthSiteRow;
use memtrace_model::{Target, Tgid};
use memtrace_report::{FORMATS, Style};

fn diff() -> Diff {
    Diff::of(
        &ray_with_vllm().analyzed(None),
        &ray_with_vllm_later().analyzed(None),
    )
}

fn role<'a>(diff: &'a Diff, name: &str) -> &'a Comparison {
    let mut roles = diff.roles.iter();
    roles
        .find(|role| &*role.name == name)
        .expect("a role of either")
}

#[test]
fn what_grew_is_reported_by_role_and_kind() {
    let diff = diff();
    let workers = role(&diff, "vLLM worker");
    let anon = workers.kind(Kind::Anon);
    assert_eq!(anon.peak.difference(), Some(Bytes(1200 << 20)));
    assert_eq!(anon.slope.before, Some(Bytes(0)));
    let slope = anon.slope.after.expect("a slope").0 >> 20;
    assert!((6_800..7_600).contains(&slope), "{slope} MiB/h");
    assert_eq!(workers.kind(Kind::File).peak.difference(), Some(Bytes(0)));
    assert_eq!(&*diff.roles[0].name, "vLLM worker");
}

#[test]
fn functions_that_surely_hold_more_are_listed_with_their_interval() {
    let (_, script, _) = RUNS
        .iter()
        .find(|(name, ..)| *name == "grown_by_lines")
        .expect("a run");
    let mut later = script();
    let held = |stack_id: i64, [grown, resident, returned]: [i64; 3]| GrowthSiteRow {
        boot_ns: boot(59.5),
        upid: upid(Tgid(700)),
        stack_id,
        sample_count: 100,
        grown_bytes: Bytes(grown << 20),
        grown_error_bytes: Bytes((grown << 20) / 10),
        resident_bytes: Bytes(resident << 20),
        returned_bytes: Bytes(returned << 20),
        ..GrowthSiteRow::default()
    };
    // 1,200 MiB before, and 400 MiB, which may be as before.
    later.put(held(1, [2_500, 2_400, 90]));
    later.put(held(2, [920, 420, 450]));
    let diff = Diff::of(&script().analyzed(None), &later.analyzed(None));
    let sites: Vec<_> = diff.sites.iter().collect();
    assert_eq!(sites.len(), 1, "{sites:?}");
    assert_eq!(sites[0].place, "buffer.py Trainer.update");
    assert_eq!(sites[0].resident.difference(), Some(Bytes(1_200 << 20)));
    let interval = [sites[0].at_least_bytes, sites[0].at_most_bytes];
    // Of what was touched by 59 s, 72 MiB were given back by 40 s, and 90 by then: 1,228 and 2,410 at most,
    // and 33 in each of which no stack is known. 3.3 times the error of 245 and 124 MiB, and of 245 and 122,
    // each with a sample that can have been missed.
    assert_eq!(interval.map(|bytes| bytes.0 >> 20), [231, 2_148]);
    let same = Diff::of(&script().analyzed(None), &script().analyzed(None));
    assert!(same.sites.is_empty());
}

/// A process with three stacks: two of functions of Python, and one in which Python runs and none of its
/// frames were read.
fn python_job() -> Script {
    const SCRIPT: &str = "/home/mia/job/fn.py";
    const LIBRARY: &str = "/usr/lib/libpython3.12.so.1.0";
    let mut run = Script::command(&["python3", "fn.py"], 20.0);
    run.process(700, None, 0.0, "/usr/bin/python3 fn.py");
    run.mem(700, 10.0, [200.0, 60.0, 0.0]);
    let native = ("bytearray___init__", LIBRARY, None);
    let evaluates = ("_PyEval_EvalFrameDefault", LIBRARY, None);
    run.stack(1, &[native, ("load_weights", SCRIPT, Some(4))]);
    run.stack(2, &[native, ("build_cache", SCRIPT, Some(6))]);
    run.stack(3, &[native, ("type_call", LIBRARY, None), evaluates]);
    run
}

/// One that holds so many MiB by each of them.
fn held_by([load_weights, build_cache, unread]: [i64; 3]) -> Analysis {
    let mut run = python_job();
    let held = [(1, load_weights), (2, build_cache), (3, unread)];
    for (stack_id, mib) in held.into_iter().filter(|(_, mib)| *mib > 0) {
        run.put(GrowthSiteRow {
            boot_ns: boot(10.0),
            upid: upid(Tgid(700)),
            stack_id,
            // The error of so many is 1 MiB.
            sample_count: mib * mib,
            grown_bytes: Bytes(mib << 20),
            grown_error_bytes: Bytes(1 << 20),
            resident_bytes: Bytes(mib << 20),
            ..GrowthSiteRow::default()
        });
    }
    run.analyzed(None)
}

fn changed_places(before: [i64; 3], after: [i64; 3]) -> Vec<(String, i64)> {
    changes_between(&held_by(before), &held_by(after))
}

/// Functions that changed, and by how many MiB.
fn changes_between(before: &Analysis, after: &Analysis) -> Vec<(String, i64)> {
    let diff = Diff::of(before, after);
    let sites = diff.sites.into_iter();
    let changes = sites.map(|site| (site.place, site.resident.difference().unwrap().0 >> 20));
    changes.collect()
}

#[test]
fn what_python_touched_before_its_frames_were_read_may_be_of_any_of_its_functions() {
    let build_cache = |mib: i64| vec![("fn.py build_cache".to_owned(), mib)];
    // Both loaded 40 MiB; in the first run no frames of that were read, and of some of it in the second.
    assert_eq!(changed_places([0, 16, 48], [27, 80, 14]), build_cache(64));
    // It can have been 48 MiB more in the first run: this is no change for sure.
    assert_eq!(changed_places([0, 16, 48], [27, 62, 14]), []);
    // What fell can have been more in the second.
    assert_eq!(changed_places([27, 80, 14], [0, 16, 48]), build_cache(-64));
    assert_eq!(changed_places([27, 80, 14], [0, 36, 48]), []);
    let diff = Diff::of(&held_by([0, 16, 48]), &held_by([27, 80, 14]));
    let (least, most) = (diff.sites[0].at_least_bytes, diff.sites[0].at_most_bytes);
    assert_eq!([least, most].map(|bytes| bytes.0 >> 20), [10, 83]);
    let unread = diff.unread_python[0].resident;
    assert_eq!(unread.difference(), Some(Bytes(-34 << 20)));
    // Little of it needs no mention.
    let diff = Diff::of(&held_by([40, 16, 2]), &held_by([40, 80, 2]));
    assert_eq!(diff.unread_python, []);
}

/// One that ends at 15 s and then holds 16 MiB by `build_cache`, or more, and by `load_weights` what rows say:
/// when, and what was grown, resident and returned by then, in MiB.
fn ended_with(build_cache: i64, load_weights: &[(f64, [i64; 3])]) -> Analysis {
    let mut run = python_job();
    run.exit(700, 15.0, 0);
    let load_weights = load_weights.iter().map(|(at, held)| (*at, 1, *held));
    let build_cache = (14.5, 2, [build_cache, build_cache, 0]);
    for (at, stack_id, [grown, resident, returned]) in load_weights.chain([build_cache]) {
        run.put(GrowthSiteRow {
            boot_ns: boot(at),
            upid: upid(Tgid(700)),
            stack_id,
            sample_count: grown * grown,
            grown_bytes: Bytes(grown << 20),
            grown_error_bytes: Bytes(1 << 20),
            resident_bytes: Bytes(resident << 20),
            returned_bytes: Bytes(returned << 20),
            ..GrowthSiteRow::default()
        });
    }
    run.analyzed(None)
}

#[test]
fn memory_that_no_look_saw_before_it_went_is_no_change() {
    // At the fullest moment of the first there was no cache yet.
    let seen = |cache| ended_with(cache, &[(13.2, [90, 90, 0]), (14.5, [90, 0, 90])]);
    let unseen = |cache| ended_with(cache, &[(14.5, [90, 0, 90])]);
    let build_cache = |mib: i64| vec![("fn.py build_cache".to_owned(), mib)];
    assert_eq!(changes_between(&seen(16), &unseen(16)), []);
    assert_eq!(changes_between(&seen(16), &unseen(80)), build_cache(64));
    assert_eq!(changes_between(&unseen(80), &seen(16)), build_cache(-64));
    // More was there than all that was touched in the other.
    let less = ended_with(16, &[(14.5, [40, 0, 40])]);
    let load_weights = vec![("fn.py load_weights".to_owned(), -90)];
    assert_eq!(changes_between(&seen(16), &less), load_weights);
}

#[test]
fn memory_given_back_as_the_last_seconds_begin_is_no_change() {
    let given_back_at = |at| ended_with(16, &[(5.0, [90, 90, 0]), (at, [90, 0, 90])]);
    assert_eq!(
        changes_between(&given_back_at(12.1), &given_back_at(11.9)),
        []
    );
    assert_eq!(
        changes_between(&given_back_at(11.9), &given_back_at(12.1)),
        []
    );
    // Long before the end it does not count.
    let load_weights = vec![("fn.py load_weights".to_owned(), -90)];
    assert_eq!(
        changes_between(&given_back_at(12.1), &given_back_at(8.9)),
        load_weights
    );
}

#[test]
fn where_no_python_can_be_read_native_functions_are_compared() {
    let native = "bytearray___init__ (libpython3.12.so.1.0) < type_call < _PyEval_EvalFrameDefault";
    let changes = changed_places([0, 0, 48], [0, 0, 112]);
    assert_eq!(changes, [(native.to_owned(), 64)]);
}

#[test]
fn a_role_that_is_new_has_nothing_before() {
    let diff = diff();
    let loader = role(&diff, "PyTorch DataLoader worker");
    let counts = (loader.process_count_before, loader.process_count_after);
    assert_eq!(counts, (None, Some(1)));
    assert_eq!(loader.kind(Kind::Anon).peak.before, Some(Bytes(0)));
    assert_eq!(loader.kind(Kind::Rss).peak.ratio(), None);
}

#[test]
fn what_grew_on_gpus_is_reported_and_can_fail_a_comparison() {
    let (before, after) = (
        vllm_on_gpus().analyzed(None),
        vllm_on_gpus_later().analyzed(None),
    );
    let diff = Diff::of(&before, &after);
    let gib = |gib: f64| Some(Bytes((gib * f64::from(1 << 30)) as i64));
    let four = Change {
        before: gib(140.0),
        after: gib(154.0),
    };
    assert_eq!(diff.whole.gpu_peak, four);
    assert_eq!(role(&diff, "vLLM worker").gpu_peak, four);
    let nothing = Change {
        before: gib(0.0),
        after: gib(0.0),
    };
    assert_eq!(role(&diff, "vLLM API server").gpu_peak, nothing);
    let excesses = diff.excesses(0.05);
    let shown: Vec<_> = excesses
        .iter()
        .map(|one| (&*one.name, one.figure))
        .collect();
    assert_eq!(shown, [("all", "gpu_peak"), ("vLLM worker", "gpu_peak")]);
    // Without a GPU in one of them it is not known what it held there.
    let other = ray_with_vllm().analyzed(None);
    let diff = Diff::of(&other, &after);
    assert_eq!(diff.whole.gpu_peak.before, None);
    assert!(
        diff.excesses(0.0)
            .iter()
            .all(|one| one.figure != "gpu_peak")
    );
}

/// A loop of steps that keeps so many MiB of each, over a level that moves a little.
fn steps(kept: f64, seed: u64) -> Analysis {
    use crate::golden::Script;
    use crate::trend::tests::Noise;
    use memtrace_model::tables::MarkKind::{Begin, End};
    let mut run = Script::command(&["python3", "rl.py"], 400.0);
    let mut noise = Noise(seed);
    run.process(700, None, 0.0, "/usr/bin/python3 rl.py");
    run.mem(700, 0.5, [900.0, 120.0, 0.0]);
    for step in 0..24_u32 {
        let at = 10.0 + f64::from(step) * 10.0;
        run.numbered_mark(Some(700), at, Begin, "train", Some(step));
        let held = 1_000.0 + kept * f64::from(step) + 4.0 * noise.next();
        run.mem(700, at + 5.0, [held, 120.0, 0.0]);
        run.numbered_mark(Some(700), at + 6.0, End, "train", Some(step));
    }
    run.exit(700, 399.0, 0);
    run.analyzed(None)
}

#[test]
fn two_recordings_of_the_same_are_quiet_and_a_leak_of_20_mb_a_step_is_reported() {
    let quiet = Diff::of(&steps(0.0, 1), &steps(0.0, 2));
    assert_eq!(quiet.excesses(0.05), []);
    assert!(quiet.stages.iter().all(|stage| !stage.has_risen_by(0.0)));
    let leak = Diff::of(&steps(0.0, 1), &steps(19.07, 2));
    let [stage] = leak.stages.as_slice() else {
        panic!("{:?}", leak.stages);
    };
    assert!(stage.has_risen_by(0.05), "{stage:?}");
    let slope = stage.after.expect("a slope");
    let low_to_high = slope.low_bytes_per_step..=slope.high_bytes_per_step;
    assert!(low_to_high.contains(&20e6), "{slope:?}");
    let shown = leak.excesses(0.5);
    let [shown] = shown.as_slice() else {
        panic!("{shown:?}");
    };
    assert_eq!((&*shown.name, shown.figure), ("train", "per_step"));
    assert_eq!(
        Diff::of(&steps(19.07, 1), &steps(19.07, 2)).excesses(0.05),
        []
    );
}

#[test]
fn figures_of_another_basis_fail_no_comparison() {
    let before = ray_with_vllm().analyzed(None);
    let polled = |interval_ns: i64| {
        let mut after = ray_with_vllm_later().analyzed(None);
        after.info.backend = "procfs".to_owned();
        after.info.interval_ns = memtrace_model::DurationNs(interval_ns);
        after
    };
    let diff = Diff::of(&before, &polled(1_000_000_000));
    assert!(diff.has_other_basis);
    assert_eq!(diff.excesses(0.0), []);
    let diff = Diff::of(&polled(100_000_000), &polled(1_000_000_000));
    assert!(diff.has_other_basis);
    let diff = Diff::of(&polled(1_000_000_000), &polled(1_000_000_000));
    assert!(!diff.has_other_basis);
}

#[test]
fn a_rise_within_what_the_figures_can_be_off_is_no_excess() {
    let change = Change {
        before: Some(Bytes(1_000)),
        after: Some(Bytes(1_100)),
    };
    let error = |bytes| (Bytes(bytes), Bytes(bytes));
    assert!(change.exceeds(0.05, error(0)) && change.exceeds(0.05, error(20)));
    assert!(!change.exceeds(0.05, error(30)) && !change.exceeds(0.1, error(0)));
}

#[test]
fn a_command_that_failed_only_now_is_reported() {
    let fine = ray_with_vllm().analyzed(None);
    let mut failed = ray_with_vllm_later().analyzed(None);
    failed.info.command_exit_code = Some(1);
    assert!(Diff::of(&fine, &failed).is_newly_failed);
    assert!(!Diff::of(&failed, &failed).is_newly_failed);
    assert!(!Diff::of(&failed, &fine).is_newly_failed);
}

#[test]
fn the_means_of_the_roles_add_up_to_the_whole() {
    let diff = diff();
    let sum: Bytes = diff
        .roles
        .iter()
        .filter_map(|role| role.kind(Kind::Rss).mean.after)
        .sum();
    assert_eq!(diff.whole.kind(Kind::Rss).mean.after, Some(sum));
}

#[test]
fn the_mean_of_all_is_unknown_where_that_of_a_role_is() {
    use crate::golden::{Script, boot, mem_row, upid};
    use memtrace_model::Tgid;
    let mean = |is_seen: bool| {
        let mut run = Script::command(&["serve"], 60.0);
        run.process(1, None, 0.0, "serve");
        run.process(2, Some(1), 1.0, "helper");
        run.mem(1, 1.0, [600.0, 0.0, 0.0]);
        match is_seen {
            true => run.mem(2, 2.0, [600.0, 0.0, 0.0]),
            false => run.put(mem_row(upid(Tgid(2)).0, boot(2.0).0, None)),
        }
        let analysis = run.analyzed(None);
        let diff = Diff::of(&analysis, &analysis);
        diff.whole.kind(Kind::Rss).mean.after
    };
    assert!(mean(true).is_some());
    assert_eq!(mean(false), None);
}

#[test]
fn a_rise_above_what_is_allowed_is_an_excess_and_a_fall_is_none() {
    let diff = diff();
    let names = |allowed| -> Vec<(String, &str)> {
        let excesses = diff.excesses(allowed).into_iter();
        excesses
            .map(|excess| (excess.name.to_string(), excess.figure))
            .collect()
    };
    let shown = |name: &str, figure| (name.to_owned(), figure);
    let all = names(0.05);
    assert!(
        all.contains(&shown("all", "held_peak")) && all.contains(&shown("vLLM worker", "mean"))
    );
    assert!(
        all.contains(&shown("PyTorch DataLoader worker", "peak")),
        "new is grown"
    );
    assert!(!all.iter().any(|(name, _)| name == "Ray driver"));
    assert!(!names(0.6).contains(&shown("all", "held_peak")));
    let same = ray_with_vllm().analyzed(None);
    assert_eq!(Diff::of(&same, &same).excesses(0.0), []);
}

/// A server with a worker that ends as a script says.
fn served(end: impl FnOnce(&mut Script)) -> Report {
    let mut run = Script::command(&["serve"], 60.0);
    run.process(1, None, 0.0, "serve");
    run.process(2, Some(1), 1.0, "worker");
    run.mem(1, 1.0, [100.0, 0.0, 0.0]);
    run.mem(2, 2.0, [600.0, 0.0, 0.0]);
    end(&mut run);
    run.reported(None, None)
}

fn first_lines(before: Report, after: Report) -> (bool, String) {
    let mut shown: DiffReport<Diff> = DiffReport::of(before, after, None);
    let is_newly_failed = shown.diff.is_newly_failed;
    let mut text = Vec::new();
    let written = FORMATS[0].write(&mut shown, &Style::default(), &mut text);
    written.unwrap();
    (is_newly_failed, String::from_utf8(text).unwrap())
}

#[test]
fn an_oom_kill_of_a_worker_fails_a_comparison_though_the_command_exits_0() {
    let well = || served(|run| run.exit(1, 50.0, 0));
    let killed = || {
        served(|run| {
            run.oom(2, 2, 40.0, "/job", gib(1.0));
            run.kill(2, 40.0, 9);
            run.exit(1, 50.0, 0);
        })
    };
    let (is_newly_failed, text) = first_lines(well(), killed());
    assert!(is_newly_failed);
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines[1].contains("B failed and A did not"), "{text}");
    assert!(lines[2].contains("What happened in B: "), "{text}");
    assert!(lines[2].contains("was killed because"), "{text}");
    assert!(!first_lines(killed(), killed()).0);
    assert!(!first_lines(killed(), well()).0);
}

#[test]
fn a_main_process_that_crashed_fails_a_comparison_without_a_command() {
    let attached = |end: fn(&mut Script)| {
        served(|run| {
            run.info.target = Target::Match {
                regex: "serve".to_owned(),
            };
            end(run);
        })
    };
    let is_newly_failed = |end| first_lines(attached(|_| {}), attached(end)).0;
    assert!(is_newly_failed(|run| run.kill(1, 50.0, 11)));
    assert!(is_newly_failed(|run| run.exit(1, 50.0, 1)));
    assert!(!is_newly_failed(|run| run.exit(1, 50.0, 0)));
    assert!(!is_newly_failed(|run| run.kill(1, 50.0, 15)));
    assert!(!is_newly_failed(|run| run.exit(2, 50.0, 1)));
    let (_, text) = first_lines(attached(|_| {}), attached(|run| run.exit(1, 50.0, 3)));
    let shown = "B failed and A did not (1 serve: exit 3): what B did not get to do";
    assert!(text.contains(shown), "{text}");
}
