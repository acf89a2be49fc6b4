//! Books drawn up of made-up runs.

use super::*;
use crate::golden::{RUNS, Reported, Script};
use memtrace_model::{Record, Tgid};

#[test]
fn a_copy_that_exec_is_to_replace_adds_nothing_to_what_its_parent_holds() {
    for is_read_after in [false, true] {
        let mut run = alone();
        run.process(501, Some(500), 5.0, "sleep 9");
        run.edit(501, |row| row.cgroup = Some(PATH.into()));
        let is_name = |record: &Record| matches!(record, Record::Title(row) if row.upid == crate::golden::upid(Tgid(501)));
        run.rows.0.retain(|record| !is_name(record));
        run.exec(501, 5.4, "sleep 9");
        run.mem(501, 5.0, [1024.0, 0.0, 0.0]);
        run.mem(501, 5.4, [4.0, 0.0, 0.0]);
        if is_read_after {
            run.pss(501, 6.0, [4.0, 4.0], true);
        }
        run.cgroup(5.2, PATH, [1.125, 1.0, 0.0], None);
        run.cgroup(7.0, PATH, [1.129, 1.004, 0.0], None);
        let held = |at: &str| {
            let lines = of_group(run.clone(), at).anon;
            let held: Vec<i64> = lines.iter().map(|line| line.bytes.0 >> 20).collect();
            held
        };
        assert_eq!(held("+5.2s"), [1024, 0]);
        assert_eq!(held("+7s"), [1024, 4]);
    }
}

#[test]
fn objects_of_huge_pages_stand_beside_the_books() {
    let (_, run, at) = RUNS.iter().find(|(name, ..)| *name == "shared").unwrap();
    let state = run().analyzed(*at).at.expect("a state");
    for attribution in &state.attributions {
        let huge: Vec<_> = attribution
            .huge_objects
            .iter()
            .map(|row| &row.name)
            .collect();
        assert_eq!(huge, [&Some("/memfd:kv".to_owned())]);
        assert!(attribution.objects.iter().all(|row| !is_huge(row.kind)));
        let in_use = attribution.current_bytes.expect("what is in use");
        let lines = attribution.anonymous_bytes.unwrap_or_default()
            + attribution
                .objects
                .iter()
                .filter_map(SharedObject::in_memory)
                .sum()
            + attribution.other_shared_bytes.unwrap()
            + attribution.files_bytes.unwrap_or_default()
            + attribution.other_files_bytes.unwrap()
            + attribution.kernel_bytes.unwrap_or_default()
            + attribution.residual_bytes.unwrap();
        assert_eq!(lines, in_use);
    }
}

const PATH: &str = "/pod";

/// One process of 1 GiB in a group, nobody sharing its memory.
fn alone() -> Script {
    let mut run = Script::command(&["x"], 60.0);
    run.process(500, None, 0.0, "x");
    run.edit(500, |row| row.cgroup = Some(PATH.into()));
    run.mem(500, 1.0, [1024.0, 0.0, 0.0]);
    run.pss(500, 2.0, [1024.0, 1024.0], true);
    run
}

fn of_group(run: Script, at: &str) -> Attribution {
    let state = run.analyzed(Some(at)).at.expect("a state");
    state.attributions.into_iter().next().expect("a ledger")
}

fn gib(gib: f64) -> Bytes {
    Bytes((gib * f64::from(1 << 30)) as i64)
}

#[test]
fn what_is_in_use_has_what_the_processes_gained_since_it_was_read() {
    for (at, held) in [("peak", 1143), ("+9.96s", 1024), ("+10.06s", 1024)] {
        let mut run = alone();
        run.cgroup(9.95, PATH, [1.125, 1.0, 0.0], None);
        run.mem(500, 10.0, [1143.0, 0.0, 0.0]);
        run.mem(500, 10.05, [1024.0, 0.0, 0.0]);
        run.cgroup(10.1, PATH, [1.125, 1.0, 0.0], None);
        for record in &mut run.rows.0 {
            if let Record::CgroupMem(row) = record {
                row.other_process_count = Some(0);
            }
        }
        let ledger = of_group(run, at);
        let in_mib = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0 >> 20);
        assert_eq!(in_mib(ledger.anonymous_bytes), Some(held), "{at}");
        assert_eq!(in_mib(ledger.current_bytes), Some(held + 128), "{at}");
        assert_eq!(ledger.residual_bytes, Some(Bytes(0)), "{at}");
        assert_eq!(ledger.age_ns, DurationNs(0), "{at}");
    }
}

