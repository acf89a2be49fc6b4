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
    let end = main.start.boot_ns + crate::model::DurationNs(730_000_000);
    main.end = Some(crate::model::Instant::unsettled(end));
    main.ending = Ending::Killed {
        signal: 9,
        by_oom_killer: Some(true),
    };
    reported.analysis.info.command_exit_code = Some(137);
    let report = written(FORMATS[0], &reported, &Style::default());
    let told = "ran 0.730s · recorded for 10m00s · OOM kill";
    assert!(report.contains(told), "{report}");
}

/// A server with a worker that is killed, and how its parents end.
fn ends(worker: f64, engine: impl Fn(&mut Script), server: impl Fn(&mut Script)) -> String {
    let mut run = Script::command(&["serve"], 60.0);
    for (tgid, parent, name) in [
        (1, None, "serve"),
        (2, Some(1), "engine"),
        (3, Some(2), "worker"),
    ] {
        run.process(tgid, parent, 0.0, name);
        run.mem(tgid, 1.0, [100.0, 0.0, 0.0]);
    }
    run.kill(3, worker, 9);
    engine(&mut run);
    server(&mut run);
    let report = written(FORMATS[0], &run.reported(None, None), &Style::default());
    report.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn what_a_server_kills_as_it_shuts_down_is_ordinary_and_what_others_kill_is_among_the_first_lines()
{
    let is_ordinary = |report: &str| {
        let is_told = report.contains("SIGKILL (by its parent at shutdown) 3 worker");
        let is_alarming = report.contains("SIGKILL (no OOM kill recorded)");
        assert_ne!(is_told, is_alarming, "{report}");
        is_told
    };
    let killed = |run: &mut Script| run.kill(2, 50.5, 9);
    assert!(is_ordinary(&ends(50.0, killed, |run| run.exit(1, 51.0, 0))));
    assert!(is_ordinary(&ends(50.0, killed, |run| run.kill(1, 51.0, 15))));
    assert!(is_ordinary(&ends(50.0, |run| run.kill(2, 49.9, 2), |_| ())));
    // The server failed, ran on, or ended for another reason later.
    assert!(!is_ordinary(&ends(50.0, killed, |run| run.exit(1, 51.0, 1))));
    assert!(!is_ordinary(&ends(50.0, killed, |_| ())));
    assert!(!is_ordinary(&ends(
        20.0,
        |run| run.exit(2, 51.0, 0),
        |_| ()
    )));
    // The engine failed when its worker was gone, and the server then ended as it should.
    let failed = |run: &mut Script| run.exit(2, 50.5, 1);
    let report = ends(50.0, failed, |run| run.exit(1, 51.0, 0));
    assert!(!is_ordinary(&report));
    assert!(report.contains("3 worker: SIGKILL (no OOM kill recorded) at"));
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
    use crate::model::tables::OrphanedShmRow;
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
    assert!(alone.contains("Not every process"), "{alone}");
}
