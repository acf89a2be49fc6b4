//! What comes in pieces adds up to what the report says of the whole.

use super::*;
use crate::golden::{RUNS, Reported, Script, Stream, boot, mem_row, upid};
use crate::keys::PeakAt;
use crate::{Analysis, PhaseLine};
use memtrace_model::{Bytes, Record, Tgid, Upid};
use memtrace_timeline::Amounts;

/// The figures of a run that came in so many pieces, and how often it was read anew.
fn live(run: Script, pieces: i64) -> (Live, usize) {
    by_and_by(Stream::of(run), pieces)
}

fn by_and_by(mut stream: Stream, pieces: i64) -> (Live, usize) {
    let mut live = Live::new(stream.info.clone(), None);
    let (begin, end) = (stream.rows[0].0, stream.end());
    let mut anew = 0;
    for piece in 1..=pieces {
        let until = BootNs(begin.0 + (end - begin).0 / pieces * piece);
        stream.go_to(if piece == pieces { end } else { until });
        let Ok(_) = live.take(&mut stream);
        if live.is_contradicted() {
            anew += 1;
            live = Live::new(stream.info.clone(), None);
            stream.begin_again();
            let Ok(_) = live.take(&mut stream);
        }
    }
    live.finish();
    (live, anew)
}

/// The golden runs that tell of somebody's memory, and of nobody who has no row of their own.
fn runs() -> impl Iterator<Item = (&'static str, fn() -> Script, Analysis)> {
    let runs = RUNS.iter().filter(|(.., at)| at.is_none());
    runs.filter_map(|&(name, run, _)| {
        let analysis = run().analyzed(None);
        let mut processes = analysis.processes.iter();
        let is_reported =
            analysis.peak.is_some() && processes.all(|process| process.tgid.is_some());
        is_reported.then_some((name, run, analysis))
    })
}

#[test]
fn without_those_that_ended_long_ago_it_is_the_same_now() {
    let mut count = 0;
    for (name, run, _) in runs() {
        let (whole, _) = live(run(), 1);
        let mut stream = Stream::of(run());
        let (begin, end) = (stream.rows[0].0, stream.end());
        let middle = BootNs(begin.0 + (end - begin).0 / 2);
        let mut rest = Live::without_ended_before(stream.info.clone(), None, middle);
        stream.go_to(end);
        let Ok(_) = rest.take(&mut stream);
        rest.finish();
        let stays = |process: &&Process| process.exit_boot_ns().is_none_or(|exit| exit >= middle);
        let of = |live: &Live| -> Vec<(Upid, Option<Bytes>)> {
            let processes = live.processes().iter().filter(stays);
            processes
                .map(|process| (process.upid, process.peak.rss_bytes))
                .collect()
        };
        assert_eq!(of(&rest), of(&whole), "{name}");
        assert_eq!(
            rest.processes().iter().filter(stays).count(),
            rest.processes().len(),
            "{name}"
        );
        assert_eq!(rest.now().held.bytes, whole.now().held.bytes, "{name}");
        assert_eq!(rest.now().rss, whole.now().rss, "{name}");
        count += whole.processes().len() - rest.processes().len();
    }
    assert!(count > 0, "nobody was left out");
}

/// What of the two is not the same, as `place: ours, theirs`.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn look(&mut self, place: &str, ours: &dyn std::fmt::Debug, theirs: &dyn std::fmt::Debug) {
        let (ours, theirs) = (format!("{ours:?}"), format!("{theirs:?}"));
        if ours != theirs {
            self.0.push(format!("{place}: {ours}, {theirs}"));
        }
    }

    fn none(self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n"));
    }
}

