//! How processes ended, and what they left.

use super::*;

#[test]
fn a_command_that_still_ran_and_a_recovery_are_told_once() {
    let mut reported = RUNS[0].1().reported(None, None);
    reported.analysis.info.command_exit_code = None;
    let main = reported
        .analysis
        .processes
        .iter_mut()
        .find(|process| process.is_main);
    main.expect("a main process").ending = Ending::Running;
    let report = written(FORMATS[0], &reported, &Style::default());
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
    let report = written(FORMATS[0], &reported, &Style::default());
    assert!(report.contains("exit code unknown"), "{report}");
    assert!(report.contains("Closed by `memtrace recover`"), "{report}");
    assert!(!report.contains("after its recorder died"), "{report}");
}

#[test]
fn a_command_is_told_apart_from_the_wait_for_what_it_left() {
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
    let report = written(FORMATS[0], &reported, &Style::default());
    let told = "ran 0.730s · recorded for 10m00s · OOM kill";
    assert!(report.contains(told), "{report}");
}

/// A server with an engine and a worker, and how they end.
fn ends(how: impl Fn(&mut Script)) -> String {
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
    let report = written(FORMATS[0], &run.reported(None, None), &Style::default());
    report.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What the report says first.
fn happened(report: &str) -> &str {
    let (_, told) = report.split_once("What happened: ").expect("an answer");
    told.split_once(" Most held:")
        .map_or(told, |(told, _)| told)
}

#[test]
fn what_a_server_kills_as_it_shuts_down_is_ordinary() {
    let is_ordinary = |how: &dyn Fn(&mut Script)| {
        let report = ends(|run| how(run));
        let is_told = report.contains("SIGKILL from 2 as it shut down 3 worker");
        let is_first = happened(&report).contains("3 worker: SIGKILL from 2 engine at");
        let is_abnormal = report.contains("3 worker: SIGKILL from 2 engine at");
        assert!(is_told || is_first || is_abnormal, "{report}");
        is_told
    };
    // In turn, however the server ends by itself.
    for code in [0, 1] {
        assert!(is_ordinary(&|run| {
            run.kill_from(2, 3, 50.0, 9);
            run.kill_from(1, 2, 50.5, 9);
            run.exit(1, 51.0, code);
        }));
    }
    // The kernel kills what asked for it when its parent ends.
    assert!(is_ordinary(&|run| {
        run.kill_from(9, 2, 49.9, 2);
        run.kill_from(2, 3, 50.0, 9);
    }));
    // It ran on, started another, or crashed.
    assert!(!is_ordinary(&|run| run.kill_from(2, 3, 50.0, 9)));
    assert!(!is_ordinary(&|run| {
        run.kill_from(2, 3, 20.0, 9);
        run.exit(2, 51.0, 0);
    }));
    assert!(!is_ordinary(&|run| {
        run.kill_from(2, 3, 50.0, 9);
        run.process(4, Some(2), 50.1, "worker");
        run.exit(2, 51.0, 0);
    }));
    assert!(!is_ordinary(&|run| {
        run.kill_from(2, 3, 50.0, 9);
        run.fault(2, 50.5, 11);
    }));
}

#[test]
fn a_worker_that_another_kills_shortly_before_a_shutdown_is_what_happened() {
    let report = ends(|run| {
        run.kill_from(99, 3, 48.0, 9);
        run.exit(2, 51.0, 0);
        run.exit(1, 51.5, 0);
    });
    let told = "3 worker: SIGKILL from 99 bash (not recorded) at";
    assert!(happened(&report).starts_with(told), "{report}");
    // Also where it is recorded, and no ancestor.
    let report = ends(|run| {
        run.kill_from(3, 2, 48.0, 9);
        run.exit(3, 51.0, 0);
        run.exit(1, 51.5, 0);
    });
    let told = "2 engine: SIGKILL from 3 worker at";
    assert!(happened(&report).starts_with(told), "{report}");
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
        report.contains("Ended abnormally 3 worker: SIGKILL from 2 engine at"),
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
    for (how, told) in [
        (
            (|run: &mut Script| run.kill_from(3, 3, 50.0, 6)) as fn(&mut Script),
            "SIGABRT from itself",
        ),
        (|run| run.fault(3, 50.0, 24), "SIGXCPU from the kernel"),
        (|run| run.kill(3, 50.0, 11), "SIGSEGV (sender not known)"),
    ] {
        let report = ends(how);
        assert!(
            happened(&report).starts_with(&format!("3 worker: {told} at")),
            "{report}"
        );
    }
}

#[test]
fn a_process_that_the_recorder_ended_is_no_abnormal_ending() {
    let mut run = left_behind();
    run.kill(421, 59.5, 9);
    let report = written(FORMATS[0], &run.reported(None, None), &Style::default());
    let first: Vec<&str> = report
        .lines()
        .take_while(|line| !line.starts_with("Survivors"))
        .collect();
    let first = first.join(" ");
    assert!(
        first.contains("left 3 processes running that held 6.5 GiB"),
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
    let whole = written(FORMATS[0], &reported, &Style::default());
    let lines: Vec<&str> = whole
        .lines()
        .skip_while(|line| !line.starts_with("Shared"))
        .collect();
    let told = lines.iter().take_while(|line| !line.is_empty()).copied();
    insta::assert_snapshot!(told.collect::<Vec<_>>().join("\n"), @"
    Shared memory: 2 objects (17.0 GiB) without an owner that no recorded process was seen to make or
    map: `--section orphaned-shm` lists them
    ");
    let style = Style {
        section: Some("orphaned-shm"),
        ..Style::default()
    };
    let alone = written(FORMATS[0], &reported, &style);
    assert!(alone.contains("/dev/shm/uncertain"), "{alone}");
    assert!(
        alone.contains("Some processes could not be inspected"),
        "{alone}"
    );
}
