//! What is said of the group that was out of memory.

use super::*;

#[test]
fn a_kind_that_no_process_holds_is_named_when_it_grew_most() {
    let run = RUNS
        .iter()
        .find(|(name, _, _)| *name == "node_out_of_memory");
    let analysis = run.expect("the run").1().analyzed(None);
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    assert!(found.is_of_node);
    let kind = found.grown_kind;
    let kind = kind.map(|grown| (grown.kind, grown.grown_bytes.0 >> 30));
    assert_eq!(kind, Some((HeldKind::Shared, 453)));
}

#[test]
fn a_cpuset_that_is_full_is_not_the_machine() {
    let mut run = run(120.0);
    run.oom(3, 1, 100.0, POD, LIMIT);
    edit_kill(&mut run, |row| {
        row.memcg = None;
        row.constraint = Some("CONSTRAINT_CPUSET".to_owned());
    });
    let analysis = run.analyzed(None);
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    assert!(!found.is_of_node);
}

#[test]
fn for_how_long_all_tasks_waited_is_reported_where_it_is_known() {
    let waited = |is_full_known: bool| {
        let mut run = run(120.0);
        run.cgroup(80.0, POD, [2.0, 1.5, 0.125], Some(LIMIT));
        run.cgroup(99.0, POD, [3.75, 3.5, 0.125], Some(LIMIT));
        edit_readings(&mut run, |row| {
            row.psi_some_ns = Some(DurationNs(row.boot_ns.0 / 10));
            row.psi_full_ns = is_full_known.then_some(DurationNs(0));
        });
        run.mem(2, 95.0, [1_300.0, 10.0, 0.0]);
        run.oom(3, 1, 100.0, POD, LIMIT);
        let report = run.reported(None, None);
        let text = written("text", &report, &Style::default());
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (known, unknown) = (waited(true), waited(false));
    let some = "at least one task waited for memory during 1.9s of the 10s before";
    assert!(
        known.contains(&format!("{some}, all tasks during 0s.")),
        "{known}"
    );
    assert!(unknown.contains(&format!("{some}.")), "{unknown}");
}

/// What a kind gained in MiB, and whether a part of it is missing.
fn gained(run: Script, wanted: HeldKind) -> (Option<i64>, bool) {
    let analysis = run.analyzed(None);
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    let line = found.kinds.iter().find(|line| line.kind == wanted);
    let line = line.expect("the kind");
    let grown = line.grown_bytes.map(|grown| grown.0 >> 20);
    (grown, line.is_growth_partial)
}

/// Changes every reading of a group.
fn edit_readings(run: &mut Script, change: impl Fn(&mut memtrace_model::tables::CgroupMemRow)) {
    for record in &mut run.rows.0 {
        if let memtrace_model::Record::CgroupMem(row) = record {
            change(row);
        }
    }
}

#[test]
fn other_kernel_memory_grows_only_against_what_leaves_out_the_same() {
    let killed = || {
        let mut run = run(120.0);
        run.cgroup(80.0, POD, [2.0, 1.5, 0.125], Some(LIMIT));
        run.mem(2, 95.0, [1_300.0, 10.0, 0.0]);
        run.oom(3, 1, 100.0, POD, LIMIT);
        run
    };
    assert!(gained(killed(), HeldKind::Kernel).0.is_some());
    let mut unlike = killed();
    edit_readings(&mut unlike, |row| row.slab_bytes = None);
    assert_eq!(gained(unlike, HeldKind::Kernel), (None, false));
}

#[test]
fn growth_since_a_late_first_reading_is_partial_unless_the_group_was_empty() {
    let killed = || {
        let mut run = run(40.0);
        run.cgroup(1.0, POD, [2.0, 1.5, 0.125], Some(LIMIT));
        run.oom(3, 1, 8.0, POD, LIMIT);
        run
    };
    let all = (4096.0_f64 / 1.04) as i64;
    assert_eq!(
        gained(killed(), HeldKind::Anonymous),
        (Some(all - 1536), true)
    );
    let mut new = killed();
    edit_readings(&mut new, |row| row.other_process_count = Some(0));
    assert_eq!(gained(new, HeldKind::Anonymous), (Some(all), false));
}

#[test]
fn the_group_at_a_kill_is_as_the_log_tells_it_and_not_as_it_was_read_after() {
    let mut run = run(120.0);
    run.cgroup(99.0, POD, [3.0, 2.5, 0.125], Some(LIMIT));
    run.cgroup(100.1, POD, [0.5, 0.25, 0.125], Some(LIMIT));
    run.oom(3, 1, 100.0, POD, LIMIT);
    // Before the victim has ended.
    let analysis = run.analyzed(Some("+100.01s"));
    let at = analysis.at.as_ref().expect("the instant");
    let group = at.cgroups.first().expect("the group");
    assert_eq!(group.row.current_bytes, Some(LIMIT));
    assert_eq!(group.age_ns, DurationNs(10_000_000));
}

/// A server that took 350 MiB at its start and was flat from then on, and a kill 21.5 s later. Others
/// in its group took so many MiB in the last 10 s.
fn flat_since_its_start(others: i64) -> Report {
    flat_after(others, 1.5).reported(None, None)
}

/// The same of one that took them by then, of which the last 10 s can have a part.
fn flat_after(others: i64, at: f64) -> Script {
    let mut run = Script::command(&["serve"], 30.0);
    run.process(1, None, 0.0, "serve");
    run.edit(1, |process| process.cgroup = Some(POD.into()));
    run.mem(1, 0.5, [10.0, 0.0, 0.0]);
    run.mem(1, at, [350.0, 0.0, 0.0]);
    for at in [0.2, 5.0, 11.0, 21.2] {
        run.cgroup(at, POD, [0.5, 0.4, 0.0], Some(LIMIT));
    }
    edit_readings(&mut run, |row| {
        let has_grown = row.boot_ns >= boot(15.0);
        let anon = if has_grown { 40 + others } else { 40 };
        row.other_process_count = Some(2);
        row.other_anon_bytes = Some(Bytes(anon << 20));
        row.anon_bytes = Some(Bytes((350 + anon) << 20));
        row.file_bytes = Some(Bytes(0));
    });
    run.oom(1, 1, 21.5, POD, Bytes(700 << 20));
    edit_kill(&mut run, |row| {
        row.memcg_anon_bytes = Some(Bytes((390 + others) << 20));
        row.memcg_shmem_bytes = Some(Bytes(0));
        row.memcg_file_bytes = Some(Bytes(0));
    });
    run
}

#[test]
fn who_is_not_recorded_can_be_the_culprit() {
    let report = flat_since_its_start(180);
    let found = only(&report.analysis).post_mortem.as_ref();
    let found = found.expect("a post-mortem");
    let grown = found
        .grown_kind
        .map(|grown| (grown.kind, grown.grown_bytes.0 >> 20));
    assert_eq!(grown, Some((HeldKind::Unrecorded, 180)));
    let text = written("text", &report, &Style::default());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let culprit = "processes not recorded grew by 180 MiB in the 10s before, more than any \
                   recorded one";
    assert!(text.contains(culprit), "{text}");
    // What was in use is reported to the end: 350 MiB of the server, and what else there was.
    let rest = "Held under that limit, anonymous and shared memory: 1 serve (main) 350 MiB. The rest \
                of the 700 MiB in use: processes not recorded 220 MiB";
    assert!(
        text.replace(" (main)", "")
            .contains(&rest.replace(" (main)", "")),
        "{text}"
    );
}

#[test]
fn who_is_not_recorded_is_named_before_one_that_took_more_and_had_stopped() {
    let grown = |run: Script| {
        let analysis = run.analyzed(None);
        let found = only(&analysis).post_mortem.as_ref();
        let grown = found.and_then(|found| found.grown_kind);
        grown.map(|grown| (grown.kind, grown.grown_bytes.0 >> 20))
    };
    let others = flat_after(180, 14.0);
    assert_eq!(grown(others), Some((HeldKind::Unrecorded, 180)));
    // Also where they took it since they were counted last.
    let mut since = flat_after(0, 14.0);
    edit_kill(&mut since, |row| {
        row.memcg_anon_bytes = Some(Bytes(570 << 20))
    });
    assert_eq!(grown(since), Some((HeldKind::Unrecorded, 180)));
}

#[test]
fn what_grew_since_the_start_and_had_stopped_did_not_grow_before_the_kill() {
    let report = flat_since_its_start(0);
    assert_eq!(culprit(&report.analysis), None);
    let text = written("text", &report, &Style::default());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("no process grew in the 10s before"), "{text}");
}