#[test]
fn after_many_pieces_the_figures_are_those_of_the_report() {
    let mut differences = Differences::default();
    let mut count = 0;
    for (name, run, analysis) in runs() {
        count += 1;
        let many = if analysis.processes.len() < 50 {
            60
        } else {
            10
        };
        for pieces in [1, 7, many] {
            let (live, _) = live(run(), pieces);
            let mut look =
                |what: &str, ours: &dyn std::fmt::Debug, theirs: &dyn std::fmt::Debug| {
                    differences.look(&format!("{name} in {pieces}, {what}"), ours, theirs);
                };
            let upids = |processes: &[Process]| -> Vec<Upid> {
                processes.iter().map(|process| process.upid).collect()
            };
            look(
                "processes",
                &upids(live.processes()),
                &upids(&analysis.processes),
            );
            for (ours, theirs) in live.processes().iter().zip(&analysis.processes) {
                look("name", &ours.name, &theirs.name);
                look(&theirs.name, &ours.peak, &theirs.peak);
                look(&theirs.name, &ours.end, &theirs.end);
            }
            let peak = live.peak();
            let theirs = analysis.peak.as_ref().map(|peak| peak.at.boot_ns);
            look("peak at", &peak.as_ref().map(|peak| peak.at), &theirs);
            if let Some(held) = analysis.held_peak {
                look("peak", &peak.map(|peak| peak.held.bytes), &Some(held.bytes));
            }
            look("peak of RSS", &live.rss_peak(), &analysis.rss_peak);
            let roles = live.roles(live.now());
            look("roles", &roles.len(), &analysis.roles.len());
            for role in &analysis.roles {
                let ours = roles.iter().find(|ours| ours.name == role.name);
                let is_any = |peak: &PeakAt| peak.0.0 > 0;
                let theirs = role.kind(Kind::Rss).peak.filter(is_any);
                let peak = ours.and_then(|ours| ours.peak).filter(is_any);
                look(
                    &role.name,
                    &ours.map(|ours| ours.ever_count),
                    &Some(role.process_count),
                );
                look(&role.name, &peak, &theirs);
            }
        }
    }
    assert!(count >= 12, "{count}");
    differences.none();
}

#[test]
fn ledgers_and_lines_of_now_are_those_of_the_report_at_the_end() {
    let mut differences = Differences::default();
    let mut line_count = 0;
    for (name, run, _) in runs() {
        let (mut live, _) = live(run(), 9);
        let deep = live.deep().expect("a report");
        let offset = live.clock().offset(deep.at).as_secs_f64();
        let analysis = run().analyzed(Some(&format!("+{offset:.9}s")));
        let text = |analysis: &Analysis| {
            let at = analysis.at.as_ref().expect("an instant");
            let ledgers = at.attributions.iter().map(|one| {
                let sums = [one.anonymous_bytes, one.shared_bytes, one.residual_bytes];
                (one.scope.clone(), one.current_bytes, sums)
            });
            let gpus = at.gpus.iter().map(|gpu| {
                let parts = gpu.lines.iter().filter_map(|line| line.cuda);
                let parts = parts.map(|parts| (parts.by_calls(), parts.remaining_bytes));
                let parts: Vec<_> = parts.collect();
                (gpu.used_bytes, gpu.processes_bytes, parts)
            });
            let lines = analysis.allocations.iter().flat_map(|process| {
                let lines = process.sites.iter();
                lines.map(|site| (process.who.upid, site.line.place(), site.sum.resident_bytes))
            });
            let lines: Vec<_> = lines.collect();
            (ledgers.collect::<Vec<_>>(), gpus.collect::<Vec<_>>(), lines)
        };
        line_count += analysis.allocations.len();
        differences.look(name, &text(&deep.report.analysis), &text(&analysis));
    }
    assert!(line_count > 0, "no run has stacks");
    differences.none();
}

