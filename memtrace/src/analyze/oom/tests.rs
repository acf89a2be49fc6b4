//! Kills whose culprit is known.

use crate::analyze::golden::{RUNS, Script, boot};
use crate::analyze::{Analysis, HeldKind, OomFinding};
use crate::model::{Bytes, DurationNs};

const POD: &str = "/pod";
const LIMIT: Bytes = Bytes(4 << 30);

/// A server, a helper that leaks, and the process that the kernel takes.
fn run(seconds: f64) -> Script {
    let mut run = Script::command(&["serve"], seconds);
    for (tgid, name) in [(1, "serve"), (2, "leaky"), (3, "victim")] {
        run.process(tgid, (tgid > 1).then_some(1), 0.0, name);
        run.edit(tgid, |process| {
            process.cgroup = Some(format!("{POD}/{name}"))
        });
    }
    run.mem(1, 0.5, [2_000.0, 100.0, 0.0]);
    run.mem(2, 0.5, [100.0, 10.0, 0.0]);
    run.mem(3, 0.5, [500.0, 10.0, 0.0]);
    run
}

fn only(analysis: &Analysis) -> &OomFinding {
    let [kill] = analysis.ooms.as_slice() else {
        panic!("{:?}", analysis.ooms);
    };
    kill
}

/// Who grew most, by how many MiB, in how many seconds.
fn culprit(analysis: &Analysis) -> Option<(u32, i64, f64)> {
    let found = only(analysis).post_mortem.as_ref()?;
    let (grower, grown) = found.culprit()?;
    let [only] = grower.members.as_slice() else {
        return None;
    };
    let tgid = analysis.processes[*only].tgid?;
    Some((tgid.0, grown.0 >> 20, found.told_window()?.as_secs_f64()))
}

#[test]
fn the_culprit_is_who_grew_and_not_who_was_killed_or_held_most() {
    let mut run = run(120.0);
    run.mem(2, 95.0, [1_300.0, 10.0, 0.0]);
    run.oom(3, 1, 100.0, POD, LIMIT);
    assert_eq!(culprit(&run.analyzed(None)), Some((2, 1_200, 10.0)));
}

#[test]
fn the_shortest_window_with_growth_that_matters_is_told() {
    let mut run = run(1_000.0);
    run.mem(2, 860.0, [1_300.0, 10.0, 0.0]);
    run.mem(2, 895.0, [1_310.0, 10.0, 0.0]);
    run.oom(3, 1, 900.0, POD, LIMIT);
    assert_eq!(culprit(&run.analyzed(None)), Some((2, 1_210, 60.0)));
}

#[test]
fn a_window_is_cut_at_the_start_of_the_recording() {
    let mut run = run(40.0);
    run.mem(2, 20.0, [1_300.0, 10.0, 0.0]);
    run.oom(3, 1, 32.0, POD, LIMIT);
    let analysis = run.analyzed(None);
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    let lengths: Vec<i64> = found
        .windows
        .iter()
        .map(|length| length.0 / 1_000_000_000)
        .collect();
    assert_eq!(lengths, [10, 32]);
    assert_eq!(culprit(&analysis).map(|(tgid, _, _)| tgid), Some(2));
}

#[test]
fn who_lives_under_another_limit_is_not_to_blame() {
    let mut run = run(120.0);
    run.edit(2, |process| process.cgroup = Some("/elsewhere".to_owned()));
    run.mem(2, 95.0, [1_300.0, 10.0, 0.0]);
    run.mem(1, 96.0, [2_300.0, 100.0, 0.0]);
    run.oom(3, 1, 100.0, POD, LIMIT);
    assert_eq!(culprit(&run.analyzed(None)), Some((1, 300, 10.0)));
}

#[test]
fn shared_memory_counts_once_in_those_who_grew_together() {
    let mut run = run(120.0);
    for loader in 10..14 {
        run.process(loader, Some(1), 90.0, "loader");
        run.edit(loader, |process| process.cgroup = Some(POD.to_owned()));
        run.mem(loader, 95.0, [100.0, 0.0, 512.0]);
    }
    run.oom(3, 1, 100.0, POD, LIMIT);
    let analysis = run.analyzed(None);
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    let (grower, grown) = found.culprit().expect("a culprit");
    assert_eq!((grower.members.len(), grown.0 >> 20), (4, 4 * 100 + 512));
}

#[test]
fn a_process_that_was_found_late_has_unknown_growth() {
    let mut run = run(120.0);
    run.process(9, None, -500.0, "adopted");
    run.edit(9, |process| {
        process.cgroup = Some(POD.to_owned());
        process.first_seen_boot_ns = boot(95.0);
    });
    run.mem(9, 95.0, [1_500.0, 0.0, 0.0]);
    run.oom(3, 1, 100.0, POD, LIMIT);
    assert_eq!(culprit(&run.analyzed(None)), None);
}

#[test]
fn what_was_read_after_the_kill_tells_nothing_of_it() {
    let mut run = run(120.0);
    run.cgroup(80.0, POD, [2.0, 1.5, 0.125], Some(LIMIT));
    run.cgroup(99.0, POD, [3.75, 3.5, 0.125], Some(LIMIT));
    run.cgroup(100.2, POD, [0.5, 0.25, 0.125], Some(LIMIT));
    run.mem(2, 95.0, [1_300.0, 10.0, 0.0]);
    run.oom(3, 1, 100.0, POD, LIMIT);
    // As where the kernel log can't be read in full.
    for record in &mut run.rows.0 {
        if let crate::model::Record::Oom(row) = record {
            row.memcg_anon_bytes = None;
        }
    }
    let analysis = run.analyzed(None);
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    assert_eq!(found.kinds_age_ns, DurationNs(1_000_000_000));
    let anon = found
        .kinds
        .iter()
        .find(|line| line.kind == HeldKind::Anonymous);
    let anon = anon.expect("anonymous memory");
    assert_eq!(anon.bytes.0 >> 20, 3_584);
    assert_eq!(anon.grown_bytes.map(|grown| grown.0 >> 20), Some(2_048));
    let shared = found
        .kinds
        .iter()
        .find(|line| line.kind == HeldKind::Shared);
    assert!(shared.expect("shared memory").is_ruled_out);
}

#[test]
fn a_kind_that_no_process_holds_is_named_when_it_grew_most() {
    let run = RUNS
        .iter()
        .find(|(name, _, _)| *name == "node_out_of_memory");
    let analysis = run.expect("the run").1().analyzed(None);
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    assert!(found.is_of_node);
    let kind = found
        .grown_kind()
        .map(|(kind, grown)| (kind, grown.0 >> 30));
    assert_eq!(kind, Some((HeldKind::Shared, 453)));
}

#[test]
fn a_cpuset_that_is_full_is_not_the_machine() {
    let mut run = run(120.0);
    run.oom(3, 1, 100.0, POD, LIMIT);
    for record in &mut run.rows.0 {
        if let crate::model::Record::Oom(row) = record {
            row.memcg = None;
            row.constraint = Some("CONSTRAINT_CPUSET".to_owned());
        }
    }
    let analysis = run.analyzed(None);
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    assert!(!found.is_of_node);
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
fn edit_readings(run: &mut Script, change: impl Fn(&mut crate::model::tables::CgroupMemRow)) {
    for record in &mut run.rows.0 {
        if let crate::model::Record::CgroupMem(row) = record {
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
