//! Reports of runs of several hosts, on every golden job.

use super::run::{HostStatus, Measure};
use super::*;
use crate::golden::{Clock, JOBS, Member, Script, assert_shown, job, reduced};
use memtrace_model::tables::MarkKind;
use memtrace_model::{Bytes, Record, RunState, Tgid, WallNs};
use memtrace_report::{FORMATS, Style};
use proptest::prelude::*;
use std::collections::HashMap;

fn parts(name: &str) -> Vec<HostPart> {
    job(name).into_iter().map(reduced).collect()
}

fn expected(hosts: &[&str]) -> Option<Vec<String>> {
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    (!hosts.is_empty()).then_some(hosts)
}

fn reported(name: &str) -> RunReport {
    let hosts = JOBS.iter().find(|(one, ..)| *one == name).expect("a job").2;
    merge("4711", parts(name), Vec::new(), expected(hosts))
}

fn written(report: &RunReport, format: &str, style: &Style) -> String {
    let format = FORMATS
        .iter()
        .find(|one| one.name == format)
        .expect("a format");
    let mut out = Vec::new();
    format
        .write(&mut report.clone(), style, &mut out)
        .expect("a Vec takes it");
    String::from_utf8(out).expect("a report is UTF-8")
}

#[test]
fn every_format_tells_every_job_as_agreed() {
    for (name, ..) in JOBS {
        let report = reported(name);
        for format in ["text", "md", "csv", "json"] {
            if format == "json" && !matches!(*name, "eight_ranks" | "lost_host") {
                continue;
            }
            let style = Style {
                has_explanations: *name == "eight_ranks",
                ..Style::default()
            };
            insta::assert_snapshot!(format!("{name}.{format}"), written(&report, format, &style));
        }
    }
}

#[test]
fn the_part_of_a_host_is_one_line_that_is_read_as_it_was_written() {
    for (name, ..) in JOBS {
        for part in parts(name) {
            let line = serde_json::to_string(&part).expect("JSON");
            assert!(line.len() < 40_000, "{name}: {}", line.len());
            assert_eq!(HostPart::parse(&line).expect("a part"), part, "{name}");
        }
    }
    let part = parts("oom_chain").swap_remove(1);
    insta::assert_snapshot!("part", serde_json::to_string(&part).expect("JSON"));
}

#[test]
fn what_is_no_part_or_of_another_version_is_refused_by_what_it_is() {
    for text in [
        "",
        "{}",
        "{\"format\":\"memtrace-host-part\",\"version\":1}",
    ] {
        assert!(
            matches!(HostPart::parse(text), Err(PartError::Json(_))),
            "{text}"
        );
    }
    let later = r#"{"format":"memtrace-host-part","version":2}"#;
    let error = HostPart::parse(later).expect_err("another version");
    assert!(error.to_string().contains("of version 2"), "{error}");
    let other = r#"{"format":"memtrace-report","version":2}"#;
    assert!(matches!(
        HostPart::parse(other),
        Err(PartError::Version { .. })
    ));
}

#[test]
fn the_order_in_which_parts_come_says_nothing() {
    for (name, _, hosts) in JOBS {
        let mut shuffled = parts(name);
        shuffled.reverse();
        let half = shuffled.len() / 2;
        shuffled.rotate_left(half);
        let report = merge("4711", shuffled, Vec::new(), expected(hosts));
        assert_eq!(report, reported(name), "{name}");
    }
}

#[test]
fn the_answer_fits_into_twelve_lines() {
    for (name, ..) in JOBS {
        for width in [80, 100] {
            let style = Style {
                width,
                ..Style::default()
            };
            let text = written(&reported(name), "text", &style);
            let head = text.lines().take_while(|line| !line.is_empty()).count();
            let most = if width == 80 { 16 } else { 12 };
            assert!(head <= most, "{name} at {width}: {head}\n{text}");
        }
    }
}

#[test]
fn hosts_at_the_peak_add_up_within_its_bounds() {
    for (name, ..) in JOBS {
        let report = reported(name);
        let peak = report.peak.expect("a peak");
        let hosts = report
            .hosts
            .iter()
            .filter_map(|line| line.at_job_peak_bytes);
        let sum: i64 = hosts.map(|bytes| bytes.0).sum();
        assert!(
            peak.at_least_bytes <= peak.bytes && peak.bytes <= peak.at_most_bytes,
            "{name}"
        );
        assert!(
            peak.at_least_bytes.0 <= sum && sum <= peak.at_most_bytes.0,
            "{name}"
        );
        let peaks = report
            .hosts
            .iter()
            .filter_map(|line| line.peak_at_most_bytes);
        let most: i64 = peaks.map(|bytes| bytes.0).sum();
        assert!(peak.at_most_bytes.0 <= most, "{name}: {peak:?}");
        for line in &report.hosts {
            assert!(line.at_job_peak_bytes <= line.peak_at_most_bytes, "{name}");
        }
    }
}

