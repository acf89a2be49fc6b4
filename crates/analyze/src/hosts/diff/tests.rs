//! Runs against each other that differ in one thing.

use super::*;
use crate::golden::{Clock, JOBS, Member, Script, job, reduced};
use crate::hosts::merge;
use memtrace_model::DurationNs;
use memtrace_model::tables::MarkKind::{Begin, End};
use memtrace_report::{FORMATS, Style};

const MIB: i64 = 1 << 20;
const GOOD: Clock = Clock {
    ahead: 0.0,
    error_ms: Some(2),
};

/// A loop of steps on some hosts, one rank on each: what each holds in MiB, what the last keeps of
/// each step, and a little that differs from run to run.
#[derive(Clone, Copy)]
struct Trained {
    hosts: &'static [&'static str],
    held: f64,
    kept: f64,
    noise: u32,
    clock: Clock,
    has_marks: bool,
    is_polled: bool,
}

const PLAIN: Trained = Trained {
    hosts: &["node1", "node2"],
    held: 4_096.0,
    kept: 0.0,
    noise: 1,
    clock: GOOD,
    has_marks: true,
    is_polled: false,
};

impl Trained {
    fn members(self) -> Vec<Member> {
        let last = self.hosts.len() - 1;
        let members = self.hosts.iter().enumerate().map(|(rank, host)| {
            let mut run = Script::command(&["torchrun", "train.py"], 300.0);
            run.clocks(0.0, 300.0, self.clock);
            let tgid = 200 + u32::try_from(rank).expect("few hosts");
            run.process(tgid, None, 0.5, "/usr/bin/python3 -u train.py");
            run.is(tgid, "PyTorch", "rank", Some(&rank.to_string()));
            for step in 0..24_u32 {
                let at = 10.0 + f64::from(step) * 10.0;
                let kept = if rank == last { self.kept } else { 0.0 };
                let noise = f64::from((step * self.noise + self.noise) % 5);
                let held = self.held + kept * f64::from(step) + noise;
                run.mem(tgid, at + 3.0, [held, 200.0, 0.0]);
                if self.has_marks {
                    run.numbered_mark(Some(tgid), at, Begin, "train", Some(step));
                    run.numbered_mark(Some(tgid), at + 6.0, End, "train", Some(step));
                }
            }
            run.exit(tgid, 299.0, 0);
            if self.is_polled {
                run.info.backend = "procfs".to_owned();
                run.info.interval_ns = DurationNs(1_000_000_000);
            }
            Member {
                host,
                rec: "20260301T120144Z",
                script: run,
            }
        });
        members.collect()
    }

    fn report(self) -> RunReport {
        merge(
            "4711",
            self.members().into_iter().map(reduced),
            Vec::new(),
            None,
        )
    }
}

fn golden(name: &str) -> RunReport {
    let expected = JOBS.iter().find(|(one, ..)| *one == name).expect("a job").2;
    let expected = expected.iter().map(|&host| host.to_owned()).collect();
    merge(
        "4711",
        job(name).into_iter().map(reduced),
        Vec::new(),
        Some(expected),
    )
}

fn reported(before: RunReport, after: RunReport, allowed: Option<f64>, format: &str) -> String {
    let run = |path: &str, report| ComparedRun {
        path: path.to_owned(),
        report,
    };
    let (before, after) = (run("root/run=4711", before), run("root/run=4712", after));
    let mut report: DiffReport<RunDiff> = DiffReport::of(before, after, allowed);
    let format = FORMATS.iter().find(|one| one.name == format);
    let mut out = Vec::new();
    let written = format
        .expect("a format")
        .write(&mut report, &Style::default(), &mut out);
    written.expect("a Vec takes it");
    String::from_utf8(out).expect("UTF-8")
}

fn figures(diff: &RunDiff, allowed: f64) -> Vec<(String, &'static str)> {
    let excesses = diff.excesses(allowed).into_iter();
    excesses
        .map(|excess| (excess.name.to_string(), excess.figure))
        .collect()
}

#[test]
fn two_runs_of_the_same_are_quiet() {
    let other = Trained { noise: 3, ..PLAIN };
    let diff = RunDiff::of(&PLAIN.report(), &other.report());
    assert_eq!(diff.excesses(0.05), []);
    assert!(
        diff.stages.iter().all(|stage| !stage.has_risen),
        "{:?}",
        diff.stages
    );
    assert_eq!(diff.stages.len(), 1);
    assert!(!diff.is_newly_failed && !diff.has_other_basis && !diff.has_other_hosts);
    insta::assert_snapshot!(
        "same.text",
        reported(PLAIN.report(), other.report(), Some(0.05), "text")
    );
    for (name, ..) in JOBS {
        let diff = RunDiff::of(&golden(name), &golden(name));
        assert_eq!(diff.excesses(0.0), [], "{name}");
        assert!(!diff.is_newly_failed, "{name}");
    }
}

#[test]
fn the_growth_of_a_role_is_unknown_where_a_run_is_too_short_to_tell_and_else_zero() {
    let slope = |report: RunReport| {
        let diff = RunDiff::of(&report, &report);
        diff.roles[0].bytes_per_hour
    };
    let none = Change {
        before: Some(Bytes(0)),
        after: Some(Bytes(0)),
    };
    assert_eq!(slope(PLAIN.report()), none);
    assert_eq!(slope(golden("many_hosts")), Change::default());
}

