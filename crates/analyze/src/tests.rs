//! The whole analysis, on hand-made runs and against a slow way that is plainly right.

use super::golden::{RUNS, Rows, Script, boot, mem_row, upid};
use super::*;
use crate::golden::Reported;
use memtrace_model::{BootNs, Bytes, DurationNs, FirstSeenBy, Kind, Record, Row, RowSource, Tgid};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;

fn run(name: &str) -> Script {
    let (_, script, _) = RUNS
        .iter()
        .find(|(run, _, _)| *run == name)
        .expect("a golden run of that name");
    script()
}

fn process(analysis: &Analysis, tgid: u32) -> &Process {
    analysis
        .processes
        .iter()
        .find(|process| process.tgid.is_some_and(|found| found.0 == tgid))
        .expect("a process of the run")
}

fn mib(bytes: Option<Bytes>) -> i64 {
    bytes.expect("a known amount").0 >> 20
}

#[test]
fn the_peak_is_the_highest_sum_at_one_instant_not_the_sum_of_peaks() {
    let mut script = Script::command(&["a"], 10.0);
    script.process(1, None, 0.0, "a");
    script.process(2, Some(1), 0.0, "b");
    script.mem(1, 1.0, [100.0, 0.0, 0.0]);
    script.mem(2, 1.0, [10.0, 0.0, 0.0]);
    script.mem(1, 2.0, [20.0, 0.0, 0.0]);
    script.mem(2, 3.0, [80.0, 0.0, 0.0]);
    let peak = script.analyzed(None).peak.expect("a peak");
    assert_eq!(mib(peak.totals[Kind::Rss].bytes()), 110);
    assert_eq!(peak.holders.len(), 2);
}

#[test]
fn a_kill_among_strangers_is_elsewhere() {
    let mut script = run("oom_kill");
    let mut strangers: Vec<_> = Vec::new();
    for record in &mut script.rows.0 {
        if let Record::Oom(row) = record {
            row.victim_upid = None;
            row.trigger_upid = None;
            strangers.push(*row.clone());
        }
    }
    for mut row in strangers {
        row.memcg = Some("/other".to_owned());
        script.rows.0.push(row.into());
    }
    let ooms = script.analyzed(None).ooms;
    let elsewhere: Vec<bool> = ooms.iter().map(|kill| kill.is_elsewhere).collect();
    assert_eq!(elsewhere, [false, true]);
}

#[test]
fn rows_of_one_time_belong_together() {
    let mut script = Script::command(&["a"], 10.0);
    script.process(1, None, 0.0, "a");
    script.process(2, Some(1), 0.0, "b");
    script.mem(1, 1.0, [100.0, 0.0, 0.0]);
    script.mem(2, 1.0, [10.0, 0.0, 0.0]);
    // In between the two rows of this snapshot, the sum would be 200 MiB.
    script.mem(2, 2.0, [100.0, 0.0, 0.0]);
    script.mem(1, 2.0, [5.0, 0.0, 0.0]);
    let peak = script.analyzed(None).peak.expect("a peak");
    assert_eq!(mib(peak.totals[Kind::Rss].bytes()), 110);
}

#[test]
fn a_local_maximum_that_arrives_late_stands_at_its_own_time() {
    let mut script = Script::command(&["a"], 10.0);
    script.process(1, None, 0.0, "a");
    script.mem(1, 1.0, [10.0, 0.0, 0.0]);
    script.mem(1, 3.0, [12.0, 0.0, 0.0]);
    script.mem(1, 2.0, [500.0, 0.0, 0.0]);
    let analysis = script.analyzed(Some("+2.5s"));
    assert_eq!(
        mib(analysis.peak.expect("a peak").totals[Kind::Rss].bytes()),
        500
    );
    assert_eq!(
        mib(analysis.at.expect("a state").totals[Kind::Rss].bytes()),
        500
    );
}

#[test]
fn a_process_holds_nothing_after_its_end_even_without_a_last_row() {
    let mut script = Script::command(&["a"], 10.0);
    script.process(1, None, 0.0, "a");
    script.process(2, Some(1), 0.0, "b");
    script.mem(2, 1.0, [300.0, 0.0, 0.0]);
    let end = boot(2.0);
    script.edit(2, |process| process.exit_boot_ns = Some(end));
    script.mem(1, 3.0, [200.0, 0.0, 0.0]);
    script.mem(2, 4.0, [300.0, 0.0, 0.0]);
    let analysis = script.analyzed(Some("+5s"));
    assert_eq!(
        mib(analysis.peak.expect("a peak").totals[Kind::Rss].bytes()),
        300
    );
    assert_eq!(
        mib(analysis.at.expect("a state").totals[Kind::Rss].bytes()),
        200
    );
}

