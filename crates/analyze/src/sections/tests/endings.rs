//! How processes ended, and what they left.

use super::*;

#[test]
fn a_command_that_still_ran_and_a_recovery_are_reported_once() {
    let mut reported = RUNS[0].1().reported(None, None);
    reported.analysis.info.command_exit_code = None;
    let main = reported
        .analysis
        .processes
        .iter_mut()
        .find(|process| process.is_main);
    main.expect("a main process").ending = Ending::Running;
    let report = written(&FORMATS[0], &reported, &Style::default());
    assert!(report.contains("still running"), "{report}");
    reported.analysis.info.state = RunState::Recovered;
    reported.analysis.losses.push(Loss {
        severity: Severity::Degraded,
        kind: Some(DiagKind::Recovered),
        subject: "recording".to_owned(),
        count: None,
        detail: "closed after its recorder died".to_owned(),
        first: None,
        last: None,
    });
    let report = written(&FORMATS[0], &reported, &Style::default());
    assert!(report.contains("exit code unknown"), "{report}");
    assert!(report.contains("Closed by `memtrace recover`"), "{report}");
    assert!(!report.contains("after its recorder died"), "{report}");
}

#[test]
fn a_command_is_distinguished_from_the_wait_for_what_it_left() {
    let mut reported = ray_with_vllm().reported(None, None);
    let mut processes = reported.analysis.processes.iter_mut();
    let main = processes
        .find(|process| process.is_main)
        .expect("a main process");
    let end = main.start.boot_ns + memtrace_model::DurationNs(730_000_000);
    main.end = Some(memtrace_model::Instant::unsettled(end));
    main.ending = Ending::Killed {
        signal: 9,
        by_oom_killer: Some(true),
    };
    reported.analysis.info.command_exit_code = Some(137);
    let report = written(&FORMATS[0], &reported, &Style::default());
    let shown = "ran 0.730s · recorded for 10m00s · OOM kill";
    assert!(report.contains(shown), "{report}");
}

#[test]
fn a_command_that_was_let_go_later_says_when_where_its_times_read_differently() {
    let shown = |begin: f64, end: f64| {
        let mut run = Script::command(&["serve"], 5.0);
        run.process(1, None, begin, "serve");
        run.mem(1, begin, [10.0, 0.0, 0.0]);
        run.exit(1, end, 0);
        written(&FORMATS[0], &run.reported(None, None), &Style::default())
    };
    let report = shown(0.45, 4.5);
    assert!(
        report.contains("ran 4.0s from +0.450s · exit 0"),
        "{report}"
    );
    let report = shown(0.01, 4.53);
    assert!(report.contains("ran 4.5s · exit 0"), "{report}");
}

/// A server with an engine and a worker, and how they end.
pub(super) fn ends(how: impl Fn(&mut Script)) -> String {
    ends_in(how, None)
}