#[test]
fn a_rank_that_keeps_40_mib_a_step_is_reported_in_every_format() {
    let leak = Trained {
        kept: 40.0,
        ..PLAIN
    };
    let (before, after) = (PLAIN.report(), leak.report());
    let diff = RunDiff::of(&before, &after);
    let [stage] = &*diff.stages else {
        panic!("{:?}", diff.stages);
    };
    assert!(stage.has_risen, "{stage:?}");
    assert_eq!(stage.fastest_host.as_deref(), Some("node2"));
    let slope = stage.fastest.after.expect("a slope").0;
    assert!((slope - 40 * MIB).abs() < 4 * MIB, "{slope}");
    let all = figures(&diff, 0.05);
    let has = |name: &str, figure| all.contains(&(name.to_owned(), figure));
    assert!(has("all", "peak") && has("all", "host_peak"), "{all:?}");
    assert!(
        has("PyTorch rank", "role_peak") && has("PyTorch rank, train", "per_step"),
        "{all:?}"
    );
    // What grew by a fifth did not by half, and the same leak is none against itself.
    assert_eq!(
        figures(&diff, 0.5),
        [("PyTorch rank, train".to_owned(), "per_step")]
    );
    assert_eq!(RunDiff::of(&after, &after).excesses(0.0), []);
    assert!(
        RunDiff::of(&after, &before).excesses(0.0).is_empty(),
        "a fall is no rise"
    );
    for format in ["text", "md", "csv", "json"] {
        let text = reported(before.clone(), after.clone(), Some(0.05), format);
        insta::assert_snapshot!(format!("leak.{format}"), text);
    }
}

#[test]
fn a_rise_of_the_sum_within_its_bounds_is_no_excess() {
    // Of two clocks nobody knows how far they are off: what both held may have been at any time.
    let loose = Trained {
        clock: Clock {
            ahead: 0.0,
            error_ms: None,
        },
        // By steps in common one clock would be known.
        has_marks: false,
        ..PLAIN
    };
    let more = Trained {
        held: 4_600.0,
        ..loose
    };
    let diff = RunDiff::of(&loose.report(), &more.report());
    assert!(
        diff.peak.change.difference() > Some(Bytes(900 * MIB)),
        "{:?}",
        diff.peak
    );
    assert!(!diff.peak.is_sure, "{:?}", diff.peak);
    // What one host held is known whatever its clock says.
    assert!(diff.host_peak.is_sure, "{:?}", diff.host_peak);
    let all = figures(&diff, 0.05);
    assert!(all.iter().all(|(_, figure)| *figure != "peak"), "{all:?}");
    assert!(
        all.iter().any(|(_, figure)| *figure == "host_peak"),
        "{all:?}"
    );
    let text = reported(loose.report(), more.report(), None, "text");
    assert!(text.contains(": no certain change."), "{text}");
}

#[test]
fn figures_of_another_basis_fail_no_comparison() {
    let more = Trained {
        held: 8_192.0,
        ..PLAIN
    };
    let polled = Trained {
        is_polled: true,
        ..more
    };
    let diff = RunDiff::of(&PLAIN.report(), &polled.report());
    assert!(diff.has_other_basis && diff.hosts.iter().all(|host| host.has_other_basis));
    assert_eq!(diff.excesses(0.0), []);
    let before = Trained {
        is_polled: true,
        ..PLAIN
    };
    let diff = RunDiff::of(&before.report(), &polled.report());
    assert!(!diff.has_other_basis);
    assert!(!diff.excesses(0.05).is_empty());
}

#[test]
fn hosts_of_other_names_are_compared_by_role_and_more_of_them_are_no_rise_of_the_sum() {
    let elsewhere = Trained {
        hosts: &["node7", "node8"],
        ..PLAIN
    };
    let diff = RunDiff::of(&PLAIN.report(), &elsewhere.report());
    assert!(diff.hosts.is_empty());
    assert_eq!((diff.only_before.len(), diff.only_after.len()), (2, 2));
    assert_eq!(diff.excesses(0.0), []);
    let role = diff.roles.iter().find(|role| role.name == "PyTorch rank");
    assert_eq!(
        role.expect("ranks").median.change.difference(),
        Some(Bytes(0))
    );
    let text = reported(PLAIN.report(), elsewhere.report(), None, "text");
    assert!(text.contains("By host: no name is in both"), "{text}");

    let three = Trained {
        hosts: &["node1", "node2", "node3"],
        ..PLAIN
    };
    let diff = RunDiff::of(&PLAIN.report(), &three.report());
    assert!(diff.has_other_hosts && diff.peak.is_sure, "{:?}", diff.peak);
    assert_eq!(diff.excesses(0.05), []);
    assert_eq!(diff.only_after, ["node3"]);
}

#[test]
fn hosts_that_are_lost_and_kills_of_the_second_alone_fail_it() {
    let (fine, lost, killed) = (
        golden("eight_ranks"),
        golden("lost_host"),
        golden("oom_chain"),
    );
    assert!(RunDiff::of(&fine, &lost).is_newly_failed);
    assert!(RunDiff::of(&fine, &killed).is_newly_failed);
    assert!(!RunDiff::of(&lost, &fine).is_newly_failed);
    assert!(!RunDiff::of(&killed, &killed).is_newly_failed);
    assert!(RunDiff::of(&lost, &fine).has_other_hosts);
    insta::assert_snapshot!("lost.text", reported(fine, lost, None, "text"));
}