/// The most that the processes of all scripts hold at any instant of a row, by what their rows say:
/// the sum of anonymous memory until the end of each recording.
fn brute_force(scripts: &[Script]) -> i64 {
    let mut rows: Vec<(i64, usize, i64, i64)> = Vec::new();
    for (host, script) in scripts.iter().enumerate() {
        let (info, of, _) = script.clone().recorded();
        let end = info.clocks.last().map_or(0, |last| last.boot_ns.0);
        for row in &of.0 {
            if let Record::Mem(row) = row {
                let anon = row.rss_anon_bytes.expect("anonymous memory").0;
                rows.push((row.boot_ns.0, host, row.upid.0, anon));
                rows.push((end, host, row.upid.0, 0));
            }
        }
    }
    rows.sort_by_key(|row| row.0);
    let (mut held, mut most) = (HashMap::new(), 0);
    for at in rows.chunk_by(|a, b| a.0 == b.0) {
        held.extend(at.iter().map(|&(_, host, upid, anon)| ((host, upid), anon)));
        most = most.max(held.values().sum());
    }
    most
}

#[test]
fn the_bounds_of_the_peak_hold_against_the_sum_of_all_rows_at_all_instants() {
    for (name, ..) in JOBS {
        if *name == "clock_off" {
            continue;
        }
        let peak = reported(name).peak.expect("a peak");
        let scripts: Vec<Script> = job(name).into_iter().map(|one| one.script).collect();
        let most = brute_force(&scripts);
        assert!(
            peak.at_least_bytes.0 <= most && most <= peak.at_most_bytes.0,
            "{name}: {most} {peak:?}"
        );
        assert!(
            (peak.bytes.0 - most).abs() <= most / 50,
            "{name}: {most} {peak:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn whatever_hosts_do_the_most_of_all_lies_within_the_bounds(
        hosts in proptest::collection::vec(
            proptest::collection::vec((10_i64..3_000, 0_u32..3, 0_i64..5_000), 2..40),
            1..5,
        ),
    ) {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        let members = hosts.iter().zip(NAMES).map(|(steps, host)| {
            let mut script = Script::command(&["x"], 200.0);
            (0..3).for_each(|tgid| script.process(tgid + 1, None, 0.0, "/bin/x"));
            let mut millis = 1_000;
            for &(after, process, mib) in steps {
                millis += after;
                script.mem(process + 1, millis as f64 / 1_000.0, [mib as f64, 0.0, 0.0]);
            }
            Member { host, rec: "20260301T120144Z", script }
        });
        let members: Vec<Member> = members.collect();
        let scripts: Vec<Script> = members.iter().map(|one| one.script.clone()).collect();
        let report = merge("r", members.into_iter().map(reduced), Vec::new(), None);
        let most = brute_force(&scripts);
        let peak = report.peak.expect("a peak");
        prop_assert!(peak.at_least_bytes.0 <= most && most <= peak.at_most_bytes.0, "{most} {peak:?}");
    }
}

/// A host that holds so many MiB from so many seconds on, with its clock.
fn holding(host: &'static str, clock: Clock, held: &[(f64, f64)]) -> HostPart {
    let mut script = Script::command(&["x"], 60.0);
    script.clocks(0.0, 60.0, clock);
    script.process(1, None, 0.0, "/bin/x");
    for &(at, mib) in held {
        script.mem(1, at, [mib, 0.0, 0.0]);
    }
    reduced(Member {
        host,
        rec: "20260301T120144Z",
        script,
    })
}

#[test]
fn no_lower_bound_of_the_sum_is_claimed_by_clocks_that_can_be_off_by_more_than_what_is_held_lasts()
{
    let ten = 10.0 * 1_024.0;
    // In turns, so that there are never two at a time; the clocks say that they are.
    let turns = |offset: f64| -> Vec<(f64, f64)> {
        let turn = |n: i32| {
            (
                2.0 + f64::from(n) + offset,
                if n % 2 == 0 { ten } else { 1.0 },
            )
        };
        (0..40).map(turn).collect()
    };
    for error_ms in [Some(500), Some(1_500), None] {
        let off = |ahead| Clock { ahead, error_ms };
        let parts = [
            holding("a", off(0.5), &turns(0.0)),
            holding("b", off(-0.5), &turns(1.0)),
        ];
        let report = merge("r", parts, Vec::new(), None);
        let peak = report.peak.expect("a peak");
        let bound = |bytes: Bytes| bytes.0 as f64 / f64::from(1 << 30);
        assert!(bound(peak.at_least_bytes) < 10.1, "{error_ms:?} {peak:?}");
        assert!(bound(peak.at_least_bytes) > 9.9, "{error_ms:?} {peak:?}");
        assert!(bound(peak.at_most_bytes) >= 10.0, "{error_ms:?} {peak:?}");
    }
    // Together, while the clocks are a second and a half apart.
    for error_ms in [Some(1_500), None] {
        let off = |ahead| Clock { ahead, error_ms };
        let once = [(2.0, 1.0), (20.0, ten), (20.5, 1.0)];
        let parts = [
            holding("a", off(1.4), &once),
            holding("b", off(-1.4), &once),
        ];
        let peak = merge("r", parts, Vec::new(), None).peak.expect("a peak");
        assert!(peak.at_most_bytes.0 >= 20 << 30, "{error_ms:?} {peak:?}");
    }
}

#[test]
fn what_is_shared_in_a_job_is_unknown_where_a_host_does_not_tell_kinds_apart() {
    let shared = |are_distinguished: bool| {
        let mut script = Script::command(&["x"], 60.0);
        script.process(1, None, 0.0, "/bin/x");
        script.mem(1, 5.0, [100.0, 0.0, 0.0]);
        for record in &mut script.rows.0 {
            if let Record::Mem(row) = record
                && !are_distinguished
            {
                (row.rss_anon_bytes, row.rss_file_bytes) = (None, None);
                row.rss_shmem_bytes = None;
            }
        }
        let part = reduced(Member {
            host: "a",
            rec: "20260301T120144Z",
            script,
        });
        let report = merge("r", [part], Vec::new(), None);
        report.peak.expect("a peak").shared_bytes
    };
    assert_eq!([shared(true), shared(false)], [Some(Bytes(0)), None]);
}

#[test]
fn one_that_holds_more_and_one_that_grows_stand_out_of_eight_ranks() {
    let report = reported("eight_ranks");
    let shown = |measure: Measure| {
        let found = report
            .outliers
            .iter()
            .filter(move |one| one.measure == measure && one.rank.is_some());
        found.filter_map(|one| one.rank.clone()).collect::<Vec<_>>()
    };
    assert_eq!(shown(Measure::Peak)[0], "3");
    assert_eq!(shown(Measure::PerStep), ["5"]);
    let slow = report
        .phases
        .iter()
        .find(|phase| phase.name == "step")
        .expect("steps");
    assert_eq!(slow.slowest_rank.as_deref(), Some("6"));
    assert_eq!((slow.count, slow.process_count), (320, 8));
}

#[test]
fn a_host_that_fell_silent_one_that_is_late_and_one_that_is_missing_are_reported() {
    let report = reported("lost_host");
    let status = |host: &str| {
        report
            .hosts
            .iter()
            .find(|line| line.host == host)
            .map(|line| line.status)
    };
    assert_eq!(status("node2"), Some(HostStatus::Silent));
    assert_eq!(status("node4"), Some(HostStatus::Missing));
    assert_eq!(status("node1"), Some(HostStatus::Closed));
    let order: Vec<&str> = report.hosts.iter().map(|line| &*line.host).collect();
    assert_eq!(order[..2], ["node2", "node4"]);
    let twice = report
        .hosts
        .iter()
        .find(|line| line.host == "node1")
        .expect("a host");
    assert_eq!(twice.recs.len(), 2);
    assert_eq!((report.host_count, report.recording_count), (3, 4));
    let link = report
        .ends
        .iter()
        .find(|link| link.is_host)
        .expect("the silence");
    assert_eq!(link.host, "node2");
}

#[test]
fn a_clock_that_nobody_synchronizes_is_reported_by_steps_in_common() {
    let report = reported("clock_off");
    let clock = |host: &str| {
        report
            .clocks
            .iter()
            .find(|line| line.host == host)
            .expect("a clock")
    };
    let (second, third) = (clock("node2"), clock("node3"));
    let skew = second.skew_ns.expect("a skew");
    assert!((skew.0 - 3_000_000_000).abs() < 10_000_000, "{second:?}");
    assert!(
        second.is_corrected && second.error_ns.is_none(),
        "{second:?}"
    );
    assert!(!third.is_corrected && third.skew_ns.is_none(), "{third:?}");
    // Ranks 0, 1 and 2 were killed half a second after each other.
    let after = |host: &str| {
        let link = report
            .ends
            .iter()
            .find(|link| link.host == host && link.rank.is_some());
        let link = link.expect("an end");
        (
            link.after_first_ns.map(|after| after.0 / 100_000_000),
            link.is_after_first,
        )
    };
    assert_eq!(after("node2"), (Some(5), true), "{:#?}", report.ends);
    assert!(!after("node3").1, "nothing is known of its clock");
    // Both hosts hold 9 GiB in the same seconds.
    let peak = report.peak.expect("a peak");
    assert!(
        peak.at_least_bytes.0 < (20 << 30) && peak.bytes.0 > (19 << 30),
        "{peak:?}"
    );
}

#[test]
fn stages_of_a_pipeline_that_begin_later_are_no_clock_that_is_ahead_where_ntp_bounds_it() {
    let host = |host: &'static str, error_ms: Option<i64>, later: f64| {
        let mut script = Script::command(&["x"], 60.0);
        let clock = Clock {
            ahead: 0.0,
            error_ms,
        };
        script.clocks(0.0, 60.0, clock);
        script.process(1, None, 0.0, "/bin/x");
        script.mem(1, 1.0, [10.0, 0.0, 0.0]);
        for step in 0..10_u32 {
            let at = 2.0 + f64::from(step) * 2.0 + later;
            script.numbered_mark(Some(1), at, MarkKind::Begin, "step", Some(step));
            script.numbered_mark(Some(1), at + 1.0, MarkKind::End, "step", Some(step));
        }
        let rec = "20260301T120144Z";
        reduced(Member { host, rec, script })
    };
    let line = |error_ms, later| {
        let parts = [host("a", Some(5), 0.0), host("b", error_ms, later)];
        merge("r", parts, Vec::new(), None).clocks.swap_remove(1)
    };
    let impossible = line(Some(5), 0.3);
    assert_eq!((impossible.skew_ns, impossible.is_corrected), (None, false));
    let possible = line(Some(5), 0.004);
    assert!(possible.skew_ns.is_some() && !possible.is_corrected);
    let unknown = line(None, 0.3);
    assert!(unknown.skew_ns.is_some() && unknown.is_corrected);
}

