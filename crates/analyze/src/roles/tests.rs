//! Roles that change, roles of unknown kinds, and too many programs.

use super::*;
use crate::golden::{Reported, Script, boot, mem_row, upid};
use crate::peak::Bound;
use crate::{Analysis, Verdict};
use memtrace_model::tables::{TitleRow, TitleSource};
use memtrace_model::{Kind, Record, Tgid, WallNs};

fn role<'a>(analysis: &'a Analysis, name: &str) -> Option<&'a RoleFinding> {
    analysis.roles.iter().find(|role| &*role.name == name)
}

fn peak(analysis: &Analysis, name: &str) -> Option<i64> {
    let (bytes, _) = role(analysis, name)?.kind(Kind::Rss).peak?;
    Some(bytes.0 >> 20)
}

fn becomes(run: &mut Script, at: f64, role: &str, title: &str) {
    run.edit(2, |row| {
        row.framework = Some("Ray".to_owned());
        row.role = Some(role.to_owned());
    });
    run.title(2, at, title);
}

#[test]
fn memory_is_the_roles_that_the_process_had_then() {
    let mut run = Script::command(&["a"], 100.0);
    run.process(1, None, 0.0, "a");
    run.process(2, Some(1), 1.0, "python3 default_worker.py");
    becomes(&mut run, 1.5, "idle worker", "ray::IDLE");
    run.mem(2, 2.0, [60.0, 0.0, 0.0]);
    becomes(&mut run, 10.0, "task load", "ray::load");
    run.mem(2, 12.0, [300.0, 0.0, 0.0]);
    run.mem(2, 20.0, [100.0, 0.0, 0.0]);
    becomes(&mut run, 30.0, "idle worker", "ray::IDLE");
    becomes(&mut run, 40.0, "task tiny", "ray::tiny");
    run.mem(2, 50.0, [120.0, 0.0, 0.0]);
    becomes(&mut run, 60.0, "idle worker", "ray::IDLE");
    let analysis = run.analyzed(None);
    assert_eq!(peak(&analysis, "Ray task load"), Some(300));
    assert_eq!(peak(&analysis, "Ray task tiny"), Some(120));
    // Before its first task it was what it became.
    assert_eq!(peak(&analysis, "Ray idle worker"), Some(120));
    let then = |name| role(&analysis, name).and_then(|role| role.at_peak);
    assert_eq!(
        then("Ray task load").map(|then| then.process_count),
        Some(1)
    );
    assert_eq!(
        then("Ray task tiny").map(|then| then.process_count),
        Some(0)
    );
    assert_eq!(&*analysis.processes[1].name, "Ray task load");
    let sum: i64 = ["Ray task load", "Ray task tiny", "Ray idle worker"]
        .iter()
        .filter_map(|name| role(&analysis, name)?.kind(Kind::Rss).mean_bytes)
        .map(|bytes| bytes.0 >> 10)
        .sum();
    let expected = (60 * 10 + 300 * 8 + 100 * 30 + 120 * 50) * 1024 / 100;
    assert!((sum - expected).abs() < 8, "{sum} KiB, not {expected} KiB");
}

#[test]
fn a_worker_that_is_idle_at_its_peak_is_called_idle() {
    let mut run = Script::command(&["a"], 100.0);
    run.process(1, None, 0.0, "a");
    run.process(2, Some(1), 1.0, "python3 default_worker.py");
    becomes(&mut run, 10.0, "task short", "ray::short");
    run.mem(2, 12.0, [100.0, 0.0, 0.0]);
    becomes(&mut run, 20.0, "idle worker", "ray::IDLE");
    run.mem(2, 30.0, [300.0, 0.0, 0.0]);
    let analysis = run.analyzed(None);
    assert_eq!(&*analysis.processes[1].name, "Ray idle worker");
    assert_eq!(peak(&analysis, "Ray task short"), Some(100));
}

