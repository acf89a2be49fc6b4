//! Kills that logs tell of, and what ends of processes say of them.

use super::endings::{ends, happened};
use super::*;
use serde_json::{Value, json};

/// A line of a log that says that a process was killed.
fn says_killed(run: &mut Script, at: f64, pid: Option<u32>, senders: &[&str]) {
    let said = json!({
        "killer": "Ray's memory monitor",
        "reason": "the node ran low on memory",
        "senders": senders,
        "killed_pid": pid,
        "look_back_seconds": 70,
        "line": "Selected to kill: …",
    });
    says(run, at, &said);
}

fn says(run: &mut Script, at: f64, said: &Value) {
    run.said_mark(Some(1), at, MarkKind::Kill, "a", &said.to_string());
}

/// A line that names a process, as earlyoom's.
fn announces(run: &mut Script, at: f64, pid: u32) {
    let said = json!({"killer": "earlyoom", "reason": "low memory", "killed_pid": pid, "senders": ["engine"]});
    says(run, at, &said);
}

#[test]
fn a_killer_that_logs_why_is_what_happened_also_where_it_shuts_down_then() {
    for (pid, at) in [(Some(3), 39.9), (Some(3), 44.0), (None, 44.0)] {
        let report = ends(|run| {
            run.kill_from(2, 3, 40.0, 9);
            run.exit(2, 45.0, 0);
            run.exit(1, 50.0, 1);
            says_killed(run, at, pid, &["engine"]);
            says_killed(run, at + 1.0, None, &["engine"]);
        });
        let shown = "Ray's memory monitor ended 3 worker (SIGKILL) at 12:02:24 UTC (+40.0s): ";
        assert!(happened(&report).starts_with(shown), "{pid:?}: {report}");
        assert!(report.contains(": the node ran low on memory."), "{report}");
        assert!(!report.contains("claims"), "{report}");
        assert!(!report.contains("as it shut down"), "{report}");
    }
}

#[test]
fn a_line_whose_kill_no_end_bears_out_is_a_claim_and_no_cause() {
    type End = fn(&mut Script);
    let ends_otherwise: [End; 6] = [
        |_| {},
        |run| run.exit(3, 40.0, 0),
        |run| run.kill_from(99, 3, 40.0, 9),
        |run| run.fault(3, 40.0, 11),
        |run| run.oom(3, 3, 40.0, "/job", gib(1.0)),
        |run| run.kill_from(2, 3, 58.0, 9),
    ];
    for (place, end) in ends_otherwise.into_iter().enumerate() {
        for pid in [Some(3), None] {
            if place == 5 && pid.is_some() {
                continue;
            }
            let report = ends(|run| {
                end(run);
                says_killed(run, 41.0, pid, &["engine"]);
            });
            assert!(!happened(&report).contains("Ray's memory"), "{report}");
            assert!(
                report.contains("claims that Ray's memory monitor"),
                "{report}"
            );
        }
    }
}

#[test]
fn who_ends_by_itself_when_asked_to_was_ended_only_at_once_and_by_an_ancestor() {
    let report = |end: f64, pid: Option<u32>, writer: Option<u32>| {
        ends(|run| {
            run.exit(3, end, 0);
            let said = json!({
                "killer": "gunicorn", "reason": "it hung", "killed_pid": pid, "exit_codes": [0, 1],
                "writer_pid": writer,
            });
            says(run, 40.0, &said);
        })
    };
    let shown = "gunicorn ended 3 worker (exit 0)";
    let claimed = "claims that gunicorn killed process 3";
    // It is no failure.
    for (pid, writer) in [(Some(3), Some(2)), (Some(3), Some(1)), (None, None)] {
        let own = report(40.5, pid, writer);
        let first = happened(&own);
        let after = first.split_once("the command succeeded (exit 0)");
        assert!(
            after.is_some_and(|(_, after)| after.contains(shown)),
            "{own}"
        );
        assert!(
            !own.contains("claims") && !own.contains("Ended abnormally"),
            "{own}"
        );
    }
    for (end, writer) in [(50.0, Some(2)), (40.5, None), (40.5, Some(3))] {
        let claim = report(end, Some(3), writer);
        assert!(!claim.contains(shown) && claim.contains(claimed), "{claim}");
    }
}