#[test]
fn the_first_death_is_reported_with_who_followed_and_order_only_where_clocks_allow() {
    let report = reported("oom_chain");
    let of = |host: &str, pid: u32| {
        let link = report
            .ends
            .iter()
            .find(|link| link.host == host && link.pid == Some(Tgid(pid)));
        link.expect("an end")
    };
    let first = &report.ends[0];
    assert!(
        first.is_oom_kill && first.host == "node2" && first.cgroup.is_some(),
        "{first:?}"
    );
    assert!(!of("node1", 200).is_after_first, "2 ms later, with ±4 ms");
    let later = of("node3", 202);
    assert!(later.is_after_first, "{later:?}");
    assert_eq!(
        later.after_first_ns.map(|after| after.0 / 1_000_000),
        Some(1_500)
    );
}

/// A host that is recorded until a second, by an open recording where `is_open`.
fn heard_until(host: &'static str, clock: Clock, until: f64, is_open: bool) -> HostPart {
    let mut part = holding(host, clock, &[(2.0, 1.0), (3.0, 2.0)]);
    let start = part.start_wall_ns.expect("a start").0;
    part.end_wall_ns = Some(WallNs(start + (until * 1e9) as i64));
    if is_open {
        part.state = RunState::Recording;
    }
    part
}