#[test]
fn a_fork_that_named_itself_is_called_by_that_name() {
    let mut run = Script::command(&["python3", "main.py"], 100.0);
    run.process(1, None, 0.0, "python3 main.py");
    run.edit(1, |row| row.role = Some("main".to_owned()));
    for tgid in [2, 3] {
        run.process(tgid, Some(1), 1.0, "python3 main.py");
        run.mem(tgid, 2.0, [50.0, 0.0, 0.0]);
    }
    run.title(2, 3.0, "loader: shard 3");
    run.edit(2, |row| row.comm = "loader: shard 3".to_owned());
    run.edit(3, |row| row.comm = "loader-4".to_owned());
    run.title(3, 3.0, "python3 main.py");
    let analysis = run.analyzed(None);
    assert_eq!(&*analysis.processes[1].name, "loader: shard 3");
    assert_eq!(&*analysis.processes[2].name, "loader-4");
    assert!(role(&analysis, "loader-#").is_some());
}

#[test]
fn a_process_that_held_most_before_it_executed_a_program_is_no_such_program() {
    let mut run = Script::command(&["python3", "main.py"], 100.0);
    run.process(1, None, 0.0, "python3 main.py");
    for (tgid, before) in [(2, 200.0), (3, 1.0)] {
        run.process(tgid, Some(1), 3.0, "sleep 9");
        run.edit(tgid, |row| row.start_boot_ns = boot(1.0));
        run.mem(tgid, 1.1, [1.0, 0.0, 0.0]);
        run.mem(tgid, 2.0, [before, 0.0, 0.0]);
        run.mem(tgid, 4.0, [2.0, 0.0, 0.0]);
    }
    let analysis = run.analyzed(None);
    assert_eq!(&*analysis.processes[1].name, "fork of python3 main.py");
    assert_eq!(&*analysis.processes[2].name, "sleep 9");
}

#[test]
fn what_a_program_held_before_an_exec_is_its_own_roles() {
    let mut run = Script::command(&["a"], 100.0);
    run.process(1, None, 0.0, "a");
    run.process(2, Some(1), 1.0, "bash work.sh");
    run.edit(2, |row| row.role = Some("rollout".to_owned()));
    run.title(2, 1.5, "bash work.sh");
    run.mem(2, 2.0, [300.0, 0.0, 0.0]);
    run.edit(2, |row| {
        row.role = None;
        row.cmdline = Some("sleep 9".into());
    });
    let exec = TitleRow {
        ts: WallNs(0),
        boot_ns: boot(10.0),
        upid: upid(Tgid(2)),
        comm: "sleep".to_owned(),
        title: Some("sleep 9".into()),
        role: None,
        source: Some(TitleSource::Exec),
    };
    run.rows.0.push(exec.into());
    run.mem(2, 10.5, [5.0, 0.0, 0.0]);
    let analysis = run.analyzed(None);
    assert_eq!(peak(&analysis, "rollout"), Some(300));
    assert!(peak(&analysis, "sleep") >= Some(5));
    assert_eq!(&*analysis.processes[1].name, "rollout");
}

#[test]
fn of_a_copy_that_exec_replaces_only_what_it_grew_by_is_its_own_and_its_roles() {
    let mut run = Script::command(&["a"], 100.0);
    run.process(1, None, 0.0, "a");
    run.mem(1, 0.5, [600.0, 0.0, 0.0]);
    run.process(2, Some(1), 1.0, "cc x.c");
    // It was named when it was entered; its exec came later.
    run.rows
        .0
        .retain(|record| !matches!(record, Record::Title(row) if row.upid == upid(Tgid(2))));
    run.exec(2, 1.5, "cc x.c");
    for (at, mib) in [(1.0, 600.0), (1.2, 607.0), (1.5, 1.0), (2.0, 5.0)] {
        run.mem(2, at, [mib, 0.0, 0.0]);
    }
    run.edit(2, |row| row.peak_rss_bytes = Some(Bytes(7 << 20)));
    let analysis = run.analyzed(None);
    let child = &analysis.processes[1];
    assert_eq!(child.peak.rss_bytes, Some(Bytes(7 << 20)));
    assert_ne!(
        child.peak.bound,
        Bound::AtLeast,
        "it was never seen above that"
    );
    assert_eq!(peak(&analysis, "cc"), Some(7));
}

#[test]
fn without_roles_in_titles_a_process_is_what_it_is_in_the_end() {
    let mut run = Script::command(&["a"], 100.0);
    run.process(1, None, 0.0, "a");
    run.process(2, Some(1), 1.0, "python3 x.py");
    run.edit(2, |row| row.role = Some("worker".to_owned()));
    run.mem(2, 2.0, [300.0, 0.0, 0.0]);
    assert_eq!(peak(&run.analyzed(None), "worker"), Some(300));
}