#[test]
fn what_forks_share_counts_once_in_a_ledger_of_now_whose_group_was_read_before() {
    let run = || {
        let mut run = Script::command(&["serve"], 20.0);
        run.process(1, None, 0.0, "serve");
        run.mem(1, 1.0, [100.0, 10.0, 0.0]);
        for tgid in [2, 3] {
            run.process(tgid, Some(1), 2.0, "worker");
            run.inherits(tgid, 100.0);
            run.mem(tgid, 2.1, [100.0, 10.0, 0.0]);
        }
        for tgid in 1..=3 {
            run.edit(tgid, |process| process.cgroup = Some("/pod".into()));
        }
        run.cgroup(5.0, "/pod", [0.5, 0.125, 0.0], None);
        if let Some(Record::CgroupMem(row)) = run.rows.0.last_mut() {
            (row.other_process_count, row.other_anon_bytes) = (Some(0), Some(Bytes(0)));
        }
        run.mem(1, 15.0, [101.0, 10.0, 0.0]);
        run
    };
    let anonymous = |analysis: &Analysis| {
        let at = analysis.at.as_ref().expect("an instant");
        at.attributions[0].anonymous_bytes.expect("an amount").0 >> 20
    };
    let (mut live, _) = live(run(), 9);
    let deep = live.deep().expect("a report");
    let offset = live.clock().offset(deep.at).as_secs_f64();
    let of_report = anonymous(&run().analyzed(Some(&format!("+{offset:.9}s"))));
    assert!((128..=130).contains(&of_report), "{of_report}");
    let of_now = anonymous(&deep.report.analysis);
    assert!((of_now - of_report).abs() <= 1, "{of_now} {of_report}");
}

#[test]
fn phases_grow_by_what_the_report_says() {
    let mut differences = Differences::default();
    let mut count = 0;
    for (name, run, analysis) in runs().filter(|(.., analysis)| analysis.phases.is_some()) {
        let (mut live, _) = live(run(), 40);
        let deep = live.deep().expect("a report");
        let ours: Vec<&PhaseLine> = deep.phases().iter().collect();
        let text = |line: &PhaseLine| match line {
            PhaseLine::One(phase) => Some((
                phase.name.clone(),
                phase.begin.map(|at| at.boot_ns),
                phase.duration_ns,
                phase.own.map(|own| own.delta.rss()),
                phase.tree.delta.rss(),
            )),
            PhaseLine::Many(_) => None,
        };
        let theirs = analysis.phases.iter().flat_map(|phases| &phases.lines);
        for line in theirs.filter_map(text) {
            count += 1;
            let same = |ours: &&PhaseLine| {
                let ours = text(ours);
                ours.is_some_and(|ours| (&ours.0, ours.1) == (&line.0, line.1))
            };
            let ours = ours.iter().copied().find(same).and_then(text);
            differences.look(name, &ours, &Some(line));
        }
    }
    assert!(count >= 10, "{count}");
    differences.none();
}

#[test]
fn nothing_is_read_twice_where_all_is_known_in_time() {
    let (_, anew) = live(crate::golden::left_behind(), 40);
    assert_eq!(anew, 0);
}

#[test]
fn a_role_that_is_known_only_late_counts_from_the_start_by_reading_anew() {
    let mut run = Script::command(&["python3", "serve.py"], 60.0);
    run.process(10, None, 0.0, "python3 serve.py");
    for second in 0..60 {
        let anon = if second == 5 { 900.0 } else { 100.0 };
        run.mem(10, f64::from(second), [anon, 1.0, 0.0]);
    }
    run.edit(10, |row| row.role = Some("worker".to_owned()));
    run.title(10, 30.0, "VLLM::Worker");
    let report = run.clone().analyzed(None);
    let mut stream = Stream::of(run);
    for (_, record) in &mut stream.rows {
        if let Record::Process(row) = record
            && row.peak_rss_bytes.is_none()
        {
            row.role = None;
        }
    }
    let (live, anew) = by_and_by(stream, 60);
    assert!((1..=2).contains(&anew), "{anew}");
    let [role] = &live.roles(live.now())[..] else {
        panic!("one role");
    };
    assert_eq!(role.name, report.roles[0].name);
    let peak = role.peak.map(|(bytes, at)| (bytes, at.boot_ns));
    assert_eq!(peak, Some((Bytes(901 << 20), boot(5.0))));
}