#[test]
fn which_of_the_two_it_is_shows_at_once() {
    let analysis = run("trainer_with_vllm").analyzed(None);
    let [tree] = analysis.trees.as_slice() else {
        panic!("one tree, not {}", analysis.trees.len());
    };
    assert_eq!(mib(tree.root_at_peak_bytes), 2_150);
    assert_eq!(mib(tree.descendants_at_peak_bytes), 12_325);
    assert_eq!(tree.descendant_count, 17);
}

#[test]
fn the_worker_that_leaks_is_distinguished_from_the_one_that_does_not() {
    let analysis = run("trainer_with_vllm").analyzed(None);
    let growth = |tgid| process(&analysis, tgid).growth.as_ref();
    let verdict = |tgid| growth(tgid).map(|growth| growth.verdict);
    assert_eq!(verdict(22924), Some(Verdict::Growing));
    assert_eq!(verdict(22925), Some(Verdict::NoTrend));
    assert_eq!(verdict(22837), Some(Verdict::NoTrend));
    assert_eq!(verdict(23000), None);
}

#[test]
fn an_oom_kill_names_who_held_the_memory_and_not_only_the_victim() {
    let report = run("oom_kill").reported(None, None);
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["endings"]["oom_killed_count"], 1);
    let analysis = report.analysis;
    let [kill] = analysis.ooms.as_slice() else {
        panic!("one kill, not {}", analysis.ooms.len());
    };
    let held = kill.holders.as_ref().expect("the state at the kill");
    let groups = held.groups(&analysis.processes);
    assert_eq!(groups[0].who.who.name.as_deref(), Some("pt_data_worker"));
    assert_eq!(groups[0].who.process_count, 16);
    let ending = process(&analysis, 510).ending;
    assert_eq!(ending.by_oom_killer(), Some(true));
}

#[test]
fn memory_without_a_process_row_still_counts() {
    let analysis = run("cut_off").analyzed(None);
    assert_eq!(analysis.processes.len(), 2);
    let peak = analysis.peak.as_ref().expect("a peak");
    assert_eq!(mib(peak.totals[Kind::Rss].bytes()), 773);
    assert_eq!(peak.totals[Kind::Anon].unknown_count(), 1);
    assert_eq!(analysis.clock.duration().as_secs_f64(), 41.0);
}

#[test]
fn what_could_not_be_read_is_unknown_and_not_zero() {
    let analysis = run("polled").analyzed(Some("+35s"));
    let state = analysis.at.as_ref().expect("a state");
    assert_eq!(state.totals[Kind::Rss].unknown_count(), 1);
    let helper = process(&analysis, 3051);
    assert_eq!(helper.peak.rss_bytes, None);
    assert_eq!(helper.ending, Ending::Unknown);
    assert_eq!(process(&analysis, 3050).peak.bound, Bound::AtLeast);
}

#[test]
fn an_instant_outside_of_the_recording_is_an_error() {
    let (info, rows, _) = run("oom_kill").recorded();
    let at = Some("+1h".parse().expect("a moment"));
    let outcome = analyze(
        &info,
        &rows,
        Options {
            at,
            ..Options::default()
        },
    );
    assert!(matches!(outcome, Err(AnalyzeError::Moment(_))));
}

/// Rows that count how often each table is read.
struct Counted<'a>(&'a Rows, RefCell<BTreeMap<&'static str, usize>>);

impl RowSource for Counted<'_> {
    type Error = Infallible;

    fn scan<R: Row>(&self, columns: &[&str], each: impl FnMut(R)) -> Result<(), Infallible> {
        *self.1.borrow_mut().entry(R::TABLE.name).or_default() += 1;
        self.0.scan(columns, each)
    }
}

/// Tables that a report reads more often than once.
const READ_AGAIN: &[(&str, usize)] = &[
    ("cgroup_mem", 5),
    ("cuda_memory", 2),
    ("gpu_device", 3),
    ("gpu_process", 2),
    ("growth_site", 3),
    // For a phase that nobody ended.
    ("mem", 2),
    ("node_mem", 4),
    ("oom", 2),
    ("pss", 2),
    ("self_cost", 3),
    ("shm_object", 3),
    ("stack", 3),
    ("survivor", 2),
    ("title", 2),
];

#[test]
fn a_report_reads_no_table_more_often_than_is_known() {
    let mut most: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, script, at) in RUNS.iter().copied() {
        let (info, rows, _) = script().recorded();
        let counted = Counted(&rows, RefCell::default());
        let at = at.map(|at| at.parse().expect("a moment"));
        let options = Options {
            at,
            ..Options::default()
        };
        analyze(&info, &counted, options).expect("a run that can be analysed");
        for (table, count) in counted.1.into_inner() {
            let highest = most.entry(table).or_default();
            *highest = count.max(*highest);
        }
    }
    most.retain(|_, count| *count > 1);
    assert_eq!(most.into_iter().collect::<Vec<_>>(), READ_AGAIN);
}