#[test]
fn one_clock_that_is_ahead_makes_no_host_silent() {
    let of = |error_ms: Option<i64>| {
        let clock = |ahead| Clock { ahead, error_ms };
        let far = Clock {
            ahead: 600.0,
            error_ms: None,
        };
        let parts = [
            heard_until("a", clock(0.0), 500.0, true),
            heard_until("b", clock(0.0), 500.0, true),
            heard_until("c", far, 500.0, true),
            heard_until("d", clock(0.0), 100.0, true),
        ];
        let report = merge("r", parts, Vec::new(), None);
        let silent = report.hosts.iter();
        let silent = silent.filter(|line| line.status == HostStatus::Silent);
        let names: Vec<String> = silent.map(|line| line.host.clone()).collect();
        names
    };
    assert_eq!(of(Some(2)), ["d"]);
    assert_eq!(of(None), ["d"]);
}

#[test]
fn two_recordings_of_one_place_are_reported_and_one_counts() {
    let mut twice = parts("oom_chain");
    twice.extend(parts("oom_chain").pop());
    let unread = Unread {
        place: Place {
            run: "4711".to_owned(),
            host: "node9".to_owned(),
            rec: "x".to_owned(),
        },
        why: "it is of schema 9.0".to_owned(),
    };
    let report = merge("4711", twice, vec![unread], None);
    assert_eq!(report.peak, reported("oom_chain").peak);
    let shown: Vec<&str> = report.problems.iter().map(|one| &*one.host).collect();
    assert_eq!(shown, ["node3", "node9"]);
}