#[test]
fn those_who_are_not_recorded_hold_no_more_than_the_group_has_beyond_the_others() {
    let run = |anon: f64, others: f64| {
        let mut run = alone();
        run.cgroup(10.0, PATH, [anon + 0.125, anon, 0.0], None);
        if let Some(Record::CgroupMem(row)) = run.rows.0.last_mut() {
            (row.other_process_count, row.other_anon_bytes) = (Some(13), Some(gib(others)));
        }
        let ledger = of_group(run, "+10s");
        (ledger.other_processes_bytes, ledger.residual_bytes)
    };
    assert_eq!(run(1.5, 0.25), (Some(gib(0.25)), Some(gib(0.25))));
    let left = (Some(gib(0.5)), Some(Bytes(0)));
    assert_eq!(run(1.5, 4.0), left, "they held it 10 s ago");
    let nothing_left = (Some(Bytes(0)), Some(gib(-0.0078125)));
    assert_eq!(run(0.9921875, 4.0), nothing_left, "it moved meanwhile");
    let moved_in = (None, Some(gib(-0.5)));
    assert_eq!(run(0.5, 0.25), moved_in, "charged elsewhere");
}

#[test]
fn what_the_root_of_v1_has_in_use_is_without_kernel_memory() {
    let ledger = |path: &str, current: f64| {
        let mut run = alone();
        run.edit(500, |row| row.cgroup = Some(path.into()));
        run.cgroup(10.0, path, [current, 1.0, 0.0], None);
        if let Some(Record::CgroupMem(row)) = run.rows.0.last_mut() {
            row.version = 1;
            row.file_bytes = Some(gib(0.5));
            row.shmem_bytes = Some(Bytes(0));
            row.kernel_bytes = Some(gib(0.25));
        }
        let ledger = of_group(run, "+10s");
        assert_eq!(ledger.residual_bytes, Some(Bytes(0)), "{path} {current}");
        [ledger.kernel_bytes, ledger.kernel_outside_bytes]
    };
    assert_eq!(ledger("/", 1.5), [None, Some(gib(0.25))]);
    let counted = [Some(gib(0.25)), None];
    assert_eq!(ledger("/", 1.75), counted, "the root of a namespace");
    assert_eq!(ledger("/a", 1.75), counted);
}

#[test]
fn without_readings_a_ledger_has_what_each_holds_for_certain() {
    for has_child in [false, true] {
        let mut run = Script::command(&["x"], 20.0);
        run.process(500, None, 0.0, "x");
        run.edit(500, |row| row.cgroup = Some(PATH.into()));
        run.mem(500, 5.0, [1024.0, 0.0, 0.0]);
        if has_child {
            run.process(501, Some(500), 6.0, "x");
            run.inherits(501, 1024.0);
            run.mem(501, 6.1, [1024.0, 0.0, 0.0]);
        }
        run.cgroup(9.0, PATH, [1.125, 1.0, 0.0], None);
        assert_eq!(of_group(run, "+9s").anonymous_bytes, Some(gib(1.0)));
    }
}

#[test]
fn objects_and_files_of_those_whom_nobody_looked_at_are_unknown() {
    let mut run = Script::command(&["x"], 20.0);
    run.process(500, None, 0.0, "x");
    run.edit(500, |row| row.cgroup = Some(PATH.into()));
    run.mem(500, 5.0, [1024.0, 0.0, 0.0]);
    run.cgroup(9.0, PATH, [1.625, 1.0, 0.25], None);
    let text = |run: &Script| {
        let ledger = of_group(run.clone(), "+9s");
        let others = [ledger.other_shared_bytes, ledger.other_files_bytes];
        assert_eq!(others, [Some(gib(0.25)); 2]);
        assert_eq!(ledger.residual_bytes, Some(Bytes(0)));
        [ledger.shared_bytes, ledger.files_bytes]
    };
    assert_eq!(text(&run), [None; 2]);
    run.pss(500, 6.0, [1024.0, 1024.0], true);
    assert_eq!(text(&run), [Some(Bytes(0)); 2]);
}

#[test]
fn what_could_be_reclaimed_is_unknown_where_a_part_of_it_is() {
    let reclaimable = |is_slab_known: bool| {
        let mut run = alone();
        run.cgroup(10.0, PATH, [1.625, 1.0, 0.25], None);
        if let Some(Record::CgroupMem(row)) = run.rows.0.last_mut()
            && !is_slab_known
        {
            row.slab_reclaimable_bytes = None;
        }
        of_group(run, "+10s").reclaimable_bytes
    };
    let known = Some(gib(0.265625));
    assert_eq!([reclaimable(true), reclaimable(false)], [known, None]);
}