#[test]
fn memory_is_read_once_more_for_the_end_that_all_ask_for() {
    let (info, rows, _) = crate::golden::vllm_start_up().recorded();
    let counted = Counted(&rows, RefCell::default());
    let last = Moment::of_last("30s").expect("a length");
    let options = Options {
        from: Some(last),
        ..Options::default()
    };
    analyze(&info, &counted, options).expect("a run that can be analysed");
    assert_eq!(counted.1.borrow()["mem"], 2);
}

#[test]
fn report_and_export_find_the_same_highest_rss() {
    for (name, script, _) in RUNS {
        let (info, rows, _) = script().recorded();
        let options = SampleOptions {
            interval: DurationNs(1_000_000_000),
            top: 0,
            last_boot_ns: None,
        };
        let (_, summary) = sample(&info, &rows, options, |_, _| true).expect("samples");
        let exported = summary.total.map(|peak| (peak.bytes, peak.boot_ns));
        let exported = exported.filter(|(bytes, _)| bytes.0 > 0);
        let text = script()
            .analyzed(None)
            .rss_peak
            .map(|(bytes, at)| (bytes, at.boot_ns));
        assert_eq!(exported, text, "{name}");
    }
}

/// The same by looking at every process at every instant.
#[derive(Debug, PartialEq)]
struct Naive {
    peak: (i64, i64),
    held: Vec<(i64, i64)>,
    descendants: i64,
}

const ROOT: u32 = 1;

fn naive(rows: &[(u32, i64, i64)], ends: &[Option<i64>]) -> Naive {
    let held_at = |tgid: u32, time: i64| {
        let is_over = ends[tgid as usize - 1].is_some_and(|end| end <= time);
        let rows = rows.iter().enumerate();
        let last = rows
            .filter(|(_, row)| row.0 == tgid && row.1 <= time)
            .max_by_key(|(place, row)| (row.1, *place));
        last.filter(|_| !is_over).map_or(0, |(_, row)| row.2)
    };
    let tgids = || 1..=ends.len() as u32;
    let mut times: Vec<i64> = rows.iter().map(|row| row.1).collect();
    times.sort_unstable();
    let sum = |time: i64| tgids().map(|tgid| held_at(tgid, time)).sum::<i64>();
    let below = |time: i64| sum(time) - held_at(ROOT, time);
    // The first of several equal instants.
    let best = times.iter().rev().max_by_key(|&&time| sum(time));
    let peak_time = best.copied().unwrap_or(0);
    let held = tgids().map(|tgid| (i64::from(tgid), held_at(tgid, peak_time)));
    let mut held: Vec<(i64, i64)> = held.filter(|&(_, bytes)| bytes > 0).collect();
    held.sort_by_key(|&(tgid, bytes)| (std::cmp::Reverse(bytes), tgid));
    Naive {
        peak: (peak_time, sum(peak_time)),
        held,
        descendants: times.iter().map(|&time| below(time)).max().unwrap_or(0),
    }
}

proptest! {
    #[test]
    fn one_pass_finds_what_looking_at_every_instant_finds(
        rows in prop::collection::vec((1..6_u32, 1..60_i64, 1..1_000_i64), 1..120),
        ends in prop::collection::vec(prop::option::of(5..80_i64), 5),
    ) {
        let mut script = Script::command(&["a"], 0.0);
        script.info.clocks.clear();
        for tgid in 1..=5_u32 {
            script.process(tgid, (tgid > ROOT).then_some(ROOT), 0.0, "a");
            let end = ends[tgid as usize - 1].map(BootNs);
            script.edit(tgid, |process| {
                process.start_boot_ns = BootNs(0);
                process.first_seen_boot_ns = BootNs(0);
                // Nobody is a copy.
                process.first_seen_by = Some(FirstSeenBy::Command);
                process.exit_boot_ns = end;
            });
        }
        for &(tgid, time, bytes) in &rows {
            let row = mem_row(upid(Tgid(tgid)).0, time, Some(bytes));
            script.rows.0.push(row.into());
        }
        let expected = naive(&rows, &ends);
        let analysis = script.analyzed(None);
        let tgid = |place: usize| analysis.processes[place].tgid.map_or(0, |tgid| i64::from(tgid.0));
        match &analysis.peak {
            None => prop_assert_eq!(expected.peak.1, 0),
            Some(peak) => {
                let held = peak.holders.iter().filter_map(|holder| {
                    Some((tgid(holder.process), holder.amounts.rss()?.0))
                });
                let found = Naive {
                    peak: (peak.at.boot_ns.0, peak.totals[Kind::Rss].bytes().map_or(0, |bytes| bytes.0)),
                    held: held.collect(),
                    descendants: analysis.trees[0].descendants_peak_bytes.map_or(0, |bytes| bytes.0),
                };
                prop_assert_eq!(found, expected);
            }
        }
    }
}