#[test]
fn of_two_recordings_of_a_host_at_one_time_no_more_than_both_is_sure() {
    let good = Clock {
        ahead: 0.0,
        error_ms: Some(0),
    };
    let ten = 10.0 * 1_024.0;
    for held in [[(2.0, ten)], [(30.0, ten)]] {
        let first = holding("a", good, &[(2.0, ten)]);
        let mut second = holding("a", good, &held);
        second.place.rec = "20260301T120145Z".to_owned();
        let report = merge("r", [first, second], Vec::new(), None);
        let peak = report.peak.expect("a peak");
        assert_eq!(peak.at_least_bytes.0, 10 << 30);
        assert_eq!(peak.at_most_bytes.0, 20 << 30);
        assert_eq!(report.problems.len(), 1);
    }
}

#[test]
fn a_part_that_no_recording_can_be_is_refused() {
    let part = serde_json::to_value(&parts("oom_chain")[0]).expect("JSON");
    let changes: [(&str, serde_json::Value); 8] = [
        ("/held/first_bin", 1_000_000_000_000_000_i64.into()),
        ("/held/bin_s", 7.into()),
        ("/held/runs", serde_json::json!([1 << 19, 1, 0, 0, 0, 0])),
        ("/held/runs", serde_json::json!([1, i64::MAX, 0, 0, 0, 0])),
        ("/start_wall_ns", i64::MIN.into()),
        ("/peak/bytes", i64::MAX.into()),
        ("/rank_count", usize::MAX.into()),
        (
            "/marks",
            serde_json::json!([{"name": "s", "begins": [1, i64::MIN]}]),
        ),
    ];
    for (place, value) in changes {
        let mut changed = part.clone();
        *changed.pointer_mut(place).expect(place) = value;
        let error = HostPart::parse(&changed.to_string());
        assert!(
            matches!(error, Err(PartError::Bounds(_))),
            "{place}: {error:?}"
        );
    }
    assert!(HostPart::parse(&part.to_string()).is_ok());
}

#[test]
fn a_clock_that_is_decades_off_leaves_the_others_as_they_are() {
    let clock = |ahead| Clock {
        ahead,
        error_ms: Some(0),
    };
    let held = [(2.0, 1.0), (20.0, 1_024.0), (21.0, 1.0)];
    let near = || ["a", "b", "c"].map(|host| holding(host, clock(0.0), &held));
    let without = merge("r", near(), Vec::new(), None).peak.expect("a peak");
    let far = holding("d", clock(-56.0 * 365.0 * 86_400.0), &held);
    let report = merge("r", near().into_iter().chain([far]), Vec::new(), None);
    let peak = report.peak.expect("a peak");
    assert_eq!((peak.bin_s, peak.bytes), (1, without.bytes));
    assert_eq!(peak.at_most_bytes, without.at_most_bytes);
    let shown: Vec<&str> = report.problems.iter().map(|one| &*one.host).collect();
    assert_eq!(shown, ["d"]);
}

#[test]
fn nothing_at_all_is_reported_as_nothing() {
    let report = merge("none", Vec::new(), Vec::new(), expected(&["node1"]));
    assert_eq!(report.hosts[0].status, HostStatus::Missing);
    let text = written(&report, "text", &Style::default());
    assert!(
        text.contains("1 of 1 expected hosts has no recording: node1"),
        "{text}"
    );
}

#[test]
fn the_page_on_runs_shows_what_the_report_says() {
    let mut report = reported("eight_ranks");
    let next = report.next().expect("a recording");
    let place = format!("run={}/host={}/rec={}", next.run, next.host, next.rec);
    report.next_path = Some(format!("/shared/memory/{place}"));
    let text = written(&report, "text", &Style::default());
    let page = include_str!("../../../../docs/run.md");
    assert_shown(page, &text, "Roles: ");
}