/// The same in one section.
fn ends_in(how: impl Fn(&mut Script), section: Option<&'static str>) -> String {
    let mut run = Script::command(&["serve"], 60.0);
    for (tgid, parent, name) in [
        (1, None, "serve"),
        (2, Some(1), "engine"),
        (3, Some(2), "worker"),
    ] {
        run.process(tgid, parent, 0.0, name);
        run.mem(tgid, 1.0, [100.0, 0.0, 0.0]);
    }
    how(&mut run);
    let style = Style {
        section,
        ..Style::default()
    };
    let report = written(&FORMATS[0], &run.reported(None, None), &style);
    report.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What the report says first.
pub(super) fn happened(report: &str) -> &str {
    let (_, shown) = report.split_once("What happened: ").expect("an answer");
    shown
        .split_once(" Most held:")
        .map_or(shown, |(shown, _)| shown)
}

#[test]
fn a_kill_of_a_child_stands_with_the_exit_code_of_the_command() {
    let killed = |code: i32| {
        let report = ends(|run| {
            run.info.command_exit_code = Some(code);
            run.kill(2, 30.0, 9);
            run.exit(1, 31.0, code);
        });
        happened(&report).to_owned()
    };
    let shown = killed(137);
    assert!(
        shown.ends_with(" The command itself ended after 31.0s: exit 137."),
        "{shown}"
    );
    assert!(killed(0).ends_with("ended after 31.0s: exit 0."));
}

#[test]
fn a_command_that_was_left_running_did_not_end() {
    let report = ends(|run| run.info.command_exit_code = None);
    let shown = "the command was still running when the recording ended.";
    assert!(happened(&report).starts_with(shown), "{report}");
}

/// How the table says that the worker ended.
fn as_listed(how: impl Fn(&mut Script)) -> String {
    let report = ends_in(how, Some("endings"));
    let (_, listed) = report.split_once("SIGKILL from 2").expect("a kill");
    let (note, _) = listed.split_once(" 3 worker").expect("the worker");
    note.trim().to_owned()
}

#[test]
fn what_a_server_that_was_asked_to_end_kills_is_ordinary() {
    let is_ordinary = |how: &dyn Fn(&mut Script)| {
        let report = ends(|run| how(run));
        let is_first = happened(&report).contains("3 worker: SIGKILL from 2");
        assert!(
            !is_first && !report.contains("Ended abnormally"),
            "{report}"
        );
        assert_eq!(as_listed(|run| how(run)), "as it shut down");
    };
    // It was asked, or its parent was, and however long that takes.
    for (asked, end) in [(2, 50.5), (1, 50.5), (2, 59.0)] {
        is_ordinary(&|run| {
            run.ask(99, asked, 30.0, 15);
            run.kill_from(2, 3, 50.0, 9);
            run.exit(2, end, 0);
            run.exit(1, end, 0);
        });
    }
    // The kernel kills what asked for it when its parent ends.
    is_ordinary(&|run| {
        run.kill_from(9, 2, 49.9, 2);
        run.kill_from(2, 3, 50.0, 9);
    });
}

#[test]
fn what_an_ancestor_kills_before_it_is_asked_to_end_is_no_shutdown() {
    // It was asked only then, or went on: it started another, or has not ended.
    for (asked, started, end) in [
        (50.5, None, Some(51.0)),
        (30.0, Some(40.0), Some(55.0)),
        (30.0, None, None),
    ] {
        let note = as_listed(|run| {
            run.ask(99, 2, asked, 15);
            if let Some(at) = started {
                run.process(4, Some(2), at, "worker");
            }
            run.kill_from(2, 3, 50.0, 9);
            if let Some(end) = end {
                run.exit(2, end, 0);
            }
        });
        assert_ne!(note, "as it shut down");
    }
}

#[test]
fn an_ancestor_that_ends_by_itself_after_a_kill_is_reported_as_that() {
    let ended = |code: i32, at: f64| {
        move |run: &mut Script| {
            run.kill_from(2, 3, 50.0, 9);
            run.exit(2, at, code);
        }
    };
    assert_eq!(as_listed(ended(0, 51.0)), "before 2 ended");
    assert_eq!(as_listed(ended(1, 51.0)), "before 2 ended");
    // In turn.
    assert_eq!(
        as_listed(|run| {
            run.kill_from(2, 3, 50.0, 9);
            run.kill_from(1, 2, 50.5, 9);
            run.exit(1, 51.0, 0);
        }),
        "before 2 ended"
    );
    // One that failed can have done it because the worker did not answer.
    assert!(!ends(ended(0, 51.0)).contains("worker: SIGKILL from 2 engine"));
    assert!(ends(ended(1, 51.0)).contains("worker: SIGKILL from 2 engine before 2 ended"));
    // It ran on, started another, or crashed.
    let killed = |run: &mut Script| run.kill_from(2, 3, 50.0, 9);
    assert_eq!(as_listed(killed), "");
    assert_eq!(
        as_listed(|run| {
            run.kill_from(2, 3, 20.0, 9);
            run.exit(2, 51.0, 0);
        }),
        ""
    );
    assert_eq!(
        as_listed(|run| {
            killed(run);
            run.process(4, Some(2), 50.1, "worker");
            run.exit(2, 51.0, 0);
        }),
        ""
    );
    // Or what it had started started another.
    assert_eq!(
        as_listed(|run| {
            run.process(4, Some(2), 1.0, "raylet");
            killed(run);
            run.process(5, Some(4), 50.1, "worker");
            run.exit(2, 51.0, 0);
        }),
        ""
    );
    assert_eq!(
        as_listed(|run| {
            killed(run);
            run.fault(2, 50.5, 11);
        }),
        ""
    );
}

#[test]
fn a_process_that_handled_a_signal_says_who_had_sent_it_and_when() {
    let command = |code: i32| {
        move |run: &mut Script| {
            run.ask(99, 1, 50.0, 15);
            run.exit(1, 50.8, code);
            run.info.command_exit_code = Some(code);
        }
    };
    let report = ends(command(1));
    let shown = "exit 1, 0.800s after SIGTERM from 99 bash (not recorded).";
    assert!(happened(&report).contains(shown), "{report}");
    let report = ends(command(0));
    let shown = "(exit 0) after 50.8s, 0.800s after SIGTERM from 99 bash (not recorded).";
    assert!(happened(&report).contains(shown), "{report}");
    let report = ends(|run| {
        command(1)(run);
        run.edit(1, |process| {
            process.termination_signal_sender_comm = Some("memtrace".into())
        });
    });
    let shown = "exit 1, 0.800s after SIGTERM from 99 memtrace (the recorder).";
    assert!(happened(&report).contains(shown), "{report}");
    // It aborts itself, as drivers of Ray do.
    let report = ends(|run| {
        run.ask(99, 3, 50.0, 15);
        run.kill_from(3, 3, 50.1, 6);
    });
    let shown = "3 worker: SIGABRT from itself, 0.100s after SIGTERM from 99 bash (not recorded)";
    assert!(happened(&report).starts_with(shown), "{report}");
    // One that ended by that signal says it once.
    let report = ends(|run| {
        run.ask(2, 3, 50.0, 15);
        run.kill_from(2, 3, 50.1, 15);
    });
    assert!(!report.contains("after SIGTERM"), "{report}");
    // Who was stopped in both ways was not quick enough.
    let report = ends(|run| {
        run.ask(99, 3, 40.0, 15);
        run.kill_from(99, 3, 50.0, 9);
    });
    let shown = "SIGKILL from 99 bash (not recorded), 10.0s after SIGTERM at";
    assert!(happened(&report).contains(shown), "{report}");
    // Several that ended in one way are one line.
    let report = ends(|run| {
        for (tgid, asked) in [(4, 40.0), (5, 41.0)] {
            run.process(tgid, Some(2), 1.0, "replica");
            run.ask(2, tgid, asked, 15);
            run.exit(tgid, 45.0, 1);
        }
    });
    assert!(
        report.contains("exit 1 after SIGTERM from 2 2 × replica"),
        "{report}"
    );
}

#[test]
fn a_worker_that_another_kills_shortly_before_a_shutdown_is_what_happened() {
    let report = ends(|run| {
        run.kill_from(99, 3, 48.0, 9);
        run.exit(2, 51.0, 0);
        run.exit(1, 51.5, 0);
    });
    let shown = "3 worker: SIGKILL from 99 bash (not recorded) at";
    assert!(happened(&report).starts_with(shown), "{report}");
    // Also where it is recorded, and no ancestor.
    let report = ends(|run| {
        run.kill_from(3, 2, 48.0, 9);
        run.exit(3, 51.0, 0);
        run.exit(1, 51.5, 0);
    });
    let shown = "2 engine: SIGKILL from 3 worker at";
    assert!(happened(&report).starts_with(shown), "{report}");
}

#[test]
fn a_command_that_failed_by_itself_is_what_happened_whatever_it_stopped() {
    let report = ends(|run| {
        run.kill_from(2, 3, 20.0, 9);
        run.kill_from(1, 2, 50.0, 9);
        run.exit(1, 50.5, 1);
        run.info.command_exit_code = Some(1);
    });
    assert!(
        happened(&report).starts_with("the command failed after"),
        "{report}"
    );
    assert!(
        report.contains("3 worker: SIGKILL from 2 engine at"),
        "{report}"
    );
    // But for what made it fail.
    let report = ends(|run| {
        run.fault(3, 20.0, 11);
        run.kill_from(1, 2, 50.0, 9);
        run.exit(1, 50.5, 1);
        run.info.command_exit_code = Some(1);
    });
    assert!(
        happened(&report).starts_with("3 worker: SIGSEGV from the kernel at"),
        "{report}"
    );
}

#[test]
fn a_signal_says_who_sent_it_or_that_this_is_not_known() {
    for (how, shown) in [
        (
            (|run: &mut Script| run.kill_from(3, 3, 50.0, 6)) as fn(&mut Script),
            "SIGABRT from itself",
        ),
        (|run| run.fault(3, 50.0, 24), "SIGXCPU from the kernel"),
        (|run| run.kill(3, 50.0, 11), "SIGSEGV (sender not known)"),
    ] {
        let report = ends(how);
        assert!(
            happened(&report).starts_with(&format!("3 worker: {shown} at")),
            "{report}"
        );
    }
}

#[test]
fn a_process_that_the_recorder_ended_is_no_abnormal_ending() {
    let mut run = left_behind();
    run.kill(421, 59.5, 9);
    let report = written(&FORMATS[0], &run.reported(None, None), &Style::default());
    let first: Vec<&str> = report
        .lines()
        .take_while(|line| !line.starts_with("Survivors"))
        .collect();
    let first = first.join(" ");
    assert!(
        first.contains("left 3 processes running that held 6.1 GiB"),
        "{first}"
    );
    assert!(!first.contains("ended abnormally"), "{first}");
}

#[test]
fn shared_memory_that_others_left_is_one_line_and_all_of_it_when_asked_for() {
    use memtrace_model::tables::OrphanedShmRow;
    let mut run = left_behind();
    run.rows.0.retain(|record| {
        !matches!(
            record,
            Record::OrphanedShmObject(OrphanedShmRow {
                creator_tgid: Some(_),
                ..
            })
        )
    });
    let reported = run.reported(None, None);
    let whole = written(&FORMATS[0], &reported, &Style::default());
    let (above, peak) = whole.split_once("Peak of the tree").expect("a peak");
    assert!(!above.contains("without an owner"), "{above}");
    let lines = peak.lines().skip_while(|line| !line.contains("Shared"));
    let shown = lines.take_while(|line| !line.is_empty());
    insta::assert_snapshot!(shown.collect::<Vec<_>>().join("\n"), @"
    Shared memory of others: 2 objects (17.0 GiB) without an owner that no recorded process was seen
    to make, map or have open: `--section orphaned-shm` lists them.
    ");
    let style = Style {
        section: Some("orphaned-shm"),
        ..Style::default()
    };
    let alone = written(&FORMATS[0], &reported, &style);
    assert!(alone.contains("/dev/shm/uncertain"), "{alone}");
    assert!(
        alone.contains("Some processes could not be inspected"),
        "{alone}"
    );
}

#[test]
fn limits_of_a_process_and_a_full_tmpfs_are_reported_the_nearest_first() {
    let shown = |limited: bool, used: i64| {
        let mut run = Script::command(&["train"], 60.0);
        run.process(1, None, 0.0, "train");
        run.mem(1, 1.0, [100.0, 0.0, 0.0]);
        run.node(1.0, gib(400.0));
        run.reserves(1, 2.0, 1.86);
        if limited {
            run.edit(1, |process| process.rlimit_as_bytes = Some(gib(2.0)));
        }
        run.put(TmpfsRow {
            ts: wall(3.0),
            boot_ns: boot(3.0),
            device: "0:23".to_owned(),
            mount_point: "/dev/shm".to_owned(),
            seen_by_upid: upid(Tgid(1)),
            size_bytes: Bytes(64 << 20),
            used_bytes: Bytes(used << 20),
        });
        let analysis = run.analyzed(None);
        let lines = answer::lines(&analysis).into_iter();
        let mut lines = lines.filter(|line| line.about == crate::answer::Topic::Limit);
        lines.next().map(|line| line.text).unwrap_or_default()
    };
    let full = "64.0 MiB of the 64.0 MiB of /dev/shm were in use at 12:01:47 UTC (+3.0s) (100%)";
    let space = "1 train had mapped 1.9 GiB of the 2.0 GiB of address space that RLIMIT_AS allows \
                 it (93%)";
    assert_eq!(
        shown(true, 64).split("; ").take(2).collect::<Vec<_>>(),
        [full, space]
    );
    assert!(shown(true, 10).starts_with(space), "{}", shown(true, 10));
    assert!(shown(false, 64).starts_with(full), "{}", shown(false, 64));
    assert!(
        !shown(false, 10).contains("/dev/shm"),
        "{}",
        shown(false, 10)
    );
}

#[test]
fn a_limit_of_which_less_than_half_is_used_is_reported_only_where_the_command_failed() {
    let is_reported = |code: i32| {
        let mut run = Script::command(&["train"], 60.0);
        run.process(1, None, 0.0, "train");
        run.mem(1, 1.0, [100.0, 0.0, 0.0]);
        run.reserves(1, 2.0, 0.5);
        run.edit(1, |process| process.rlimit_as_bytes = Some(gib(2.0)));
        run.exit(1, 50.0, code);
        run.info.command_exit_code = Some(code);
        let mut lines = answer::lines(&run.analyzed(None)).into_iter();
        lines.any(|line| line.text.contains("RLIMIT_AS"))
    };
    assert!(!is_reported(0) && is_reported(1));
}