#[test]
fn a_kind_that_was_never_known_stays_unknown_after_the_end() {
    let mut run = Script::command(&["a"], 100.0);
    run.process(1, None, 0.0, "a");
    run.process(2, Some(1), 1.0, "b");
    for (tgid, at) in [(1, 2.0), (2, 2.0)] {
        let row = mem_row(upid(Tgid(tgid)).0, boot(at).0, Some(64 << 20));
        run.rows.0.push(row.into());
    }
    run.edit(2, |row| row.exit_boot_ns = Some(boot(5.0)));
    let analysis = run.analyzed(None);
    let ended = role(&analysis, "b").expect("a group");
    assert_eq!(peak(&analysis, "b"), Some(64));
    assert_eq!(*ended.kind(Kind::Anon), KindFigures::default());
    let at_peak = ended.at_peak.expect("a peak");
    assert_eq!(at_peak.totals[Kind::Anon].bytes(), None);
    assert_eq!(at_peak.host_bytes(), None);
}

#[test]
fn too_many_programs_are_counted_together() {
    let letters = |number: u32| -> String {
        let digits = number.to_string();
        digits.bytes().map(|digit| char::from(digit + 49)).collect()
    };
    let mut run = Script::command(&["a"], 10.0);
    run.process(1, None, 0.0, "a");
    run.mem(1, 1.0, [9.0, 0.0, 0.0]);
    for tgid in 2..1_102 {
        run.process(tgid, Some(1), 1.0, &format!("x{}", letters(tgid)));
        run.mem(tgid, 1.5, [1.0, 0.0, 0.0]);
    }
    run.process(2_000, Some(1), 2.0, "z");
    run.mem(2_000, 2.5, [50.0, 0.0, 0.0]);
    let analysis = run.analyzed(None);
    assert_eq!(analysis.roles.len(), 1_025);
    assert_eq!(
        peak(&analysis, "z"),
        Some(50),
        "the largest are distinguished"
    );
    let others = role(&analysis, "others").expect("the others");
    assert_eq!(others.members.len(), 1_102 - 1_024);
}

#[test]
fn the_mean_of_a_command_ends_with_it() {
    let mut run = Script::command(&["a"], 100.0);
    run.process(1, None, 0.0, "a");
    run.process(2, Some(1), 0.0, "b");
    run.mem(2, 5.0, [100.0, 0.0, 0.0]);
    run.edit(1, |row| row.exit_boot_ns = Some(boot(10.0)));
    let analysis = run.analyzed(None);
    let mean = role(&analysis, "b").and_then(|role| role.kind(Kind::Rss).mean_bytes);
    assert_eq!(mean.map(|bytes| bytes.0 >> 20), Some(50));
}

#[test]
fn growth_ends_with_the_command_and_with_the_last_of_a_role() {
    let mut run = Script::command(&["a"], 300.0);
    run.process(1, None, 0.0, "a");
    run.process(2, Some(1), 0.0, "b");
    run.process(3, Some(1), 0.0, "c");
    for second in 1..=200 {
        let at = f64::from(second);
        run.mem(1, at, [at * 10.0, 0.0, 0.0]);
        run.mem(2, at, [100.0, 0.0, 0.0]);
        if second <= 160 {
            run.mem(3, at, [at * 5.0, 0.0, 0.0]);
        }
    }
    // The command ends, a child of it lives on; another had ended before.
    run.edit(1, |row| row.exit_boot_ns = Some(boot(200.5)));
    run.edit(3, |row| row.exit_boot_ns = Some(boot(160.5)));
    let analysis = run.analyzed(None);
    let growth = analysis.growth.expect("long enough to tell");
    assert!(growth.to.boot_ns <= boot(200.5), "{growth:?}");
    let of = |name| role(&analysis, name).and_then(|role| role.kind(Kind::Rss).growth);
    for (name, mib_per_second) in [("a", 10.0), ("c", 5.0)] {
        let growth = of(name).unwrap_or_else(|| panic!("growth of {name}"));
        let found = growth.bytes_per_hour / 3600.0 / f64::from(1 << 20);
        assert!((found - mib_per_second).abs() < 0.1, "{name}: {growth:?}");
        assert_eq!(growth.verdict, Verdict::Growing, "{name}");
    }
}