#[test]
fn who_failed_by_itself_or_before_a_line_was_not_killed_by_whom_it_names() {
    type End = fn(&mut Script);
    let otherwise: [End; 3] = [
        |run| run.exit(3, 40.5, 1),
        |run| run.kill_from(2, 3, 38.0, 9),
        |run| run.kill_from(2, 3, 110.0, 9),
    ];
    for end in otherwise {
        let report = ends(|run| {
            end(run);
            announces(run, 40.0, 3);
        });
        assert!(
            report.contains("claims that earlyoom killed process 3"),
            "{report}"
        );
        assert!(!report.contains("earlyoom ended"), "{report}");
    }
}

/// The same processes and three more workers, each with an id of its own namespace or none.
fn among(inside: [Option<u32>; 3], how: impl Fn(&mut Script)) -> String {
    ends(|run| {
        for (tgid, ns_tgid) in (4..).zip(inside) {
            run.process(tgid, Some(2), 0.0, "worker");
            run.edit(tgid, |process| {
                process.ns_tgid = Some(Tgid(ns_tgid.unwrap_or(tgid)))
            });
        }
        how(run);
    })
}

#[test]
fn a_line_that_names_nobody_tells_of_as_many_as_it_says_or_of_one() {
    let report = |workers: Option<u32>, killed: u32, signal: i32, at: f64| {
        among([None; 3], |run| {
            for tgid in 4..4 + killed {
                run.kill_from(2, tgid, 40.0 + f64::from(tgid) / 10.0, signal);
            }
            let said = json!({
                "killer": "a limit", "reason": "it ran long", "workers": workers, "look_back_seconds": 2,
            });
            says(run, at, &said);
        })
    };
    // An ancestor can ask first, as Celery's main process does.
    for (workers, killed, signal) in [
        (None, 1, 9),
        (None, 1, 15),
        (Some(1), 1, 9),
        (Some(3), 3, 9),
    ] {
        let reported = report(workers, killed, signal, 41.0);
        assert!(
            happened(&reported).starts_with("a limit ended 4 worker"),
            "{reported}"
        );
    }
    let several = report(None, 3, 9, 41.0);
    assert!(
        several.contains("claims that a limit killed 1 process; 3 processes ended that way then"),
        "{several}"
    );
    for (killed, signal, at) in [(3, 9, 41.0), (1, 2, 41.0), (1, 9, 44.0)] {
        let claim = report(None, killed, signal, at);
        assert!(
            claim.contains("claims that a limit killed 1 process"),
            "{claim}"
        );
        assert!(!claim.contains("a limit ended"), "{claim}");
    }
    assert!(report(Some(4), 3, 9, 41.0).contains("killed 4 processes; 3 processes ended"));
    assert!(!report(Some(0), 1, 9, 41.0).contains("a limit"));
}

#[test]
fn a_pid_that_several_namespaces_have_names_nobody_and_a_line_of_another_host_none_inside() {
    let report = |inside, line: &str| {
        among(inside, |run| {
            run.kill_from(2, 4, 40.0, 9);
            run.kill_from(2, 5, 40.2, 9);
            let said = json!({
                "killer": "Ray", "reason": "low memory", "killed_pid": 7, "line": line,
                "senders": ["engine"],
            });
            says(run, 40.0, &said);
        })
    };
    let ended = "Ray ended 4 worker (SIGKILL)";
    assert!(report([Some(7), None, None], "").contains(ended));
    let several = report([Some(7), Some(7), None], "");
    assert!(
        several.contains("claims that Ray killed process 7; 2 processes"),
        "{several}"
    );
    let elsewhere = report([Some(7), None, None], "(raylet, ip=10.0.0.7) Selected");
    assert!(
        elsewhere.contains("the line can be of another host"),
        "{elsewhere}"
    );
}

#[test]
fn of_processes_that_had_a_pid_one_after_another_the_nearest_end_is_meant() {
    let report = among([None; 3], |run| {
        for (tgid, at) in [(4, 39.5), (5, 40.1), (6, 40.05)] {
            run.edit(tgid, |process| process.tgid = Tgid(9));
            run.kill_from(2, tgid, at, 9);
        }
        // It did not live then.
        run.edit(6, |process| {
            process.start_boot_ns = process.exit_boot_ns.unwrap()
        });
        announces(run, 40.0, 9);
    });
    let shown = "earlyoom ended 9 worker (SIGKILL) at 12:02:24 UTC (+40.1s)";
    assert!(happened(&report).starts_with(shown), "{report}");
}

#[test]
fn who_is_named_in_a_log_is_not_counted_again() {
    let report = among([None; 3], |run| {
        for tgid in 4..7 {
            run.kill_from(2, tgid, 40.0, 9);
        }
        announces(run, 40.0, 4);
    });
    assert!(
        happened(&report).contains("2 processes more ended abnormally."),
        "{report}"
    );
    assert!(report.contains("2 × worker: SIGKILL"), "{report}");
    assert!(!report.contains("3 × worker: SIGKILL"), "{report}");
}