#[test]
fn in_a_storm_of_rows_at_one_instant_no_more_wait_than_may() {
    let mut run = Script::command(&["python3", "train.py"], 90.0);
    run.process(10, None, 0.0, "python3 train.py");
    run.mem(10, 1.0, [100.0, 1.0, 0.0]);
    let mut stream = Stream::of(run);
    stream.go_to(boot(2.0));
    let mut live = Live::new(stream.info.clone(), None);
    let Ok(_) = live.take(&mut stream);
    let row = |mib: i64| MemRow {
        rss_bytes: Some(Bytes(mib << 20)),
        ..mem_row(upid(Tgid(10)).0, boot(3.0).0, None)
    };
    live.note_time(boot(3.0));
    live.pending.extend((0..=PENDING_MAX as i64).map(row));
    live.settle_behind();
    assert!(live.pending.len() <= PENDING_MAX, "{}", live.pending.len());
    live.finish();
    let held = live.now().held_by(0).and_then(Amounts::rss);
    assert_eq!(held, Some(Bytes((PENDING_MAX as i64) << 20)));
}

#[test]
fn a_cgroup_that_is_gone_is_not_the_nearest_limit() {
    let mut run = Script::command(&["python3", "train.py"], 90.0);
    run.process(10, None, 0.0, "python3 train.py");
    let limit = Some(Bytes(8 << 30));
    for second in 0..90 {
        run.mem(10, f64::from(second), [100.0, 1.0, 0.0]);
        if second < 20 {
            run.cgroup(f64::from(second), "/gone", [7.5, 7.0, 0.0], limit);
        }
        run.cgroup(f64::from(second), "/stays", [2.0, 1.0, 0.0], limit);
    }
    let nearest = |until: f64| {
        let mut stream = Stream::of(run.clone());
        let mut live = Live::new(stream.info.clone(), None);
        stream.go_to(boot(until));
        let Ok(_) = live.take(&mut stream);
        live.limit().and_then(|limit| limit.cgroup)
    };
    assert_eq!(nearest(25.0).as_deref(), Some("/gone"));
    assert_eq!(nearest(80.0).as_deref(), Some("/stays"));
}

#[test]
fn whose_memory_is_in_no_figure_is_reported_as_a_loss_until_it_is_known_who_that_is() {
    let mut run = Script::command(&["python3", "train.py"], 30.0);
    run.process(10, None, 0.0, "python3 train.py");
    run.process(11, Some(10), 1.0, "python3 child.py");
    for second in 0..30 {
        run.mem(10, f64::from(second), [100.0, 1.0, 0.0]);
        run.mem(11, f64::from(second), [50.0, 1.0, 0.0]);
    }
    let text = |until: f64, is_late: bool| {
        let mut stream = Stream::of(run.clone());
        stream.rows.retain_mut(|(at, record)| {
            let Record::Process(row) = record else {
                return true;
            };
            if row.tgid.0 == 11 {
                *at = boot(20.0);
            }
            row.tgid.0 != 11 || is_late
        });
        stream.rows.sort_by_key(|(at, _)| *at);
        let mut live = Live::new(stream.info.clone(), None);
        for second in 1..=until as i64 {
            stream.go_to(BootNs(boot(0.0).0 + second * 1_000_000_000));
            let Ok(_) = live.take(&mut stream);
        }
        let losses: Vec<String> = live.losses().into_iter().map(Into::into).collect();
        (losses, live.is_contradicted())
    };
    let (losses, is_contradicted) = text(29.0, false);
    let [loss] = &losses[..] else {
        panic!("{losses:?}");
    };
    assert!(loss.starts_with("1 process without a row"), "{loss}");
    assert!(!is_contradicted);
    assert!(text(22.0, true).1, "it is to be read anew");
}