#[test]
fn what_a_process_that_has_just_ended_has_not_given_back_is_reported() {
    let ended = |at: f64| {
        let mut run = alone();
        run.process(501, Some(500), 5.0, "x");
        run.edit(501, |row| row.cgroup = Some(PATH.into()));
        run.mem(501, 6.0, [1024.0, 0.0, 0.0]);
        run.pss(501, 7.0, [1024.0, 1024.0], true);
        run.exit(501, 10.0, 0);
        run.cgroup(at, PATH, [2.125, 2.0, 0.0], None);
        if let Some(Record::CgroupMem(row)) = run.rows.0.last_mut() {
            row.other_process_count = Some(0);
        }
        of_group(run, "+10.02s")
    };
    let ledger = ended(10.02);
    assert_eq!(ledger.residual_bytes, Some(gib(1.0)));
    let text: Vec<(Bytes, i64)> = ledger
        .may_be_ending()
        .iter()
        .map(|line| (line.bytes, line.ago_ns.0 / 1_000_000))
        .collect();
    assert_eq!(text, [(gib(1.0), 20)]);
    let before = ended(9.99);
    assert_eq!(before.residual_bytes, Some(Bytes(0)));
    assert!(before.may_be_ending().is_empty());
}

#[test]
fn files_and_objects_that_others_pay_for_stand_beside_the_books() {
    let mut run = alone();
    run.cached(500, 5.0, "/models/weights", 3072.0);
    run.object(500, 5.0, "/dev/shm/a", [2048.0, 2048.0]);
    run.cgroup(10.0, PATH, [2.125, 1.0, 0.5], None);
    let ledger = of_group(run, "+10s");
    assert!(ledger.files.is_empty() && ledger.objects.is_empty());
    assert_eq!(ledger.elsewhere.files.len(), 1);
    assert_eq!(ledger.elsewhere.objects.len(), 1);
    assert_eq!(ledger.other_files_bytes, Some(gib(0.5)));
    assert_eq!(ledger.other_shared_bytes, Some(gib(0.5)));
    assert_eq!(ledger.residual_bytes, Some(Bytes(0)));
}

#[test]
fn an_object_that_could_not_be_asked_is_reported_by_the_neighbouring_reading() {
    let mut run = alone();
    run.object(500, 5.0, "/dev/shm/plasmaA", [512.0, 512.0]);
    run.unasked_object(500, 9.0, "/dev/shm/plasmaA");
    run.cgroup(10.0, PATH, [1.625, 1.0, 0.5], None);
    let ledger = of_group(run, "+10s");
    assert_eq!(ledger.shared_bytes, Some(gib(0.5)));
    assert_eq!(ledger.unknown_object_count, 0);
    assert_eq!(ledger.objects_age_ns, Some(DurationNs(5_000_000_000)));
}

#[test]
fn forks_that_were_never_read_hold_no_more_than_their_group_is_charged() {
    let mut run = Script::command(&["x"], 60.0);
    run.process(500, None, 0.0, "x");
    run.mem(500, 1.0, [600.0, 0.0, 0.0]);
    for tgid in 501..504 {
        run.process(tgid, Some(500), 2.0, "x");
        run.inherits(tgid, 600.0);
        run.mem(tgid, 2.1, [600.0, 0.0, 0.0]);
    }
    for tgid in 500..504 {
        run.edit(tgid, |row| row.cgroup = Some("/job".into()));
    }
    run.cgroup(10.0, "/job", [1.0, 0.75, 0.0], None);
    let analysis = run.analyzed(Some("+10s"));
    let ledger = &analysis.at.expect("a state").attributions[0];
    assert!(ledger.anonymous_bytes <= Some(gib(0.75)));
    assert!(
        ledger
            .residual_bytes
            .is_some_and(|residual| residual.0 >= 0)
    );
}

#[test]
fn what_forks_copied_is_of_those_who_can_have_it() {
    let held = |others: i64| {
        let mut run = Script::command(&["x"], 60.0);
        run.process(500, None, 0.0, "x");
        run.mem(500, 1.0, [600.0, 0.0, 0.0]);
        for tgid in 501..503 {
            run.process(tgid, Some(500), 2.0, "x");
            run.inherits(tgid, 600.0);
            run.mem(tgid, 2.1, [600.0, 0.0, 0.0]);
        }
        for tgid in 500..503 {
            run.edit(tgid, |row| row.cgroup = Some(PATH.into()));
        }
        // The copies have written to 400 MiB of what they inherited.
        run.cgroup(10.0, PATH, [1.0, 1000.0 / 1024.0, 0.0], None);
        if let Some(Record::CgroupMem(row)) = run.rows.0.last_mut() {
            row.other_process_count = Some(others);
        }
        let ledger = of_group(run, "+10s");
        let lines = ledger.anon.iter();
        let lines: Vec<i64> = lines.map(|line| line.bytes.0 >> 20).collect();
        lines
    };
    assert_eq!(held(0), [600, 200, 200]);
    assert_eq!(held(3), [600, 0, 0], "it can be of others");
}