#[test]
fn lines_without_end_are_compared_up_to_a_bound_and_claims_have_a_chapter_of_their_own() {
    let report = ends(|run| {
        run.exit(1, 50.0, 0);
        for pid in 0..300 {
            announces(run, 40.0, 1_000 + pid);
        }
    });
    assert!(!report.contains("nded abnormally"), "{report}");
    let (_, claims) = report.split_once("Claims in logs").expect("a chapter");
    assert_eq!(claims.matches("claims that").count(), 5, "{claims}");
    assert!(claims.contains("251 more: see"), "{claims}");
    assert!(claims.contains("44 more lines tell of kills"), "{claims}");
}

#[test]
fn how_a_process_ended_that_nobody_saw_is_said_to_be_unknown() {
    let report = ends(|run| {
        run.exit(3, 40.0, 0);
        run.edit(3, |process| process.exit_code = None);
        announces(run, 40.0, 3);
    });
    assert!(
        report.contains("how processes ended then was not observed"),
        "{report}"
    );
}

#[test]
fn a_line_that_names_a_process_is_borne_out_by_its_end_where_no_sender_is_known() {
    let shown = "Ray's memory monitor ended 3 worker";
    let named = ends(|run| {
        run.kill(3, 40.0, 9);
        says_killed(run, 41.0, Some(3), &["raylet"]);
    });
    assert!(happened(&named).starts_with(shown), "{named}");
    let nameless = ends(|run| {
        run.kill(3, 40.0, 9);
        says_killed(run, 41.0, None, &["raylet"]);
    });
    assert!(!happened(&nameless).contains(shown), "{nameless}");
}

#[test]
fn rules_say_who_wrote_the_line_of_an_orderly_end_and_how_many_were_killed() {
    let group = |name: &str, line: &str| {
        let rules = memtrace_model::builtin_mark_rules().unwrap();
        let mut rules = rules.iter().filter(|rule| rule.kill.is_some());
        rules.find_map(|rule| {
            let groups = rule.pattern.as_ref()?.captures(line.as_bytes())?;
            Some(String::from_utf8_lossy(groups.name(name)?.as_bytes()).into_owned())
        })
    };
    let timeout = "[2026-11-26 12:00:00 +0000] [4700] [CRITICAL] WORKER TIMEOUT (pid:4711)";
    assert_eq!(group("writer_pid", timeout).as_deref(), Some("4700"));
    assert_eq!(group("writer_pid", "WORKER TIMEOUT (pid:4711)"), None);
    let killed = "2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers";
    assert_eq!(group("workers", killed).as_deref(), Some("2"));
}

#[test]
fn workers_that_celery_replaces_at_a_limit_say_so_without_a_line() {
    let report = |option: &str, held: f64, role: &str| {
        ends(|run| {
            run.process(4, Some(1), 1.0, &format!("celery -A app worker {option}"));
            for (tgid, at) in [(5, 40.0), (6, 45.0)] {
                run.process(tgid, Some(4), 2.0, "celery");
                run.edit(tgid, |process| {
                    process.framework = Some("Celery".to_owned());
                    process.role = Some(role.to_owned());
                });
                run.mem(tgid, 3.0, [held, 0.0, 0.0]);
                run.exit(tgid, at, 155);
            }
            run.exit(1, 50.0, 0);
            run.info.command_exit_code = Some(0);
        })
    };
    let limited = report("--max-memory-per-child=100000", 300.0, "prefork worker");
    let first = happened(&limited);
    assert!(first.starts_with("the command succeeded"), "{limited}");
    let shown = "Celery's memory limit ended 5 Celery prefork worker (exit 155) and 1 more at";
    assert!(first.contains(shown), "{limited}");
    assert!(
        first.contains(": it had held 300 MiB, and may hold 97.7 MiB."),
        "{limited}"
    );
    // By its configuration, or it had not held as much.
    for (option, held) in [("", 300.0), ("--max-memory-per-child=400000", 300.0)] {
        let either = report(option, held, "prefork worker");
        let shown = "Celery's pool ended 5 Celery prefork worker (exit 155) and 1 more at";
        assert!(happened(&either).contains(shown), "{either}");
        assert!(
            either.contains("its limit of memory or of tasks; it had held 300 MiB."),
            "{either}"
        );
    }
    let other = report("--max-memory-per-child=100000", 300.0, "main process");
    assert!(!other.contains("Celery's"), "{other}");
}
